//! A runner that was away: it comes back to its runs, in time or too late.

use super::*;
use crate::support::{cluster::Db, proxy::Proxy, shared::shared};

#[tokio::test]
async fn a_runner_that_comes_back_in_time_keeps_its_runs_and_sends_again_what_was_not_acknowledged() {
    let server = shared().await;
    let proxy = Proxy::to_http(&server.base).await;
    let mut through = server.api.clone();
    through.base = proxy.base();
    let mut runner = through.runner(&["a"], 4).await;
    let run = job(&server).await;
    runner.assigned().await;
    runner.event(&run, 1, json!([{ "type": "log.info" }])).await;
    runner.expect("ack").await;
    // It arrives and is stored; its answer is lost with the connection.
    proxy.stall();
    let ((), ()) = tokio::join!(runner.event(&run, 2, json!([{ "type": "log.warn" }])), async { proxy.drop_all() });
    proxy.mend();
    let mut other = server.runner(&["a"], 4).await;
    let mut runner = server.back(&runner.lease_id, json!({ &run: 1 })).await;
    for last_seq in [4, 4] {
        runner.event(&run, 2, json!([{ "type": "log.warn" }])).await;
        assert_eq!(runner.expect("ack").await["last_seq"], last_seq);
    }
    runner = server.back(&runner.lease_id, json!({ &run: 1 })).await;
    runner.event(&run, 2, json!([{ "type": "log.warn" }])).await;
    assert_eq!(runner.expect("ack").await["last_seq"], 4, "stored once, by whichever connection");
    runner.event(&run, 3, json!([{ "type": "run.completed" }])).await;
    assert_eq!(runner.expect("ack").await["last_seq"], 5);
    other.silent().await;
    assert_contiguous(&server.events(&run).await, 5);
}

#[tokio::test]
async fn the_runner_may_come_back_to_another_server_and_the_old_connection_is_worth_nothing() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    let mut old = a.runner(&["a"], 4).await;
    let run = job(&a).await;
    old.assigned().await;
    old.event(&run, 1, json!([{ "type": "log.info" }])).await;
    old.expect("ack").await;
    let mut new = b.back(&old.lease_id, json!({ &run: 1 })).await;
    assert_eq!(new.lease_id, old.lease_id);
    new.event(&run, 2, json!([{ "type": "log.info" }])).await;
    assert_eq!(new.expect("ack").await["last_seq"], 4);
    old.say(json!({ "type": "heartbeat" })).await;
    old.refused("lease_lost").await;
    old.event(&run, 2, json!([{ "type": "log.error" }])).await;
    old.refused("not_assigned").await;
    new.done(&run).await;
    new.expect("ack").await;
    assert_contiguous(&a.events(&run).await, 5);
}

#[tokio::test]
async fn a_newer_connection_of_a_session_ends_the_older_one() {
    let server = shared().await;
    let mut old = server.runner(&["a"], 4).await;
    let run = job(&server).await;
    old.assigned().await;
    let mut new = server.back(&old.lease_id, json!({ &run: 0 })).await;
    // It may look at its runs before it learns why they are gone.
    let end = loop {
        match old.next().await {
            Ok(told) => assert_eq!((&told["code"], &told["run_id"]), (&json!("lease_lost"), &json!(run))),
            Err(code) => break code,
        }
    };
    assert_eq!(end, Some(4001));
    new.event(&run, 1, json!([{ "type": "run.completed" }])).await;
    new.expect("ack").await;
}

#[tokio::test]
async fn an_assignment_that_was_lost_on_the_way_is_made_again() {
    let server = shared().await;
    let mut old = server.runner(&["a"], 4).await;
    let (known, lost) = (job(&server).await, job(&server).await);
    old.assigned().await;
    old.assigned().await;
    let mut new = server.back(&old.lease_id, json!({ &known: 0 })).await;
    assert_eq!(new.assigned().await, lost);
    new.silent().await;
    let mut newer = server.back(&old.lease_id, json!(null)).await;
    // One that does not say what it knows knows all.
    newer.silent().await;
    newer.event(&known, 5, json!([{ "type": "run.completed" }])).await;
    newer.expect("ack").await;
}

#[tokio::test]
async fn a_runner_that_comes_back_too_late_is_told_per_run_and_its_late_events_are_refused() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let mut slow = server.runner(&["a"], 2).await;
    let (lost, ended) = (job(&server).await, job(&server).await);
    slow.assigned().await;
    slow.assigned().await;
    slow.event(&ended, 1, json!([{ "type": "run.completed" }])).await;
    slow.expect("ack").await;
    let filler = job(&server).await;
    assert_eq!(slow.assigned().await, filler);
    slow.say(json!({ "type": "run.done", "run_id": filler })).await;
    slow.expect("ack").await;
    let session = slow.lease_id.clone();
    slow.close(1000).await;
    server.pass(Duration::from_secs(30));
    let mut other = server.runner(&["a"], 4).await;
    assert_eq!(other.assigned().await, lost);
    let nobody = new_run_id();
    let mut slow = server.back(&session, json!({ &lost: 0, &ended: 0, &nobody: 3 })).await;
    let mut codes = std::collections::BTreeMap::new();
    for _ in 0..3 {
        let error = slow.expect("error").await;
        codes.insert(error["run_id"].as_str().unwrap().to_owned(), error["code"].as_str().unwrap().to_owned());
    }
    let code = |run: &String| codes[run].as_str();
    assert_eq!((code(&lost), code(&ended), code(&nobody)), ("lease_lost", "run_ended", "lease_lost"));
    slow.event(&lost, 1, json!([{ "type": "log.info" }])).await;
    slow.refused("not_assigned").await;
    other.done(&lost).await;
    other.expect("ack").await;
    assert_contiguous(&server.events(&lost).await, 3);
}

#[tokio::test]
async fn a_session_of_somebody_else_gives_nothing() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = alice.create(json!({ "agent": "a", "start": false })).await;
    let mut hers = alice.runner(&["a"], 1).await;
    hers.assigned().await;
    let mut his = bob.back(&hers.lease_id, json!({ &run: 0 })).await;
    assert_ne!(his.lease_id, hers.lease_id);
    his.refused("lease_lost").await;
    hers.event(&run, 1, json!([{ "type": "run.completed" }])).await;
    hers.expect("ack").await;
}

#[tokio::test]
async fn a_runner_that_leaves_for_good_gives_its_runs_to_others_at_once() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let mut leaving = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    leaving.assigned().await;
    let mut other = server.runner(&["a"], 1).await;
    leaving.close(4000).await;
    let assign = other.expect("run.assign").await;
    assert_eq!((&assign["run_id"], &assign["context"]["attempt"]), (&json!(run), &json!(2)));
    assert_eq!(server.db.number("select lapses::bigint from store.job").await, 0);
}
