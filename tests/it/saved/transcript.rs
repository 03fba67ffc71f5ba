//! A session that was saved by the fallback, written down: `docs/saved-sessions.md` is what this says, word for word.

use std::fmt::Write as _;

use chrono::DateTime;
use runreel::clock::Clock;
use serde_json::{Value, json};

use super::{Ground, SAVED, foreign, heard, listener};
use crate::{
    agents::{ask, response},
    support::threads::bytes_of,
};

const HEAD: &str = "# A session of an unknown framework

A thread whose checkpoint this server cannot read can still be saved: its messages are taken from the log, the file is
marked as a fallback, and a restore creates a summary from which the next run continues. The page is recorded from a
real server with real sockets and a real Postgres; the clock is fixed, and the model returns scripted answers. A test
generates this page and fails when it differs. File format and names are in [protocol.md](protocol.md#saved-sessions),
the location of the files in [operations.md](operations.md#saved-sessions).
";

struct Page {
    text: String,
}

impl Page {
    fn title(&mut self, title: &str, about: &str) {
        writeln!(self.text, "\n## {title}\n\n{about}\n").unwrap();
    }

    fn block(&mut self, language: &str, text: &str) {
        writeln!(self.text, "```{language}\n{}\n```", text.trim_end()).unwrap();
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

#[tokio::test]
async fn the_page_of_a_saved_session_is_what_happens() {
    let (models, config) = listener(&["The 14:20 was the cheapest. Shall I book it?"]).await;
    let clock = Clock::manual(DateTime::from_timestamp(1_780_308_000, 0).unwrap());
    let ground = Ground::new();
    let server = ground.setup(&config).clock(&clock).start().await;
    let mut page = Page { text: HEAD.to_owned() };

    page.title(
        "What there is",
        "An agent of a framework called acme has worked on the thread `rome`. It writes events to its log and keeps its state \
         in its own format:",
    );
    let talk = server.create(json!({ "thread_id": "rome", "agent": "acme-agent" })).await;
    let long = format!("Now find me a train from there to Naples{}", ", and one back".repeat(15));
    let told = json!([
        { "type": "message.completed", "payload": { "role": "user", "content": "What is the weather in Rome?" } },
        { "type": "tool.started", "span_id": "call-1", "payload": { "name": "weather", "args": { "city": "Rome" } } },
        { "type": "tool.completed", "span_id": "call-1", "payload": { "name": "weather", "result": "warm" } },
        { "type": "message.completed", "payload": { "role": "assistant", "content": [{ "type": "text", "text": "It is warm." }] } },
        { "type": "message.completed", "payload": { "role": "user", "content": long } },
        { "type": "tool.started", "span_id": "call-2", "payload": { "name": "trains", "args": { "to": "Naples" } } },
        { "type": "tool.started", "span_id": "call-3", "payload": { "name": "weather", "args": { "city": "Naples" } } },
        { "type": "message.completed", "payload": { "role": "assistant", "content": "There are three of them." } },
        { "type": "run.completed", "payload": {} },
    ]);
    server.emit(&talk, told).await;
    let checkpoint = json!({ "checkpoint": foreign(), "versions": { "memory": 7 } });
    server.put_checkpoint("rome", "acme-0007", checkpoint.clone()).await;
    page.block("", &format!("PUT /api/threads/rome/checkpoints/acme-0007\n{checkpoint}"));

    page.title("Saved", "The state cannot be read, so the response has `fallback`.");
    let body = json!({ "name": "rome-trip", "thread_id": "rome", "description": "Rome, then Naples" });
    let saved = server.post(SAVED, body.clone()).await;
    page.block("", &format!("POST {SAVED}\n{body}\n\n{}\n{}", saved.status, pretty(&saved.json())));
    page.text.push_str("\nThe file, `rome-trip.json` in the folder of saved sessions:\n\n");
    page.block("json", &std::fs::read_to_string(ground.file("rome-trip.json")).unwrap());

    page.title("Restored", "A new thread, possibly on another server, whose state is one message: the summary.");
    let to = json!({ "thread_id": "rome-again" });
    let made = server.post(&format!("{SAVED}/rome-trip/restore"), to.clone()).await;
    let mut answer = made.json();
    answer["checkpoint_id"] = json!("…");
    page.block("", &format!("POST {SAVED}/rome-trip/restore\n{to}\n\n{}\n{}", made.status, pretty(&answer)));
    let kept = server.get("/api/threads/rome-again/checkpoints/latest").await.expect(200);
    let messages: Value = serde_json::from_slice(&bytes_of(&kept["blobs"]["messages"])).unwrap();
    assert_eq!(messages.as_array().unwrap().len(), 1);
    page.text.push_str("\nThe message:\n\n");
    page.block("", messages[0]["content"].as_str().unwrap());

    page.title("The next run", "Any agent of this server can continue from it. Its model received this prompt:");
    let run = ask(&server, "assistant", "Which train was the cheapest?", json!({ "thread_id": "rome-again" })).await;
    let answer = response(&server, &run).await;
    let asked = heard(&models, 0);
    let first = asked[0].1.lines().next().unwrap();
    page.block("", &format!("{:<9} {first} …\n{:<9} {}", asked[0].0, asked[1].0, asked[1].1));
    page.text.push_str("\nIts answer:\n\n");
    page.block("", &format!("{:<9} {answer}", "assistant"));
    assert_eq!(asked.len(), 2);

    let committed = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/saved-sessions.md");
    let written = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("saved-sessions.md");
    std::fs::write(&written, &page.text).unwrap();
    let is_fresh = std::fs::read_to_string(&committed).is_ok_and(|committed| committed == page.text);
    assert!(is_fresh, "docs/saved-sessions.md is not what happened; what did is in {}", written.display());
}
