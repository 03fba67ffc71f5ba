//! Silence: an open stream is told when a run stalls, and when it is heard again.

use std::time::Duration;

use serde_json::json;

use crate::support::{
    api::stream_of,
    runs::numbered,
    server::{manual_clock, setup},
};

#[tokio::test]
async fn open_streams_are_told_that_a_run_has_fallen_silent_and_that_a_heartbeat_ends_it() {
    let server = setup().clock(&manual_clock()).start().await;
    let run = server.create(json!({ "lease_ms": 60_000, "thread_id": "t" })).await;
    let other = server.create(json!({ "thread_id": "u" })).await;
    let told = async |path: &str| {
        let mark = if path.contains('?') { '&' } else { '?' };
        server.stream(&format!("{path}{mark}tail=0")).await
    };
    let mut streams = Vec::new();
    for path in [
        stream_of(&run),
        format!("{}?tree=true", stream_of(&run)),
        "/api/stream/threads/t".to_owned(),
        "/api/stream/runs?types=run.*".to_owned(),
    ] {
        streams.push(told(&path).await);
    }
    let mut others = [told(&stream_of(&other)).await, told("/api/stream/threads/u").await];
    for stream in streams.iter_mut().chain(&mut others) {
        assert_eq!(stream.caught_up().await, 0);
    }
    server.pass(Duration::from_secs(61));
    for stream in &mut streams {
        let frame = stream.next().await;
        assert_eq!((frame.event.as_str(), frame.id.as_deref()), ("stream.stalled", None));
        assert_eq!(frame.json(), json!({ "run_id": run, "stalled": true, "last_seq": 2 }));
    }
    assert_eq!(server.run(&run).await["stalled"], true);
    server.post(&format!("/api/runs/{run}/heartbeat"), json!({})).await.expect(204);
    for stream in &mut streams {
        assert_eq!(stream.next().await.json(), json!({ "run_id": run, "stalled": false, "last_seq": 2 }));
    }
    assert_eq!(server.run(&run).await["stalled"], false);
    // Whose runs hold no lease hears nothing of it.
    server.emit(&other, numbered(1)).await;
    for stream in &mut others {
        assert_eq!(stream.next().await.event, "custom.n");
    }
}
