//! Floods that write.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use runreel::wire::runs::CreateRun;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use super::attack::{Attacker, CONNECTIONS, PAYLOAD};

/// Opens this many MiB of text.
pub(super) async fn open_text(attacker: &Attacker, run_id: &str, mebibytes: usize) -> anyhow::Result<()> {
    let (client, text) = (attacker.client()?, "x".repeat(PAYLOAD));
    for span in 0..mebibytes {
        let delta = |_| json!({ "type": "message.delta", "span_id": format!("s{span}"), "payload": { "text": text } });
        let events: Vec<Value> = (0..16).map(delta).collect();
        attacker.emit(&client, run_id, &events).await;
    }
    Ok(())
}

/// Spans with names of the maximum length.
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

/// A checkpoint with this many MiB of values, and as many of pending writes.
pub(super) async fn checkpoint(attacker: &Attacker, mebibytes: usize) -> anyhow::Result<()> {
    let (client, half) = (attacker.client()?, STANDARD.encode(vec![7; mebibytes * 512 * 1024]));
    let value = json!({ "version": 1, "t": "bytes", "b": half });
    for (id, channel) in [("1", "a"), ("2", "b")] {
        let body = json!({
            "checkpoint": { "t": "null" }, "versions": { "a": 1, "b": 1 }, "blobs": { channel: value },
        });
        client.put::<Value>(&["threads", "flood", "checkpoints", id], &body).await?;
        let write = json!({ "idx": 0, "channel": "c", "t": "bytes", "b": half });
        let writes = json!({ "task_id": channel, "writes": [write] });
        client.put::<Value>(&["threads", "flood", "checkpoints", "2", "writes"], &writes).await?;
        attacker.note("put");
    }
    Ok(())
}

/// The same request on many connections, forever.
async fn again(attacker: &Attacker, run_id: &str, events: impl Fn(usize) -> Vec<Value>) {
    let connections = (0..CONNECTIONS).map(|number| {
        let (attacker, run_id, events) = (attacker.clone(), run_id.to_owned(), events(number));
        tokio::spawn(async move {
            // Each client has its own connections.
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

/// Events that just fit into a row of the log, one after the other on each run.
pub(super) async fn large(attacker: &Attacker, runs: &[String]) {
    let emitting = runs.iter().map(|run_id| async move {
        let Ok(client) = attacker.client() else { return };
        let event = [json!({ "type": "custom.large", "payload": { "fill": "x".repeat(PAYLOAD) } })];
        loop {
            attacker.emit(&client, run_id, &event).await;
            sleep(Duration::from_millis(100)).await;
        }
    });
    futures::future::join_all(emitting).await;
}

/// Runs that are created, ended and deleted, and many that do not exist.
pub(super) async fn deletions(attacker: &Attacker) {
    let deleting = (0..CONNECTIONS).map(|number| async move {
        let Ok(client) = attacker.client() else { return };
        for round in 0_u64.. {
            let mut run_id = "01900000-0000-7000-8000-000000000000".to_owned();
            if number % 4 == 0 && round % 4 == 0 {
                let Ok(run) = client.create_run(&CreateRun::default()).await else { continue };
                run_id = run.run_id.to_string();
                _ = client.cancel(&run_id, None).await;
            }
            let deleted = client.delete(&["runs", &run_id]).await;
            let status = |status: Option<u16>| status.map_or_else(|| "cut".to_owned(), |status| status.to_string());
            attacker.note(deleted.map_or_else(|error| status(error.status), |()| "204".to_owned()));
        }
    });
    futures::future::join_all(deleting).await;
}

/// Jobs that take seconds each, as soon as more are allowed.
pub(super) async fn jobs(attacker: &Attacker, count: usize) {
    let Ok(client) = attacker.client() else { return };
    loop {
        for _ in 0..count {
            match client.create_run(&super::slow()).await {
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
