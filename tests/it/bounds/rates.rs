//! Rates: who sends more than its own waits, and nobody else.

use reqwest::Method;
use serde_json::{Value, json};

use super::neighbours;
use crate::support::runs::numbered;

#[tokio::test]
async fn events_over_a_principals_rate_wait() {
    let (_server, a, b) = neighbours(&["--principal-events-per-second", "1"]).await;
    let (mine, theirs) = (a.start_run().await, b.start_run().await);
    let batch: Vec<Value> = (0..1_000).map(numbered).collect();
    a.emit(&mine, json!(batch)).await;
    let refusal = a.try_emit(&mine, numbered(0)).await;
    refusal.refused(429, "busy");
    let wait_s: u64 = refusal.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((900..=999).contains(&wait_s), "{wait_s}");
    b.emit(&theirs, numbered(0)).await;
    assert_eq!(a.run(&mine).await["last_seq"], 1_002);
}

#[tokio::test]
async fn runs_over_a_principals_rate_wait() {
    let (_server, a, b) = neighbours(&["--principal-runs-per-minute", "2"]).await;
    // As many at once as in a minute, and the one that goes beyond.
    for _ in 0..3 {
        a.start_run().await;
    }
    let refusal = a.post("/api/runs", json!({})).await;
    refusal.refused(429, "busy");
    let wait_s: u64 = refusal.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!((1..=30).contains(&wait_s), "{wait_s}");
    b.start_run().await;
}

#[tokio::test]
async fn bytes_over_a_principals_rate_wait_bodies_and_uploads_alike() {
    let (_server, a, b) = neighbours(&["--principal-kib-per-second", "1"]).await;
    let (mine, theirs) = (a.start_run().await, b.start_run().await);
    a.upload(&mine, "large", vec![7; 1024 * 1024]).await;
    let emit = a.try_emit(&mine, numbered(0)).await;
    let upload = a.request(Method::POST, &format!("/api/runs/{mine}/artifacts?name=b")).body("more");
    for refusal in [emit, a.send(upload).await] {
        refusal.refused(429, "busy");
        let wait_s: u64 = refusal.headers["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((900..=1_023).contains(&wait_s), "{wait_s}");
    }
    b.emit(&theirs, numbered(0)).await;
    a.get(&format!("/api/runs/{mine}")).await.expect(200);
}
