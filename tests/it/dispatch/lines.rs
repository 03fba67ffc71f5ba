//! The order of jobs: runs of one thread go one after the other, and a claim stays cheap however many runs have ended.

use serde_json::json;

use super::{agents, claim, claimer, emit, ids, job};
use crate::support::{
    cluster::{Db, execute},
    server::{Server, setup},
};

async fn in_thread(server: &Server, thread: &str) -> String {
    server.create(json!({ "agent": "a", "start": false, "thread_id": thread })).await
}

#[tokio::test]
async fn runs_of_one_thread_go_one_after_the_other_and_threads_side_by_side() {
    let server = Server::start().await;
    let dispatch = server.inner.runners.dispatch();
    let (t1, t2, u1) = (in_thread(&server, "t").await, in_thread(&server, "t").await, in_thread(&server, "u").await);
    let jobs = claim(dispatch, "a", 9).await;
    assert_eq!(ids(&jobs), [t1, u1]);
    emit(dispatch, &jobs[0], "run.started").await;
    assert!(claim(dispatch, "a", 9).await.is_empty());
    emit(dispatch, &jobs[0], "run.completed").await;
    // Also before the ended one is tidied away.
    assert_eq!(ids(&claim(dispatch, "a", 9).await), [t2]);
}

#[tokio::test]
async fn an_interrupted_run_keeps_its_place_in_the_thread() {
    let server = Server::start().await;
    let dispatch = server.inner.runners.dispatch();
    let first = in_thread(&server, "t").await;
    let second = in_thread(&server, "t").await;
    let held = claim(dispatch, "a", 1).await.remove(0);
    emit(dispatch, &held, "run.started").await;
    server
        .emit(&first, json!([{ "type": "interrupt.requested", "span_id": "i" }, { "type": "run.interrupted" }]))
        .await;
    dispatch.release(held.lease_id).await.unwrap();
    assert!(claim(dispatch, "a", 9).await.is_empty());
    server.post(&format!("/api/runs/{first}/cancel"), json!({})).await.expect(202);
    assert_eq!(ids(&claim(dispatch, "a", 9).await), [second]);
}

#[tokio::test]
async fn a_thread_of_somebody_else_with_the_same_name_holds_nothing_up() {
    let server = setup().jwt().start().await;
    let body = json!({ "agent": "a", "start": false, "thread_id": "t" });
    let one = server.as_subject("alice").create(body.clone()).await;
    let two = server.as_subject("bob").create(body).await;
    assert_eq!(ids(&claim(server.inner.runners.dispatch(), "a", 9).await), [one, two]);
}

#[tokio::test]
async fn a_claimer_of_one_owner_gets_that_owners_jobs_alone() {
    let server = setup().jwt().start().await;
    let body = json!({ "agent": "a", "start": false });
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    alice.create(body.clone()).await;
    let theirs = bob.create(body).await;
    let mut who = claimer("bob's");
    who.owner = Some(server.inner.authenticator.owner("", "bob"));
    let jobs = server.inner.runners.dispatch().claim(&who, &agents(&["a"]), 9).await.unwrap();
    assert_eq!(ids(&jobs), [theirs]);
}

#[tokio::test]
async fn the_agent_runs_of_two_messages_of_one_chat_go_one_after_the_other() {
    let server = Server::start().await;
    let dispatch = server.inner.runners.dispatch();
    let mut runs = Vec::new();
    for _ in 0..2 {
        let router = server.create(json!({ "title": "router" })).await;
        let body = json!({ "agent": "a", "start": false, "thread_id": "chat", "parent_run_id": router });
        runs.push(server.create(body).await);
    }
    let jobs = claim(dispatch, "a", 9).await;
    assert_eq!(ids(&jobs), [runs[0].clone()], "a parent in another thread makes no line");
    emit(dispatch, &jobs[0], "run.started").await;
    emit(dispatch, &jobs[0], "run.completed").await;
    assert_eq!(ids(&claim(dispatch, "a", 9).await), [runs[1].clone()]);
}

#[tokio::test]
async fn two_racing_claimers_never_work_in_one_thread_at_a_time() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    for _ in 0..12 {
        in_thread(&a, "t").await;
    }
    for _ in 0..12 {
        let claims = (0..6)
            .map(|n| claim(if n % 2 == 0 { a.inner.runners.dispatch() } else { b.inner.runners.dispatch() }, "a", 3));
        let jobs = futures::future::join_all(claims).await.concat();
        assert_eq!(jobs.len(), 1);
        emit(a.inner.runners.dispatch(), &jobs[0], "run.started").await;
        emit(b.inner.runners.dispatch(), &jobs[0], "run.completed").await;
    }
}

#[tokio::test]
async fn each_job_is_found_after_a_hundred_thousand_runs_of_its_threads_have_ended() {
    let server = Server::start().await;
    let dispatch = server.inner.runners.dispatch();
    job(&server, "a").await;
    let mut connection = server.db.connect().await;
    // Copies of a run, ended; their jobs are gone, as the sweep and the holders leave it.
    let many =
        "insert into store.run (run_id, lane, owner_id, root_run_id, depth, agent, role, metadata, tags, request_hash,
                                       status, last_seq, last_position, created_at, last_event_at, thread_id)
                select gen_random_uuid(), lane, owner_id, root_run_id, 0, agent, role, metadata, tags, request_hash,
                       'completed', 1, 0, created_at - interval '1 hour', last_event_at, 't' || n % 100
                from store.run, generate_series(1, 100000) n";
    execute(&mut connection, many.to_owned()).await;
    execute(&mut connection, "analyze store.run".to_owned()).await;
    assert_eq!(server.db.number(super::JOBS).await, 1);
    for n in 0..50 {
        let body = json!({ "agent": "a", "start": false, "thread_id": format!("t{n}") });
        server.create(body).await;
        assert_eq!(claim(dispatch, "a", 1).await.len(), 1);
    }
}

#[tokio::test]
async fn a_job_behind_many_that_cannot_be_taken_is_found() {
    let server = Server::start().await;
    let dispatch = server.inner.runners.dispatch();
    let first = job(&server, "a").await;
    let mut connection = server.db.connect().await;
    // As many as a claim looks at, of the same owner and older: they wait for somebody's answer.
    let many = format!(
        "with old as (
             insert into store.run (run_id, lane, owner_id, root_run_id, depth, agent, role, metadata, tags, request_hash,
                                    status, last_seq, last_position, created_at, last_event_at)
             select gen_random_uuid(), lane, owner_id, root_run_id, 0, agent, role, metadata, tags, request_hash,
                    'interrupted', 1, 0, created_at - interval '1 hour', last_event_at
             from store.run, generate_series(1, {}) returning *)
         insert into store.job (run_id, owner_id, agent, line_run_id, line_at, attempt, created_at)
         select run_id, owner_id, agent, run_id, created_at, 1, created_at from old",
        runreel::domain::limits::JOB_LOOK_ROWS
    );
    execute(&mut connection, many).await;
    assert_eq!(ids(&claim(dispatch, "a", 1).await), [first]);
}
