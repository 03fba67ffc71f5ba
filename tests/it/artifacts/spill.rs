//! Payloads that are too large for their event.

use serde_json::{Value, json};

use super::hash;
use crate::support::{
    api::{Api, stream_of},
    artifacts::files,
    runs::parsed,
    server::{Server, manual_clock, setup},
    shared::shared,
    sse::envelopes,
};

const LIMIT: usize = 64 * 1024;

/// A JSON object that is this many bytes long.
fn sized(bytes: usize) -> Value {
    json!({ "text": "é".repeat((bytes - 11) / 2) + &"x".repeat((bytes - 11) % 2) })
}

async fn events_of(server: &Api, run: &str) -> Vec<Value> {
    server.events(run).await.iter().map(parsed).collect()
}

async fn whole(server: &Api, event: &Value) -> String {
    let pointer = &event["payload"]["$artifact"];
    let bytes = server.bytes_of(pointer).await;
    assert_eq!((pointer["size"].as_u64(), &pointer["sha256"]), (Some(bytes.len() as u64), &json!(hash(&bytes))));
    assert_eq!(pointer["media_type"], "application/json");
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn a_payload_over_its_bound_becomes_an_artifact_and_every_reader_gets_the_same_pointer() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let mut live = server.stream(&stream_of(&run)).await;
    live.caught_up().await;
    let (fits, spills) = (sized(LIMIT), sized(LIMIT + 1));
    assert_eq!((fits.to_string().len(), spills.to_string().len()), (LIMIT, LIMIT + 1));
    let emitted = json!([
        { "type": "custom.fits", "payload": fits },
        { "type": "custom.spills", "payload": spills, "event_id": "e1", "span_id": "s" },
        { "type": "custom.bare", "payload": "y".repeat(7 * 1024 * 1024) },
    ]);
    assert_eq!(server.emit(&run, emitted).await["last_seq"], 5);
    let events = events_of(&server, &run).await;
    assert_eq!(events[2]["payload"], fits);
    assert_eq!((&events[3]["event_id"], &events[3]["span_id"]), (&json!("e1"), &json!("s")));
    assert_eq!(events[3]["payload"].as_object().unwrap().len(), 2);
    assert_eq!(whole(&server, &events[3]).await, spills.to_string());
    let preview = events[3]["payload"]["preview"].as_str().unwrap();
    assert!(spills.to_string().starts_with(preview) && (2_047..=2_048).contains(&preview.len()));
    assert_eq!(whole(&server, &events[4]).await.len(), 7 * 1024 * 1024 + 2);
    let live = envelopes(&live.durable(3).await);
    assert_eq!(live, server.events(&run).await[2..]);
    assert_eq!(live, server.ndjson(&run).await[2..]);
    let listed = server.artifacts(&run).await;
    let mut seqs: Vec<i64> = listed.iter().map(|artifact| artifact["seq"].as_i64().unwrap()).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, [4, 5]);
    assert!(listed.iter().all(|artifact| artifact["name"] == "payload.json"));
    assert_eq!(files(server.db.artifacts.path()).len(), 2);
}

#[tokio::test]
async fn a_repeated_emit_leaves_one_artifact() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let event = |id: &str, bytes: usize| json!({ "type": "custom.x", "event_id": id, "payload": sized(bytes) });
    let first = server.emit(&run, event("e", LIMIT + 9)).await;
    let again = server.emit(&run, event("e", LIMIT + 9)).await;
    assert_eq!((&again["first_seq"], &again["events"][0]["duplicate"]), (&first["first_seq"], &json!(true)));
    assert_eq!(server.emit(&run, event("e", LIMIT + 99)).await["events"][0]["duplicate"], true);
    let both = json!([event("e", LIMIT + 9), event("f", LIMIT + 5)]);
    futures::future::join_all((0..8).map(|_| server.emit(&run, both.clone()))).await;
    assert_eq!(server.run(&run).await["last_seq"], 4);
    assert_eq!(server.artifacts(&run).await.len(), 2);
    assert_eq!(server.db.number("select count(*) from store.artifact").await, 2);
    let events = events_of(&server, &run).await;
    assert_eq!(whole(&server, &events[2]).await, sized(LIMIT + 9).to_string());
    assert_eq!(whole(&server, &events[3]).await, sized(LIMIT + 5).to_string());
    server.complete(&run).await;
    assert_eq!(server.emit(&run, event("e", LIMIT + 9)).await["events"][0]["duplicate"], true);
    server.try_emit(&run, event("g", LIMIT + 1)).await.refused(409, "run_ended");
    assert_eq!(server.db.number("select count(*) from store.artifact").await, 2, "no row is without its event");
}

#[tokio::test]
async fn nothing_of_a_refused_emit_is_kept() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let large = json!({ "type": "custom.x", "payload": sized(LIMIT + 1) });
    server.try_emit(&run, json!([large, { "type": "run.resumed" }])).await.refused(409, "invalid_transition");
    server.try_emit(&run, json!([large, { "type": "not valid" }])).await.refused(400, "invalid_event");
    assert_eq!(server.db.number("select count(*) from store.artifact").await, 0);
    assert_eq!(server.run(&run).await["last_seq"], 2);
}

#[tokio::test]
async fn an_end_that_is_too_large_leaves_where_the_whole_is() {
    let server = shared().await;
    for (kind, member) in [("run.completed", "output"), ("run.failed", "error")] {
        let run = server.start_run().await;
        let payload = json!({ member: "z".repeat(LIMIT) });
        server.emit(&run, json!({ "type": kind, "payload": payload })).await;
        let (ended, events) = (server.run(&run).await, events_of(&server, &run).await);
        assert_eq!(ended[member], events[2]["payload"], "{kind}");
        assert_eq!(ended["last_seq"], 3);
        assert_eq!(whole(&server, &events[2]).await, payload.to_string());
    }
    let run = server.start_run().await;
    server.emit(&run, json!({ "type": "run.completed", "payload": { "output": "small" } })).await;
    assert_eq!(server.run(&run).await["output"], "small");
}

#[tokio::test]
async fn a_question_that_is_too_large_still_expires_and_is_answered() {
    let server = setup().clock(&manual_clock()).start().await;
    let run = server.start_run().await;
    let expires_at = server.clock.now() + chrono::TimeDelta::minutes(5);
    let question = json!({ "prompt": "p".repeat(LIMIT), "expires_at": expires_at.to_rfc3339(), "checkpoint_id": "c7" });
    let ask = |id: &str| json!([{ "type": "interrupt.requested", "span_id": id, "payload": question }, { "type": "run.interrupted" }]);
    let (path, yes) =
        (format!("/api/runs/{run}/resume"), |id: &str| json!({ "interrupt_id": id, "decision": "approve" }));
    server.emit(&run, ask("i")).await;
    server.post(&path, yes("i")).await.expect(202);
    let events = events_of(&server, &run).await;
    assert_eq!((&events[5]["type"], &events[5]["payload"]["checkpoint_id"]), (&json!("run.resumed"), &json!("c7")));
    server.emit(&run, ask("j")).await;
    server.pass(std::time::Duration::from_mins(6));
    server.post(&path, yes("j")).await.refused(409, "interrupt_closed");
    assert_eq!(server.run(&run).await["status"], "running");
}

#[tokio::test]
async fn a_message_that_is_too_large_is_listed_with_its_pointer() {
    let server = Server::start().await;
    let run = server.create(json!({ "thread_id": "t" })).await;
    let content = json!([{ "type": "text", "text": "m".repeat(LIMIT) }]);
    let large = json!({ "role": "user", "content": content, "usage": { "input": 7 } });
    let events = json!([
        { "type": "message.completed", "span_id": "m", "payload": large },
        { "type": "message.completed", "span_id": "n", "payload": { "text": "short" } },
    ]);
    server.emit(&run, events).await;
    let messages = server.pages("/api/threads/t/messages", "messages").await;
    let long = &messages[0];
    assert_eq!((&long["role"], &long["text"], &long["content"]), (&json!("user"), &Value::Null, &Value::Null));
    let bytes = server.bytes_of(&long["artifact"]).await;
    assert_eq!(serde_json::from_slice::<Value>(&bytes).unwrap()["content"], content);
    assert_eq!((&messages[1]["text"], &messages[1]["artifact"]), (&json!("short"), &Value::Null));
    assert!(messages[1].get("artifact").is_none());
    assert_eq!(server.db.number("select sum(tokens)::bigint from runreel.token_usage").await, 7);
    assert_eq!(server.db.number("select count(*) from runreel.messages").await, 2);
    server.get(&format!("/api/runs/{run}/timeline")).await.expect(200);
}
