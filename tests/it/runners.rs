//! Runners: the protocol, message by message, over real sockets.

use std::time::Duration;

use runreel::domain::principal::Scope;
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::support::{
    api::Api,
    cluster::execute,
    runs::{assert_contiguous, new_run_id, parsed},
    server::{Server, manual_clock, setup},
    shared::shared,
    threads::state,
};

mod agents;
mod back;
mod hostile;
mod processes;

const JOBS: &str = "select count(*) from store.job";

async fn job(server: &Api) -> String {
    server.create(json!({ "agent": "a", "start": false, "input": { "z": 1, "a": 2 } })).await
}

fn types(events: &[String]) -> Vec<String> {
    events.iter().map(|event| parsed(event)["type"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_runner_is_given_a_run_and_what_it_says_is_acknowledged_after_the_commit() {
    let server = Server::start().await;
    let mut runner = server.runner(&["a", "b"], 1).await;
    let body = json!({ "agent": "a", "start": false, "thread_id": "t", "title": "Title", "input": { "z": 1, "a": 2 },
                       "metadata": { "m": 1 }, "tags": ["x"] });
    let run = server.create(body).await;
    let assign = runner.expect("run.assign").await;
    assert_eq!((&assign["run_id"], &assign["agent"], &assign["thread_id"]), (&json!(run), &json!("a"), &json!("t")));
    assert_eq!(assign["input"].to_string(), r#"{"z":1,"a":2}"#);
    let context = &assign["context"];
    assert_eq!(
        (&context["attempt"], &context["status"], &context["role"]),
        (&json!(1), &json!("queued"), &json!("agent"))
    );
    assert_eq!(
        (&context["metadata"]["m"], &context["tags"][0], &context["title"]),
        (&json!(1), &json!("x"), &json!("Title"))
    );
    let tool = json!({ "type": "tool.started", "span_id": "c", "payload": { "name": "x", "b": 1.50 } });
    runner.event(&run, 1, json!([{ "type": "run.started" }, tool])).await;
    let ack = runner.expect("ack").await;
    assert_eq!((&ack["run_id"], &ack["n"], &ack["last_seq"]), (&json!(run), &json!(1), &json!(3)));
    assert_eq!(server.run(&run).await["last_seq"], 3, "an ack follows the commit");
    runner.event(&run, 2, json!([{ "type": "run.completed", "payload": { "output": 7 } }])).await;
    assert_eq!(runner.expect("ack").await["last_seq"], 4);
    runner.done(&run).await;
    assert_eq!(runner.expect("ack").await["n"], 2, "that the run has ended is known");
    let record = server.run(&run).await;
    assert_eq!((&record["status"], &record["output"]), (&json!("completed"), &json!(7)));
    let events = server.events(&run).await;
    assert_eq!(types(&events), ["run.created", "run.started", "tool.started", "run.completed"]);
    assert_contiguous(&events, 4);
    server.db.until_number("the job to go", JOBS, 0).await;
    let second = job(&server).await;
    assert_eq!(runner.assigned().await, second, "the slot was freed by the end of the run");
}

#[tokio::test]
async fn a_runner_need_not_say_that_a_run_begins_nor_that_it_ends() {
    let server = shared().await;
    let mut runner = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    assert_eq!(runner.assigned().await, run);
    runner.event(&run, 1, json!({ "type": "log.info" })).await;
    assert_eq!(runner.expect("ack").await["last_seq"], 3);
    runner.done(&run).await;
    let ack = runner.expect("ack").await;
    assert_eq!((&ack["n"], &ack["last_seq"]), (&json!(1), &json!(4)));
    let events = server.events(&run).await;
    assert_eq!(types(&events), ["run.created", "run.started", "log.info", "run.completed"]);
    let silent = job(&server).await;
    assert_eq!(runner.assigned().await, silent);
    runner.done(&silent).await;
    assert_eq!(runner.expect("ack").await["n"], 0);
    assert_eq!(types(&server.events(&silent).await), ["run.created", "run.started", "run.completed"]);
}

#[tokio::test]
async fn a_message_that_comes_again_is_acknowledged_again_and_stored_once() {
    let server = shared().await;
    let mut runner = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    runner.assigned().await;
    let mut reader = server.stream(&format!("/api/stream/runs/{run}")).await;
    reader.durable(1).await;
    reader.caught_up().await;
    let delta = json!({ "type": "message.delta", "span_id": "m", "payload": { "text": "hi" } });
    for _ in 0..3 {
        runner.event(&run, 1, json!([{ "type": "log.info" }, delta, { "type": "log.warn" }])).await;
        assert_eq!(runner.expect("ack").await["last_seq"], 4);
    }
    // Without the delta it is the same message.
    runner.event(&run, 1, json!([{ "type": "log.info" }, { "type": "log.warn" }])).await;
    assert_eq!(runner.expect("ack").await["last_seq"], 4);
    runner.event(&run, 3, json!([{ "type": "log.info" }])).await;
    let error = runner.refused("out_of_order").await;
    assert_eq!((&error["run_id"], &error["n"]), (&json!(run), &json!(3)));
    runner.event(&run, 2, json!([{ "type": "log.info" }])).await;
    assert_eq!(runner.expect("ack").await["last_seq"], 5);
    runner.done(&run).await;
    runner.expect("ack").await;
    assert_contiguous(&server.events(&run).await, 6);
    let deltas = reader.rest().await.iter().filter(|frame| frame.event == "message.delta").count();
    assert_eq!(deltas, 1);
}

#[tokio::test]
async fn events_of_a_run_that_is_not_the_runners_are_refused_alike_whosever_it_is() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let theirs = bob.create(json!({ "agent": "a", "start": false })).await;
    let unclaimed = alice.create(json!({ "agent": "other", "start": false })).await;
    let ordinary = alice.start_run().await;
    let mut runner = alice.runner(&["a"], 4).await;
    let mut answers = Vec::new();
    for run in [theirs.clone(), unclaimed, ordinary, new_run_id()] {
        runner.event(&run, 1, json!([{ "type": "run.started" }])).await;
        let answer = runner.refused("not_assigned").await.to_string();
        answers.push(answer.replace(&run, "RUN"));
        runner.done(&run).await;
        let answer = runner.refused("not_assigned").await.to_string();
        assert_eq!(answer.replace(&run, "RUN"), answers[0].replace(r#","n":1"#, ""));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    assert_eq!(bob.run(&theirs).await["last_seq"], 1);
    let mut bobs = bob.runner(&["a"], 4).await;
    assert_eq!(bobs.assigned().await, theirs, "a runner of another owner was not given it");
}

#[tokio::test]
async fn a_runner_works_on_as_many_runs_as_it_has_room_for_and_on_agents_it_serves() {
    let server = shared().await;
    server.create(json!({ "agent": "other", "start": false })).await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(job(&server).await);
    }
    let mut runner = server.runner(&["a"], 2).await;
    let mut got = vec![runner.assigned().await, runner.assigned().await];
    runner.silent().await;
    for at in 0..3 {
        let run = got[at].clone();
        runner.done(&run).await;
        runner.expect("ack").await;
        got.push(runner.assigned().await);
    }
    assert_eq!(got, runs);
}

#[tokio::test]
async fn a_cancelled_run_is_taken_from_its_runner_with_the_reason() {
    let server = setup().flags(&["--poll-ms", "20000"]).start().await;
    let mut runner = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    runner.assigned().await;
    server.post(&format!("/api/runs/{run}/cancel"), json!({ "reason": "enough" })).await.expect(202);
    let cancel = runner.expect("run.cancel").await;
    assert_eq!((&cancel["run_id"], &cancel["reason"]), (&json!(run), &json!("enough")));
    runner.event(&run, 1, json!([{ "type": "log.info" }])).await;
    runner.refused("run_ended").await;
    runner.done(&run).await;
    runner.expect("ack").await;
    let next = job(&server).await;
    assert_eq!(runner.assigned().await, next);
    server.db.until_number("the job to go", JOBS, 1).await;
}

#[tokio::test]
async fn the_answer_to_an_interrupt_reaches_the_runner_that_asked() {
    let server = setup().flags(&["--poll-ms", "20000"]).start().await;
    let mut runner = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    runner.assigned().await;
    let ask = json!([{ "type": "interrupt.requested", "span_id": "i1" }, { "type": "run.interrupted" }]);
    runner.event(&run, 1, ask).await;
    runner.expect("ack").await;
    let answer = json!({ "interrupt_id": "i1", "decision": "respond", "value": { "b": 1, "a": 2 } });
    server.post(&format!("/api/runs/{run}/resume"), answer).await.expect(202);
    let resume = runner.expect("run.resume").await;
    assert_eq!((&resume["interrupt_id"], &resume["decision"]), (&json!("i1"), &json!("respond")));
    assert_eq!(resume["value"], json!({ "b": 1, "a": 2 }));
    runner.event(&run, 2, json!([{ "type": "run.completed" }])).await;
    runner.expect("ack").await;
    runner.silent().await;
}

#[tokio::test]
async fn a_run_that_was_given_back_while_interrupted_goes_on_elsewhere_with_its_answer() {
    let server = shared().await;
    let mut first = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    first.assigned().await;
    let ask = json!([{ "type": "interrupt.requested", "span_id": "i1" }, { "type": "run.interrupted" }]);
    first.event(&run, 1, ask).await;
    first.expect("ack").await;
    first.done(&run).await;
    first.expect("ack").await;
    assert_eq!(server.run(&run).await["status"], "interrupted");
    first.close(1000).await;
    let answer = json!({ "interrupt_id": "i1", "decision": "approve" });
    server.post(&format!("/api/runs/{run}/resume"), answer).await.expect(202);
    let mut second = server.runner(&["a"], 1).await;
    let assign = second.expect("run.assign").await;
    assert_eq!((&assign["context"]["attempt"], &assign["context"]["status"]), (&json!(2), &json!("running")));
    assert_eq!(assign["context"]["answers"], 1, "a runner knows what to wait for");
    assert_eq!(second.expect("run.resume").await["decision"], "approve");
    // Whoever begins anew says so again; the log has it once.
    second.event(&run, 1, json!([{ "type": "run.started" }, { "type": "run.completed" }])).await;
    second.expect("ack").await;
    let all = types(&server.events(&run).await);
    assert_eq!(all.iter().filter(|word| *word == "run.started").count(), 1, "{all:?}");
}

#[tokio::test]
async fn heartbeats_keep_a_run_and_silence_loses_it() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let mut runner = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    runner.assigned().await;
    runner.event(&run, 1, json!([{ "type": "log.info" }])).await;
    runner.expect("ack").await;
    for _ in 0..5 {
        server.pass(Duration::from_secs(29));
        runner.say(json!({ "type": "heartbeat" })).await;
        runner.silent().await;
        assert_eq!(server.run(&run).await["stalled"], false);
    }
    server.pass(Duration::from_secs(30));
    runner.say(json!({ "type": "heartbeat" })).await;
    // Nobody else is there: it comes back to the same runner as another attempt.
    assert_eq!(runner.refused("lease_lost").await["run_id"], run);
    assert_eq!(runner.expect("run.assign").await["context"]["attempt"], 2);
    runner.event(&run, 1, json!([{ "type": "run.started" }, { "type": "log.info" }])).await;
    assert_eq!(runner.expect("ack").await["last_seq"], 4);
}

#[tokio::test]
async fn a_run_whose_children_have_ended_is_resumed_for_its_runner() {
    let server = shared().await;
    let mut boss = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    boss.assigned().await;
    let child = server.create(json!({ "agent": "hand", "start": false, "parent_run_id": run })).await;
    boss.event(&run, 1, json!([{ "type": "run.started" }, { "type": "run.waiting" }])).await;
    boss.expect("ack").await;
    boss.done(&run).await;
    boss.expect("ack").await;
    boss.silent().await;
    let mut hand = server.runner(&["hand"], 1).await;
    assert_eq!(hand.assigned().await, child);
    hand.done(&child).await;
    hand.expect("ack").await;
    let assign = boss.expect("run.assign").await;
    assert_eq!(assign["context"]["status"], "waiting");
    boss.event(&run, 1, json!([{ "type": "run.completed" }])).await;
    boss.expect("ack").await;
    let words = types(&server.events(&run).await);
    assert_eq!(words[2..], ["run.waiting", "run.resumed", "run.completed"]);
}

#[tokio::test]
async fn a_runner_that_is_heard_often_is_still_given_what_another_has_lost() {
    let server = setup().flags(&["--lease-ms", "600", "--poll-ms", "200"]).start().await;
    let mut dead = server.runner(&["a"], 1).await;
    let run = job(&server).await;
    assert_eq!(dead.assigned().await, run);
    drop(dead);
    let mut alive = server.runner(&["a"], 1).await;
    let assigned = async {
        loop {
            if let Ok(run) = tokio::time::timeout(Duration::from_millis(20), alive.assigned()).await {
                break run;
            }
            alive.say(json!({ "type": "heartbeat" })).await;
        }
    };
    assert_eq!(crate::support::patiently("the run", assigned).await, run);
}

#[tokio::test]
async fn a_server_that_drains_gives_nothing_away_and_says_so() {
    let server = Server::start().await;
    let mut runner = server.runner(&["a"], 2).await;
    let run = job(&server).await;
    runner.assigned().await;
    runner.event(&run, 1, json!([{ "type": "log.info" }])).await;
    runner.expect("ack").await;
    server.begin_stop();
    assert_eq!(runner.closed().await, Some(1012));
    server.stop().await;
}

#[tokio::test]
async fn a_connection_ends_with_its_credential() {
    let server = setup().jwt().start().await;
    let (api, token) = server.api_token("alice", &[Scope::Emit], None, None).await;
    let mut runner = api.runner(&["a"], 1).await;
    let store = server.inner.timeline.store();
    let owner = server.inner.authenticator.owner("", "alice");
    store.tokens().revoke(&owner, token, true, server.clock.now()).await.unwrap();
    assert_eq!(runner.closed().await, Some(1008));
    let clock = manual_clock();
    let server = setup().jwt().clock(&clock).start().await;
    let soon = server.clock.now() + chrono::TimeDelta::seconds(60);
    let (api, _) = server.api_token("alice", &[Scope::Emit], None, Some(soon)).await;
    let mut runner = api.runner(&["a"], 1).await;
    server.pass(Duration::from_secs(61));
    assert_eq!(runner.closed().await, Some(1008));
}

#[tokio::test]
async fn the_state_of_a_run_goes_when_it_ends_also_when_its_runner_dies_at_that_moment() {
    let server = Server::start().await;
    for is_cancelled in [false, true] {
        let mut runner = server.runner(&["a"], 1).await;
        let run = job(&server).await;
        assert_eq!(runner.assigned().await, run);
        runner.event(&run, 1, json!([{ "type": "log.info" }])).await;
        runner.expect("ack").await;
        server.put_checkpoint(&format!("run:{run}"), "1", state("x")).await;
        if is_cancelled {
            server.post(&format!("/api/runs/{run}/cancel"), json!({})).await.expect(202);
            runner.expect("run.cancel").await;
        } else {
            runner.event(&run, 2, json!([{ "type": "run.completed" }])).await;
            runner.expect("ack").await;
        }
        drop(runner);
        let left = "select (select count(*) from store.job) + (select count(*) from store.checkpoint)";
        server.db.until_number("nothing left", left, 0).await;
    }
}
