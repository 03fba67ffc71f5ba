//! The doors: how an input is sent to each, and what its answer must be.

use std::borrow::Cow;

use anyhow::{Context as _, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::ValueEnum;
use futures::{SinkExt as _, StreamExt as _};
use rand::{RngExt as _, rngs::StdRng, seq::IndexedRandom as _};
use reqwest::{Method, RequestBuilder, Response};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio_tungstenite::{
    connect_async,
    tungstenite::{Message, client::IntoClientRequest as _},
};

use super::{
    answer::{Answer, Waits, escaped, judged, leading_number, shown, without_space},
    change::changed,
};
use crate::site::http_client;

/// Where bytes come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Door {
    Cursor,
    Events,
    Token,
    Names,
    Frames,
    Import,
    Checkpoint,
    SavedSession,
}

/// A server, and a valid input of each kind.
pub(super) struct Doors {
    client: reqwest::Client,
    url: String,
    token: String,
    /// A run that goes on, and one that has ended.
    open: String,
    ended: String,
    last_seq: u64,
    /// The id of a third one and its lines, without the last.
    export: (String, String),
    /// The file of a session with the name [`SAVED`].
    saved: String,
    cursors: Vec<Vec<u8>>,
    pub(super) waits: Waits,
}

/// The name of a session that other inputs do not have.
const SAVED: &str = "saved-session";

/// What must be read of an event as it was sent.
#[derive(Deserialize)]
struct Sent<'a> {
    r#type: Cow<'a, str>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
}

/// Longer payloads may have become artifacts.
const SPILLED_BYTES: usize = 60_000;

/// A state, packed: `{"v": 1, "messages": [["user", "hello"], ["ai", "hello yourself"]]}`.
const STATE: &[u8] = b"\x82\xa1v\x01\xa8messages\x92\x92\xa4user\xa5hello\x92\xa2ai\xaehello yourself";

const EVENTS: [&str; 4] = [
    r#"{"type":"log.info","payload":{"message":"hello","n":1.50}}"#,
    r#"[{"type":"tool.started","span_id":"t1","payload":{"name":"search","args":{"q":"é"}}},{"type":"tool.completed","span_id":"t1","payload":{"result":[1,2]}}]"#,
    r#"{"type":"message.delta","span_id":"m1","payload":{"text":"Hel"}}"#,
    r#"{"type":"custom.thing","event_id":"e-1","at":"2026-01-02T03:04:05.678Z","parent_span_id":"t1","payload":[null,true,"x"]}"#,
];

const FRAMES: [&str; 5] = [
    r#"{"type":"hello","runner":"fuzz","agents":["a"],"capacity":1}"#,
    r#"{"type":"hello","runner":"fuzz","agents":["a"],"capacity":1,"resume":{"lease_id":"x","last_acked":{}}}"#,
    r#"{"type":"event","run_id":"01a20000-0000-7000-8000-000000000000","n":1,"events":[{"type":"log.info","payload":{}}]}"#,
    r#"{"type":"done","run_id":"01a20000-0000-7000-8000-000000000000"}"#,
    r#"{"type":"heartbeat"}"#,
];

/// Longer addresses do not leave the client.
const NAME_BYTES_MAX: usize = 4_000;

const GOES_ON: &str = "goes on";

const NAMES: [&str; 6] = [
    "thread-1",
    "01a20000-0000-7000-8000-000000000000",
    "a/b c",
    "naïve Ω",
    "latest",
    "0123456789abcdef0123456789abcdef",
];

impl Doors {
    pub(super) async fn open(url: &str, token: String) -> anyhow::Result<Self> {
        let client = http_client()?;
        let mut doors = Self {
            client,
            url: url.to_owned(),
            token,
            open: String::new(),
            ended: String::new(),
            last_seq: 0,
            export: (String::new(), String::new()),
            saved: String::new(),
            cursors: Vec::new(),
            waits: Waits::default(),
        };
        doors.open = doors.run().await?;
        doors.ended = doors.run().await?;
        let exported = doors.run().await?;
        let mut last_seq = 0;
        for run in [&doors.ended, &exported] {
            for body in [EVENTS[0], EVENTS[1], r#"{"type":"run.completed","payload":{"output":"done"}}"#] {
                let ack = doors.json(Method::POST, &format!("/api/runs/{run}/events"), body.as_bytes()).await?;
                last_seq = ack["last_seq"].as_u64().context("an answer without a seq")?;
            }
        }
        doors.last_seq = last_seq;
        let export = doors.ask(Method::GET, &format!("/api/runs/{exported}/export"), &[]).await?.text().await?;
        let (lines, _end) = export.trim_end().rsplit_once('\n').context("an export of one line")?;
        doors.export = (exported, format!("{lines}\n"));
        doors.json(Method::PUT, "/api/threads/kept/checkpoints/1", &checkpoint(STATE)).await?;
        let body = json!({ "thread_id": "kept", "name": SAVED }).to_string();
        doors.json(Method::POST, "/api/saved-sessions", body.as_bytes()).await?;
        let saved = doors.ask(Method::GET, &format!("/api/saved-sessions/{SAVED}"), &[]).await?.error_for_status()?;
        doors.saved = saved.text().await?;
        doors.cursors = ["3", "0", "9223372036854775807", "1:3", "0:1,1:2"].map(|text| text.as_bytes().to_vec()).into();
        let feed = doors.ask(Method::GET, &format!("/api/stream/runs/{}", doors.ended), &[]).await?.text().await?;
        let ids = feed.lines().filter_map(|line| line.strip_prefix("id: ")).map(|id| id.as_bytes().to_vec());
        doors.cursors.extend(ids);
        Ok(doors)
    }

    async fn run(&self) -> anyhow::Result<String> {
        let run = self.json(Method::POST, "/api/runs", br#"{"agent":"fuzz"}"#).await?;
        Ok(run["run_id"].as_str().context("a run without an id")?.to_owned())
    }

    async fn ask(&self, method: Method, path: &str, body: &[u8]) -> anyhow::Result<Response> {
        let asked = self.client.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token);
        let answer = self.send(asked.header("content-type", "application/json").body(body.to_vec()), body).await;
        answer.with_context(|| path.to_owned())
    }

    /// One request and its whole answer; the error shows what was sent.
    async fn send(&self, request: RequestBuilder, sent: &[u8]) -> anyhow::Result<Response> {
        let answer = self.waits.timed(async {
            let answer = request.send().await?;
            // The stream of all runs does not end.
            if answer.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream") {
                return Ok(answer);
            }
            let (status, body) = (answer.status(), answer.bytes().await?);
            Ok(axum::http::Response::builder().status(status).body(body)?.into())
        });
        answer.await.with_context(|| format!("after {}", shown(sent)))
    }

    /// What must be accepted.
    async fn json(&self, method: Method, path: &str, body: &[u8]) -> anyhow::Result<Value> {
        let answer = self.ask(method, path, body).await?;
        let (status, text) = (answer.status(), answer.text().await?);
        ensure!(status.is_success(), "{path}: {status} {text}");
        Ok(serde_json::from_str(&text)?)
    }

    /// Sends one input.
    pub(super) async fn try_once(&self, door: Door, rng: &mut StdRng) -> anyhow::Result<Answer> {
        match door {
            Door::Cursor => self.cursor(rng).await,
            Door::Events => self.events(rng).await,
            Door::Token => self.token(rng).await,
            Door::Names => self.names(rng).await,
            Door::Frames => self.frames(rng).await,
            Door::Import => self.import(rng).await,
            Door::Checkpoint => self.checkpoint(rng).await,
            Door::SavedSession => self.saved_session(rng).await,
        }
    }

    async fn cursor(&self, rng: &mut StdRng) -> anyhow::Result<Answer> {
        let input = changed(rng, &self.cursors);
        let (run, after, kind) = (&self.ended, escaped(&input), rng.random_range(0..3));
        let path = match kind {
            0 => format!("/api/stream/runs/{run}?after={after}"),
            1 => format!("/api/runs/{run}/events?after={after}"),
            _ => format!("/api/stream/runs?after={after}"),
        };
        let answer = self.ask(Method::GET, &path, &[]).await?;
        if !answer.status().is_success() {
            return judged(answer, &input, None).await;
        }
        let word = answer.status().as_u16().to_string();
        let mut violation = None;
        // The stream of all runs does not end.
        if kind != 2 {
            let text = self.waits.timed(async { Ok(answer.text().await?) }).await?;
            let seqs: Vec<u64> = text.split("\"seq\":").skip(1).filter_map(leading_number).collect();
            let first = std::str::from_utf8(&input).ok().and_then(|text| text.parse::<u64>().ok()).map(|seq| seq + 1);
            // With 204 nothing is left; a cursor of another form is only known to be somewhere.
            let first = first.or(seqs.first().copied()).unwrap_or(self.last_seq + 1);
            let is_whole = seqs.iter().copied().eq(first..=self.last_seq);
            violation = (!is_whole).then(|| format!("read as {seqs:?}"));
        }
        Ok(Answer { word, is_accepted: true, violation, input: shown(&input) })
    }

    async fn events(&self, rng: &mut StdRng) -> anyhow::Result<Answer> {
        // An id that was sent before makes a duplicate.
        let fresh = format!("e-{:x}", rng.random::<u64>());
        let input = changed(rng, &EVENTS.map(|text| text.replace("e-1", &fresh).into_bytes()));
        let answer = self.ask(Method::POST, &format!("/api/runs/{}/events", self.open), &input).await?;
        if !answer.status().is_success() {
            return judged(answer, &input, None).await;
        }
        let read = || serde_json::from_slice::<Vec<Sent<'_>>>(&input);
        let sent = read().or_else(|_| serde_json::from_slice(&input).map(|one| vec![one]));
        let sent = sent.context("what is no event was accepted")?;
        let ack: Value = serde_json::from_slice(&answer.bytes().await?)?;
        let stored = ack["events"].as_array().cloned().unwrap_or_default();
        let mut violation = (stored.len() != sent.len()).then(|| format!("{} answers", stored.len()));
        for (stored, sent) in stored.iter().zip(&sent) {
            // A delta has no seq.
            let Some(seq) = stored["seq"].as_i64().filter(|_| stored["duplicate"] == false) else { continue };
            let path = format!("/api/runs/{}/events?after={}&limit=1", self.open, seq - 1);
            let page = self.ask(Method::GET, &path, &[]).await?.text().await?;
            let payload = without_space(sent.payload.map_or("{}", RawValue::get));
            let payload = if payload == "null" { "{}".to_owned() } else { payload };
            let is_there = payload.len() > SPILLED_BYTES || page.contains(&format!("\"payload\":{payload}}}"));
            let is_there = is_there && page.contains(&format!("\"type\":{},", json!(sent.r#type)));
            if !is_there {
                violation = Some(format!("stored as {page}"));
            }
        }
        Ok(Answer { word: "200".to_owned(), is_accepted: true, violation, input: shown(&input) })
    }

    async fn token(&self, rng: &mut StdRng) -> anyhow::Result<Answer> {
        let input = changed(rng, &[self.token.as_bytes().to_vec()]);
        // What no header can have does not leave the client.
        let input: Vec<u8> = input.into_iter().filter(|byte| (0x20..0x7f).contains(byte)).collect();
        let text = String::from_utf8_lossy(&input).into_owned();
        let asked = self.client.get(format!("{}/api/runs?limit=1", self.url));
        let answer = self.send(asked.header("authorization", format!("Bearer {text}")), &input).await?;
        let is_forged = answer.status().is_success() && text.trim() != self.token;
        judged(answer, &input, is_forged.then(|| "accepted".to_owned())).await
    }

    async fn names(&self, rng: &mut StdRng) -> anyhow::Result<Answer> {
        let mut input = changed(rng, &NAMES.map(|text| text.as_bytes().to_vec()));
        input.truncate(NAME_BYTES_MAX);
        let name = escaped(&input);
        let path = match rng.random_range(0..7) {
            0 => format!("/api/runs/{name}"),
            1 => format!("/api/runs/by-external-id/{name}"),
            2 => format!("/api/artifacts/{name}"),
            3 => format!("/api/saved-sessions/{name}"),
            4 => format!("/api/threads/kept/checkpoints/{name}"),
            5 => format!("/api/runs?thread_id={name}&tag={name}&q={name}"),
            _ => {
                let answer = self.ask(Method::PUT, &format!("/api/threads/{name}"), b"{}").await?;
                if !answer.status().is_success() {
                    return judged(answer, &input, None).await;
                }
                let thread: Value = self.ask(Method::GET, &format!("/api/threads/{name}"), &[]).await?.json().await?;
                let is_other = thread["thread_id"].as_str().map(str::as_bytes) != Some(&input);
                let violation = is_other.then(|| format!("read as {thread}"));
                return Ok(Answer { word: "a thread".to_owned(), is_accepted: true, violation, input: shown(&input) });
            }
        };
        judged(self.ask(Method::GET, &path, &[]).await?, &input, None).await
    }

    async fn frames(&self, rng: &mut StdRng) -> anyhow::Result<Answer> {
        let url = format!("{}/api/runners/connect", self.url.replacen("http", "ws", 1));
        let mut request = url.into_client_request()?;
        request.headers_mut().insert("sec-websocket-protocol", "runreel.runner.v1".parse()?);
        request.headers_mut().insert("authorization", format!("Bearer {}", self.token).parse()?);
        let connected = Box::pin(connect_async(request));
        let (mut socket, _) = self.waits.timed(async { Ok(connected.await?) }).await?;
        let inputs = FRAMES.map(|text| text.as_bytes().to_vec());
        let mut input = Vec::new();
        let greets = rng.random_bool(0.5);
        for number in 0..rng.random_range(1..4) {
            input = if greets && number == 0 { inputs[0].clone() } else { changed(rng, &inputs) };
            let message = match String::from_utf8(input.clone()) {
                Ok(text) if rng.random_bool(0.9) => Message::text(text),
                _ => Message::binary(input.clone()),
            };
            if socket.send(message).await.is_err() {
                break;
            }
        }
        // It answers or closes; whoever does neither has lost its place.
        let _ = socket.send(Message::Ping(b"there?".as_slice().into())).await;
        let said = self.waits.timed(async {
            while let Some(Ok(message)) = socket.next().await {
                match message {
                    Message::Close(frame) => {
                        return Ok(frame.map(|frame| format!("closed ({})", u16::from(frame.code))));
                    }
                    Message::Pong(_) => return Ok(Some(GOES_ON.to_owned())),
                    _ => {}
                }
            }
            Ok(None)
        });
        let said = said.await.with_context(|| format!("after {}", shown(&input)))?;
        let word = said.unwrap_or_else(|| "closed".to_owned());
        let _ = socket.close(None).await;
        // 1011 is an error of the server's own; without a code it has given up.
        let violation = matches!(word.as_str(), "closed" | "closed (1011)").then(|| word.clone());
        Ok(Answer { is_accepted: word == GOES_ON, word, violation, input: shown(&input) })
    }

    async fn import(&self, rng: &mut StdRng) -> anyhow::Result<Answer> {
        let (id, lines) = &self.export;
        // Each time another run, of the same month.
        let run = format!("{}{:012x}", &id[..24], rng.random_range(0..1_u64 << 48));
        let lines = lines.replace(id.as_str(), &run).into_bytes();
        let input = changed(rng, &[lines]);
        let asked = self.client.post(format!("{}/api/runs/{run}/import", self.url)).bearer_auth(&self.token);
        let asked = asked.header("content-type", "application/x-ndjson").body(input.clone());
        let answer = self.send(asked, &input).await?;
        if !answer.status().is_success() {
            return judged(answer, &input, None).await;
        }
        let word = answer.status().as_u16().to_string();
        let exported = self.ask(Method::GET, &format!("/api/runs/{run}/export"), &[]).await?.text().await?;
        let sent = std::str::from_utf8(&input).context("what is no text was accepted")?;
        let lines = sent.lines().filter(|line| !line.trim().is_empty()).map(str::trim);
        // Their end has no counterpart.
        let is_same = exported.trim_end().rsplit_once('\n').is_some_and(|(stored, _)| stored.lines().eq(lines));
        let violation = (!is_same).then(|| format!("exported as {}", shown(exported.as_bytes())));
        Ok(Answer { word, is_accepted: true, violation, input: shown(&input) })
    }

    async fn checkpoint(&self, rng: &mut StdRng) -> anyhow::Result<Answer> {
        let thread = format!("fuzz-{}", rng.random::<u32>());
        let place = format!("/api/threads/{thread}/checkpoints/1");
        let input = if rng.random_bool(0.5) {
            changed(rng, &[checkpoint(STATE)])
        } else {
            checkpoint(&changed(rng, &[STATE.to_vec()]))
        };
        let answer = self.ask(Method::PUT, &place, &input).await?;
        if !answer.status().is_success() {
            return judged(answer, &input, None).await;
        }
        let sent: Value = serde_json::from_slice(&input).context("what is no JSON was accepted")?;
        let ns = escaped(sent["ns"].as_str().unwrap_or_default().as_bytes());
        let read: Value = self.ask(Method::GET, &format!("{place}?ns={ns}"), &[]).await?.json().await?;
        let bytes = |value: &Value| value["b"].as_str().unwrap_or_default().to_owned();
        let is_other = bytes(&read["checkpoint"]) != bytes(&sent["checkpoint"]);
        let violation = is_other.then(|| format!("read as {read}"));
        // What is in it is only read when a session is saved.
        let name = ["one", "two", "three"].choose(rng).copied().unwrap_or_default();
        let body = json!({ "thread_id": thread, "name": format!("{name}-{}", rng.random_range(0..50)) }).to_string();
        let saved = self.ask(Method::POST, "/api/saved-sessions", body.as_bytes()).await?;
        let mut answer = judged(saved, &input, violation).await?;
        answer.word = format!("stored, saved {}", answer.word);
        self.ask(Method::DELETE, &format!("/api/threads/{thread}"), &[]).await?;
        Ok(answer)
    }

    async fn saved_session(&self, rng: &mut StdRng) -> anyhow::Result<Answer> {
        // A file knows its name; each time another.
        let name = format!("{:08x}", rng.random::<u32>());
        let (place, file) = (format!("/api/saved-sessions/{name}"), self.saved.replace(SAVED, &name));
        let input = changed(rng, &[file.clone().into_bytes()]);
        let answer = self.ask(Method::PUT, &place, &input).await?;
        if !answer.status().is_success() {
            return judged(answer, &input, None).await;
        }
        let word = answer.status().as_u16().to_string();
        let read = self.ask(Method::GET, &place, &[]).await?.text().await?;
        // What is not known is ignored, and what is missing recomputed: the file that is read is whole.
        let is_whole = self.ask(Method::PUT, &place, read.as_bytes()).await?.status().is_success()
            && self.ask(Method::GET, &place, &[]).await?.text().await? == read
            && (input != file.as_bytes() || read == file);
        self.ask(Method::DELETE, &place, &[]).await?;
        let violation = (!is_whole).then(|| format!("read as {}", shown(read.as_bytes())));
        Ok(Answer { word, is_accepted: true, violation, input: shown(&input) })
    }
}

fn checkpoint(state: &[u8]) -> Vec<u8> {
    let value = json!({ "t": "msgpack", "b": STANDARD.encode(state) });
    let metadata = json!({ "source": "loop", "step": 1 });
    json!({ "ns": "", "checkpoint": value, "metadata": metadata, "versions": {}, "blobs": {} }).to_string().into_bytes()
}
