//! What is told of times: a run's own, a step's own, and nobody's who only waited.

use chrono::{SecondsFormat, TimeDelta, Utc};
use serde_json::{Value, json};

use crate::support::{
    cluster::execute,
    server::{Server, setup},
};

/// So many milliseconds ago, as producers write it.
fn ago(ms: i64) -> String {
    (Utc::now() - TimeDelta::milliseconds(ms)).to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[tokio::test]
async fn a_run_that_its_producer_tells_of_late_keeps_its_own_times() {
    let server = Server::start().await;
    // Told by a producer that says when it began, and by one that does not.
    for says_when in [true, false] {
        let base = Utc::now() - TimeDelta::minutes(1);
        let after = |ms: i64| (base + TimeDelta::milliseconds(ms)).to_rfc3339_opts(SecondsFormat::Micros, true);
        let at = says_when.then(|| after(0));
        let mut body = json!({});
        if let Some(at) = &at {
            body["at"] = json!(at);
        }
        let run = server.create(body).await;
        let events = json!([
            { "type": "step.started", "span_id": "s", "payload": { "name": "plan" }, "at": after(0) },
            { "type": "step.completed", "span_id": "s", "at": after(2_000) },
            { "type": "run.completed", "at": after(3_000) },
        ]);
        server.emit(&run, events).await;
        let timeline = server.get(&format!("/api/runs/{run}/timeline")).await.expect(200);
        let told = server.run(&run).await;
        assert_eq!(timeline["started_at"], told["started_at"]);
        let spans = &timeline["spans"];
        assert_eq!(
            (&spans[0]["duration_ms"], &spans[1]["start_ms"], &timeline["summary"]["total_ms"]),
            (&json!(3_000.0), &json!(0.0), &json!(3_000.0)),
            "{timeline}"
        );
        if let Some(at) = at {
            assert_eq!((&told["created_at"], &told["started_at"]), (&json!(at), &json!(at)));
        }
        let negative = "select count(*) from runreel.runs where duration_ms <> 3000";
        assert_eq!(server.db.number(negative).await, 0);
    }
    let refused = server.post("/api/runs", json!({ "at": ago(25 * 60 * 60 * 1_000) })).await;
    assert_eq!(refused.refused(400, "invalid_request")["field"], "at");
}

#[tokio::test]
async fn what_a_step_says_it_took_is_what_it_took_and_the_rest_is_waiting() {
    let server = Server::start().await;
    let run = server.create(json!({ "at": ago(10_000) })).await;
    let events = json!([
        { "type": "step.started", "span_id": "s", "payload": { "name": "ask" }, "at": ago(9_000) },
        { "type": "step.started", "span_id": "u", "payload": { "name": "untold" }, "at": ago(9_000) },
        { "type": "tool.started", "span_id": "t", "payload": { "name": "book" }, "at": ago(8_500) },
        { "type": "interrupt.requested", "span_id": "i", "payload": {} },
        { "type": "run.interrupted", "at": ago(8_000) },
        { "type": "run.resumed", "at": ago(3_000) },
        { "type": "tool.completed", "span_id": "t", "at": ago(2_500) },
        { "type": "step.completed", "span_id": "s", "payload": { "duration_ms": 0.938 }, "at": ago(2_000) },
        { "type": "step.completed", "span_id": "u", "at": ago(2_000) },
    ]);
    server.emit(&run, events).await;
    let (told, timeline) = (server.run(&run).await, server.get(&format!("/api/runs/{run}/timeline")).await.expect(200));
    for times in [&told, &timeline["summary"]] {
        assert_eq!(times["node_durations_ms"]["ask"], 0.938, "{times}");
        let waiting = times["node_waiting_ms"]["ask"].as_f64().unwrap();
        assert!((6_500.0..7_500.0).contains(&waiting), "{times}");
        let untold = times["node_durations_ms"]["untold"].as_f64().unwrap();
        assert!((1_500.0..2_500.0).contains(&untold), "{times}");
    }
    let tool = timeline["summary"]["tool_ms"].as_f64().unwrap();
    assert!((500.0..1_500.0).contains(&tool), "a person's time is no tool's: {timeline}");
    let view = "select count(*) from runreel.tool_calls where duration_ms < 1500 and waiting_ms between 4500 and 5500";
    assert_eq!(server.db.number(view).await, 1);
    let nodes = "select count(*) from runreel.node_durations where node = 'ask' and duration_ms = 0.938";
    assert_eq!(server.db.number(nodes).await, 1);
}

#[tokio::test]
async fn a_status_or_a_role_that_this_version_does_not_know_is_an_error_and_nothing_to_guess() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let mut connection = server.db.connect().await;
    let checks = "alter table store.run drop constraint run_status_check, drop constraint run_role_check;";
    for (column, known) in [("status", "running"), ("role", "agent")] {
        let newer = format!("{checks} update store.run set {column} = 'newer'");
        execute(&mut connection, newer).await;
        for path in [format!("/api/runs/{run}"), "/api/runs".to_owned()] {
            server.get(&path).await.refused(500, "internal");
        }
        let back = format!(
            "update store.run set {column} = '{known}';
             alter table store.run add constraint run_status_check check (true), add constraint run_role_check check (true)"
        );
        execute(&mut connection, back).await;
        server.get(&format!("/api/runs/{run}")).await.expect(200);
    }
}

#[tokio::test]
async fn a_runs_trace_is_its_requests_or_its_parents_or_begins_with_it() {
    let server = setup().config("[channels.web]\nagent = \"a\"\n").start().await;
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let traced = |path: &str, body: Value| {
        let request = server.request(reqwest::Method::POST, path).json(&body);
        let request = request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"));
        server.send(request)
    };
    let run = traced("/api/runs", json!({})).await.expect(201);
    assert_eq!(run["trace_id"], trace);
    let child = server.post("/api/runs", json!({ "parent_run_id": run["run_id"] })).await.expect(201);
    assert_eq!(child["trace_id"], trace, "what it works for is of the same trace");
    let other = server.post("/api/runs", json!({})).await.expect(201);
    let own = other["trace_id"].as_str().unwrap();
    assert!(own.len() == 32 && own != trace && own.bytes().all(|digit| digit.is_ascii_hexdigit()), "{own}");

    let message = json!({ "chat_id": "c", "user_id": "u", "text": "hello" });
    let said = traced("/api/channels/web/messages", message).await.expect(202);
    let run = server.run(said["run_id"].as_str().unwrap()).await;
    assert_eq!(run["trace_id"], trace);
    assert_eq!(run["origin"], json!({ "channel": "web", "chat": "c", "user": "u" }));
    // Whoever carries it out is told the same.
    let mut runner = server.runner(&["a"], 1).await;
    let assigned = runner.expect("run.assign").await["context"].clone();
    for member in ["trace_id", "origin", "session_id"] {
        assert_eq!(assigned[member], run[member], "{member}");
    }
}
