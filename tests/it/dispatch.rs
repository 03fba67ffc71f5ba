//! Jobs: who gets which run, and what becomes of it when its holder falls silent.

use std::time::Duration;

use runreel::{
    dispatch::{Assignment, Dispatch, renew::StopReason},
    domain::{
        event::{EventType, NewEvent},
        id::Name,
        job::Claimer,
        json::Json,
        principal::OwnerId,
        run::Status,
    },
};
use serde_json::json;

use crate::support::{
    cluster::Db,
    runs::{assert_contiguous, new_run_id},
    server::{Server, manual_clock, setup},
    until,
};

mod lines;
mod unserved;

const JOBS: &str = "select count(*) from store.job";

/// Somebody who works for everybody.
fn claimer(name: &str) -> Claimer {
    Claimer { name: Name::trusted(name), session: uuid::Uuid::now_v7(), owner: None, own_max: i64::MAX }
}

fn agents(names: &[&str]) -> Vec<Name> {
    names.iter().map(|name| Name::trusted(name)).collect()
}

async fn job(server: &Server, agent: &str) -> String {
    server.create(json!({ "agent": agent, "start": false, "input": { "b": 1, "a": 2 } })).await
}

async fn claim(dispatch: &Dispatch, agent: &str, most: usize) -> Vec<Assignment> {
    dispatch.claim(&claimer("w"), &agents(&[agent]), most).await.unwrap()
}

async fn emit(dispatch: &Dispatch, job: &Assignment, event_type: &str) {
    let event = NewEvent::new(EventType::trusted(event_type), Json::empty());
    dispatch.timeline().emit_run_event(&job.context, vec![event]).await.unwrap();
}

fn ids(jobs: &[Assignment]) -> Vec<String> {
    jobs.iter().map(|job| job.context.run_id.to_string()).collect()
}

#[tokio::test]
async fn a_queued_run_with_an_agent_is_a_job_and_others_are_not() {
    let server = Server::start().await;
    let dispatch = server.inner.runners.dispatch();
    let run = job(&server, "writer").await;
    server.create(json!({ "agent": "writer" })).await;
    server.create(json!({ "start": false })).await;
    assert!(claim(dispatch, "reader", 10).await.is_empty());
    let jobs = claim(dispatch, "writer", 10).await;
    assert_eq!(ids(&jobs), [run]);
    assert_eq!((jobs[0].attempt, jobs[0].status, jobs[0].last_seq.get()), (1, Status::Queued, 1));
    assert_eq!(jobs[0].fields.input.as_ref().unwrap().as_str(), r#"{"b":1,"a":2}"#);
    assert!(claim(dispatch, "writer", 10).await.is_empty(), "a job has one holder");
}

#[tokio::test]
async fn a_creation_that_is_repeated_makes_one_job() {
    let server = Server::start().await;
    let body = json!({ "run_id": new_run_id(), "agent": "a", "start": false });
    server.post("/api/runs", body.clone()).await.expect(201);
    server.post("/api/runs", body.clone()).await.expect(200);
    assert_eq!(server.db.number(JOBS).await, 1);
    let jobs = claim(server.inner.runners.dispatch(), "a", 9).await;
    assert!(!server.inner.runners.dispatch().enqueue(&jobs[0].context).await.unwrap());
    server.post("/api/runs", body).await.expect(200);
    assert_eq!(server.db.number(JOBS).await, 1);
}

#[tokio::test]
async fn a_run_that_its_producer_starts_by_itself_is_no_job_any_more() {
    let server = Server::start().await;
    let run = job(&server, "a").await;
    server.emit(&run, json!([{ "type": "run.started" }, { "type": "log.info" }])).await;
    assert!(claim(server.inner.runners.dispatch(), "a", 9).await.is_empty());
    server.db.until_number("the job to go", JOBS, 0).await;
    server.complete(&run).await;
    assert_contiguous(&server.events(&run).await, 4);
}

#[tokio::test]
async fn a_run_from_before_there_were_jobs_is_made_one_on_request() {
    let server = Server::start().await;
    let run = job(&server, "a").await;
    crate::support::cluster::execute(&mut server.db.connect().await, "delete from store.job".to_owned()).await;
    let dispatch = server.inner.runners.dispatch();
    assert!(claim(dispatch, "a", 9).await.is_empty());
    let owner = OwnerId::trusted(server.run(&run).await["owner_id"].as_str().unwrap());
    let context = dispatch.timeline().context(&owner, run.parse().unwrap()).await.unwrap().unwrap();
    assert!(dispatch.enqueue(&context).await.unwrap());
    assert_eq!(ids(&claim(dispatch, "a", 9).await), [run]);
}

#[tokio::test]
async fn of_many_claimers_in_two_processes_each_job_has_exactly_one() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    let mut made = Vec::new();
    for _ in 0..60 {
        made.push(job(&a, "a").await);
    }
    let claims = (0..12)
        .map(|n| claim(if n % 2 == 0 { a.inner.runners.dispatch() } else { b.inner.runners.dispatch() }, "a", 7));
    let mut got: Vec<String> = futures::future::join_all(claims).await.iter().flat_map(|jobs| ids(jobs)).collect();
    got.extend(ids(&claim(a.inner.runners.dispatch(), "a", 100).await));
    got.sort();
    made.sort();
    assert_eq!(got, made);
}

#[tokio::test]
async fn a_lapsed_lease_goes_to_exactly_one_other_and_the_old_holder_has_lost_it() {
    let clock = manual_clock();
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).clock(&clock).start().await, setup().on(&db).clock(&clock).start().await);
    let run = job(&a, "a").await;
    for round in 1..=20 {
        let first = claim(a.inner.runners.dispatch(), "a", 1).await.remove(0);
        assert_eq!(first.attempt, 2 * round - 1);
        a.pass(Duration::from_millis(29_999));
        assert!(claim(b.inner.runners.dispatch(), "a", 1).await.is_empty(), "the lease lives");
        a.pass(Duration::from_millis(1));
        let (one, two) =
            tokio::join!(claim(a.inner.runners.dispatch(), "a", 1), claim(b.inner.runners.dispatch(), "a", 1));
        assert_eq!(one.len() + two.len(), 1);
        let second = one.into_iter().chain(two).next().unwrap();
        assert_eq!((second.attempt, ids(std::slice::from_ref(&second))), (2 * round, vec![run.clone()]));
        assert_eq!(a.inner.runners.dispatch().renew(&[first.lease_id]).await.unwrap(), [first.lease_id]);
        assert!(!a.inner.runners.dispatch().release(first.lease_id).await.unwrap());
        assert!(!a.inner.runners.dispatch().finish(first.lease_id).await.unwrap());
        // The lapse is forgiven, so that the round can begin again.
        assert!(b.inner.runners.dispatch().release(second.lease_id).await.unwrap());
        crate::support::cluster::execute(&mut db.connect().await, "update store.job set lapses = 0".to_owned()).await;
    }
}

#[tokio::test]
async fn what_a_holder_that_fell_silent_was_writing_is_no_open_text_any_more() {
    let server = setup().clock(&manual_clock()).start().await;
    let (run, dispatch) = (job(&server, "a").await, server.inner.runners.dispatch());
    let held = claim(dispatch, "a", 1).await.remove(0);
    emit(dispatch, &held, "run.started").await;
    let token = json!({ "type": "message.delta", "span_id": "m", "payload": { "text": "so far" } });
    server.emit(&run, token).await;
    let saved = async || server.db.number("select count(*) from store.open_text").await;
    until("the text to be saved", || async { saved().await == 1 }).await;
    server.pass(Duration::from_millis(29_999));
    assert!(claim(dispatch, "a", 1).await.is_empty());
    assert_eq!(saved().await, 1);
    server.pass(Duration::from_millis(1));
    assert_eq!(claim(dispatch, "a", 1).await.len(), 1);
    assert_eq!(saved().await, 0);
}

#[tokio::test]
async fn a_run_whose_holders_all_fall_silent_fails_with_lease_lost_once() {
    let clock = manual_clock();
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).clock(&clock).start().await, setup().on(&db).clock(&clock).start().await);
    let run = job(&a, "a").await;
    for attempt in 1..=3 {
        let jobs = claim(a.inner.runners.dispatch(), "a", 1).await;
        assert_eq!(jobs[0].attempt, attempt);
        if attempt == 1 {
            emit(a.inner.runners.dispatch(), &jobs[0], "run.started").await;
            assert_eq!(a.run(&run).await["stalled"], false);
        }
        a.pass(Duration::from_secs(31));
        if attempt < 3 {
            assert_eq!(a.run(&run).await["stalled"], true);
        }
    }
    assert!(claim(a.inner.runners.dispatch(), "a", 1).await.is_empty(), "three attempts are all there are");
    let (one, two) =
        tokio::join!(a.inner.runners.dispatch().sweep_once(None), b.inner.runners.dispatch().sweep_once(None));
    one.unwrap();
    two.unwrap();
    db.until_number("the job to go", JOBS, 0).await;
    let record = a.run(&run).await;
    assert_eq!((&record["status"], &record["error"]["code"]), (&json!("failed"), &json!("lease_lost")));
    assert!(record["error"]["message"].as_str().unwrap().contains("expired"));
    assert_contiguous(&a.events(&run).await, 3);
}

#[tokio::test]
async fn a_suspended_run_is_taken_up_again_without_spending_an_attempt() {
    let server = Server::start().await;
    let dispatch = server.inner.runners.dispatch();
    let run = job(&server, "a").await;
    for attempt in 1..=6 {
        let held = claim(dispatch, "a", 1).await.remove(0);
        assert_eq!(held.attempt, attempt);
        if attempt == 1 {
            emit(dispatch, &held, "run.started").await;
        }
        let ask =
            json!([{ "type": "interrupt.requested", "span_id": format!("i{attempt}") }, { "type": "run.interrupted" }]);
        server.emit(&run, ask).await;
        assert!(dispatch.release(held.lease_id).await.unwrap());
        assert!(claim(dispatch, "a", 1).await.is_empty(), "nobody has answered");
        let answer = json!({ "interrupt_id": format!("i{attempt}"), "decision": "approve" });
        server.post(&format!("/api/runs/{run}/resume"), answer).await.expect(202);
    }
    let held = claim(dispatch, "a", 1).await.remove(0);
    assert_eq!((held.attempt, held.status), (7, Status::Running));
    assert_eq!(server.db.number("select lapses::bigint from store.job").await, 0);
}

#[tokio::test]
async fn a_waiting_run_is_taken_up_when_its_last_child_has_ended() {
    let server = Server::start().await;
    let dispatch = server.inner.runners.dispatch();
    let run = server.create(json!({ "agent": "boss", "start": false, "thread_id": "t", "role": "supervisor" })).await;
    let boss = claim(dispatch, "boss", 1).await.remove(0);
    emit(dispatch, &boss, "run.started").await;
    let worker = json!({ "agent": "hand", "start": false, "parent_run_id": run, "role": "worker" });
    let (one, two) = (server.create(worker.clone()).await, server.create(worker).await);
    emit(dispatch, &boss, "run.waiting").await;
    assert!(dispatch.release(boss.lease_id).await.unwrap());
    let hands = claim(dispatch, "hand", 9).await;
    assert_eq!(ids(&hands), [one, two], "the workers of a run work side by side in its thread");
    for hand in &hands {
        assert!(claim(dispatch, "boss", 1).await.is_empty());
        emit(dispatch, hand, "run.started").await;
        emit(dispatch, hand, "run.completed").await;
        // The sweep may have removed the job first.
        dispatch.finish(hand.lease_id).await.unwrap();
        let states = dispatch.standings(&[(hand.context.run_id, hand.lease_id)]).await.unwrap();
        assert!(states.iter().all(|job| !job.held), "{states:?}");
    }
    let boss = claim(dispatch, "boss", 1).await.remove(0);
    assert_eq!((boss.status, boss.attempt), (Status::Waiting, 2));
}

#[tokio::test]
async fn whoever_waits_for_work_hears_of_it_also_from_another_process() {
    let db = Db::new().await;
    let deaf = ["--poll-ms", "20000"];
    let (a, b) = (setup().flags(&deaf).on(&db).start().await, setup().flags(&deaf).on(&db).start().await);
    for server in [&a, &b] {
        let mut wakeup = b.inner.runners.dispatch().wakeup();
        let run = job(server, "a").await;
        crate::support::patiently("the wakeup", async {
            loop {
                wakeup.woken().await;
                let jobs = claim(b.inner.runners.dispatch(), "a", 1).await;
                if !jobs.is_empty() {
                    return assert_eq!(ids(&jobs), [run]);
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_holder_is_told_at_once_that_its_run_was_cancelled() {
    let server = setup().flags(&["--poll-ms", "20000"]).start().await;
    let dispatch = server.inner.runners.dispatch();
    let run = job(&server, "a").await;
    let held = claim(dispatch, "a", 1).await.remove(0);
    let kept = dispatch.hold(&held);
    server.post(&format!("/api/runs/{run}/cancel"), json!({})).await.expect(202);
    crate::support::patiently("the stop", kept.stop().cancelled()).await;
    assert_eq!(kept.fate(), Some(StopReason::Ended(Status::Cancelled)));
    assert!(dispatch.finish(held.lease_id).await.unwrap() || server.db.number(JOBS).await == 0);
}

#[tokio::test]
async fn what_is_held_is_renewed_and_a_lease_that_lapsed_is_lost() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let dispatch = server.inner.runners.dispatch();
    job(&server, "a").await;
    let held = claim(dispatch, "a", 1).await.remove(0);
    let kept = dispatch.hold(&held);
    for _ in 0..5 {
        server.pass(Duration::from_secs(20));
        dispatch.keep_once(true).await.unwrap();
        assert!(claim(dispatch, "a", 1).await.is_empty() && kept.fate().is_none());
    }
    server.pass(Duration::from_secs(30));
    dispatch.keep_once(true).await.unwrap();
    assert_eq!(kept.fate(), Some(StopReason::Lost));
    drop(kept);
    assert_eq!(claim(dispatch, "a", 1).await[0].attempt, 2);
}

#[tokio::test]
async fn the_job_of_a_cancelled_run_goes() {
    let server = Server::start().await;
    let run = job(&server, "a").await;
    server.post(&format!("/api/runs/{run}/cancel"), json!({})).await.expect(202);
    assert!(claim(server.inner.runners.dispatch(), "a", 9).await.is_empty());
    server.db.until_number("the job to go", JOBS, 0).await;
    let run = job(&server, "a").await;
    let held = claim(server.inner.runners.dispatch(), "a", 9).await.remove(0);
    assert!(
        !server.inner.runners.dispatch().finish(held.lease_id).await.unwrap(),
        "a run that has not ended keeps its job"
    );
    server.post(&format!("/api/runs/{run}/cancel"), json!({})).await.expect(202);
    server.db.until_number("the job to go", JOBS, 0).await;
}
