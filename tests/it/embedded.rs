//! The program with its own database in a data directory: quick to start, and whole after any crash.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use serde_json::json;
use sqlx::Connection as _;
use tokio::{
    process::Command,
    sync::{Semaphore, SemaphorePermit},
};

use crate::support::{
    api::{Api, stream_of},
    patiently,
    process::{Served, program, run, serve},
    runs::{assert_contiguous, numbered},
    until,
};

fn on(data_dir: &Path) -> Command {
    program(&["serve", "--listen", "127.0.0.1:0", "--data-dir", data_dir.to_str().unwrap()])
}

/// Starts a server and measures how long it takes to be ready.
async fn start(data_dir: &Path) -> (Served, Api, Duration) {
    let began = Instant::now();
    let served = serve(on(data_dir)).await;
    let api = Api::new(served.base.clone());
    until("the server to be ready", || async { api.get("/readyz").await.status == 200 }).await;
    (served, api, began.elapsed())
}

/// Ends the server as a service manager would.
async fn stop(mut served: Served) {
    let pid = rustix::process::Pid::from_raw(served.child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    let status = patiently("the shutdown", served.child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(0), "a drained server exits with 0");
}

/// The postmaster of a data directory.
fn postmaster(data_dir: &Path) -> rustix::process::Pid {
    let text = std::fs::read_to_string(data_dir.join("postgres/postmaster.pid")).unwrap();
    rustix::process::Pid::from_raw(text.lines().next().unwrap().parse().unwrap()).unwrap()
}

/// One test at a time makes a cluster: that is work for the disk, and these tests measure it.
static TURN: Semaphore = Semaphore::const_new(1);

/// A data directory whose Postgres ends with the test.
struct DataDir {
    folder: tempfile::TempDir,
    _turn: SemaphorePermit<'static>,
}

impl DataDir {
    async fn new() -> Self {
        let turn = TURN.acquire().await.unwrap();
        Self { folder: tempfile::tempdir().unwrap(), _turn: turn }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        if self.path().join("postgres/postmaster.pid").exists() {
            let _ = rustix::process::kill_process(postmaster(self.path()), rustix::process::Signal::QUIT);
        }
    }
}

/// The child of this process whose command line has this word.
fn child_called(parent: rustix::process::Pid, word: &str) -> rustix::process::Pid {
    let children = format!("/proc/{pid}/task/{pid}/children", pid = parent.as_raw_nonzero());
    let children = std::fs::read_to_string(children).unwrap();
    let of_word =
        |pid: &&str| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.contains(word));
    let pid = children.split_whitespace().find(of_word).unwrap_or_else(|| panic!("no {word} among {children}"));
    rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap()
}

#[tokio::test]
async fn a_server_ends_within_ten_seconds_also_when_its_postgres_does_not_and_loses_nothing() {
    let data_dir = DataDir::new().await;
    let (served, api, _) = start(data_dir.path()).await;
    let run = api.ended_run(3).await;
    // Without the process that writes the last checkpoint Postgres would stop for ever.
    let checkpointer = child_called(postmaster(data_dir.path()), "checkpointer");
    rustix::process::kill_process(checkpointer, rustix::process::Signal::STOP).unwrap();
    let told = Instant::now();
    stop(served).await;
    let ended = told.elapsed();
    assert!(ended < Duration::from_secs(10), "the server ended after {ended:?}");
    let (served, api, _) = start(data_dir.path()).await;
    assert_contiguous(&api.events(&run).await, 6);
    stop(served).await;
}

#[tokio::test]
async fn a_server_starts_on_an_empty_directory_and_again_on_a_full_one() {
    let data_dir = DataDir::new().await;
    let (served, api, first) = start(data_dir.path()).await;
    let run = api.ended_run(10).await;
    stop(served).await;
    assert!(!data_dir.path().join("postgres/postmaster.pid").exists(), "the database stops with its server");
    let (served, api, second) = start(data_dir.path()).await;
    assert_contiguous(&api.events(&run).await, 13);
    stop(served).await;
    // The bars are 5 s and 1.5 s on a quiet machine. A figure is printed and never fails a test: this one may be busy.
    eprintln!("cold start: {first:?} the first time, {second:?} the second");
}

#[tokio::test]
async fn what_was_acknowledged_survives_the_death_of_the_server() {
    let data_dir = DataDir::new().await;
    let (mut served, api, _) = start(data_dir.path()).await;
    let run = api.start_run().await;
    let producer = async {
        let mut acknowledged = 2;
        while let Ok(response) = api
            .request(reqwest::Method::POST, &format!("/api/runs/{run}/events"))
            .json(&json!([numbered(1), numbered(2)]))
            .send()
            .await
        {
            let Ok(ack) = response.json::<serde_json::Value>().await else { break };
            acknowledged = ack["last_seq"].as_i64().unwrap();
        }
        acknowledged
    };
    let killer = async {
        until("some events", || async {
            api.get(&format!("/api/runs/{run}")).await.json()["last_seq"].as_i64() > Some(100)
        })
        .await;
        served.child.kill().await.unwrap();
    };
    let (acknowledged, ()) = tokio::join!(producer, killer);
    let (served, api, _) = start(data_dir.path()).await;
    let events = api.events(&run).await;
    assert!(events.len() as i64 >= acknowledged && events.len() % 2 == 0, "{} of {acknowledged}", events.len());
    assert_contiguous(&events, events.len() as i64);
    api.complete(&run).await;
    let replayed = api.stream(&stream_of(&run)).await.rest().await;
    assert_eq!(crate::support::sse::envelopes(&replayed).len(), events.len() + 1);
    stop(served).await;
}

#[tokio::test]
async fn a_cluster_that_let_everybody_in_gets_a_password_and_loses_nothing() {
    let data_dir = DataDir::new().await;
    let (mut served, api, _) = start(data_dir.path()).await;
    let run = api.ended_run(10).await;
    // As older versions left it, with its Postgres running.
    let rules = data_dir.path().join("postgres/pg_hba.conf");
    let database = runreel::database::Database::running(data_dir.path()).unwrap();
    std::fs::write(&rules, "local all all trust\n").unwrap();
    rustix::process::kill_process(postmaster(data_dir.path()), rustix::process::Signal::HUP).unwrap();
    let open = database.options.clone().password("");
    until("everybody to be let in", || async { sqlx::PgConnection::connect_with(&open).await.is_ok() }).await;
    served.child.kill().await.unwrap();
    std::fs::remove_file(data_dir.path().join("postgres.pass")).unwrap();
    let (served, api, _) = start(data_dir.path()).await;
    assert_contiguous(&api.events(&run).await, 13);
    for options in [open, database.options] {
        let refused = sqlx::PgConnection::connect_with(&options).await.unwrap_err();
        let code = refused.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        assert_eq!(code.as_deref(), Some("28P01"), "{refused}");
    }
    assert!(std::fs::read_to_string(&rules).unwrap().contains("scram-sha-256"));
    stop(served).await;
}

#[tokio::test]
async fn a_killed_postgres_comes_back_by_itself_with_everything_acknowledged() {
    let data_dir = DataDir::new().await;
    let (served, api, _) = start(data_dir.path()).await;
    let run = api.start_run().await;
    let mut reader = api.stream(&stream_of(&run)).await;
    api.emit_many(&run, 0, 100).await;
    let killed = postmaster(data_dir.path());
    rustix::process::kill_process(killed, rustix::process::Signal::KILL).unwrap();
    // Its children serve on for a moment, so that an emit may still succeed; the new one is what counts.
    let file = data_dir.path().join("postgres/postmaster.pid");
    until("another postmaster", || async {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        text.contains("ready") && !text.starts_with(&format!("{}\n", killed.as_raw_nonzero()))
    })
    .await;
    let event = json!({ "type": "log.info", "event_id": "after" });
    until("an emit to be stored again", || async {
        let reply = api.try_emit(&run, event.clone()).await;
        assert!(matches!(reply.status, 200 | 503), "{}", reply.text);
        reply.status == 200
    })
    .await;
    api.complete(&run).await;
    let frames = reader.rest().await;
    assert_contiguous(&crate::support::sse::envelopes(&frames), 104);
    assert_eq!(api.get("/readyz").await.status, 200);
    stop(served).await;
}

#[tokio::test]
async fn a_second_server_on_a_data_directory_says_so_and_leaves() {
    let data_dir = DataDir::new().await;
    let (served, api, _) = start(data_dir.path()).await;
    let said = run(on(data_dir.path()), "").await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    let pid = served.child.id().unwrap().to_string();
    assert!(said.stderr.contains(&pid) && said.stderr.contains("--data-dir"), "{}", said.stderr);
    let said = run(
        program(&[
            "sql",
            "--data-dir",
            data_dir.path().to_str().unwrap(),
            "--format",
            "csv",
            "select count(*) from runs",
        ]),
        "",
    )
    .await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "count\r\n0\r\n"), "{}", said.stderr);
    api.start_run().await;
    stop(served).await;
}

#[tokio::test]
async fn a_server_that_finds_no_postgres_or_no_port_says_what_to_do() {
    let data_dir = DataDir::new().await;
    let mut command = on(data_dir.path());
    command.args(["--pg-bin", "/nonexistent"]);
    let said = run(command, "").await;
    assert_eq!(said.code, Some(1));
    for word in ["/nonexistent", "apt-get install postgresql", "DATABASE_URL"] {
        assert!(said.stderr.contains(word), "{word}: {}", said.stderr);
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let holder = std::net::TcpListener::bind(taken).unwrap();
    let address = holder.local_addr().unwrap().to_string();
    let said =
        run(program(&["serve", "--listen", &address, "--data-dir", data_dir.path().to_str().unwrap()]), "").await;
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains(&address) && said.stderr.contains("--listen"), "{}", said.stderr);
    let mut command = program(&["serve", "--listen", "127.0.0.1:0"]);
    command.env("DATABASE_URL", "postgres://x:hunter2@127.0.0.1:9/x").env("RUNREEL_DATABASE_WAIT_MS", "0");
    let said = run(command, "").await;
    assert_eq!(said.code, Some(1));
    assert!(!said.stderr.contains("hunter2") && !said.stderr.is_empty(), "{}", said.stderr);
}

#[tokio::test]
async fn messages_and_answers_that_a_killed_server_had_under_way_go_on_at_once() {
    let data_dir = DataDir::new().await;
    let file = data_dir.path().join("runreel.toml");
    std::fs::write(&file, "[channels.web]\nagent = \"nobody\"\n").unwrap();
    let command = || {
        let mut command = on(data_dir.path());
        command.args(["--config", file.to_str().unwrap()]);
        command
    };
    let mut served = serve(command()).await;
    let api = Api::new(served.base.clone());
    let message = json!({ "chat_id": "5", "user_id": "5", "text": "hello" });
    let first = api.post("/api/channels/web/messages", message).await.expect(202);
    served.child.kill().await.unwrap();
    // As the kill leaves it in the middle of routing the message and of giving its answer.
    let database = runreel::database::Database::running(data_dir.path()).unwrap();
    let mut connection = sqlx::PgConnection::connect_with(&database.options).await.unwrap();
    let under_way = "update store.inbound set state = 'open', lease_until = now() + interval '29 s', content =
           '{\"inbound\":{\"message_id\":null,\"chat_id\":\"5\",\"user_id\":\"5\",\"username\":null,\"text\":\"hello\",
             \"is_private\":true,\"reset_session\":false,\"addressed\":false,\"image\":null,\"at\":\"2026-11-22T00:00:00Z\"},
             \"photo\":null,\"target\":null}';
         update store.reply set lease_until = now() + interval '29 s', attempts = 1";
    sqlx::raw_sql(under_way).execute(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    let served = serve(command()).await;
    let api = Api::new(served.base.clone());
    let run = first["run_id"].as_str().unwrap().to_owned();
    api.emit(&run, json!([{ "type": "run.started" }, { "type": "run.completed", "payload": { "output": "hi" } }]))
        .await;
    let path = format!("/api/sessions/{}/log.jsonl", first["session_id"].as_str().unwrap());
    // Both well within their leases, which this test does not outlast.
    until("the answer in the log", || async { api.get(&path).await.text.contains("\"hi\"") }).await;
    until("the message to be routed", || async {
        let open = sqlx::query_scalar::<_, i64>("select count(*) from store.inbound where state = 'open'");
        let database = runreel::database::Database::running(data_dir.path()).unwrap();
        let mut connection = sqlx::PgConnection::connect_with(&database.options).await.unwrap();
        open.fetch_one(&mut connection).await.unwrap() == 0
    })
    .await;
    stop(served).await;
}

#[tokio::test]
async fn a_question_that_is_interrupted_takes_the_postgres_it_started_along() {
    let data_dir = DataDir::new().await;
    let (served, ..) = start(data_dir.path()).await;
    stop(served).await;
    let ask = |text: &str| program(&["sql", "--data-dir", data_dir.path().to_str().unwrap(), "--format", "csv", text]);
    for (signal, code) in [(rustix::process::Signal::INT, 130), (rustix::process::Signal::TERM, 143)] {
        let mut asking = ask("select pg_sleep(60)").spawn().unwrap();
        until("the question to run", || async {
            let Some(database) = runreel::database::Database::running(data_dir.path()) else { return false };
            let Ok(mut connection) = sqlx::PgConnection::connect_with(&database.options).await else { return false };
            let asked =
                "select exists (select from pg_stat_activity where query ~ '^select pg_sleep' and state = 'active')";
            sqlx::query_scalar(asked).fetch_one(&mut connection).await.unwrap_or(false)
        })
        .await;
        let pid = rustix::process::Pid::from_raw(asking.id().unwrap().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        assert_eq!(patiently("the end", asking.wait()).await.unwrap().code(), Some(code));
        assert!(!data_dir.path().join("postgres/postmaster.pid").exists());
    }
    let said = run(ask("select count(*) from runs"), "").await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), "count\r\n0\r\n"), "{}", said.stderr);
    assert!(!data_dir.path().join("postgres/postmaster.pid").exists());
}

#[tokio::test]
async fn a_query_over_http_reads_the_database_as_a_login_that_can_do_nothing_else() {
    let data_dir = DataDir::new().await;
    let (served, api, _) = start(data_dir.path()).await;
    api.create(json!({ "title": "of local" })).await;
    for query in ["select title from runs", "select title from runs -- again"] {
        let answer = api.post("/api/sql", json!({ "query": query })).await.expect(200);
        assert_eq!(answer["rows"], json!([["of local"]]));
    }
    stop(served).await;
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_query_that_wants_more_memory_than_it_may_have_fails_alone() {
    let data_dir = DataDir::new().await;
    let (served, api, _) = start(data_dir.path()).await;
    let before = postmaster(data_dir.path());
    let long = "x".repeat(30_000);
    let greedy = format!("select replace(t, 'x', t), replace(t, 'x', t) from (values ('{long}')) as v (t)");
    let failed = api.post("/api/sql", json!({ "query": greedy })).await.refused(422, "query_failed");
    assert_eq!(failed["sqlstate"], "53200", "{failed}");
    assert_eq!(api.post("/api/sql", json!({ "query": "select 1" })).await.expect(200)["rows"], json!([[1]]));
    api.create(json!({})).await;
    assert_eq!(postmaster(data_dir.path()), before);
    let said = std::fs::read_to_string(data_dir.path().join("postgres.log")).unwrap();
    assert!(!said.contains("terminated by signal"), "{said}");
    stop(served).await;
}
