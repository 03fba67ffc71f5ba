//! Interrupts: one answer each, by a person, by the clock or by a cancel, and where the run goes on.

mod ends;
mod lists;

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::support::{
    api::{Api, Reply, stream_of},
    cluster::Db,
    patiently,
    runs::{assert_contiguous, new_run_id, parsed},
    server::{manual_clock, setup},
    shared::shared,
    sse::names,
    threads::state_with,
};

async fn ask(api: &Api, run: &str, id: &str, payload: Value) {
    let request = json!({ "type": "interrupt.requested", "span_id": id, "payload": payload });
    api.emit(run, json!([request, { "type": "run.interrupted" }])).await;
}

/// A run that waits for the answer to `i`.
async fn waiting(api: &Api, payload: Value) -> String {
    let run = api.create(json!({ "thread_id": "t" })).await;
    ask(api, &run, "i", payload).await;
    run
}

async fn answer(api: &Api, run: &str, id: &str, decision: &str) -> Reply {
    api.post(&format!("/api/runs/{run}/resume"), json!({ "interrupt_id": id, "decision": decision })).await
}

/// The log from its third event on: type, span and payload.
async fn log(api: &Api, run: &str) -> Vec<(String, Value, Value)> {
    let events = api.events(run).await;
    assert_contiguous(&events, events.len() as i64);
    let told = |event: &String| {
        let event = parsed(event);
        (event["type"].as_str().unwrap().to_owned(), event["span_id"].clone(), event["payload"].clone())
    };
    events[2..].iter().map(told).collect()
}

async fn kinds(api: &Api, run: &str) -> Vec<String> {
    log(api, run).await.into_iter().map(|(kind, ..)| kind).collect()
}

/// The payloads of events of one type.
async fn payloads(api: &Api, run: &str, kind: &str) -> Vec<Value> {
    log(api, run).await.into_iter().filter(|event| event.0 == kind).map(|event| event.2).collect()
}

fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Micros, true)
}

const ANSWERED: [&str; 4] = ["interrupt.requested", "run.interrupted", "interrupt.resolved", "run.resumed"];

#[tokio::test]
async fn an_answer_is_recorded_and_the_run_goes_on() {
    let server = shared().await;
    let asked = json!({ "kind": "approval", "prompt": "Send it?", "anything": [1] });
    for decision in ["approve", "reject", "respond"] {
        let run = waiting(&server, asked.clone()).await;
        let mut live = server.stream(&stream_of(&run)).await;
        assert_eq!(live.caught_up().await, 4);
        let path = format!("/api/runs/{run}/resume");
        let body = json!({ "interrupt_id": "i", "decision": decision, "value": { "why": "because" } });
        assert_eq!(server.post(&path, body.clone()).await.expect(202)["status"], "running");
        assert_eq!(names(&live.durable(2).await), ANSWERED[2..]);
        let log = log(&server, &run).await;
        assert_eq!(log.iter().map(|event| event.0.as_str()).collect::<Vec<_>>(), ANSWERED);
        let mut recorded = body.clone();
        recorded["resolved_by"] = server.run(&run).await["owner_id"].clone();
        assert_eq!((&log[0].2, &log[2].1, &log[2].2), (&asked, &json!("i"), &recorded));
        assert_eq!(log[3].2["interrupt_id"], "i");
    }
}

#[tokio::test]
async fn the_run_is_told_from_which_checkpoint_it_goes_on() {
    let server = shared().await;
    let resumed = async |run: &str| {
        answer(&server, run, "i", "approve").await.expect(202);
        let payload = payloads(&server, run, "run.resumed").await.remove(0);
        (payload["checkpoint_id"].clone(), payload["ns"].clone())
    };
    // It says so itself.
    for (said, expected) in [
        (json!({ "checkpoint_id": "c7", "ns": "sub" }), (json!("c7"), json!("sub"))),
        (json!({ "checkpoint_id": "c7" }), (json!("c7"), json!(""))),
    ] {
        let run = waiting(&server, said).await;
        server.put_checkpoint("t", "c9", state_with("x", json!({ "run_id": run }))).await;
        assert_eq!(resumed(&run).await, expected);
    }
    // Its newest, not that of another run, nor of another thread, nor the first.
    let run = waiting(&server, json!({})).await;
    for (thread, id, made_by) in
        [("t", "d1", run.as_str()), ("t", "d2", run.as_str()), ("t", "d9", "another"), ("u", "d8", run.as_str())]
    {
        server.put_checkpoint(thread, id, state_with("x", json!({ "run_id": made_by }))).await;
    }
    assert_eq!(resumed(&run).await, (json!("d2"), json!("")));
    // What comes after the answer changes nothing.
    server.put_checkpoint("t", "d3", state_with("x", json!({ "run_id": run }))).await;
    answer(&server, &run, "i", "approve").await.expect(202);
    assert_eq!(payloads(&server, &run, "run.resumed").await.len(), 1);
    // By the run that its metadata names.
    let run = waiting(&server, json!({ "checkpoint_id": null })).await;
    server.put_checkpoint("t", "e1", state_with("x", json!({ "metadata": { "run_id": run } }))).await;
    assert_eq!(resumed(&run).await, (json!("e1"), json!("")));
    // In a subgraph only.
    let run = waiting(&server, json!({})).await;
    server.put_checkpoint("t", "f1", state_with("x", json!({ "ns": "sub", "run_id": run }))).await;
    assert_eq!(resumed(&run).await, (json!("f1"), json!("sub")));
    // None at all, in a thread and without one.
    let run = waiting(&server, json!({})).await;
    assert_eq!(resumed(&run).await, (json!(null), json!(null)));
    let alone = server.start_run().await;
    ask(&server, &alone, "i", json!({})).await;
    assert_eq!(resumed(&alone).await, (json!(null), json!(null)));
}

#[tokio::test]
async fn what_a_request_names_oddly_is_no_trouble_for_its_answer() {
    let server = shared().await;
    for payload in [
        json!(null),
        json!("text"),
        json!([1]),
        json!({ "checkpoint_id": 5 }),
        json!({ "checkpoint_id": "a b" }),
        json!({ "checkpoint_id": "x".repeat(500) }),
        json!({ "checkpoint_id": "c", "ns": 5 }),
        json!({ "checkpoint_id": "c", "ns": "n".repeat(5_000) }),
        json!({ "checkpoint_id": { "$ne": null } }),
        json!({ "kind": 5, "prompt": [] }),
    ] {
        let run = waiting(&server, payload.clone()).await;
        let reply = answer(&server, &run, "i", "approve").await;
        assert_eq!((reply.status, kinds(&server, &run).await.len()), (202, 4), "{payload}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_hundred_equal_answers_are_one() {
    let db = Db::new().await;
    let servers = [setup().on(&db).start().await, setup().on(&db).start().await];
    let run = waiting(&servers[0], json!({})).await;
    // One that found no room in time comes again, as it is told to.
    let answers = (0..100).map(async |n: usize| {
        loop {
            let reply = answer(&servers[n % 2], &run, "i", "approve").await;
            if reply.status != 429 {
                return reply;
            }
            let pause = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
            tokio::time::sleep(Duration::from_secs(pause)).await;
        }
    });
    for reply in patiently("a hundred answers", futures::future::join_all(answers)).await {
        assert_eq!(reply.expect(202)["run_id"], run.as_str());
    }
    assert_eq!(kinds(&servers[0], &run).await, ANSWERED);
}

#[tokio::test]
async fn of_different_answers_at_once_exactly_one_stands() {
    let db = Db::new().await;
    let servers = [setup().on(&db).start().await, setup().on(&db).start().await];
    for _ in 0..5 {
        let run = waiting(&servers[0], json!({})).await;
        let answers = (0..10).map(|n: usize| {
            let body = json!({ "interrupt_id": "i", "decision": "respond", "value": n });
            let (api, path) = (servers[n % 2].api.clone(), format!("/api/runs/{run}/resume"));
            async move { api.post(&path, body).await }
        });
        let replies = futures::future::join_all(answers).await;
        let won: Vec<usize> = (0..10).filter(|n| replies[*n].status == 202).collect();
        assert_eq!(won.len(), 1, "{replies:?}");
        for reply in replies.iter().filter(|reply| reply.status != 202) {
            reply.refused(409, "interrupt_closed");
        }
        assert_eq!(payloads(&servers[1], &run, "interrupt.resolved").await[0]["value"], won[0]);
        assert_eq!(kinds(&servers[1], &run).await, ANSWERED);
    }
}

#[tokio::test]
async fn several_open_interrupts_are_answered_each_and_the_run_goes_on_once() {
    let server = shared().await;
    let run = server.start_run().await;
    let open = |id: &str| json!({ "type": "interrupt.requested", "span_id": id });
    server.emit(&run, json!([open("a"), open("b"), open("c"), { "type": "run.interrupted" }])).await;
    let answers = ["a", "b", "c"].map(|id| answer(&server, &run, id, "approve"));
    for reply in futures::future::join_all(answers).await {
        reply.expect(202);
    }
    let kinds = kinds(&server, &run).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "interrupt.resolved").count(), 3, "{kinds:?}");
    assert_eq!(kinds.iter().filter(|kind| *kind == "run.resumed").count(), 1, "{kinds:?}");
    assert_eq!(server.run(&run).await["status"], "running");
    // An open one of a run that is not interrupted is answered too, and nothing is resumed.
    server.emit(&run, open("d")).await;
    answer(&server, &run, "d", "approve").await.expect(202);
    assert_eq!(payloads(&server, &run, "run.resumed").await.len(), 1);
}

#[tokio::test]
async fn an_answer_to_nothing_is_refused_and_so_is_one_after_the_end() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = waiting(&alice, json!({})).await;
    for (api, run, id) in [
        (&bob, run.as_str(), "i"),
        (&alice, &new_run_id(), "i"),
        (&alice, run.as_str(), "j"),
        (&bob, run.as_str(), "j"),
    ] {
        answer(api, run, id, "approve").await.refused(404, "not_found");
    }
    let path = format!("/api/runs/{run}/resume");
    for body in [
        json!({ "interrupt_id": "i" }),
        json!({ "decision": "approve" }),
        json!({ "interrupt_id": "i", "decision": "expired" }),
        json!({ "interrupt_id": "i", "decision": "cancelled" }),
        json!({ "interrupt_id": "i", "decision": "Approve" }),
        json!({ "interrupt_id": "", "decision": "approve" }),
        json!({ "interrupt_id": 5, "decision": "approve" }),
        json!({ "interrupt_id": "i", "decision": "approve", "values": 1 }),
    ] {
        alice.post(&path, body).await.refused(400, "invalid_request");
    }
    let large = json!({ "interrupt_id": "i", "decision": "respond", "value": "x".repeat(64 * 1024 - 1) });
    alice.post(&path, large).await.refused(413, "too_large");
    assert_eq!(kinds(&alice, &run).await.len(), 2, "nothing of that was recorded");
    for (kind, reply) in [("interrupt.resolved", 400), ("run.resumed", 200)] {
        let forged = json!({ "type": kind, "span_id": "i", "payload": { "interrupt_id": "i", "decision": "approve" } });
        assert_eq!(alice.try_emit(&run, forged).await.status, reply, "{kind}");
    }
    let forged = json!({ "type": "log.info", "event_id": "runreel:interrupt:i" });
    alice.try_emit(&run, forged).await.refused(400, "invalid_event");
    alice.complete(&run).await;
    answer(&alice, &run, "i", "approve").await.refused(409, "run_ended");
    answer(&bob, &run, "i", "approve").await.refused(404, "not_found");
}

#[tokio::test]
async fn what_was_asked_before_a_restart_is_answered_after_it() {
    let clock = manual_clock();
    let db = Db::new().await;
    let server = setup().on(&db).clock(&clock).start().await;
    let open = waiting(&server, json!({ "prompt": "?" })).await;
    let answered = waiting(&server, json!({})).await;
    answer(&server, &answered, "i", "approve").await.expect(202);
    let dying = waiting(&server, json!({ "expires_at": time(clock.now() + TimeDelta::seconds(60)) })).await;
    server.put_checkpoint("t", "1", state_with("x", json!({ "run_id": open }))).await;
    server.stop().await;
    clock.advance(TimeDelta::seconds(61));
    let server = setup().on(&db).clock(&clock).start().await;
    answer(&server, &open, "i", "approve").await.expect(202);
    assert_eq!(payloads(&server, &open, "run.resumed").await[0]["checkpoint_id"], "1");
    answer(&server, &answered, "i", "approve").await.expect(202);
    answer(&server, &answered, "i", "reject").await.refused(409, "interrupt_closed");
    assert_eq!(kinds(&server, &answered).await, ANSWERED);
    server.inner.timeline.expire_interrupts().await.unwrap();
    assert_eq!(payloads(&server, &dying, "interrupt.resolved").await[0]["decision"], "expired");
}

#[tokio::test]
async fn an_interrupt_whose_time_is_over_is_resolved_and_the_run_goes_on() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let end = clock.now() + TimeDelta::seconds(60);
    let offset = end.with_timezone(&chrono::FixedOffset::east_opt(2 * 3_600).unwrap());
    let runs = [
        waiting(&server, json!({ "expires_at": time(end) })).await,
        // The same moment as somebody two hours to the east writes it.
        waiting(&server, json!({ "expires_at": offset.to_rfc3339(), "checkpoint_id": "c", "ns": "n" })).await,
    ];
    let lasting = waiting(&server, json!({ "expires_at": time(end + TimeDelta::seconds(60)) })).await;
    let endless = waiting(&server, json!({ "expires_at": null })).await;
    let mut live = server.stream(&stream_of(&runs[0])).await;
    live.caught_up().await;
    server.pass(Duration::from_millis(59_999));
    server.inner.timeline.expire_interrupts().await.unwrap();
    for run in &runs {
        assert_eq!(server.run(run).await["status"], "interrupted", "not yet");
    }
    server.pass(Duration::from_millis(2));
    for _ in 0..3 {
        server.inner.timeline.expire_interrupts().await.unwrap();
    }
    assert_eq!(names(&live.durable(2).await), ANSWERED[2..]);
    for (run, checkpoint, ns) in [(&runs[0], json!(null), json!(null)), (&runs[1], json!("c"), json!("n"))] {
        assert_eq!(kinds(&server, run).await, ANSWERED);
        let (resolved, resumed) =
            (payloads(&server, run, "interrupt.resolved").await, payloads(&server, run, "run.resumed").await);
        assert_eq!((&resolved[0]["interrupt_id"], &resolved[0]["decision"]), (&json!("i"), &json!("expired")));
        assert_eq!((&resumed[0]["checkpoint_id"], &resumed[0]["ns"]), (&checkpoint, &ns));
        answer(&server, run, "i", "approve").await.refused(409, "interrupt_closed");
        server.complete(run).await;
    }
    for run in [&lasting, &endless] {
        assert_eq!(kinds(&server, run).await.len(), 2);
        answer(&server, run, "i", "approve").await.expect(202);
    }
}
