//! Secrets: what proves who somebody is is found nowhere afterwards.
//!
//! A server in a process of its own, with its own Postgres, meets a JWT and an API token in every route, rightly and
//! wrongly, and in every body the JWT of somebody else. Then everything that is left is searched: tables, files, write-ahead log, logs, answers, what commands say.

mod drive;
mod search;

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    process::{Child, ChildStdout, Command},
};

use self::search::{Needles, Tally};
use crate::support::{
    api::Api,
    patiently,
    process::{program, run},
    telegram::{BOT_TOKEN, WEBHOOK_SECRET},
    threads::{checkpoint_of, state_with, value},
};

const NATS_PASSWORD: &str = "sentinel-nats-password-83be0c51d29f";
const REPLICA_PASSWORD: &str = "sentinel-replica-password-5d0a77f3e914";
const JWT_SECRET: &str = "sentinel-jwt-secret-4f1c90a2b7e85d63";
const PEPPER: &str = "sentinel-pepper-93be07d1c64a8f25";
const SUBJECT: &str = "sentinel-subject-7c1d52e09ab3";
const CLAIM: &str = "sentinel-claim-e83b6f40d917";
/// In the token of another user, which a service passes on in what it sends.
const PASSED_ON: &str = "sentinel-passed-on-1d9e0b74c3a2";
/// What is stored on purpose, so that the search is seen to find things.
const STORED: &str = "stored-sentinel-5a0c7e91f3d2";

/// A data directory and what runs on it.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn data_dir(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, words: &[&str]) -> Command {
        let data_dir = self.data_dir();
        let mut command = program(&[words, &["--data-dir", data_dir.to_str().unwrap()]].concat());
        command.env("RUNREEL_JWT_SECRET", JWT_SECRET).env("RUNREEL_PEPPER", PEPPER);
        command
    }

    /// Starts the server; everything it logs goes into a file.
    async fn serve(&self, format: &str) -> Server {
        let log = self.folder.path().join(format!("{format}.log"));
        let config = self.folder.path().join("runreel.toml");
        std::fs::write(&config, "[channels.web]\n[channels.telegram]\nowner_sub = \"bot\"\n").unwrap();
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0", "--auth", "jwt", "--log-format", format]);
        command.arg("--config").arg(&config);
        command.env("RUNREEL_TELEGRAM_BOT_TOKEN", BOT_TOKEN).env("RUNREEL_TELEGRAM_WEBHOOK_SECRET", WEBHOOK_SECRET);
        // Neither is there, which is logged.
        command.env("RUNREEL_LIVE", format!("nats://runreel:{NATS_PASSWORD}@127.0.0.1:9"));
        command.env("RUNREEL_REPLICA_URL", format!("postgres://runreel:{REPLICA_PASSWORD}@127.0.0.1:9/runreel"));
        command.env("RUNREEL_LOG", "trace").stderr(Stdio::from(std::fs::File::create(&log).unwrap()));
        let mut child = command.spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        patiently("the server's address", stdout.read_line(&mut line)).await.unwrap();
        Server { api: Api::new(line.trim().to_owned()), child, stdout, log }
    }

    async fn database(&self) -> PgConnection {
        let endpoint = runreel::postgres::running_endpoint(&self.data_dir()).expect("Postgres runs");
        let options = PgConnectOptions::new_without_pgpass()
            .socket(&endpoint.socket_dir)
            .port(endpoint.port)
            .username(&endpoint.user)
            .password(endpoint.password.expose())
            .database(&endpoint.database);
        PgConnection::connect_with(&options).await.unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let file = self.data_dir().join("postgres/postmaster.pid");
        let first = std::fs::read_to_string(file).ok().and_then(|text| text.lines().next()?.parse().ok());
        if let Some(pid) = first.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
        }
    }
}

struct Server {
    api: Api,
    child: Child,
    stdout: BufReader<ChildStdout>,
    log: PathBuf,
}

impl Server {
    /// Ends it and says what it printed and logged.
    async fn stop(mut self) -> (Vec<u8>, Vec<u8>) {
        let pid = rustix::process::Pid::from_raw(self.child.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut printed = Vec::new();
        patiently("the end of the output", self.stdout.read_to_end(&mut printed)).await.unwrap();
        let status = patiently("the shutdown", self.child.wait()).await.unwrap();
        assert_eq!(status.code(), Some(0));
        (printed, std::fs::read(&self.log).unwrap())
    }
}

/// A JWT that holds more than it needs.
fn jwt(subject: &str, claim: &str) -> String {
    let exp = runreel::clock::Clock::System.now().timestamp() + 3_600;
    let claims = json!({ "sub": subject, "exp": exp, "name": claim });
    runreel::auth::signatures::install();
    encode(&Header::default(), &claims, &EncodingKey::from_secret(JWT_SECRET.as_bytes())).unwrap()
}

/// Everything that must not be found, in every spelling.
fn secrets(jwt: &str, token: &str, forwarded: &str) -> Needles {
    let mut needles = Needles::default();
    let parts: Vec<&str> = jwt.split('.').collect();
    let bare = token.strip_prefix("rr_").expect("an API token begins with rr_");
    for (what, secret) in [
        ("the JWT", jwt),
        ("the JWT's payload", parts[1]),
        ("the JWT's signature", parts[2]),
        ("the API token", token),
        ("the API token's digits", bare),
        ("the subject", SUBJECT),
        ("a claim", CLAIM),
        ("the JWT secret", JWT_SECRET),
        ("the pepper", PEPPER),
        ("the password of NATS", NATS_PASSWORD),
        ("the password of the replica", REPLICA_PASSWORD),
    ] {
        needles.add(what, secret.as_bytes());
    }
    for (what, part) in ["the header", "the payload", "the signature"].iter().zip(forwarded.split('.')).skip(1) {
        needles.add(&format!("{what} of a JWT that was passed on"), part.as_bytes());
    }
    needles.add("a claim that was passed on", PASSED_ON.as_bytes());
    needles.add("the API token's bytes", &hex::decode(bare).unwrap());
    needles
}

/// What the commands print, with the secrets in their environment.
async fn commands(place: &Place, server: &Server, token: &str, ended: &str) -> Vec<u8> {
    let all = [
        &["config"][..],
        &["doctor"],
        &["doctor", "--json"],
        &["token", "list", "--sub", SUBJECT],
        &["runs"],
        &["tail", ended],
        &["emit", "--title", "by hand"],
    ];
    let each = all.map(async |words| {
        let mut command = if matches!(words[0], "runs" | "tail" | "emit") {
            let mut command = program(words);
            command.env("RUNREEL_JWT_SECRET", JWT_SECRET);
            command
        } else {
            place.command(words)
        };
        command.env("RUNREEL_TOKEN", token).env("RUNREEL_URL", &server.api.base).env("RUNREEL_LOG", "trace");
        let output = run(command, "{\"type\":\"log.info\"}\n").await;
        assert!(!output.stdout.is_empty() || !output.stderr.is_empty(), "{words:?} said nothing");
        format!("{}\n{}\n", output.stdout, output.stderr)
    });
    // Side by side: each doctor waits for a sign of life of a stream.
    let said = futures::future::join_all(each).await.concat().into_bytes();
    assert!(said.len() > 1_000, "{}", String::from_utf8_lossy(&said));
    said
}

/// What other users of the machine could see of a process.
fn environment(pid: i32) -> Vec<u8> {
    let read = |what: &str| std::fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
    [read("cmdline"), read("environ")].concat()
}

fn postmaster(data_dir: &Path) -> i32 {
    let text = std::fs::read_to_string(data_dir.join("postgres/postmaster.pid")).unwrap();
    text.lines().next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn no_credential_is_found_anywhere_after_it_was_sent_everywhere() {
    let place = Place { folder: tempfile::tempdir().unwrap() };
    let server = place.serve("text").await;
    let (jwt, forwarded) = (jwt(SUBJECT, CLAIM), jwt("another user", PASSED_ON));
    let made =
        run(place.command(&["token", "create", "--name", "sentinel", "--scope", "admin", "--sub", SUBJECT]), "").await;
    let token = made.stdout.trim().to_owned();
    assert_eq!((made.code, token.len()), (Some(0), 67), "{}", made.stderr);
    let needles = secrets(&jwt, &token, &forwarded);
    let mut tally = Tally::default();

    let alice = server.api.with(jwt.clone());
    let (control, ended) = plant(&alice).await;
    let routes = drive::everything(&alice, (&jwt, &forwarded), &mut tally, &needles).await;
    tally.answers("what commands say", &commands(&place, &server, &token, &ended).await, &needles);
    let (printed, log) = server.stop().await;
    tally.answers("stdout", &printed, &needles);
    tally.log("text", &log, &needles);

    let server = place.serve("json").await;
    let again = drive::everything(&server.api.with(token.clone()), (&token, &forwarded), &mut tally, &needles).await;
    assert_eq!(routes, again, "both credentials met the same routes");
    let pid = server.child.id().unwrap().cast_signed();
    tally.answers("the postmaster's environment", &environment(postmaster(&place.data_dir())), &needles);
    tally.answers("the server's words", &std::fs::read(format!("/proc/{pid}/cmdline")).unwrap(), &needles);
    let found = search::database(&mut place.database().await, &needles, &control, &mut tally).await;
    let (printed, log) = server.stop().await;
    tally.answers("stdout", &printed, &needles);
    tally.log("json", &log, &needles);
    let on_disk = search::files(&place.data_dir(), &needles, &control, &mut tally);

    eprintln!("searched for {} spellings: {tally:?}; {routes} routes", needles.len());
    assert!(tally.is_wide(), "a place was not searched: {tally:?}");
    for (what, count) in [("in columns", found.raw), ("in hexadecimal", found.hex), ("in files", on_disk.raw)] {
        assert!(count > 0, "what was stored on purpose was not found {what}: {found:?} {on_disk:?}");
    }
    assert!(tally.leaks.is_empty(), "{:#?}", tally.leaks);
}

/// Stores a word that is no secret where secrets must not come, and sees that answers show it.
async fn plant(api: &Api) -> (Needles, String) {
    let mut control = Needles::default();
    control.add("what was stored", STORED.as_bytes());
    let run = api.create(json!({ "title": STORED })).await;
    let said = json!({ "type": "log.info", "payload": { "said": STORED } });
    api.emit(&run, json!([said, { "type": "run.completed" }])).await;
    let bytes = [b"x", STORED.as_bytes()].concat();
    api.put_checkpoint("control", "1", state_with("", json!({ "checkpoint": value(&bytes) }))).await;
    let (log, kept) = (api.events(&run).await.concat(), api.get(&checkpoint_of("control", "1")).await.text);
    assert_eq!(control.found(log.as_bytes()), ["what was stored, as it is"]);
    assert_eq!(control.found(kept.as_bytes()), ["what was stored, in base64 after 1 bytes"]);
    (control, run)
}

#[test]
fn the_search_finds_a_secret_in_each_of_its_spellings() {
    use base64::{
        Engine as _,
        engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
    };
    let mut needles = Needles::default();
    let secret = b"eyJhbGciOi.secret>>??~~-_";
    needles.add("it", secret);
    for before in 0..7 {
        for after in 0..4 {
            let held = [&b"prefix."[..before], secret, &b"tail"[..after]].concat();
            for text in
                [STANDARD.encode(&held), URL_SAFE_NO_PAD.encode(&held), hex::encode(&held), hex::encode_upper(&held)]
            {
                assert_eq!(needles.found(format!("..{text}..").as_bytes()).len(), 1, "{before} {after} {text}");
            }
            assert_eq!(needles.found(&held), ["it, as it is"]);
        }
    }
    assert!(needles.found(&secret[..secret.len() - 1]).is_empty());
    assert!(needles.found(b"").is_empty());
}
