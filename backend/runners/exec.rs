//! A command as an executor: any program in any language can execute runs.
//!
//! One process per run. The run's input is one line of JSON on stdin; each line of stdout that is an event is emitted
//! as one, any other line as `log.info`, lines of stderr as `log.warn`. Exit code 0 completes the run.

use std::{process::Stdio, time::Duration};

use futures::future::BoxFuture;
use serde::Deserialize;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader},
    process::{Child, Command},
    sync::mpsc,
};

use super::client::{Executor, Work};
use crate::{
    config,
    confine::Confinement,
    domain::{
        event::{EventKind, EventType, NewEvent},
        id::{EventId, SpanId},
        json::Json,
        run::Status,
    },
    emitters::host::HostError,
};

/// How long a command has to end after SIGTERM.
const TERM_WAIT: Duration = Duration::from_secs(5);
/// Longest line kept whole, bytes.
const LINE_BYTES_MAX: usize = 256 * 1024;
/// Most lines per message, and most bytes of their payloads.
const LINES_MAX: usize = 500;
const MESSAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Runs a shell command for each run.
#[derive(Clone, Debug)]
pub struct Exec {
    pub command: String,
    /// The server's address, for the command.
    pub url: String,
    /// What the command cannot reach.
    pub confinement: Confinement,
}

/// A line of stdout that is an event.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    r#type: String,
    #[serde(default)]
    payload: Option<Json>,
    span_id: Option<String>,
    parent_span_id: Option<String>,
    event_id: Option<String>,
    at: Option<chrono::DateTime<chrono::Utc>>,
}

impl Executor for Exec {
    fn execute(&self, work: Work) -> BoxFuture<'static, ()> {
        let exec = self.clone();
        Box::pin(async move {
            if let Err(error) = exec.execute(work).await {
                tracing::warn!(%error, "events of a run not accepted");
            }
        })
    }
}

impl Exec {
    async fn execute(self, mut work: Work) -> Result<(), HostError> {
        // Earlier answers follow the assignment; a command started without them would ask again.
        let announced = work.assign.context.answers;
        tokio::select! {
            _ = work.answers.wait_for(|answers| answers.len() >= announced) => {}
            () = work.cancel.cancelled() => return Ok(()),
        }
        let child = self.confinement.spawn(self.command(&work), None).await;
        let mut child = match child {
            Ok(child) => child,
            Err(error) => {
                return end(&work, Some(("not_started", format!("the command could not be started: {error}")))).await;
            }
        };
        if let Some(mut stdin) = child.stdin.take() {
            let input = work.assign.input.as_ref().map_or("null", Json::as_str);
            let input = format!("{input}\n");
            // A command that does not read its input is no error. The lines it prints meanwhile wait in its pipes.
            _ = tokio::time::timeout(Duration::from_secs(5), stdin.write_all(input.as_bytes())).await;
        }
        let (sender, mut lines) = mpsc::channel(LINES_MAX);
        let stdout = pump(child.stdout.take(), false, sender.clone());
        let stderr = pump(child.stderr.take(), true, sender);
        let mut status = None;
        let reading = async { tokio::join!(stdout, stderr) };
        let saying = async {
            let mut batch = Vec::new();
            while lines.recv_many(&mut batch, LINES_MAX).await > 0 {
                let events: Vec<NewEvent> = std::mem::take(&mut batch);
                status = events.iter().filter_map(|event| Status::after(&event.event_type)).next_back().or(status);
                for message in in_messages(events) {
                    say(&work, message).await?;
                }
            }
            Ok::<_, HostError>(())
        };
        let talking = async {
            let (_, outcome) = tokio::join!(reading, saying);
            outcome
        };
        let outcome = tokio::select! {
            outcome = talking => outcome,
            () = work.cancel.cancelled() => {
                stop(&mut child).await;
                return Ok(());
            }
        };
        if let Err(refused) = outcome {
            stop(&mut child).await;
            // Otherwise the server would take the run for completed.
            return end(&work, Some(("refused", refused.reason))).await;
        }
        let ended = tokio::select! {
            ended = child.wait() => ended,
            () = work.cancel.cancelled() => {
                stop(&mut child).await;
                return Ok(());
            }
        };
        match (status, ended) {
            (Some(status), _) if status.is_terminal() => Ok(()),
            // A command that suspends its run exits successfully; the run is assigned again when it can continue.
            (Some(Status::Waiting | Status::Interrupted), Ok(code)) if code.success() => Ok(()),
            (_, Ok(code)) if code.success() => end(&work, None).await,
            (_, Ok(code)) => end(&work, Some(("exit_status", format!("the command ended with {code}")))).await,
            (_, Err(error)) => end(&work, Some(("exit_status", error.to_string()))).await,
        }
    }

    fn command(&self, work: &Work) -> Command {
        let (assign, answers) = (&work.assign, Json::of(&*work.answers.borrow()));
        let text = |name: Option<&str>| name.unwrap_or_default().to_owned();
        let mut command = Command::new("sh");
        // The command emits through its runner and needs no credential of this program.
        for name in config::own_variables() {
            command.env_remove(name);
        }
        command
            .arg("-c")
            .arg(&self.command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            // A process group of its own, so that what the command starts ends with it.
            .process_group(0)
            .env("RUNREEL_URL", &self.url)
            .envs(work.context.environment())
            .env("RUNREEL_AGENT", text(assign.agent.as_ref().map(crate::domain::id::Name::as_str)))
            .env("RUNREEL_THREAD_ID", text(assign.thread_id.as_ref().map(crate::domain::id::ThreadId::as_str)))
            .env("RUNREEL_ATTEMPT", assign.context.attempt.to_string())
            .env("RUNREEL_ANSWERS", answers.as_str());
        command
    }
}

/// Splits events into messages of acceptable size.
fn in_messages(events: Vec<NewEvent>) -> Vec<Vec<NewEvent>> {
    let (mut messages, mut bytes) = (vec![Vec::new()], 0);
    for event in events {
        let more = event.payload.as_str().len();
        if bytes > 0 && bytes + more > MESSAGE_BYTES_MAX {
            messages.push(Vec::new());
            bytes = 0;
        }
        bytes += more;
        if let Some(message) = messages.last_mut() {
            message.push(event);
        }
    }
    messages
}

/// Ends a command and everything it started: SIGTERM first, then SIGKILL.
async fn stop(child: &mut Child) {
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
    let kill = |signal| group.map(|group| rustix::process::kill_process_group(group, signal));
    _ = kill(rustix::process::Signal::TERM);
    if tokio::time::timeout(TERM_WAIT, child.wait()).await.is_err() {
        _ = kill(rustix::process::Signal::KILL);
        _ = child.wait().await;
    }
}

async fn say(work: &Work, events: Vec<NewEvent>) -> Result<(), HostError> {
    work.outlet.emit(events).await
}

async fn end(work: &Work, failure: Option<(&str, String)>) -> Result<(), HostError> {
    let event = match failure {
        None => NewEvent::new(EventKind::RunCompleted, Json::empty()),
        Some((code, message)) => {
            NewEvent::new(EventKind::RunFailed, Json::of(&json!({ "error": { "code": code, "message": message } })))
        }
    };
    say(work, vec![event]).await
}

/// Reads lines of a command until it closes the pipe.
async fn pump<R: AsyncRead + Unpin>(pipe: Option<R>, is_stderr: bool, sender: mpsc::Sender<NewEvent>) {
    let Some(pipe) = pipe else { return };
    let mut reader = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        match read_line(&mut reader, &mut line).await {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\r', '\n']);
        let event = if is_stderr { None } else { event(text) };
        let event = match event {
            Some(event) => event,
            None if text.trim().is_empty() => continue,
            None => plain(text, if is_stderr { EventKind::LogWarn } else { EventKind::LogInfo }),
        };
        if sender.send(event).await.is_err() {
            return;
        }
    }
}

/// One line; the part over the bound is read and dropped.
async fn read_line<R: AsyncRead + Unpin>(reader: &mut BufReader<R>, line: &mut Vec<u8>) -> std::io::Result<bool> {
    loop {
        let bytes = reader.fill_buf().await?;
        if bytes.is_empty() {
            return Ok(!line.is_empty());
        }
        let end = memchr::memchr(b'\n', bytes);
        let used = end.map_or(bytes.len(), |at| at + 1);
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(&bytes[..used.min(room)]);
        reader.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// A line that is an event a producer may emit.
fn event(text: &str) -> Option<NewEvent> {
    if !text.trim_start().starts_with('{') {
        return None;
    }
    let line: Line = serde_json::from_str(text).ok()?;
    let event_type: EventType = line.r#type.parse().ok()?;
    event_type.check_producer().ok()?;
    let span = |id: Option<String>| id.map(|id| id.parse::<SpanId>()).transpose().ok();
    let event = NewEvent {
        event_type,
        payload: line.payload.unwrap_or_else(Json::empty),
        span_id: span(line.span_id)?,
        parent_span_id: span(line.parent_span_id)?,
        event_id: line.event_id.map(|id| id.parse::<EventId>()).transpose().ok()?,
        at: line.at,
    };
    let is_whole = !event.event_type.is_ephemeral() || event.delta_text().is_ok();
    is_whole.then_some(event)
}

fn plain(text: &str, kind: EventKind) -> NewEvent {
    let message: String = text.chars().filter(|c| *c != '\0').take(8_000).collect();
    NewEvent::new(kind, Json::of(&json!({ "message": message })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_an_event_or_a_line_of_the_log() {
        let tool = event(r#"{"type":"tool.started","span_id":"a","payload":{"b":1.50,"a":1}}"#).unwrap();
        assert_eq!((tool.event_type.as_str(), tool.payload.as_str()), ("tool.started", r#"{"b":1.50,"a":1}"#));
        for text in [
            "hello",
            "{",
            "{}",
            r#"{"type":"nonsense"}"#,
            r#"{"type":"run.created"}"#,
            r#"{"type":"log.info","more":1}"#,
            r#"{"type":"message.delta","span_id":"a"}"#,
            r#"["a"]"#,
        ] {
            assert!(event(text).is_none(), "{text}");
        }
        assert_eq!(plain("a\0\"b", EventKind::LogInfo).payload.as_str(), r#"{"message":"a\"b"}"#);
    }

    #[test]
    fn many_long_lines_go_in_several_messages_in_their_order() {
        let line = |n: usize| NewEvent::new(EventKind::LogInfo, Json::of(&format!("{n}{}", "x".repeat(200_000))));
        let lines: Vec<NewEvent> = (0..60).map(line).collect();
        let messages = in_messages(lines.clone());
        assert_eq!(messages.iter().map(Vec::len).collect::<Vec<_>>(), [20, 20, 20]);
        assert_eq!(messages.concat(), lines);
    }

    #[tokio::test]
    async fn a_line_without_end_takes_bounded_memory() {
        let text = [vec![b'x'; 2 * LINE_BYTES_MAX], b"\nnext\n".to_vec()].concat();
        let (mut reader, mut line) = (BufReader::new(&text[..]), Vec::new());
        assert!(read_line(&mut reader, &mut line).await.unwrap());
        assert_eq!(line.len(), LINE_BYTES_MAX);
        line.clear();
        assert!(read_line(&mut reader, &mut line).await.unwrap());
        assert_eq!(line, b"next\n");
    }
}
