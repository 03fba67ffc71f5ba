//! Floods that write.

use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::attack::{Attacker, CONNECTIONS, PAYLOAD};

/// Opens so many MiB of text.
pub(super) async fn open_text(attacker: &Attacker, run_id: &str, mebibytes: usize) -> anyhow::Result<()> {
    let (client, text) = (attacker.client()?, "x".repeat(PAYLOAD));
    for span in 0..mebibytes {
        let delta = |_| json!({ "type": "message.delta", "span_id": format!("s{span}"), "payload": { "text": text } });
        let events: Vec<Value> = (0..16).map(delta).collect();
        attacker.emit(&client, run_id, &events).await;
    }
    Ok(())
}

/// Spans with names as long as they may be.
pub(super) async fn wide_spans(attacker: &Attacker, run_id: &str, spans: usize) -> anyhow::Result<()> {
    let (client, name) = (attacker.client()?, "x".repeat(PAYLOAD));
    let numbers: Vec<usize> = (0..spans).collect();
    for numbers in numbers.chunks(100) {
        let span =
            |n: &usize| json!({ "type": "tool.started", "span_id": format!("s{n}"), "payload": { "name": name } });
        let events: Vec<Value> = numbers.iter().map(span).collect();
        attacker.emit(&client, run_id, &events).await;
    }
    Ok(())
}

/// The same request on many connections, for ever.
async fn again(attacker: &Attacker, run_id: &str, events: impl Fn(usize) -> Vec<Value>) {
    let connections = (0..CONNECTIONS).map(|number| {
        let (attacker, run_id, events) = (attacker.clone(), run_id.to_owned(), events(number));
        tokio::spawn(async move {
            // One client has connections of its own.
            let Ok(client) = attacker.client() else { return };
            loop {
                attacker.emit(&client, &run_id, &events).await;
            }
        })
    });
    futures::future::join_all(connections.collect::<Vec<_>>()).await;
}

pub(super) async fn deltas(attacker: &Attacker, run_id: &str) {
    let delta =
        |n| vec![json!({ "type": "message.delta", "span_id": format!("tiny{}", n % 5), "payload": { "text": "x" } })];
    again(attacker, run_id, delta).await;
}

/// Events of a size at which the largest batch is almost the largest body.
pub(super) async fn events(attacker: &Attacker, run_id: &str, count: usize) {
    let fill = "x".repeat(1_400);
    let event = |n| json!({ "type": "custom.flood", "payload": { "n": n, "fill": fill } });
    again(attacker, run_id, |_| (0..count).map(event).collect()).await;
}

/// Large deltas on many runs, on some connections; their spans are closed before they are too long.
pub(super) async fn tokens(attacker: &Attacker, runs: &[String]) {
    let connections = runs.chunks(5).map(|runs| async move {
        let Ok(client) = attacker.client() else { return };
        let text = "x".repeat(PAYLOAD);
        for round in 0_u64.. {
            let span = format!("t{round}");
            for run_id in runs {
                let delta = |_| json!({ "type": "message.delta", "span_id": span, "payload": { "text": text } });
                let mut events: Vec<Value> = (0..15).map(delta).collect();
                events.push(json!({ "type": "message.completed", "span_id": span, "payload": {} }));
                attacker.emit(&client, run_id, &events).await;
            }
        }
    });
    futures::future::join_all(connections).await;
}

/// Jobs that take seconds each, as soon as there may be more.
pub(super) async fn jobs(attacker: &Attacker, count: usize) {
    let Ok(client) = attacker.client() else { return };
    loop {
        for _ in 0..count {
            let body = json!({ "agent": "slow", "start": false, "input": "go" });
            match client.create_run(&body).await {
                Ok(_) => attacker.note("201"),
                Err(error) => {
                    attacker.note(error.status.map_or_else(|| "cut".to_owned(), |status| status.to_string()));
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
        sleep(Duration::from_secs(10)).await;
    }
}
