//! The commands, as a person or a script calls them.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{
    process::{Said, program, run},
    proxy::Proxy,
    runs::{assert_contiguous, new_run_id, numbered, parsed},
    server::{JWT_SECRET, Server, setup},
    until,
};

/// A command that talks to this server.
fn to(server: &Server, words: &[&str]) -> Command {
    let mut command = program(words);
    command.env("RUNREEL_URL", &server.base);
    command
}

/// Runs a command and expects this exit code.
#[track_caller]
fn check(said: &Said, code: i32) {
    assert_eq!(said.code, Some(code), "stdout: {}\nstderr: {}", said.stdout, said.stderr);
}

#[tokio::test]
async fn emit_stores_what_stdin_holds_and_tail_prints_it_to_the_letter() {
    let server = Server::start().await;
    let input = "{\"type\":\"log.info\",\"payload\":{\"z\":1.50,\"a\":\"é\"}}\n\n{\"type\":\"custom.x\"}\n{\"type\":\"log.warn\"}";
    let said =
        run(to(&server, &["emit", "--title", "From a pipe", "--agent", "sh", "--end", "completed", "--json"]), input)
            .await;
    check(&said, 0);
    let list = server.get("/api/runs").await.expect(200);
    let head = &list["runs"][0];
    assert_eq!(
        (&head["title"], &head["status"], &head["last_seq"]),
        (&json!("From a pipe"), &json!("completed"), &json!(6))
    );
    let id = head["run_id"].as_str().unwrap();
    assert!(said.stderr.contains(id), "{}", said.stderr);
    assert!(said.stdout.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{}", said.stdout);
    let tail = run(to(&server, &["tail", id, "--json"]), "").await;
    check(&tail, 0);
    let lines: Vec<&str> = tail.stdout.lines().collect();
    assert_eq!(lines, server.events(id).await);
    assert!(lines[2].contains(r#""payload":{"z":1.50,"a":"é"}"#));
    let human = run(to(&server, &["tail"]), "").await;
    check(&human, 0);
    assert!(human.stdout.contains("custom.x") && !human.stdout.contains('\u{1b}'), "{}", human.stdout);
}

#[tokio::test]
async fn emit_refuses_a_bad_line_and_says_which() {
    let server = Server::start().await;
    let target = server.start_run().await;
    let input = "{\"type\":\"log.info\"}\nnot json\n{\"type\":\"log.warn\"}\n";
    let said = run(to(&server, &["emit", &target]), input).await;
    check(&said, 1);
    assert!(said.stderr.contains("line 2"), "{}", said.stderr);
    assert_contiguous(&server.events(&target).await, 3);
    let said = run(to(&server, &["emit", &target, "--keep-going"]), input).await;
    check(&said, 1);
    assert_contiguous(&server.events(&target).await, 5);
    server.complete(&target).await;
    check(&run(to(&server, &["emit", &target, "--type", "log.info"]), "").await, 1);
}

#[tokio::test]
async fn tail_goes_on_through_a_connection_that_keeps_breaking() {
    let server = Server::start().await;
    let proxy = Proxy::to_http(&server.base).await;
    let target = server.start_run().await;
    let mut command = program(&["tail", &target, "--json", "--exit-status"]);
    command.env("RUNREEL_URL", proxy.base());
    let tail = tokio::spawn(async move { run(command, "").await });
    for round in 0..3 {
        until("the reader to be there", || async { server.inner.timeline.bus().topics_count() == 1 }).await;
        server.emit_many(&target, round * 100, 100).await;
        proxy.drop_all();
        server.emit_many(&target, round * 100 + 1_000, 100).await;
        until("the reader to have gone", || async { server.inner.timeline.bus().topics_count() == 0 || round == 2 })
            .await;
    }
    server.emit(&target, json!({ "type": "run.failed", "payload": { "error": "x" } })).await;
    let said = tail.await.unwrap();
    check(&said, 1);
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_contiguous(&lines, 603);
    assert!(said.stderr.contains("connection lost"), "{}", said.stderr);
}

#[tokio::test]
async fn the_exit_code_says_what_happened() {
    let server = setup().jwt().start().await;
    let absent = new_run_id();
    let cases: [(&[&str], i32); 6] = [
        (&["tail", "not-a-run"], 2),
        (&["tail", "--token", "x"], 2),
        (&["no-such-command"], 2),
        (&["tail", &absent], 5),
        (&["runs"], 5),
        (&["emit", &absent, "--type", "log.info"], 5),
    ];
    for (words, code) in cases {
        check(&run(to(&server, words), "").await, code);
    }
    let token =
        server.api_token("alice", &[runreel::domain::principal::Scope::Admin], None, None).await.0.token.unwrap();
    for (words, code) in [(["tail", absent.as_str()], 4), (["runs", "--limit=5"], 0)] {
        let mut command = to(&server, &words);
        command.env("RUNREEL_TOKEN", &token);
        let said = run(command, "").await;
        check(&said, code);
        assert!(!said.stderr.contains(&token) && !said.stdout.contains(&token));
    }
    let mut nobody = program(&["tail", &absent]);
    nobody.env("RUNREEL_URL", "http://127.0.0.1:9");
    check(&run(nobody, "").await, 3);
}

#[tokio::test]
async fn a_person_sees_what_a_run_waits_for_and_answers() {
    let server = Server::start().await;
    let run_id = server.start_run().await;
    let ask = |id: &str| json!({ "type": "interrupt.requested", "span_id": id, "payload": { "prompt": "Ship it?" } });
    server.emit(&run_id, json!([ask("a"), ask("b"), { "type": "run.interrupted" }])).await;
    let said = run(to(&server, &["runs", "answer", &run_id]), "").await;
    assert_eq!(said.stdout, "a  Ship it?\nb  Ship it?\n");
    check(&run(to(&server, &["runs", "answer", &run_id, "approve"]), "").await, 2);
    let words = ["runs", "answer", &run_id, "respond", "Thursday", "--interrupt", "a"];
    check(&run(to(&server, &words), "").await, 0);
    check(&run(to(&server, &["runs", "answer", &run_id, "reject", "{\"why\":1}"]), "").await, 0);
    let page = server.get(&format!("/api/runs/{run_id}/events?types=interrupt.resolved")).await.expect(200);
    let given =
        |n: usize| (page["events"][n]["payload"]["decision"].clone(), page["events"][n]["payload"]["value"].clone());
    assert_eq!(given(0), (json!("respond"), json!("Thursday")));
    assert_eq!(given(1), (json!("reject"), json!({ "why": 1 })));
    check(&run(to(&server, &["runs", "answer", &run_id, "approve"]), "").await, 1);
}

#[tokio::test]
async fn sql_answers_from_the_log_and_refuses_to_write() {
    let server = Server::start().await;
    let target = server.ended_run(3).await;
    let sql = async |words: &[&str], stdin: &str| {
        let mut command = program(&[&["sql"], words].concat());
        command.env("DATABASE_URL", server.db.url());
        run(command, stdin).await
    };
    let query = "select type, count(*) as n from run_events group by 1 order by 2 desc, 1 limit 1";
    let said = sql(&["--format", "csv", query], "").await;
    check(&said, 0);
    assert_eq!(said.stdout, "type,n\r\ncustom.n,3\r\n");
    let said = sql(&["--format", "ndjson"], "select run_id, title, last_seq from runs").await;
    assert_eq!(
        serde_json::from_str::<Value>(&said.stdout).unwrap(),
        json!({ "run_id": target, "title": null, "last_seq": 6 })
    );
    let typed = "select true as yes, 1.50 as n, tags, metadata, 1 as n from runs";
    let said = sql(&["--format", "json", typed], "").await;
    assert_eq!(said.stdout, "[{\"yes\":true,\"n\":1.50,\"tags\":[],\"metadata\":{},\"n_2\":1}]\n");
    assert_eq!(sql(&["--format", "json", "select 1 where false"], "").await.stdout, "[]\n");
    assert_eq!(sql(&["--format", "csv", "select 1 as a where false"], "").await.stdout, "a\r\n");
    assert!(sql(&[], "-- why\nselect 1 as x").await.stdout.contains('1'));
    assert!(sql(&["select 'a' as x"], "").await.stdout.contains('a'));
    for bad in ["delete from runs", "select * from store.run", "select 1; select 2", "selec", "select * from nowhere"] {
        let said = sql(&[bad], "").await;
        check(&said, 1);
        assert!(said.stderr.starts_with("error: ") && said.stdout.is_empty(), "{bad}: {}", said.stderr);
    }
    check(&sql(&["--timeout", "1", "select pg_sleep(30)"], "").await, 1);
    check(&sql(&["--iss", "x", "select 1"], "").await, 2);
    let mut nowhere = program(&["sql", "select 1"]);
    nowhere.env("DATABASE_URL", "postgres://x:hunter2@127.0.0.1:9/x");
    let said = run(nowhere, "").await;
    check(&said, 3);
    assert!(!said.stderr.contains("hunter2"), "{}", said.stderr);
}

#[tokio::test]
async fn a_token_made_on_the_command_line_opens_what_it_says_until_it_is_revoked() {
    let server = setup().jwt().start().await;
    let target = server.as_subject("bob").start_run().await;
    let token = async |words: &[&str]| {
        let mut command = program(&[&["token"], words].concat());
        command.env("DATABASE_URL", server.db.url());
        run(command, "").await
    };
    let said =
        token(&["create", "--name", "look", "--scope", "read", "--sub", "bob", "--run", &target, "--expires", "1h"])
            .await;
    check(&said, 0);
    let secret = said.stdout.trim();
    assert!(secret.starts_with("rr_") && secret.len() == 67, "{secret}");
    let reader = server.with(secret);
    assert_eq!(reader.run(&target).await["run_id"], target.as_str());
    reader.try_emit(&target, numbered(1)).await.refused(403, "forbidden");
    let listed = token(&["list", "--sub", "bob"]).await;
    assert!(listed.stdout.contains("look") && !listed.stdout.contains(secret), "{}", listed.stdout);
    assert_eq!(token(&["list"]).await.stdout, "");
    let id = listed.stdout.split_whitespace().next().unwrap();
    check(&token(&["revoke", id]).await, 4);
    check(&token(&["revoke", id, "--sub", "bob"]).await, 0);
    reader.get(&format!("/api/runs/{target}")).await.refused(401, "unauthorized");
    for bad in [["--scope", "write"], ["--expires", "0s"], ["--expires", "1y"], ["--name", " "]] {
        let words = [&["create", "--name", "x", "--scope", "read"][..], &bad[..]].concat();
        check(&token(&words).await, 2);
    }
}

#[tokio::test]
async fn config_shows_every_value_and_no_secret() {
    let mut command = program(&["config", "--listen", "127.0.0.1:0", "--auth", "jwt"]);
    command.env("DATABASE_URL", "postgres://bob:hunter2@db/runs");
    command.env("RUNREEL_JWT_SECRET", std::str::from_utf8(JWT_SECRET).unwrap());
    let said = run(command, "").await;
    check(&said, 0);
    assert!(
        said.stdout.contains("postgres://bob:***@db/runs") && said.stdout.contains("127.0.0.1:0"),
        "{}",
        said.stdout
    );
    for secret in ["hunter2", std::str::from_utf8(JWT_SECRET).unwrap()] {
        assert!(!said.stdout.contains(secret) && !said.stderr.contains(secret));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("secret");
    std::fs::write(&file, [JWT_SECRET, b"\n"].concat()).unwrap();
    let mut command = program(&["config", "--auth", "jwt"]);
    command.env("RUNREEL_JWT_SECRET_FILE", &file);
    check(&run(command, "").await, 0);
    let mut short = program(&["config", "--auth", "jwt"]);
    short.env("RUNREEL_JWT_SECRET", "short");
    check(&run(short, "").await, 1);
    check(&run(program(&["config", "--listen", "0.0.0.0:1"]), "").await, 1);
}

#[tokio::test]
async fn doctor_checks_everything_and_names_the_remedy() {
    let server = Server::start().await;
    let mut command = to(&server, &["doctor", "--json"]);
    command.env("DATABASE_URL", server.db.url());
    let said = run(command, "").await;
    let checks: Vec<Value> = said.stdout.lines().map(|line| parsed(&line)).collect();
    let names: Vec<&str> = checks.iter().map(|check| check["check"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "configuration",
            "descriptors",
            "data directory",
            "postgres programs",
            "database",
            "confinement",
            "server",
            "resume",
            "bodies",
            "runners",
            "stream"
        ]
    );
    for check in checks.iter().filter(|check| check["check"] != "descriptors") {
        assert_eq!(check["state"], if check["check"] == "postgres programs" { "open" } else { "good" }, "{check}");
    }
    let mut command = program(&["doctor"]);
    command.env("DATABASE_URL", "postgres://x@127.0.0.1:9/x").env("RUNREEL_URL", "http://127.0.0.1:9");
    let said = run(command, "").await;
    check(&said, 1);
    assert!(said.stdout.contains("✗ database") && said.stdout.contains("→"), "{}", said.stdout);
}

#[tokio::test]
async fn openapi_and_completions_are_printed() {
    let said = run(program(&["openapi"]), "").await;
    check(&said, 0);
    assert_eq!(
        said.stdout,
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/snapshots/openapi.json")).unwrap()
    );
    for shell in ["bash", "zsh", "fish"] {
        let said = run(program(&["completions", shell]), "").await;
        check(&said, 0);
        assert!(said.stdout.contains("runreel") && said.stdout.contains("emit"), "{shell}");
    }
    let served = Server::start().await.get("/openapi.json").await.expect(200);
    assert_eq!(served, parsed(&said.stdout));
}
