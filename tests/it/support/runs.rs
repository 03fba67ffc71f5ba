//! Runs and events in tests, and what must hold of any log.

use serde_json::{Value, json};

use super::api::Api;

impl Api {
    /// A run that has started: its log has `run.created` and `run.started`.
    pub async fn start_run(&self) -> String {
        self.create(json!({})).await
    }

    /// A run created with this request.
    pub async fn create(&self, body: Value) -> String {
        let run = self.post("/api/runs", body).await.expect(201);
        run["run_id"].as_str().unwrap().to_owned()
    }

    /// A child run of another.
    pub async fn child_of(&self, parent: &str) -> String {
        self.create(json!({ "parent_run_id": parent, "role": "worker" })).await
    }

    /// Emits `count` small events in batches; their payloads are numbered from `first`.
    pub async fn emit_many(&self, run: &str, first: usize, count: usize) {
        for start in (first..first + count).step_by(500) {
            let batch: Vec<Value> = (start..(start + 500).min(first + count)).map(numbered).collect();
            self.emit(run, Value::Array(batch)).await;
        }
    }

    /// The run's last event.
    pub async fn complete(&self, run: &str) {
        self.emit(run, json!({ "type": "run.completed", "payload": { "output": "done" } })).await;
    }

    /// A run that has ended with `count` numbered events in it.
    pub async fn ended_run(&self, count: usize) -> String {
        let run = self.start_run().await;
        self.emit_many(&run, 0, count).await;
        self.complete(&run).await;
        run
    }
}

/// A small event with a number.
pub fn numbered(n: usize) -> Value {
    json!({ "type": "custom.n", "payload": { "n": n } })
}

/// A piece of a message.
pub fn token(span: &str, text: &str) -> Value {
    json!({ "type": "message.delta", "span_id": span, "payload": { "text": text } })
}

/// The seqs of some envelopes.
pub fn seqs<S: AsRef<str>>(events: &[S]) -> Vec<i64> {
    events.iter().map(|event| parsed(event)["seq"].as_i64().unwrap()).collect()
}

pub fn parsed<S: AsRef<str>>(event: &S) -> Value {
    serde_json::from_str(event.as_ref()).unwrap()
}

/// Per run 1, 2, 3 … without a gap.
#[track_caller]
pub fn assert_contiguous<S: AsRef<str>>(events: &[S], last: i64) {
    let expected: Vec<i64> = (1..=last).collect();
    assert_eq!(seqs(events), expected);
}

/// A new run id, as a client would choose one.
pub fn new_run_id() -> String {
    uuid::Uuid::now_v7().to_string()
}
