//! Writers: singles, batches and messages with their deltas, every durable event under its own `event_id`, retried
//! until the server acknowledges it. What was sent and what was answered is kept for the judge.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use runreel::{client::Client, wire::events::EmitReply};
use serde_json::{Value, json};
use tokio::{task::JoinHandle, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::{
    judge::{Ack, Attempts, Run, print_of},
    reader::lock,
};

/// How long a writer retries.
const PATIENCE: Duration = Duration::from_secs(90);
/// Texts that have broken loggers before.
const TEXTS: [&str; 6] = [
    "plain",
    "zwölf Boxkämpfer 🥊",
    "a\nb\r\nc",
    "\u{2028}\u{2029}\u{feff}",
    "\"quoted\\\" </script>",
    "data: x\n\nid: 7",
];

/// What all writers of a scenario have done.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    pub(crate) attempts: Mutex<Attempts>,
    pub(crate) acks: Mutex<Vec<Ack>>,
    /// Durable events acknowledged.
    pub(crate) acknowledged: AtomicU64,
    /// Requests in flight.
    pub(crate) in_flight: AtomicU64,
    pub(crate) deltas: AtomicU64,
    /// Errors that no client should have received.
    pub(crate) errors: Mutex<Vec<String>>,
}

impl Traffic {
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub(crate) fn complain(&self, why: String) {
        lock(&self.errors).push(why);
    }

    /// Records what is about to be sent.
    pub(crate) fn attempt(&self, run: Run, events: &[Value]) {
        let mut attempts = lock(&self.attempts);
        for event in events {
            if let Some(event_id) = event["event_id"].as_str() {
                attempts.insert((run, event_id.to_owned()), print_of(&event["payload"].to_string()));
            }
        }
    }

    /// Records what the server answered, and an error if the answer does not match these events.
    pub(crate) fn answered(&self, run: Run, events: &[Value], ack: &EmitReply) {
        if ack.events.len() != events.len() {
            self.complain(format!("{} events were answered with {} entries", events.len(), ack.events.len()));
        }
        for (event, answer) in events.iter().zip(&ack.events) {
            match (event["event_id"].as_str(), answer.seq.map(u64::try_from)) {
                (Some(event_id), Some(Ok(seq))) => {
                    lock(&self.acks).push(Ack { run, event_id: event_id.to_owned(), seq });
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                (None, None) => _ = self.deltas.fetch_add(1, Ordering::Relaxed),
                _ => self.complain(format!("{event} was answered with {answer:?}")),
            }
        }
    }
}

/// Emits on one run until `stop`.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) client: Client,
    pub(crate) run: Run,
    pub(crate) run_id: String,
    pub(crate) name: String,
    pub(crate) seed: u64,
    /// Longest pause between two emits, milliseconds.
    pub(crate) pause_ms_max: u64,
}

impl Writer {
    pub(crate) fn start(self, traffic: Arc<Traffic>, stop: CancellationToken) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut rng = StdRng::seed_from_u64(self.seed);
            let mut number = 0;
            while !stop.is_cancelled() {
                if self.emit_some(&traffic, &mut rng, &mut number).await.is_none() {
                    return;
                }
                sleep(Duration::from_millis(rng.random_range(0..=self.pause_ms_max))).await;
            }
        })
    }

    /// One event, a batch, or a whole message.
    async fn emit_some(&self, traffic: &Traffic, rng: &mut StdRng, number: &mut u64) -> Option<()> {
        match rng.random_range(0..10) {
            0..5 => self.emit(traffic, &[self.event(rng, number)]).await,
            5..8 => {
                let count = rng.random_range(2..40);
                let batch: Vec<Value> = (0..count).map(|_| self.event(rng, number)).collect();
                self.emit(traffic, &batch).await
            }
            _ => self.message(traffic, rng, number).await,
        }
    }

    async fn message(&self, traffic: &Traffic, rng: &mut StdRng, number: &mut u64) -> Option<()> {
        let span = format!("{}-m{number}", self.name);
        let mut whole = String::new();
        for _ in 0..rng.random_range(1..6) {
            let text = TEXTS[rng.random_range(0..TEXTS.len())];
            whole.push_str(text);
            let delta = json!({ "type": "message.delta", "span_id": span, "payload": { "text": text } });
            self.emit(traffic, &[delta]).await?;
        }
        *number += 1;
        let event_id = format!("{}-{number}", self.name);
        let payload = json!({ "role": "assistant", "text": whole });
        let event = json!({ "type": "message.completed", "span_id": span, "event_id": event_id, "payload": payload });
        self.emit(traffic, &[event]).await
    }

    fn event(&self, rng: &mut StdRng, number: &mut u64) -> Value {
        *number += 1;
        event(&self.name, *number, rng)
    }

    /// Emits until it is stored; `None` if the server rejects it.
    async fn emit(&self, traffic: &Traffic, events: &[Value]) -> Option<()> {
        traffic.attempt(self.run, events);
        traffic.in_flight.fetch_add(1, Ordering::Relaxed);
        let answer = self.client.emit_until_stored(&self.run_id, events, PATIENCE).await;
        traffic.in_flight.fetch_sub(1, Ordering::Relaxed);
        match answer {
            Ok(ack) => traffic.answered(self.run, events, &ack),
            Err(error) => {
                traffic.complain(format!("{} gave up: {error} ({:?}, {:?})", self.name, error.status, error.code));
                return None;
            }
        }
        Some(())
    }
}

/// An event whose payload is sometimes awkward.
pub(crate) fn event(writer: &str, number: u64, rng: &mut StdRng) -> Value {
    let text = TEXTS[rng.random_range(0..TEXTS.len())];
    let payload = json!({
        "n": number, "by": writer, "text": text, "ratio": rng.random::<f64>(), "big": u64::MAX - number,
        "fill": "x".repeat(rng.random_range(0..200)),
    });
    json!({ "type": "custom.chaos", "event_id": format!("{writer}-{number}"), "payload": payload })
}
