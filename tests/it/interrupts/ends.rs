//! Interrupts that nobody answers: too late, cancelled, ended, starved.

use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{ANSWERED, answer, ask, kinds, payloads, time, waiting};
use crate::support::{
    cluster::Db,
    server::{manual_clock, setup},
    shared::shared,
};

#[tokio::test]
async fn an_answer_that_comes_too_late_is_refused_also_when_nobody_has_looked_yet() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let run = waiting(&server, json!({ "expires_at": time(clock.now() + TimeDelta::seconds(1)) })).await;
    server.pass(Duration::from_millis(1_001));
    let late = (0..10).map(|_| answer(&server, &run, "i", "approve"));
    for reply in futures::future::join_all(late).await {
        let problem = reply.refused(409, "interrupt_closed");
        assert_eq!(problem["field"], "interrupt_id");
    }
    assert_eq!(kinds(&server, &run).await, ANSWERED);
    assert_eq!(payloads(&server, &run, "interrupt.resolved").await[0]["decision"], "expired");
    assert_eq!(server.run(&run).await["status"], "running");
}

#[tokio::test]
async fn an_answer_in_time_stands_whatever_the_clock_says_later() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let run = waiting(&server, json!({ "expires_at": time(clock.now() + TimeDelta::seconds(1)) })).await;
    answer(&server, &run, "i", "approve").await.expect(202);
    server.pass(Duration::from_mins(1));
    server.inner.timeline.expire_interrupts().await.unwrap();
    answer(&server, &run, "i", "approve").await.expect(202);
    answer(&server, &run, "i", "reject").await.refused(409, "interrupt_closed");
    assert_eq!(kinds(&server, &run).await, ANSWERED);
}

#[tokio::test]
async fn clocks_and_people_at_once_give_one_resolution() {
    let clock = manual_clock();
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).clock(&clock).start().await, setup().on(&db).clock(&clock).start().await);
    for _ in 0..5 {
        let run = waiting(&a, json!({ "expires_at": time(clock.now() + TimeDelta::seconds(1)) })).await;
        clock.advance(TimeDelta::seconds(2));
        let (x, y, late, another) = tokio::join!(
            a.inner.timeline.expire_interrupts(),
            b.inner.timeline.expire_interrupts(),
            answer(&b, &run, "i", "approve"),
            answer(&a, &run, "i", "reject"),
        );
        assert!(x.is_ok() && y.is_ok(), "{x:?} {y:?}");
        late.refused(409, "interrupt_closed");
        another.refused(409, "interrupt_closed");
        assert_eq!(kinds(&a, &run).await, ANSWERED);
        assert_eq!(payloads(&b, &run, "interrupt.resolved").await[0]["decision"], "expired");
    }
}

#[tokio::test]
async fn a_time_that_is_none_is_refused_at_the_door_and_poisons_nothing() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let good = waiting(&server, json!({ "expires_at": time(clock.now() + TimeDelta::seconds(1)) })).await;
    for bad in [
        json!("tomorrow"),
        json!("infinity"),
        json!("-infinity"),
        json!("now"),
        json!("epoch"),
        json!("allballs"),
        json!(""),
        json!("2026-13-01T00:00:00Z"),
        json!("2026-02-30T00:00:00Z"),
        json!("2026-01-01"),
        json!("2026-01-01T00:00:00"),
        json!("J0"),
        json!("9".repeat(1_000)),
        json!(0),
        json!(1e300),
        json!(true),
        json!([]),
        json!({}),
        json!("+292278994-08-17T07:12:55Z"),
    ] {
        let run = server.start_run().await;
        let request = json!({ "type": "interrupt.requested", "span_id": "i", "payload": { "expires_at": bad } });
        let problem =
            server.try_emit(&run, json!([{ "type": "log.info" }, request])).await.refused(400, "invalid_event");
        assert!(problem["field"].as_str().unwrap().starts_with("events[1].payload"), "{bad}: {problem}");
        assert_eq!(server.events(&run).await.len(), 2);
    }
    // Times at the edges of what can be said.
    for far in [
        "9999-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00+23:59",
        "2016-12-31T23:59:60Z",
    ] {
        let run = server.start_run().await;
        let request = json!({ "type": "interrupt.requested", "span_id": "i", "payload": { "expires_at": far } });
        let reply = server.try_emit(&run, json!([request, { "type": "run.interrupted" }])).await;
        assert!(matches!(reply.status, 200 | 400), "{far}: {}", reply.text);
    }
    server.pass(Duration::from_secs(2));
    server.inner.timeline.expire_interrupts().await.unwrap();
    assert_eq!(kinds(&server, &good).await, ANSWERED);
}

#[tokio::test]
async fn a_payload_of_any_shape_does_not_stop_the_clock_for_others() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    for payload in [
        "null",
        "1",
        "\"expires_at\"",
        "[]",
        "[{\"expires_at\":\"x\"}]",
        "{\"expires_at\":null}",
        "{\"a\":{\"expires_at\":1}}",
    ] {
        let run = server.start_run().await;
        let request = format!(r#"{{"type":"interrupt.requested","span_id":"i","payload":{payload}}}"#);
        server.emit_text(&run, request).await.expect(200);
        // Without a span it can never be answered.
        server.emit_text(&run, format!(r#"{{"type":"interrupt.requested","payload":{payload}}}"#)).await.expect(200);
    }
    let end = time(clock.now() + TimeDelta::seconds(1));
    let spanless = server.start_run().await;
    server.emit(&spanless, json!({ "type": "interrupt.requested", "payload": { "expires_at": end } })).await;
    let good = waiting(&server, json!({ "expires_at": end })).await;
    server.pass(Duration::from_secs(2));
    server.inner.timeline.expire_interrupts().await.unwrap();
    assert_eq!(kinds(&server, &good).await, ANSWERED);
    assert_eq!(kinds(&server, &spanless).await.len(), 1);
}

#[tokio::test]
async fn one_who_asks_for_very_much_does_not_stop_the_clock_for_others() {
    let clock = manual_clock();
    let server = setup().jwt().clock(&clock).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let far = time(clock.now() + TimeDelta::days(300));
    for batch in 0..3 {
        let run = bob.start_run().await;
        let ask = |n: usize| {
            let id = format!("{batch}-{n}");
            json!({ "type": "interrupt.requested", "span_id": id, "payload": { "expires_at": far } })
        };
        bob.emit(&run, Value::Array((0..5_000).map(ask).collect())).await;
    }
    let run = waiting(&alice, json!({ "expires_at": time(clock.now() + TimeDelta::seconds(1)) })).await;
    server.pass(Duration::from_secs(2));
    server.inner.timeline.expire_interrupts().await.unwrap();
    assert_eq!(kinds(&alice, &run).await, ANSWERED);
}

#[tokio::test]
async fn a_run_that_has_ended_expires_no_more() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let end = time(clock.now() + TimeDelta::seconds(1));
    let run = server.start_run().await;
    let request = json!({ "type": "interrupt.requested", "span_id": "i", "payload": { "expires_at": end } });
    server.emit(&run, json!([request, { "type": "run.completed" }])).await;
    let waits = server.start_run().await;
    let request = json!({ "type": "interrupt.requested", "span_id": "i", "payload": { "expires_at": end } });
    server.emit(&waits, json!([request, { "type": "run.waiting" }])).await;
    server.pass(Duration::from_secs(2));
    server.inner.timeline.expire_interrupts().await.unwrap();
    assert_eq!(kinds(&server, &run).await, ["interrupt.requested", "run.completed"]);
    assert_eq!(kinds(&server, &waits).await, ["interrupt.requested", "run.waiting", "interrupt.resolved"]);
    assert_eq!(server.run(&waits).await["status"], "waiting", "only an interrupted run is resumed");
    answer(&server, &run, "i", "approve").await.refused(409, "run_ended");
}

#[tokio::test]
async fn a_cancel_answers_what_is_open_before_it_ends_the_run() {
    let server = shared().await;
    let root = server.create(json!({ "thread_id": "t" })).await;
    let child = server.child_of(&root).await;
    let open = |id: &str| json!({ "type": "interrupt.requested", "span_id": id });
    server.emit(&root, json!([open("a"), open("b"), open("c"), { "type": "run.interrupted" }])).await;
    answer(&server, &root, "b", "approve").await.expect(202);
    ask(&server, &child, "i", json!({})).await;
    server.post(&format!("/api/runs/{root}/cancel"), json!({ "reason": "enough" })).await.expect(202);
    let resolved = payloads(&server, &root, "interrupt.resolved").await;
    let told: Vec<_> =
        resolved.iter().map(|payload| (payload["interrupt_id"].clone(), payload["decision"].clone())).collect();
    let row = |id: &str, decision: &str| (json!(id), json!(decision));
    assert_eq!(told, [row("b", "approve"), row("a", "cancelled"), row("c", "cancelled")]);
    assert_eq!(
        kinds(&server, &root).await[4..],
        ["interrupt.resolved", "run.resumed", "interrupt.resolved", "interrupt.resolved", "run.cancelled"]
    );
    assert_eq!(
        kinds(&server, &child).await,
        ["interrupt.requested", "run.interrupted", "interrupt.resolved", "run.cancelled"]
    );
    for (run, id) in [(&root, "a"), (&child, "i")] {
        answer(&server, run, id, "approve").await.refused(409, "interrupt_closed");
    }
    answer(&server, &root, "b", "approve").await.expect(202);
    let before = kinds(&server, &root).await;
    server.post(&format!("/api/runs/{root}/cancel"), json!({})).await.expect(202);
    assert_eq!(kinds(&server, &root).await, before, "a second cancel adds nothing");
}

#[tokio::test]
async fn a_cancel_and_an_answer_at_once_agree_on_one_resolution() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    for _ in 0..10 {
        let run = waiting(&a, json!({})).await;
        let (cancelled, answered) = tokio::join!(
            async { a.post(&format!("/api/runs/{run}/cancel"), json!({})).await },
            answer(&b, &run, "i", "approve")
        );
        cancelled.expect(202);
        let resolved = payloads(&a, &run, "interrupt.resolved").await;
        assert_eq!(resolved.len(), 1, "{resolved:?}");
        let expected = if answered.status == 202 { "approve" } else { "cancelled" };
        assert_eq!(resolved[0]["decision"], expected, "{}", answered.text);
        assert_eq!(kinds(&a, &run).await.last().unwrap(), "run.cancelled");
        assert_eq!(a.run(&run).await["status"], "cancelled");
    }
}

#[tokio::test]
async fn a_cancel_closes_however_many_are_open() {
    let server = shared().await;
    let run = server.start_run().await;
    for batch in 0..3 {
        let open = |n: usize| json!({ "type": "interrupt.requested", "span_id": format!("{batch}-{n}") });
        server.emit(&run, Value::Array((0..4_000).map(open).collect())).await;
    }
    server.emit(&run, json!({ "type": "run.interrupted" })).await;
    server.post(&format!("/api/runs/{run}/cancel"), json!({})).await.expect(202);
    let kinds = kinds(&server, &run).await;
    assert_eq!(kinds.iter().filter(|kind| *kind == "interrupt.resolved").count(), 12_000);
    assert_eq!(kinds.last().unwrap(), "run.cancelled");
}

#[tokio::test]
async fn what_is_asked_while_the_run_is_cancelled_is_closed_with_it() {
    let db = Db::new().await;
    let (a, b) = (setup().on(&db).start().await, setup().on(&db).start().await);
    for _ in 0..10 {
        let run = a.start_run().await;
        a.emit(&run, json!({ "type": "interrupt.requested", "span_id": "before" })).await;
        let path = format!("/api/runs/{run}/cancel");
        let asks = (0..12).map(|n: usize| {
            let api = if n.is_multiple_of(2) { &a.api } else { &b.api };
            let ask = json!({ "type": "interrupt.requested", "span_id": n.to_string() });
            let run = &run;
            async move { api.try_emit(run, ask).await }
        });
        let (asked, cancelled) = tokio::join!(futures::future::join_all(asks), b.post(&path, json!({})));
        cancelled.expect(202);
        let resolved = payloads(&b, &run, "interrupt.resolved").await;
        let mut closed: Vec<&str> = resolved.iter().map(|payload| payload["interrupt_id"].as_str().unwrap()).collect();
        assert_eq!(closed[0], "before", "what was open when it was called is closed by it");
        assert!(resolved.iter().all(|payload| payload["decision"] == "cancelled"), "{resolved:?}");
        for (n, reply) in asked.iter().enumerate() {
            let id = n.to_string();
            match (reply.status, closed.contains(&id.as_str())) {
                (200, true) => answer(&a, &run, &id, "approve").await.refused(409, "interrupt_closed"),
                (200, false) => answer(&a, &run, &id, "approve").await.refused(409, "run_ended"),
                _ => reply.refused(409, "run_ended"),
            };
        }
        let all = closed.len();
        closed.sort_unstable();
        closed.dedup();
        assert_eq!(closed.len(), all, "each is closed once");
        assert_eq!(kinds(&b, &run).await.last().unwrap(), "run.cancelled");
    }
}
