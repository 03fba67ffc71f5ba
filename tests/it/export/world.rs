//! Two servers on two databases, and a log with everything that is odd.

use std::{path::PathBuf, sync::Arc};

use chrono::{DateTime, Utc};
use runreel::domain::{
    context::Role,
    event::Recorded,
    export::{Chain, RunWriter, Subject, Total, header, total_line},
    id::{RunId, Seq},
    json::Json,
};
use serde_json::{Value, json};

use crate::support::{
    api::{Api, Reply},
    cluster::Db,
    process::{Said, program, run},
    runs::{new_run_id, token},
    server::{Server, Setup, setup},
};

pub struct Pair {
    pub from: Server,
    pub to: Server,
    pub folder: tempfile::TempDir,
}

impl Pair {
    pub async fn start() -> Self {
        Self::between(setup()).await
    }

    /// A server of this kind, and a plain one.
    pub async fn between(first: Setup) -> Self {
        let [source, target] = Db::two().await;
        let (from, to) = (first.on(&source).start().await, setup().on(&target).start().await);
        Self { from, to, folder: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Exports into a file and gives its bytes.
    pub async fn export(&self, server: &Server, name: &str, words: &[&str]) -> Vec<u8> {
        let path = self.path(name);
        let said = command(server, &[&["export", "-o", path.to_str().unwrap()], words].concat(), "").await;
        check(&said, 0);
        std::fs::read(path).unwrap()
    }

    pub async fn import(&self, name: &str, words: &[&str]) -> Said {
        let path = self.path(name);
        command(&self.to, &[&["import", path.to_str().unwrap()], words].concat(), "").await
    }

    /// Writes a file and imports it.
    pub async fn import_bytes(&self, bytes: impl AsRef<[u8]>, words: &[&str]) -> Said {
        std::fs::write(self.path("given"), bytes).unwrap();
        self.import("given", words).await
    }
}

pub async fn command(server: &Server, words: &[&str], stdin: &str) -> Said {
    let mut command = program(words);
    command.env("RUNREEL_URL", &server.base);
    run(command, stdin).await
}

#[track_caller]
pub fn check(said: &Said, code: i32) {
    assert_eq!(said.code, Some(code), "stdout: {}\nstderr: {}", said.stdout, said.stderr);
}

#[track_caller]
pub fn says(said: &Said, text: &str) {
    assert!(said.stderr.contains(text), "{text:?} is not in {:?}", said.stderr);
}

pub async fn count_runs(api: &Api) -> usize {
    api.get("/api/runs?limit=1000").await.expect(200)["runs"].as_array().unwrap().len()
}

/// The same but for whose it is.
pub fn without_owner(text: &str) -> String {
    match text.find("\"owner_id\":\"") {
        Some(at) => format!("{}{}", &text[..at], &text[at + "\"owner_id\":\"".len() + 64..]),
        None => text.to_owned(),
    }
}

/// The runs of [`fill`], by what they are.
pub struct World {
    pub root: String,
    pub child: String,
    pub grandchild: String,
    pub asking: String,
    pub running: String,
    pub failed: String,
    pub queued: String,
    pub old: String,
    pub artifacts: Vec<Value>,
}

/// Fills a server with runs of all kinds.
pub async fn fill(api: &Api) -> World {
    let root = api
        .create(
            json!({ "external_id": "order/1", "thread_id": "t:1", "session_id": "s-1", "agent": "a\"b", "role": "supervisor", "title": "ü \"x\"",
            "input": { "z": 1, "a": [null] }, "metadata": { "k": "v" }, "tags": ["x", "y"] }),
        )
        .await;
    let odd = r#"[{"type":"custom.odd","payload":{"b" : 1.50,"a":1e400,"a":"\ud83d\ude00 \u2028 é","n":-0.0},"at":"2020-02-29T23:59:59.123456789+01:00"},
        {"type":"tool.started","span_id":"c \"1\"","event_id":"k-1","payload":{"name":"search"}},
        {"type":"tool.completed","span_id":"c \"1\"","parent_span_id":"p","event_id":"é-2","payload":[1,2.0,3e0]},
        {"type":"my_app.text","payload":"plain"},{"type":"log.info"}]"#;
    assert_eq!(api.emit_text(&root, odd).await.status, 200);
    let large = json!({ "type": "tool.completed", "span_id": "big", "payload": { "result": "é".repeat(50_000) } });
    api.emit(&root, json!([large, { "type": "run.waiting" }])).await;
    let child = api.child_of(&root).await;
    let grandchild = api.child_of(&child).await;
    let mut artifacts = vec![api.upload(&child, "a \u{1f5dd}.txt", "the same bytes").await];
    artifacts.push(api.upload(&grandchild, "twin", "the same bytes").await);
    artifacts.push(api.upload(&child, "nothing", "").await);
    artifacts.push(api.upload(&child, "large", vec![7u8; 300_000]).await);
    api.emit(
        &grandchild,
        json!([token("m", "tok"), { "type": "message.completed", "span_id": "m",
        "payload": { "content": [{ "type": "text", "text": "tok" }] } }, { "type": "run.completed" }]),
    )
    .await;
    api.emit(&child, json!([{ "type": "run.completed", "payload": { "output": { "n": 1 } } }])).await;
    api.emit(&root, json!([{ "type": "run.resumed" }, { "type": "run.completed", "payload": { "output": "done" } }]))
        .await;
    let asking = api.create(json!({ "thread_id": "t:1" })).await;
    api.emit(
        &asking,
        json!([{ "type": "interrupt.requested", "span_id": "i-1", "payload": { "prompt": "?" } },
        { "type": "run.interrupted" }]),
    )
    .await;
    let answer = json!({ "interrupt_id": "i-1", "decision": "respond", "value": { "b": 1, "a": 2 } });
    api.post(&format!("/api/runs/{asking}/resume"), answer).await.expect(202);
    let running = api.create(json!({ "lease_ms": 50_000 })).await;
    api.emit_many(&running, 0, 2_500).await;
    let failed = api.start_run().await;
    api.emit(&failed, json!({ "type": "run.failed", "payload": { "error": { "message": "no" } } })).await;
    let queued = api.create(json!({ "start": false, "agent": "nobody-serves-this" })).await;
    let old = "01800000-0000-7000-8000-00000000abcd".to_owned();
    api.import_text(&old, piece(&lines_of(&old, 3))).await.expect(201);
    World { root, child, grandchild, asking, running, failed, queued, old, artifacts }
}

impl Api {
    /// Brings a part of a run.
    pub async fn import_text(&self, run: &str, body: impl Into<reqwest::Body>) -> Reply {
        self.post_text(&format!("/api/runs/{run}/import"), "application/x-ndjson", body).await
    }
}

/// The lines of a run as an export has them, its own and its end's included, made by hand.
pub fn lines_of(run: &str, events: usize) -> Vec<String> {
    lines_below(run, None, &vec![("custom.n", "{}"); events])
}

/// As [`lines_of`], of a run at the top or right below it.
pub fn lines_below(run: &str, parent: Option<&str>, events: &[(&str, &str)]) -> Vec<String> {
    lines_in(run, parent.unwrap_or(run), parent, events)
}

/// As [`lines_of`], of a run anywhere in a tree.
pub fn lines_in(run: &str, root: &str, parent: Option<&str>, events: &[(&str, &str)]) -> Vec<String> {
    let run_id: RunId = run.parse().unwrap();
    let subject = Subject { run_id, role: Role::Agent, agent: None, origin: None, trace_id: None };
    let (mut telling, line) = RunWriter::begin(&subject);
    let mut lines = vec![line];
    let parent = json!(parent);
    let created = format!(
        "{{\"title\":\"by hand\",\"input\":null,\"metadata\":{{}},\"tags\":[],\"root_run_id\":\"{root}\",\
         \"parent_run_id\":{parent},\"thread_id\":\"t-hand\",\"session_id\":null,\"lease_ms\":null}}"
    );
    let all = [("run.created", created.as_str()), ("run.started", "{}")].into_iter().chain(events.iter().copied());
    for ((event_type, payload), seq) in all.zip(1..) {
        let at: DateTime<Utc> = DateTime::from_timestamp_micros(1_650_000_000_000_001 + seq).unwrap();
        let event = Recorded {
            run_id,
            seq: Seq::new(seq),
            event_type: event_type.parse().unwrap(),
            role: Role::Agent,
            agent: None,
            owner_id: Arc::from(""),
            span_id: (event_type.starts_with("interrupt")).then(|| "i".parse().unwrap()),
            parent_span_id: None,
            event_id: Some(format!("key-{seq}").parse().unwrap()),
            at,
            payload: Json::parse(payload).unwrap(),
        };
        lines.push(telling.event(&event).unwrap());
    }
    lines.push(telling.end());
    lines
}

/// A whole file of these runs.
pub fn file_of(runs: &[Vec<String>]) -> String {
    let mut chain = Chain::of(&header());
    let (mut text, mut events) = (header() + "\n", 0);
    for lines in runs {
        chain.add(lines.last().unwrap());
        events += lines.len() as u64 - 2;
        text += &(lines.join("\n") + "\n");
    }
    text + &total_line(&Total { runs: runs.len() as u64, events, sha256: chain.hash() }) + "\n"
}

/// The part of a run that has all its events.
pub fn piece(lines: &[String]) -> String {
    lines[..lines.len() - 1].join("\n") + "\n"
}

/// A run id of another moment.
pub fn run_id_at(time: DateTime<Utc>) -> String {
    let fresh = new_run_id();
    let millis = format!("{:012x}", time.timestamp_millis());
    format!("{}-{}{}", &millis[..8], &millis[8..], &fresh[13..])
}

/// The lines of an export, each with its one member's name.
pub fn kinds(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
}
