//! Removal of runs by age: what is due goes whole, and nothing else does.

mod months;

use std::time::Duration;

use runreel::clock::Clock;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::{
    api::{Api, stream_of},
    cluster::{Db, execute},
    process::{program, run},
    runs::{assert_contiguous, numbered},
    server::{Server, manual_clock, serve_args, setup},
    threads::state,
};

/// The counters belong to the process, so one test at a time removes runs in it.
static TURN: Semaphore = Semaphore::const_new(1);

const STEP: Duration = Duration::from_micros(1);
const DAY: Duration = Duration::from_hours(24);

async fn sweep(server: &Server) {
    let mut after = None;
    loop {
        after = server.inner.retention.sweep(after).await.unwrap();
        if after.is_none() {
            return;
        }
    }
}

async fn is_there(api: &Api, run: &str) -> bool {
    let reply = api.get(&format!("/api/runs/{run}")).await;
    assert!(matches!(reply.status, 200 | 404), "{}", reply.text);
    reply.status == 200
}

/// A run that was created with this request and has ended.
async fn ended(api: &Api, body: Value) -> String {
    let run = api.create(body).await;
    api.complete(&run).await;
    run
}

/// Lets this time pass, and sees that the run is there to the last microsecond and gone right after it.
async fn goes_after(server: &Server, run: &str, rest: Duration) {
    server.pass(rest.saturating_sub(STEP));
    sweep(server).await;
    assert!(is_there(server, run).await, "{run} went before {rest:?}");
    server.pass(STEP * 2);
    sweep(server).await;
    assert!(!is_there(server, run).await, "{run} outlived {rest:?}");
}

/// The lines of a run that can be imported.
async fn exported(api: &Api, run: &str) -> String {
    let export = api.get(&format!("/api/runs/{run}/export")).await.text;
    export.trim_end().rsplit_once('\n').expect("an export has a last line").0.to_owned()
}

async fn import(api: &Api, run: &str, lines: String) {
    let reply = api.post_text(&format!("/api/runs/{run}/import"), "application/x-ndjson", lines).await;
    assert_eq!(reply.status, 201, "{}", reply.text);
}

/// The value of a counter in the text of `/metrics`.
async fn counted(api: &Api, name: &str) -> u64 {
    let text = api.get("/metrics").await.text;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.map_or(0, |number| number.parse().unwrap())
}

#[tokio::test]
async fn a_run_goes_when_its_time_has_passed_since_its_end_and_not_a_moment_before() {
    let _turn = TURN.acquire().await.unwrap();
    let rules = "[[retention]]\nagent = \"audited\"\ntag = \"kept\"\nrun_ttl = \"never\"\n
        [[retention]]\nagent = \"audited\"\nrun_ttl = \"200\"\n[[retention]]\ntag = \"brief\"\nrun_ttl = \"10s\"\n";
    let server = setup().config(rules).clock(&manual_clock()).flags(&["--run-ttl", "100"]).start().await;
    let kept = ended(&server, json!({ "agent": "audited", "tags": ["brief", "kept"] })).await;
    let for_ever = ended(&server, json!({ "ttl_s": 0 })).await;
    for (request, seconds) in [
        (json!({}), 100),
        (json!({ "ttl_s": 1 }), 1),
        (json!({ "ttl_s": 150 }), 150),
        (json!({ "tags": ["other", "brief"] }), 10),
        (json!({ "agent": "audited", "tags": ["brief"] }), 200),
        (json!({ "agent": "audited", "tags": ["kept"], "ttl_s": 5 }), 5),
    ] {
        let run = server.create(request).await;
        // Its age counts from its end.
        server.pass(Duration::from_secs(1_000));
        sweep(&server).await;
        server.complete(&run).await;
        goes_after(&server, &run, Duration::from_secs(seconds)).await;
    }
    assert_contiguous(&server.events(&kept).await, 3);
    assert_contiguous(&server.events(&for_ever).await, 3);
}

#[tokio::test]
async fn without_a_time_to_live_only_runs_with_one_of_their_own_go() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).start().await;
    let (stays, goes) = (ended(&server, json!({})).await, ended(&server, json!({ "ttl_s": 60 })).await);
    server.pass(DAY * 400);
    sweep(&server).await;
    assert!(is_there(&server, &stays).await && !is_there(&server, &goes).await);
}

#[tokio::test]
async fn a_run_that_has_not_ended_is_never_touched_nor_is_its_tree() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).flags(&["--run-ttl", "1"]).start().await;
    let parent = server.start_run().await;
    let (live, over) = (server.child_of(&parent).await, server.child_of(&parent).await);
    server.complete(&over).await;
    server.complete(&parent).await;
    for status in ["queued", "running", "waiting", "interrupted"] {
        let run = server.create(json!({ "start": status != "queued" })).await;
        if let "waiting" | "interrupted" = status {
            server.emit(&run, json!({ "type": format!("run.{status}") })).await;
        }
        server.pass(DAY * 20);
        sweep(&server).await;
        assert_eq!(server.run(&run).await["status"], status);
    }
    for run in [&parent, &live, &over] {
        assert!(is_there(&server, run).await, "a run of the tree has not ended");
    }
    // It goes on as if nothing had been.
    server.emit(&live, numbered(1)).await;
    server.complete(&live).await;
    assert_contiguous(&server.events(&live).await, 4);
    goes_after(&server, &live, Duration::from_secs(1)).await;
    assert!(!is_there(&server, &parent).await && !is_there(&server, &over).await, "the tree goes as a whole");
}

#[tokio::test]
async fn a_tree_goes_by_the_time_of_its_root() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).flags(&["--run-ttl", "10"]).start().await;
    let root = server.create(json!({ "ttl_s": 50 })).await;
    let child = server.create(json!({ "parent_run_id": root, "ttl_s": 5 })).await;
    server.complete(&root).await;
    server.pass(Duration::from_secs(100));
    server.complete(&child).await;
    goes_after(&server, &root, Duration::from_secs(50)).await;
    assert!(!is_there(&server, &child).await);
    // What is left below a root that was deleted goes by its own.
    let root = server.create(json!({ "ttl_s": 50 })).await;
    let child = server.create(json!({ "parent_run_id": root, "ttl_s": 5 })).await;
    server.complete(&root).await;
    assert_eq!(server.delete(&format!("/api/runs/{root}")).await.status, 204);
    server.complete(&child).await;
    goes_after(&server, &child, Duration::from_secs(5)).await;
}

#[tokio::test]
async fn an_imported_run_is_as_old_as_its_import() {
    let _turn = TURN.acquire().await.unwrap();
    let clock = manual_clock();
    let from = setup().clock(&clock).start().await;
    let run = ended(&from, json!({ "title": "archived" })).await;
    let server = setup().clock(&clock).flags(&["--run-ttl", "10"]).start().await;
    server.pass(DAY);
    import(&server, &run, exported(&from, &run).await).await;
    goes_after(&server, &run, Duration::from_secs(10)).await;
}

#[tokio::test]
async fn a_reader_below_what_was_removed_gets_a_gap_and_what_is_left() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().jwt().clock(&manual_clock()).flags(&["--run-ttl", "10"]).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let others = ended(&bob, json!({ "ttl_s": 0 })).await;
    let mut feed = alice.stream("/api/stream/runs").await;
    let old = ended(&alice, json!({})).await;
    let seen = feed.durable(3).await;
    let first = seen[0].id.clone().expect("an event has an id");
    drop(feed);
    let live = alice.start_run().await;
    server.pass(Duration::from_secs(11));
    sweep(&server).await;
    assert!(!is_there(&alice, &old).await);
    alice.no_stream(&stream_of(&old), Some("1")).await.refused(404, "not_found");
    let mut feed = alice.stream_after("/api/stream/runs", Some(&first)).await;
    let gap = feed.next().await;
    assert_eq!(gap.event, "stream.gap", "{gap:?}");
    let rest = feed.durable(2).await;
    assert!(rest.iter().all(|frame| frame.data.contains(&live)), "{rest:?}");
    // The other principal's reader misses nothing, so it is told of nothing.
    let mut feed = bob.stream_after("/api/stream/runs", Some("p0")).await;
    assert_eq!(feed.durable(3).await.len(), 3);
    assert!(is_there(&bob, &others).await);
}

#[tokio::test]
async fn artifacts_and_the_runs_own_thread_go_with_it_and_a_thread_of_a_name_stays() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).flags(&["--run-ttl", "10"]).start().await;
    let run = server.create(json!({ "thread_id": "t" })).await;
    let path = format!("/api/runs/{run}/artifacts?name=a.txt");
    let artifact = server.post_text(&path, "text/plain", "bytes").await.expect(201);
    server.put_checkpoint("t", "1", state("x")).await;
    server.put_checkpoint(&format!("run:{run}"), "1", state("own")).await;
    server.complete(&run).await;
    goes_after(&server, &run, Duration::from_secs(10)).await;
    let artifact = format!("/api/artifacts/{}", artifact["artifact_id"].as_str().unwrap());
    server.get(&artifact).await.refused(404, "not_found");
    server.get(&format!("/api/threads/run:{run}")).await.refused(404, "not_found");
    assert_eq!(server.get("/api/threads/t").await.status, 200);
    assert_eq!(server.db.number("select count(*) from store.checkpoint").await, 1);
}

#[tokio::test]
async fn servers_that_sweep_at_once_remove_each_run_once_while_others_are_written() {
    let _turn = TURN.acquire().await.unwrap();
    let (db, clock) = (Db::new().await, manual_clock());
    let start = async |clock: &Clock| setup().on(&db).clock(clock).flags(&["--run-ttl", "1"]).start().await;
    let (a, b) = (start(&clock).await, start(&clock).await);
    for _ in 0..40 {
        a.ended_run(2).await;
    }
    let before = counted(&a, "runreel_retention_runs_removed_total").await;
    clock.advance(chrono::TimeDelta::days(40));
    let live = b.start_run().await;
    let sweeps = (0..6).map(|n| if n % 2 == 0 { sweep(&a) } else { sweep(&b) });
    tokio::join!(futures::future::join_all(sweeps), async {
        for n in 0..40 {
            b.emit(&live, numbered(n)).await;
        }
    });
    sweep(&a).await;
    assert_eq!(counted(&a, "runreel_retention_runs_removed_total").await - before, 40);
    assert_eq!(db.number("select count(*) from store.run").await, 1);
    assert_contiguous(&a.events(&live).await, 42);
}

#[tokio::test]
async fn a_dry_run_shows_what_is_due_and_removes_nothing() {
    let server = Server::start().await;
    let due = server.create(json!({ "agent": "reporter", "ttl_s": 1 })).await;
    let child = server.child_of(&due).await;
    server.complete(&child).await;
    server.complete(&due).await;
    let stays = ended(&server, json!({})).await;
    server
        .db
        .until_number(
            "a second after the end",
            "select count(*) from store.run where ended_at < now() - interval '1 s' and ttl_s = 1",
            1,
        )
        .await;
    let dry = async |more: &[&str]| {
        let url = server.db.url();
        let args = [&["retention", "--database-url", &url], more].concat();
        run(program(&args), "").await
    };
    let told = dry(&[]).await;
    assert_eq!(told.code, Some(0), "{}", told.stderr);
    assert!(told.stdout.contains(&due) && told.stdout.contains("reporter"), "{}", told.stdout);
    assert!(!told.stdout.contains(&stays), "{}", told.stdout);
    assert!(told.stderr.contains("due: trees of runs: 1, runs: 2, events: 6"), "{}", told.stderr);
    let all = dry(&["--run-ttl", "1", "--json"]).await;
    let lines: Vec<Value> = all.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 2, "{}", all.stdout);
    assert_eq!((&lines[0]["root_run_id"], &lines[0]["runs"]), (&json!(due), &json!(2)));
    assert!(is_there(&server, &due).await && is_there(&server, &stays).await);
}

#[tokio::test]
async fn a_time_to_live_that_is_none_is_refused_by_name() {
    let server = Server::start().await;
    for bad in [json!(-1), json!(315_360_001)] {
        let problem = server.post("/api/runs", json!({ "ttl_s": bad })).await.refused(400, "invalid_request");
        assert_eq!(problem["field"], "ttl_s");
    }
    let longest = server.create(json!({ "ttl_s": 315_360_000 })).await;
    assert_eq!(server.run(&longest).await["ttl_s"], 315_360_000);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runreel.toml");
    for (text, named) in [
        ("[[retention]]\nrun_ttl = \"1d\"\n", "--run-ttl"),
        ("[[retention]]\nagent = \"a\"\nrun_ttl = \"soon\"\n", "never"),
        ("[[retention]]\nagent = \"a\"\n", "run_ttl"),
        ("[[retention]]\ntag = \"\"\nrun_ttl = \"1d\"\n", "tag"),
        ("[[retention]]\ntag = \"t\"\nttl = \"1d\"\n", "ttl"),
    ] {
        std::fs::write(&file, text).unwrap();
        let told = run(program(&["config", "--config", file.to_str().unwrap()]), "").await;
        assert_ne!(told.code, Some(0), "{text}: {}", told.stdout);
        assert!(told.stderr.contains("retention") && told.stderr.contains(named), "{text}: {}", told.stderr);
    }
    for (good, seconds) in [("90", 90), ("30d", 2_592_000)] {
        assert_eq!(serve_args(&["--run-ttl", good]).retention.run_ttl.map(|ttl| ttl.0), Some(seconds));
    }
}
