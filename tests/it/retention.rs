//! Retention: a thread that rests for its time to live goes, and no other.

use std::time::Duration;

use runreel::clock::Clock;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::support::{
    api::Api,
    cluster::Db,
    process::{program, run, serve},
    runs::{assert_contiguous, numbered},
    server::{Server, manual_clock, setup},
    threads::{blob, state, state_with, write},
};

/// The counters belong to the process, so one test at a time makes threads expire in it.
static TURN: Semaphore = Semaphore::const_new(1);

const STEP: Duration = Duration::from_micros(1);

async fn is_there(api: &Api, thread: &str) -> bool {
    let reply = api.get(&format!("/api/threads/{thread}")).await;
    assert!(matches!(reply.status, 200 | 404), "{}", reply.text);
    reply.status == 200
}

async fn sweep(server: &Server) {
    server.inner.threads.sweep().await.unwrap();
}

/// Rests for so long, and sees that the thread is there to the last microsecond and gone right after it.
async fn expires_after(server: &Server, thread: &str, rest: Duration) {
    server.pass(rest.saturating_sub(STEP));
    sweep(server).await;
    assert!(is_there(server, thread).await, "{thread} went before {rest:?}");
    server.pass(STEP * 2);
    sweep(server).await;
    assert!(!is_there(server, thread).await, "{thread} outlived {rest:?}");
}

async fn put(api: &Api, thread: &str, ttl_s: Value) {
    let reply = api.put(&format!("/api/threads/{thread}"), json!({ "ttl_s": ttl_s })).await;
    assert!(matches!(reply.status, 200 | 201), "{}", reply.text);
}

#[tokio::test]
async fn a_thread_goes_when_it_has_rested_for_its_time_and_not_a_moment_before() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).flags(&["--thread-ttl", "100"]).start().await;
    put(&server, "servers", json!(null)).await;
    expires_after(&server, "servers", Duration::from_secs(100)).await;
    for (own, seconds) in [(1, 1), (5, 5), (150, 150)] {
        put(&server, "own", json!(own)).await;
        expires_after(&server, "own", Duration::from_secs(seconds)).await;
    }
    put(&server, "changed", json!(5)).await;
    put(&server, "changed", json!(null)).await;
    expires_after(&server, "changed", Duration::from_secs(100)).await;
    put(&server, "never", json!(0)).await;
    put(&server, "longest", json!(315_360_000)).await;
    server.pass(Duration::from_hours(480));
    sweep(&server).await;
    assert!(is_there(&server, "never").await && is_there(&server, "longest").await);
}

#[tokio::test]
async fn without_a_time_to_live_nothing_goes() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).start().await;
    put(&server, "t", json!(null)).await;
    server.put_checkpoint("u", "1", state("x")).await;
    put(&server, "own", json!(1)).await;
    server.pass(Duration::from_hours(480));
    sweep(&server).await;
    assert!(is_there(&server, "t").await && is_there(&server, "u").await);
    assert!(!is_there(&server, "own").await, "its own still counts");
}

#[tokio::test]
async fn whatever_touches_a_thread_gives_it_its_time_anew() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).flags(&["--thread-ttl", "10s"]).start().await;
    let rest = Duration::from_secs(10);
    server.put_checkpoint("t", "1", state("x")).await;
    server.pass(rest.saturating_sub(STEP));
    server.put_checkpoint("t", "1", state("replaced")).await;
    server.pass(rest.saturating_sub(STEP));
    let run = server.create(json!({ "thread_id": "t" })).await;
    server.complete(&run).await;
    expires_after(&server, "t", rest).await;
    // The last event of a run, though it was the thread's last but one run.
    let first = server.create(json!({ "thread_id": "t" })).await;
    server.pass(Duration::from_secs(1));
    let second = server.create(json!({ "thread_id": "t" })).await;
    server.complete(&second).await;
    server.pass(Duration::from_secs(30));
    server.emit(&first, numbered(1)).await;
    server.pass(rest.saturating_sub(STEP));
    server.complete(&first).await;
    expires_after(&server, "t", rest).await;
    assert_contiguous(&server.events(&first).await, 4);
    // A run elsewhere is no touch.
    put(&server, "u", json!(null)).await;
    server.pass(rest.saturating_sub(STEP));
    let elsewhere = server.create(json!({ "thread_id": "v" })).await;
    server.complete(&elsewhere).await;
    server.pass(STEP * 2);
    sweep(&server).await;
    assert!(!is_there(&server, "u").await && is_there(&server, "v").await);
}

#[tokio::test]
async fn what_a_thread_says_of_its_end_is_when_it_ends() {
    let _turn = TURN.acquire().await.unwrap();
    let clock = manual_clock();
    let server = setup().clock(&clock).flags(&["--thread-ttl", "10"]).start().await;
    let told = async || {
        let thread = server.thread("t").await;
        let at = thread["expires_at"].as_str().expect("it says when").parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        (at - clock.now()).to_std().unwrap()
    };
    let run = server.create(json!({ "thread_id": "t" })).await;
    server.pass(Duration::from_secs(7));
    server.complete(&run).await;
    let rest = told().await;
    expires_after(&server, "t", rest).await;
    server.put_checkpoint("t", "1", state("x")).await;
    server.pass(Duration::from_secs(3));
    let rest = told().await;
    expires_after(&server, "t", rest).await;
}

#[tokio::test]
async fn an_event_of_another_time_prolongs_by_the_servers_clock() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).flags(&["--thread-ttl", "10"]).start().await;
    for at in ["1970-01-01T00:00:00Z", "9999-12-31T23:59:59Z"] {
        let run = server.create(json!({ "thread_id": "t" })).await;
        server.pass(Duration::from_secs(9));
        server.emit(&run, json!({ "type": "run.completed", "at": at })).await;
        expires_after(&server, "t", Duration::from_secs(10)).await;
    }
}

#[tokio::test]
async fn a_thread_with_a_run_that_has_not_ended_stays() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).flags(&["--thread-ttl", "1"]).start().await;
    let long = Duration::from_mins(10);
    for (status, events) in [
        ("queued", json!([])),
        ("running", json!([])),
        ("waiting", json!([{ "type": "run.waiting" }])),
        ("interrupted", json!([{ "type": "run.interrupted" }])),
    ] {
        let ended = server.create(json!({ "thread_id": status })).await;
        server.complete(&ended).await;
        let run = server.create(json!({ "thread_id": status, "start": status != "queued" })).await;
        if events != json!([]) {
            server.emit(&run, events).await;
        }
        assert_eq!(server.run(&run).await["status"], status);
        server.pass(long);
        sweep(&server).await;
        assert!(is_there(&server, status).await, "a {status} run protects its thread");
        server.post(&format!("/api/runs/{run}/cancel"), json!({})).await.expect(202);
        expires_after(&server, status, Duration::from_secs(1)).await;
    }
    // The run of somebody's thread of that name protects only his.
    let run = server.create(json!({ "thread_id": "mine" })).await;
    put(&server, "Mine", json!(null)).await;
    server.pass(long);
    sweep(&server).await;
    assert!(is_there(&server, "mine").await && !is_there(&server, "Mine").await);
    server.complete(&run).await;
}

#[tokio::test]
async fn one_owners_run_protects_nobody_elses_thread() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().jwt().clock(&manual_clock()).flags(&["--thread-ttl", "1"]).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    alice.create(json!({ "thread_id": "t" })).await;
    put(&bob, "t", json!(null)).await;
    server.pass(Duration::from_secs(2));
    sweep(&server).await;
    assert!(is_there(&alice, "t").await && !is_there(&bob, "t").await);
}

#[tokio::test]
async fn what_expires_goes_whole_and_its_runs_stay() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).flags(&["--thread-ttl", "1"]).start().await;
    let run = server.create(json!({ "thread_id": "t" })).await;
    server.complete(&run).await;
    let more = json!({ "versions": { "c": 1 }, "blobs": { "c": blob(1, b"v") } });
    server.put_checkpoint("t", "1", state_with("x", more)).await;
    server.put_writes("t", "2", json!({ "task_id": "a", "writes": [write(0, "c", b"w")] })).await;
    expires_after(&server, "t", Duration::from_secs(1)).await;
    let left = "select (select count(*) from store.thread) + (select count(*) from store.checkpoint)
        + (select count(*) from store.blob) + (select count(*) from store.pending_write)";
    assert_eq!(server.db.number(left).await, 0);
    assert_contiguous(&server.events(&run).await, 3);
    assert_eq!(server.get("/api/runs?thread_id=t").await.expect(200)["runs"].as_array().unwrap().len(), 1);
}

/// The value of a counter in the text of `/metrics`; one that has not counted yet is not there.
fn counted(metrics: &str, name: &str, reason: &str) -> u64 {
    let start = format!("{name}{{reason=\"{reason}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&start)).map_or(0, |number| number.parse().unwrap())
}

#[tokio::test]
async fn many_who_sweep_at_once_remove_each_thread_once_and_count_it_once() {
    let _turn = TURN.acquire().await.unwrap();
    let (db, clock) = (Db::new().await, manual_clock());
    let start = async |clock: &Clock| setup().on(&db).clock(clock).flags(&["--thread-ttl", "1"]).start().await;
    let (a, b) = (start(&clock).await, start(&clock).await);
    // More than one look takes.
    for n in 0..250 {
        a.put_checkpoint(&format!("t{n}"), "1", state("x")).await;
    }
    put(&a, "kept", json!(0)).await;
    let counts = async || {
        let metrics = a.get("/metrics").await.text;
        let of = |name: &str| counted(&metrics, name, "expired");
        (of("runreel_threads_removed_total"), of("runreel_checkpoints_removed_total"))
    };
    let before = counts().await;
    clock.advance(chrono::TimeDelta::seconds(2));
    let sweeps = (0..6).map(|n| if n % 2 == 0 { a.inner.threads.sweep() } else { b.inner.threads.sweep() });
    for swept in futures::future::join_all(sweeps).await {
        swept.unwrap();
    }
    // Whatever one left to another is gone with a last look.
    sweep(&a).await;
    let after = counts().await;
    assert_eq!((after.0 - before.0, after.1 - before.1), (250, 250));
    assert_eq!(a.db.number("select count(*) from store.thread").await, 1);
}

#[tokio::test]
async fn a_thread_that_is_used_while_it_is_swept_is_whole_or_gone() {
    let _turn = TURN.acquire().await.unwrap();
    let (db, clock) = (Db::new().await, manual_clock());
    let (a, b) = (setup().on(&db).clock(&clock).start().await, setup().on(&db).clock(&clock).start().await);
    for round in 0..10 {
        put(&a, "t", json!(1)).await;
        a.put_checkpoint("t", "0", state("old")).await;
        clock.advance(chrono::TimeDelta::seconds(2));
        let more = json!({ "versions": { "c": round }, "blobs": { "c": blob(round, b"v") } });
        let (swept, run, kept) = tokio::join!(
            a.inner.threads.sweep(),
            b.create(json!({ "thread_id": "t" })),
            b.put_checkpoint("t", "1", state_with("new", more)),
        );
        swept.unwrap();
        assert_eq!(kept["checkpoint_id"], "1");
        // The thread was in use at that moment, so it is there, with what came last.
        sweep(&a).await;
        assert_eq!(b.checkpoint("t", "1").await["blobs"], json!({ "c": blob(round, b"v") }));
        a.complete(&run).await;
        a.delete("/api/threads/t").await;
    }
}

#[tokio::test]
async fn a_server_counts_what_it_removed_by_reason() {
    let db = Db::new().await;
    let served = serve(program(&["serve", "--listen", "127.0.0.1:0", "--database-url", &db.url()])).await;
    let api = Api::new(served.base.clone());
    for thread in ["a", "b", "c", "d"] {
        for id in ["1", "2", "3"] {
            api.put_checkpoint(thread, id, state_with("x", json!({ "run_id": id }))).await;
        }
    }
    api.delete("/api/threads/a").await;
    api.delete("/api/threads/absent").await;
    let prune = async |threads: Value, strategy: &str| {
        let body = json!({ "thread_ids": threads, "strategy": strategy });
        api.post("/api/threads/prune", body).await.expect(200);
    };
    prune(json!(["b", "absent"]), "delete").await;
    prune(json!(["c"]), "keep_latest").await;
    api.post("/api/checkpoints/delete-for-runs", json!({ "run_ids": ["1", "3"] })).await.expect(200);
    let metrics = api.get("/metrics").await.text;
    let counts = |reason| {
        (
            counted(&metrics, "runreel_threads_removed_total", reason),
            counted(&metrics, "runreel_checkpoints_removed_total", reason),
        )
    };
    assert_eq!(counts("deleted"), (2, 6), "{metrics}");
    // Two by the prune of c, then its last one and two of d.
    assert_eq!(counts("pruned"), (0, 5), "{metrics}");
    assert_eq!(counts("expired"), (0, 0), "{metrics}");
}

#[tokio::test]
async fn a_time_to_live_that_is_none_does_not_start() {
    for bad in ["0", "-1", "1.5", "x", "", "10y1", "11y", "1ms", "99999999999999999999", "infinity"] {
        let said = run(program(&["serve", "--listen", "127.0.0.1:0", &format!("--thread-ttl={bad}")]), "").await;
        assert_eq!(said.code, Some(2), "{bad}: {}", said.stderr);
        assert!(said.stderr.contains("--thread-ttl"), "{bad}: {}", said.stderr);
    }
    for (good, seconds) in [("90", 90), ("90s", 90), ("2m", 120), ("3h", 10_800), ("30d", 2_592_000)] {
        let args = crate::support::server::serve_args(&["--thread-ttl", good]);
        assert_eq!(args.retention.thread_ttl.map(|ttl| ttl.0), Some(seconds), "{good}");
    }
}
