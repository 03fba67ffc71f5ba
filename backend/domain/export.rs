//! Exports: the log as lines of one item each, readable anywhere and protected against unnoticed changes.
//!
//! ```text
//! {"runreel_export":1}
//! {"run":{…}}      a run's fields that are not in the log; the rest of its creation is its first event
//! {"event":{…}}    its events as they are in the log, in the order of their seqs
//! {"end":{…}}      the run's last seq and status, and the hash of the chain of these lines
//! {"total":{…}}    the number of runs and events, and the hash of the chain of all ends
//! ```
//!
//! A line is accepted only if it is byte for byte what this program would have written: each item has one form, so an
//! imported log is exported again as the same bytes. No line names an owner: a run belongs to the principal that
//! imports it. [`RunWriter`] writes the lines of a run, [`verify::Verifier`] reads a whole file, [`skim::Skim`] reads
//! it again, and [`Piece`] is a part of a run.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use chrono::{DateTime, Datelike, Timelike as _, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::{
    artifact::Hash,
    chain,
    context::{Origin, Role, RunContext},
    event::{EventKind, EventType, Recorded},
    id::{EventId, ExternalId, Name, RunId, Seq, SpanId, ThreadId, Title},
    interrupt,
    json::Json,
    limits::{OWN_PAYLOAD_BYTES_MAX, PAYLOAD_BYTES_MAX},
    principal::OwnerId,
    run::{RunFields, Spec, Status},
    session::inbound::{ChatId, UserId},
    trace::is_trace_id,
};

pub mod index;
pub mod skim;
pub mod verify;

/// The version of the format that this program writes and reads.
pub const VERSION: u32 = 1;

/// What is wrong with a line, as a message for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LineError(pub Cow<'static, str>);

impl LineError {
    fn say(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    fn tell(text: String) -> Self {
        Self(Cow::Owned(text))
    }
}

/// The fields of a run that are not in its log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    pub run_id: RunId,
    pub role: Role,
    pub agent: Option<Name>,
    pub origin: Option<Origin>,
    pub trace_id: Option<String>,
}

impl Subject {
    pub fn of(context: &RunContext) -> Self {
        Self {
            run_id: context.run_id,
            role: context.role,
            agent: context.agent.clone(),
            origin: context.origin.clone(),
            trace_id: context.trace_id.clone(),
        }
    }

    fn check(&self) -> Result<(), LineError> {
        if !self.trace_id.as_deref().is_none_or(is_trace_id) {
            return Err(LineError::say("a trace_id is 32 hexadecimal digits"));
        }
        let Some(origin) = &self.origin else { return Ok(()) };
        let chat = origin.chat.parse::<ChatId>().map(|_| ());
        let user = origin.user.as_ref().map_or(Ok(()), |user| user.parse::<UserId>().map(|_| ()));
        chat.and(user).map_err(|rule| LineError::say(rule.0))
    }
}

/// Where a run's log ended when it was exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    pub run_id: RunId,
    pub last_seq: Seq,
    pub status: Status,
    /// The link of its last event ([`super::chain`]), which covers the whole log; absent in files of earlier builds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub head: Option<Hash>,
    pub sha256: Hash,
}

/// The totals of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Total {
    pub runs: u64,
    pub events: u64,
    pub sha256: Hash,
}

/// A hash over lines, each bound to all before it: SHA-256 of the first line, then of the hash so far (its 32 bytes)
/// and the next line. Line breaks are excluded.
#[derive(Clone, Copy, Debug)]
pub struct Chain([u8; 32]);

impl Chain {
    pub fn of(line: &str) -> Self {
        Self(Sha256::digest(line.as_bytes()).into())
    }

    pub fn add(&mut self, line: &str) {
        self.0 = Sha256::new().chain_update(self.0).chain_update(line.as_bytes()).finalize().into();
    }

    pub fn hash(&self) -> Hash {
        Hash::new(self.0)
    }
}

/// The first line of a file.
pub fn header() -> String {
    format!("{{\"runreel_export\":{VERSION}}}")
}

fn named(name: &str, value: &impl Serialize) -> String {
    format!("{{\"{name}\":{}}}", serde_json::to_string(value).unwrap_or_default())
}

/// The last line of a file.
pub fn total_line(total: &Total) -> String {
    named("total", total)
}

fn event_line(event: &Recorded) -> String {
    let mut out = String::with_capacity(event.payload.as_str().len() + 256);
    out.push_str("{\"event\":{");
    event.push_head(&mut out);
    event.push_tail(&mut out);
    out.push('}');
    out
}

/// Writes one run, line by line.
#[derive(Debug)]
pub struct RunWriter {
    run_id: RunId,
    last_seq: Seq,
    status: Status,
    head: Option<Hash>,
    chain: Chain,
}

impl RunWriter {
    /// Starts a run; also returns its first line.
    pub fn begin(subject: &Subject) -> (Self, String) {
        let line = named("run", subject);
        let (run_id, chain) = (subject.run_id, Chain::of(&line));
        let writer = Self { run_id, last_seq: Seq::ZERO, status: Status::Queued, head: None, chain };
        (writer, line)
    }

    /// The line of the run's next event; `None` if its seq is not the next.
    pub fn event(&mut self, event: &Recorded) -> Option<String> {
        if event.seq != Some(self.last_seq.next()) {
            return None;
        }
        let line = event_line(event);
        self.chain.add(&line);
        self.last_seq = self.last_seq.next();
        self.head = Some(chain::chained(self.head, self.run_id, self.last_seq, event).link);
        self.status = Status::after(&event.event_type).unwrap_or(self.status);
        Some(line)
    }

    /// The run's last line.
    pub fn end(self) -> String {
        let Self { run_id, last_seq, status, head, chain } = self;
        named("end", &End { run_id, last_seq, status, head, sha256: chain.hash() })
    }
}

/// A parsed line.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line<'a> {
    #[serde(rename = "runreel_export")]
    Header(u32),
    Run(Subject),
    #[serde(borrow)]
    Event(Members<'a>),
    End(End),
    Total(Total),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Members<'a> {
    seq: Seq,
    #[serde(rename = "type")]
    event_type: EventType,
    role: Role,
    agent: Option<Name>,
    span_id: Option<SpanId>,
    parent_span_id: Option<SpanId>,
    event_id: Option<EventId>,
    at: DateTime<Utc>,
    #[serde(borrow)]
    payload: &'a RawValue,
}

fn read_line(line: &str) -> Result<Line<'_>, LineError> {
    serde_json::from_str(line).map_err(|error| LineError::tell(format!("not a line of an export: {error}")))
}

/// Refuses a line that differs from what this program would write.
fn check_letter(line: &str, ours: &str) -> Result<(), LineError> {
    if line == ours {
        return Ok(());
    }
    let same = line.bytes().zip(ours.bytes()).take_while(|(a, b)| a == b).count();
    Err(LineError::tell(format!("this differs from the form in which an export writes it (from byte {})", same + 1)))
}

fn read_event(members: Members<'_>, line: &str, subject: &Subject, owner: &Arc<str>) -> Result<Recorded, LineError> {
    // The role of routers was added later; earlier events of their runs keep the role `agent`.
    let is_older = subject.role == Role::Router && members.role == Role::Agent;
    if members.role != subject.role && !is_older || members.agent != subject.agent {
        return Err(LineError::say("the role or agent of the event differs from its run's"));
    }
    let payload = Json::parse(members.payload.get()).map_err(|flaw| LineError::tell(format!("payload: {flaw}")))?;
    let event = Recorded {
        run_id: subject.run_id,
        seq: Some(members.seq),
        event_type: members.event_type,
        role: members.role,
        agent: members.agent.as_ref().map(|name| Arc::from(name.as_str())),
        owner_id: Arc::clone(owner),
        span_id: members.span_id,
        parent_span_id: members.parent_span_id,
        event_id: members.event_id,
        at: members.at,
        payload,
    };
    check_event(&event)?;
    check_letter(line, &event_line(&event)).map(|()| event)
}

/// Checks the rules that apply to each event on its own.
fn check_event(event: &Recorded) -> Result<(), LineError> {
    let (kind, bytes) = (&event.event_type, event.payload.as_str().len());
    if kind.is_ephemeral() {
        return Err(LineError::say("deltas are streamed and not part of a log"));
    }
    if !kind.is_the_servers() {
        kind.check_producer().map_err(|rule| LineError::tell(format!("type: {}", rule.0)))?;
    }
    let most = if kind.is_the_servers() { OWN_PAYLOAD_BYTES_MAX } else { PAYLOAD_BYTES_MAX };
    if bytes > most {
        return Err(LineError::tell(format!("the payload has {bytes} bytes; in a log it has at most {most}")));
    }
    if (event.seq == Some(Seq::ZERO.next())) != kind.is(EventKind::RunCreated) {
        return Err(LineError::say("run.created must be the first event of a run, and only the first"));
    }
    if !(1970..=9999).contains(&event.at.year()) {
        return Err(LineError::say("at: must be a time between the years 1970 and 9999"));
    }
    if event.at.nanosecond() >= 1_000_000_000 {
        return Err(LineError::say("at: leap seconds are not allowed"));
    }
    if kind.is(EventKind::InterruptRequested) {
        interrupt::check_request(&event.payload).map_err(LineError::say)?;
    }
    Ok(())
}

/// The payload of `run.created`, read back.
#[derive(Deserialize)]
struct Creation {
    title: Option<Title>,
    input: Option<Json>,
    metadata: Json,
    tags: Vec<Name>,
    root_run_id: RunId,
    parent_run_id: Option<RunId>,
    thread_id: Option<ThreadId>,
    session_id: Option<Name>,
    lease_ms: Option<i64>,
    external_id: Option<ExternalId>,
    ttl_s: Option<i64>,
}

/// The run's specification, read from its first event. The run does not become a job.
fn creation(subject: &Subject, created: &Recorded, owner: &OwnerId) -> Result<Spec, LineError> {
    let read = serde_json::from_str(created.payload.as_str());
    let payload: Creation = read.map_err(|error| LineError::tell(format!("the payload of run.created: {error}")))?;
    if payload.parent_run_id == Some(subject.run_id)
        || payload.parent_run_id.is_none() != (payload.root_run_id == subject.run_id)
    {
        return Err(LineError::say("a run must be its own root if and only if it has no parent"));
    }
    let Creation { title, input, metadata, tags, lease_ms, external_id, ttl_s, .. } = payload;
    let fields = RunFields { title, input, metadata, tags, lease_ms, external_id, ttl_s };
    // The input is bounded by the payload that contains it.
    fields
        .check(OWN_PAYLOAD_BYTES_MAX)
        .map_err(|fault| LineError::tell(format!("the payload of run.created: {}", fault.rule)))?;
    Ok(Spec {
        context: RunContext {
            run_id: subject.run_id,
            root_run_id: payload.root_run_id,
            parent_run_id: payload.parent_run_id,
            owner_id: owner.clone(),
            thread_id: payload.thread_id,
            session_id: payload.session_id,
            role: subject.role,
            agent: subject.agent.clone(),
            origin: subject.origin.clone(),
            trace_id: subject.trace_id.clone(),
        },
        fields,
        start: true,
    })
}

/// A part of a run: its own line and some of its events, without a gap.
#[derive(Clone, Debug)]
pub struct Piece {
    pub subject: Subject,
    /// The run's specification, if its first event is included.
    pub spec: Option<Spec>,
    /// At least one.
    pub events: Vec<Recorded>,
}

impl Piece {
    /// Reads a part of a run that will belong to `owner`. An error has the number of its line.
    pub fn read(text: &str, owner: &OwnerId) -> Result<Self, (usize, LineError)> {
        let mut lines = text.split_terminator('\n').zip(1..);
        let first = lines.next().ok_or((1, LineError::say("the body has no lines")))?.0;
        let at = |number: usize| move |fault| (number, fault);
        let Line::Run(subject) = read_line(first).map_err(at(1))? else {
            return Err((1, LineError::say("the run line must come first")));
        };
        subject.check().and_then(|()| check_letter(first, &named("run", &subject))).map_err(at(1))?;
        let (text_owner, mut keys, mut events) = (Arc::from(owner.as_str()), HashSet::new(), Vec::<Recorded>::new());
        for (line, number) in lines {
            let Line::Event(members) = read_line(line).map_err(at(number))? else {
                return Err((number, LineError::say("only events may follow the run line")));
            };
            let event = read_event(members, line, &subject, &text_owner).map_err(at(number))?;
            let follows = match events.last() {
                None => event.seq > Some(Seq::ZERO),
                Some(last) => event.seq == last.seq.map(Seq::next),
            };
            if !follows {
                return Err((number, LineError::say("the seqs are not consecutive")));
            }
            if event.event_id.as_ref().is_some_and(|id| !keys.insert(id.clone())) {
                return Err((number, LineError::say("this event_id occurs earlier in the run")));
            }
            events.push(event);
        }
        let Some(event) = events.first() else { return Err((1, LineError::say("the body has no events"))) };
        let is_birth = event.seq == Some(Seq::ZERO.next());
        let spec = is_birth.then(|| creation(&subject, event, owner)).transpose().map_err(at(2))?;
        Ok(Self { subject, spec, events })
    }
}

#[cfg(test)]
mod tests;
