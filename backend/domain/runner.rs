//! The messages between a runner and the server: `runreel.runner.v1`.
//!
//! Each message is one JSON object with a member `type`. Unknown members are ignored, so that versions may differ; an
//! unknown message is an error.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{
    checkpoint::{CheckpointId, Namespace},
    context::{Origin, Role},
    id::{Malformed, Name, RunId, SpanId, ThreadId, Title},
    interrupt::Decision,
    json::Json,
    run::Status,
};

/// The name of the protocol in the handshake.
pub const SUBPROTOCOL: &str = "runreel.runner.v1";

/// The close code with which a runner returns its runs for immediate reassignment.
pub const CLOSE_GIVEN_BACK: u16 = 4_000;
/// The close code of a connection whose session continues in a newer one.
pub const CLOSE_REPLACED: u16 = 4_001;

/// A message from the runner.
#[derive(Debug, Serialize)]
#[serde(tag = "type")]
pub enum FromRunner {
    #[serde(rename = "hello")]
    Hello(Hello),
    #[serde(rename = "event")]
    Event(Events),
    #[serde(rename = "heartbeat")]
    Heartbeat,
    #[serde(rename = "run.done")]
    Done(Done),
    /// The runner accepts no more runs; those it has continue.
    #[serde(rename = "drain")]
    Drain,
}

/// The runner's name, agents and capacity.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Hello {
    pub runner: Name,
    pub agents: Vec<Name>,
    pub capacity: u16,
    #[serde(default)]
    pub version: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Resume>,
}

/// Resumes the session of an earlier connection.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Resume {
    /// The id from the last `welcome`.
    pub lease_id: Uuid,
    #[serde(default)]
    pub last_acked: LastAcked,
}

/// The last `n` the server has acknowledged.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(untagged)]
pub enum LastAcked {
    /// Per run that the runner still executes; 0 if none was.
    Runs(BTreeMap<RunId, u64>),
    /// For all runs together; the runner knows every run it was assigned.
    All(u64),
    #[default]
    None,
}

/// Events of one run, committed as a whole or not at all; `n` counts the messages of the run from 1.
#[derive(Debug, Deserialize, Serialize)]
pub struct Events {
    pub run_id: RunId,
    pub n: u64,
    pub events: Box<RawValue>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Done {
    pub run_id: RunId,
}

/// A message from the server.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type")]
pub enum ToRunner {
    #[serde(rename = "welcome")]
    Welcome(Welcome),
    #[serde(rename = "run.assign")]
    Assign(Box<Assign>),
    #[serde(rename = "run.cancel")]
    Cancel(Cancel),
    #[serde(rename = "run.resume")]
    Resume(Answered),
    #[serde(rename = "ack")]
    Ack(Ack),
    #[serde(rename = "error")]
    Error(RunnerError),
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Welcome {
    /// Sent in `hello.resume` to resume these runs.
    pub lease_id: Uuid,
    /// Longest interval between messages of the runner.
    pub heartbeat_ms: u64,
    /// How long the runner may be disconnected.
    pub lease_ms: u64,
    /// The resumed runs.
    #[serde(default)]
    pub runs: Vec<RunId>,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Assign {
    pub run_id: RunId,
    pub agent: Option<Name>,
    pub thread_id: Option<ThreadId>,
    pub input: Option<Json>,
    pub context: About,
}

/// The rest of a run's data for a runner.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct About {
    pub root_run_id: RunId,
    pub parent_run_id: Option<RunId>,
    pub owner_id: String,
    pub session_id: Option<Name>,
    /// The origin of the message that the run answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    pub role: Role,
    pub title: Option<Title>,
    pub metadata: Json,
    pub tags: Vec<Name>,
    /// 1 unless there was an earlier holder.
    pub attempt: i32,
    /// `queued`; `running` if a holder's lease lapsed or an interrupt was answered; `waiting` if its children ended.
    pub status: Status,
    pub last_seq: i64,
    /// How many answers to interrupts follow immediately, each as a `run.resume`.
    #[serde(default)]
    pub answers: usize,
}

#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Cancel {
    pub run_id: RunId,
    pub reason: Option<String>,
}

/// The answer to an interrupt.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Answered {
    pub run_id: RunId,
    pub interrupt_id: SpanId,
    pub decision: Decision,
    pub value: Option<Json>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns: Option<Namespace>,
}

/// Everything up to `n` is committed.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Ack {
    pub run_id: RunId,
    pub n: u64,
    pub last_seq: i64,
}

/// Why a message was refused; `docs/protocol.md` describes each code. A code never changes its meaning.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunnerCode {
    Malformed,
    UnknownMessage,
    Unexpected,
    Unsupported,
    TooLarge,
    CredentialInBody,
    OutOfOrder,
    NotAssigned,
    LeaseLost,
    RunEnded,
    InvalidEvent,
    RoleMismatch,
    InvalidTransition,
    Unavailable,
    Internal,
    /// A code of a later version.
    #[serde(untagged)]
    Other(String),
}

impl RunnerCode {
    pub fn because(self, detail: impl Into<String>) -> RunnerError {
        RunnerError { code: self, detail: detail.into(), run_id: None, n: None }
    }

    pub fn as_str(&self) -> &str {
        match self {
            Self::Malformed => "malformed",
            Self::UnknownMessage => "unknown_message",
            Self::Unexpected => "unexpected",
            Self::Unsupported => "unsupported",
            Self::TooLarge => "too_large",
            Self::CredentialInBody => "credential_in_body",
            Self::OutOfOrder => "out_of_order",
            Self::NotAssigned => "not_assigned",
            Self::LeaseLost => "lease_lost",
            Self::RunEnded => "run_ended",
            Self::InvalidEvent => "invalid_event",
            Self::RoleMismatch => "role_mismatch",
            Self::InvalidTransition => "invalid_transition",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
            Self::Other(text) => text,
        }
    }
}

/// An error about a message, or about a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct RunnerError {
    pub code: RunnerCode,
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
}

impl RunnerError {
    pub fn lease_lost() -> Self {
        RunnerCode::LeaseLost.because("the run is no longer assigned to this runner; its events are rejected")
    }

    #[must_use]
    pub fn of(self, run_id: RunId, n: Option<u64>) -> Self {
        Self { run_id: Some(run_id), n, ..self }
    }
}

#[derive(Deserialize)]
struct Tag {
    r#type: String,
}

fn tag(text: &str) -> Result<String, RunnerError> {
    let tag: Result<Tag, _> = serde_json::from_str(text);
    tag.map(|tag| tag.r#type).map_err(|error| malformed(&error))
}

fn malformed(error: &serde_json::Error) -> RunnerError {
    RunnerCode::Malformed.because(format!("a message must be a JSON object with a type: {error}"))
}

fn body<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, RunnerError> {
    serde_json::from_str(text).map_err(|error| malformed(&error))
}

fn unknown(tag: &str) -> RunnerError {
    let tag: String = tag.chars().filter(|c| !c.is_control()).take(40).collect();
    RunnerCode::UnknownMessage.because(format!("unknown message type {tag}"))
}

impl FromRunner {
    pub fn parse(text: &str) -> Result<Self, RunnerError> {
        Ok(match tag(text)?.as_str() {
            "hello" => Self::Hello(body(text)?),
            "event" => Self::Event(body(text)?),
            "heartbeat" => Self::Heartbeat,
            "run.done" => Self::Done(body(text)?),
            "drain" => Self::Drain,
            other => return Err(unknown(other)),
        })
    }
}

impl ToRunner {
    pub fn parse(text: &str) -> Result<Self, RunnerError> {
        Ok(match tag(text)?.as_str() {
            "welcome" => Self::Welcome(body(text)?),
            "run.assign" => Self::Assign(body(text)?),
            "run.cancel" => Self::Cancel(body(text)?),
            "run.resume" => Self::Resume(body(text)?),
            "ack" => Self::Ack(body(text)?),
            "error" => Self::Error(body(text)?),
            other => return Err(unknown(other)),
        })
    }
}

impl Hello {
    /// Refuses values over a bound.
    pub fn check(&self) -> Result<(), Malformed> {
        use super::limits::{RUNNER_AGENTS_MAX, RUNNER_CAPACITY_MAX, RUNNER_RESUMED_MAX};
        if self.agents.is_empty() || self.agents.len() > RUNNER_AGENTS_MAX {
            return Err(Malformed("a runner serves 1 to 256 agents"));
        }
        if self.capacity == 0 || self.capacity > RUNNER_CAPACITY_MAX {
            return Err(Malformed("the capacity of a runner is 1 to 256 runs"));
        }
        let acked = self.resume.as_ref().map(|resume| &resume.last_acked);
        if matches!(acked, Some(LastAcked::Runs(runs)) if runs.len() > RUNNER_RESUMED_MAX) {
            return Err(Malformed("a runner may resume at most 1024 runs"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_reads_as_it_was_written() {
        let text = r#"{"type":"event","run_id":"0198c0de-0000-7000-8000-000000000001","n":3,"events":[{"type":"a.b","payload":{"b":1.50,"a":2}}]}"#;
        let read = FromRunner::parse(text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), text);
        let text = r#"{"type":"run.assign","run_id":"0198c0de-0000-7000-8000-000000000001","agent":"a","thread_id":null,"input":{"z":1,"a":1e3},"context":{"root_run_id":"0198c0de-0000-7000-8000-000000000001","parent_run_id":null,"owner_id":"00","session_id":null,"role":"agent","title":null,"metadata":{},"tags":[],"attempt":1,"status":"queued","last_seq":1,"answers":0}}"#;
        assert_eq!(serde_json::to_string(&ToRunner::parse(text).unwrap()).unwrap(), text);
    }

    #[test]
    fn what_was_acknowledged_is_told_per_run_or_for_all_or_not_at_all() {
        let hello = |resume: &str| {
            let text = format!(r#"{{"type":"hello","runner":"r","agents":["a"],"capacity":1,"resume":{resume}}}"#);
            let FromRunner::Hello(hello) = FromRunner::parse(&text).unwrap() else { panic!("a hello") };
            hello.resume.unwrap().last_acked
        };
        let lease = r#""lease_id":"0198c0de-0000-7000-8000-000000000001""#;
        assert!(matches!(hello(&format!("{{{lease}}}")), LastAcked::None));
        assert!(matches!(hello(&format!(r#"{{{lease},"last_acked":null}}"#)), LastAcked::None));
        assert!(matches!(hello(&format!(r#"{{{lease},"last_acked":7}}"#)), LastAcked::All(7)));
        let runs = format!(r#"{{{lease},"last_acked":{{"0198c0de-0000-7000-8000-000000000002":7}}}}"#);
        assert!(matches!(hello(&runs), LastAcked::Runs(runs) if runs.len() == 1));
    }

    #[test]
    fn what_is_no_message_is_told_so_and_not_repeated_whole() {
        for (text, code) in [
            ("", "malformed"),
            ("[]", "malformed"),
            ("{}", "malformed"),
            (r#"{"type":7}"#, "malformed"),
            (r#"{"type":"event","n":1}"#, "malformed"),
            (r#"{"type":"event","run_id":"x","n":1,"events":[]}"#, "malformed"),
            (r#"{"type":"event","run_id":"0198c0de-0000-7000-8000-000000000001","n":-1,"events":[]}"#, "malformed"),
            (r#"{"type":"welcome"}"#, "unknown_message"),
        ] {
            assert_eq!(FromRunner::parse(text).unwrap_err().code.as_str(), code, "{text}");
        }
        let long = format!(r#"{{"type":"{}"}}"#, "x".repeat(10_000));
        assert!(FromRunner::parse(&long).unwrap_err().detail.len() < 100);
    }
}
