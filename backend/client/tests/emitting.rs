//! Emitting until it is stored, and when not to retry.

use super::*;

const PATIENCE: Duration = Duration::from_mins(1);

fn stored() -> Answer {
    Answer::json(&json!({"first_seq": 3, "last_seq": 3, "events": [
        {"seq": 3, "event_id": "e1", "duplicate": true}, {"seq": null, "event_id": null, "duplicate": false}]}))
}

#[tokio::test]
async fn the_same_bytes_go_out_until_they_are_acknowledged() {
    let script = [
        Answer::Close(Vec::new()),
        Answer::status("503 Service Unavailable", "retry-after: 2\r\n"),
        Answer::status("429 Too Many Requests", ""),
        stored(),
    ];
    let mut fake = Fake::start(script).await;
    let (client, noted) = client_of(&fake);
    let events = [
        json!({"type": "custom.x", "event_id": "e1", "payload": {"n": 1}}),
        json!({"type": "message.delta", "span_id": "m", "payload": {"text": "hi"}}),
    ];
    let ack = client.emit_until_stored("r", &events, PATIENCE).await.unwrap();
    assert_eq!((ack.first_seq, ack.last_seq), (Some(3), Some(3)));
    assert!(ack.events[0].duplicate);
    assert_eq!((ack.events[0].seq, ack.events[1].seq), (Some(3), None));
    assert_eq!(noted.waits_ms(), [250, 2_500, 1_000]);
    let first = fake.request().await;
    assert!(first.starts_with("POST /api/runs/r/events HTTP/1.1\r\n"), "{first}");
    assert!(first.contains("content-type: application/x-ndjson\r\n"), "{first}");
    assert!(
        first.ends_with(
            "\r\n\r\n{\"type\":\"custom.x\",\"event_id\":\"e1\",\"payload\":{\"n\":1}}\n\
        {\"type\":\"message.delta\",\"span_id\":\"m\",\"payload\":{\"text\":\"hi\"}}\n"
        ),
        "{first}"
    );
    for _ in 0..3 {
        assert_eq!(fake.request().await, first);
    }
}

#[tokio::test]
async fn a_refusal_is_not_repeated() {
    let refusal = Answer::problem(409, "Conflict", &json!({"code": "run_ended", "detail": "the run has ended"}));
    let fake = Fake::start([refusal]).await;
    let (client, noted) = client_of(&fake);
    let error = client.emit_until_stored("r", &[json!({"type": "a.b", "event_id": "1"})], PATIENCE).await.unwrap_err();
    assert_eq!(error.code.as_deref(), Some("run_ended"));
    assert!(noted.waits_ms().is_empty());
}

#[tokio::test]
async fn an_event_that_cannot_be_repeated_is_not_sent_at_all() {
    let fake = Fake::start([]).await;
    let events = [json!({"type": "a.b", "event_id": "1"}), json!({"type": "a.b"})];
    let error = client_of(&fake).0.emit_until_stored("r", &events, PATIENCE).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unusable);
    assert_eq!(error.to_string(), "event 2 has no event_id, so it cannot be retried");
}

#[tokio::test]
async fn patience_ends_before_a_wait_that_would_outlast_it() {
    let fake = Fake::start([Answer::status("503 Service Unavailable", "retry-after: 120\r\n")]).await;
    let (client, noted) = client_of(&fake);
    let error = client.emit_until_stored("r", &[json!({"type": "a.b", "event_id": "1"})], PATIENCE).await.unwrap_err();
    assert_eq!((error.kind, error.retry_after), (Kind::Busy, Some(Duration::from_mins(2))));
    assert!(noted.waits_ms().is_empty());
}

#[tokio::test]
async fn one_try_is_one_try() {
    let fake = Fake::start([Answer::Close(Vec::new())]).await;
    let error = client_of(&fake).0.emit("r", &[json!({"type": "a.b"})]).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unreachable);
}
