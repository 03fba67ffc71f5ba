//! The control frames of `docs/protocol.md`, as a live server writes them.

use serde_json::{Value, json};

use crate::support::{
    runs::token,
    server::Server,
    shared::shared,
    sse::{Frame, Stream},
};

/// The members of a frame's data in the order in which they are written, and which of them is a number, a text …
fn form(data: &str) -> Vec<(String, &'static str)> {
    let members: serde_json::Map<String, Value> =
        serde_json::from_str(data).unwrap_or_else(|error| panic!("{error}: {data}"));
    let mut found: Vec<(usize, String, &'static str)> = members
        .into_iter()
        .map(|(name, value)| {
            let kind = match value {
                Value::Null => "null",
                Value::Number(_) => "number",
                Value::String(_) => "text",
                _ => "other",
            };
            (data.find(&format!("\"{name}\":")).unwrap(), name, kind)
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, name, kind)| (name, kind)).collect()
}

/// The examples of a frame in the guide's table.
fn examples(event: &str) -> Vec<Vec<(String, &'static str)>> {
    let guide = include_str!("../../docs/protocol.md");
    let row = guide.lines().find(|line| line.starts_with(&format!("| `{event}` |"))).unwrap();
    let cell = row.split('|').nth(2).unwrap();
    cell.split('`').filter(|text| text.starts_with('{')).map(form).collect()
}

fn agrees(frame: &Frame) {
    let examples = examples(&frame.event);
    assert!(examples.contains(&form(&frame.data)), "{} is none of {examples:?}", frame.data);
}

#[tokio::test]
async fn the_guides_example_of_a_run_has_the_members_and_the_order_of_a_live_one() {
    let guide = include_str!("../../docs/protocol.md");
    let (_, section) = guide.split_once("### A run\n\n```json\n").unwrap();
    let names = |text: &str| form(text).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    let server = shared().await;
    let created = server.post("/api/runs", json!({})).await;
    assert_eq!(names(section.split_once("```").unwrap().0), names(&created.text));
}

async fn next(stream: &mut Stream, event: &str) -> Frame {
    stream.until(event).await.pop().unwrap()
}

#[tokio::test]
async fn the_guides_examples_of_frames_have_the_members_and_the_order_of_live_ones() {
    let server = Server::start().await;
    let run = server.start_run().await;
    server.emit(&run, json!([{ "type": "log.info" }, token("m1", "Hello, wörld")])).await;
    let path = format!("/api/stream/runs/{run}");
    let (mut of_run, mut of_all) = (server.stream(&path).await, server.stream("/api/stream/runs").await);
    for (stream, event) in [(&mut of_run, "stream.caught_up"), (&mut of_all, "stream.caught_up")] {
        agrees(&next(stream, event).await);
    }
    agrees(&next(&mut of_run, "message.snapshot").await);
    let middle = server.stream(&format!("{path}?after=1")).await.next().await.id.unwrap();
    server.complete(&run).await;
    agrees(&next(&mut of_run, "stream.end").await);

    let mut feed = server.stream("/api/stream/runs").await;
    let place = feed.next().await.id.unwrap();
    feed.caught_up().await;
    assert_eq!(middle, "2");
    server.delete(&format!("/api/runs/{run}")).await.expect(204);
    agrees(&next(&mut server.stream(&format!("/api/stream/runs?after={place}")).await, "stream.gap").await);
    server.begin_stop();
    agrees(&next(&mut feed, "stream.draining").await);
}
