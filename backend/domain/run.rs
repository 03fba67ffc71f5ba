//! A run's lifecycle: [`decide`] checks what may happen next, [`evolve`] applies it.
//!
//! The status is a fold of the run's events alone, so every copy of the log yields the same.
//!
//! ```text
//! queued → running → (waiting | interrupted → running)* → completed | failed | cancelled
//! ```

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    context::RunContext,
    event::{EventKind, EventType, NewEvent},
    id::{ExternalId, Name, RunId, Seq, ThreadId, Title},
    json::Json,
    limits::{LEASE_MS_MAX, METADATA_BYTES_MAX, TAGS_MAX, TTL_S_MAX},
};

/// The status of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Queued,
    Running,
    Waiting,
    Interrupted,
    Completed,
    Failed,
    Cancelled,
}

impl Status {
    pub const ALL: [Self; 7] =
        [Self::Queued, Self::Running, Self::Waiting, Self::Interrupted, Self::Completed, Self::Failed, Self::Cancelled];

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Interrupted => "interrupted",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }

    /// The status a lifecycle event leads to; other events change nothing.
    pub fn after(event_type: &EventType) -> Option<Self> {
        event_type.kind().and_then(EventKind::status)
    }

    /// Whether this transition is allowed.
    fn leads_to(self, next: Self, event_type: &EventType) -> bool {
        match (self, next) {
            (from, _) if from.is_terminal() => false,
            (_, Self::Failed | Self::Cancelled) => true,
            (Self::Queued, Self::Running) => event_type.is(EventKind::RunStarted),
            (Self::Waiting | Self::Interrupted, Self::Running) => event_type.is(EventKind::RunResumed),
            (Self::Running, Self::Waiting | Self::Interrupted | Self::Completed) => true,
            _ => false,
        }
    }
}

/// Why a run refuses an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the run has ended ({})", .status.as_str())]
    Ended { status: Status },
    #[error("a run that is {} cannot become {}", .from.as_str(), .to.as_str())]
    Transition { from: Status, to: Status },
}

/// The state folded from a run's events.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    pub status: Status,
    pub last_seq: Seq,
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub last_event_at: DateTime<Utc>,
    pub output: Option<Json>,
    pub error: Option<Json>,
}

impl Head {
    /// The state before the first event.
    pub fn unborn(now: DateTime<Utc>) -> Self {
        Self {
            status: Status::Queued,
            last_seq: Seq::ZERO,
            created_at: now,
            started_at: None,
            ended_at: None,
            last_event_at: now,
            output: None,
            error: None,
        }
    }
}

/// The status after these events, in order, or why a run in this state refuses them.
pub fn decide<'a>(status: Status, types: impl IntoIterator<Item = &'a EventType>) -> Result<Status, Refusal> {
    types.into_iter().try_fold(status, |status, event_type| {
        if status.is_terminal() {
            return Err(Refusal::Ended { status });
        }
        match Status::after(event_type) {
            None => Ok(status),
            Some(to) if status.leads_to(to, event_type) => Ok(to),
            Some(Status::Queued) if event_type.is(EventKind::RunCreated) => Ok(Status::Queued),
            Some(to) => Err(Refusal::Transition { from: status, to }),
        }
    })
}

/// One step of the fold.
#[must_use]
pub fn evolve(head: Head, event_type: &EventType, at: DateTime<Utc>, payload: &Json) -> Head {
    let mut head = head;
    head.last_seq = head.last_seq.next();
    head.last_event_at = at;
    // A producer that was disconnected reports its run late; its own times then count.
    head.started_at = head.started_at.map(|started_at| started_at.min(at));
    let Some(status) = Status::after(event_type) else {
        return head;
    };
    head.status = status;
    match event_type.kind() {
        Some(EventKind::RunCreated) => head.created_at = at,
        Some(EventKind::RunStarted) => head.started_at = Some(at),
        // An offloaded payload is the output itself: it points to the whole.
        Some(EventKind::RunCompleted) => {
            let pointer = || payload.raw_member("$artifact").map(|_| payload.clone());
            head.output = payload.raw_member("output").or_else(pointer);
        }
        Some(EventKind::RunFailed) => head.error = payload.raw_member("error").or_else(|| Some(payload.clone())),
        _ => {}
    }
    if status.is_terminal() {
        head.ended_at = Some(at);
    }
    head
}

/// A run's fields besides its identity: columns of `store.run`, members of `run.created`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunFields {
    pub title: Option<Title>,
    pub input: Option<Json>,
    pub metadata: Json,
    pub tags: Vec<Name>,
    /// How long a producer may be silent before the run counts as stalled, milliseconds; `None` asks for no lease.
    pub lease_ms: Option<i64>,
    // Omitted when null so that the hash of older requests stays the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub external_id: Option<ExternalId>,
    /// How long the run is kept after its end, seconds; 0 is forever, `None` applies the server's rules.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_s: Option<i64>,
}

impl Default for RunFields {
    fn default() -> Self {
        let (tags, metadata) = (Vec::new(), Json::empty());
        Self { title: None, input: None, metadata, tags, lease_ms: None, external_id: None, ttl_s: None }
    }
}

/// A field that exceeds its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfBounds {
    pub field: &'static str,
    pub rule: String,
    pub is_too_large: bool,
}

impl RunFields {
    /// Checks that each field is within its bound; the input's is `input_bytes_max`.
    pub fn check(&self, input_bytes_max: usize) -> Result<(), OutOfBounds> {
        let err = |is_too_large, field, rule| Err(OutOfBounds { field, rule, is_too_large });
        let within = |value: Option<i64>, most| value.is_none_or(|value| (0..=most).contains(&value));
        if self.input.as_ref().is_some_and(|input| input.as_str().len() > input_bytes_max) {
            return err(true, "input", format!("input may have at most {input_bytes_max} bytes"));
        }
        if self.metadata.as_str().len() > METADATA_BYTES_MAX {
            return err(true, "metadata", format!("metadata may have at most {METADATA_BYTES_MAX} bytes"));
        }
        if !self.metadata.as_str().starts_with('{') {
            return err(false, "metadata", "metadata must be an object".to_owned());
        }
        if self.tags.len() > TAGS_MAX {
            return err(true, "tags", format!("a run may have at most {TAGS_MAX} tags"));
        }
        if !within(self.lease_ms, LEASE_MS_MAX) {
            return err(false, "lease_ms", format!("a lease must be 0 to {LEASE_MS_MAX} milliseconds"));
        }
        if !within(self.ttl_s, TTL_S_MAX) {
            return err(false, "ttl_s", format!("a time to live must be 0 to {TTL_S_MAX} seconds"));
        }
        Ok(())
    }
}

/// Everything a client specifies when it creates a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Spec {
    pub context: RunContext,
    pub fields: RunFields,
    pub start: bool,
}

impl Spec {
    /// Whether the run waits for a process to execute it. A run that starts at once is executed by its creator.
    pub fn is_job(&self) -> bool {
        !self.start && self.context.agent.is_some()
    }

    /// A hash of everything specified, regardless of key order, to tell a repeated request from a different one.
    pub fn content_hash(&self) -> [u8; 32] {
        let (context, created) = (&self.context, self.events());
        let specified = serde_json::json!({
            "agent": context.agent, "created": created.first().map(|event| canonical(&event.payload)),
            "role": context.role, "start": self.start,
        });
        Sha256::digest(specified.to_string().as_bytes()).into()
    }

    /// The first events of the run's log: they contain its whole creation, so the log alone can rebuild the run.
    pub fn events(&self) -> Vec<NewEvent> {
        let context = &self.context;
        let created = Created {
            fields: &self.fields,
            root_run_id: context.root_run_id,
            parent_run_id: context.parent_run_id,
            thread_id: context.thread_id.as_ref(),
            session_id: context.session_id.as_ref(),
        };
        let mut events = vec![NewEvent::new(EventKind::RunCreated, Json::of(&created))];
        if self.start {
            events.push(NewEvent::new(EventKind::RunStarted, Json::empty()));
        }
        events
    }
}

/// A JSON text with its keys sorted; one that cannot be parsed here, because of its numbers, is left as it is.
fn canonical(json: &Json) -> String {
    let Ok(mut value) = serde_json::from_str::<serde_json::Value>(json.as_str()) else {
        return json.as_str().to_owned();
    };
    value.sort_all_objects();
    value.to_string()
}

/// The payload of `run.created`; JSON from the client is not rewritten.
#[derive(Serialize)]
struct Created<'a> {
    #[serde(flatten)]
    fields: &'a RunFields,
    root_run_id: RunId,
    parent_run_id: Option<RunId>,
    thread_id: Option<&'a ThreadId>,
    session_id: Option<&'a Name>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn types(words: &[&str]) -> Vec<EventType> {
        words.iter().map(|word| word.parse().unwrap()).collect()
    }

    fn check(from: Status, words: &[&str], expected: Result<Status, Refusal>) {
        assert_eq!(decide(from, &types(words)), expected, "{from:?} {words:?}");
    }

    #[test]
    fn a_run_goes_from_queued_through_waiting_to_its_end() {
        check(Status::Queued, &["run.started", "run.waiting", "run.resumed", "run.completed"], Ok(Status::Completed));
        check(Status::Running, &["run.interrupted", "run.resumed", "run.failed"], Ok(Status::Failed));
        check(Status::Queued, &["log.info", "run.cancelled"], Ok(Status::Cancelled));
    }

    #[test]
    fn nothing_follows_the_terminal_event() {
        for last in ["run.completed", "run.failed", "run.cancelled"] {
            let status = decide(Status::Running, &types(&[last])).unwrap();
            check(Status::Running, &[last, "log.info"], Err(Refusal::Ended { status }));
            check(status, &["run.resumed"], Err(Refusal::Ended { status }));
        }
    }

    #[test]
    fn a_waiting_run_must_resume_before_it_completes() {
        let refusal = Refusal::Transition { from: Status::Waiting, to: Status::Completed };
        check(Status::Waiting, &["run.completed"], Err(refusal));
        let refusal = Refusal::Transition { from: Status::Running, to: Status::Running };
        check(Status::Running, &["run.started"], Err(refusal));
    }

    #[test]
    fn a_run_that_is_told_of_late_began_with_the_first_thing_that_happened_in_it() {
        let at = |s: i64| DateTime::from_timestamp(s, 0).unwrap();
        let events =
            [("run.created", 90), ("run.started", 90), ("log.info", 10), ("log.info", 20), ("run.completed", 30)];
        let head = events
            .iter()
            .fold(Head::unborn(at(90)), |head, (word, s)| evolve(head, &word.parse().unwrap(), at(*s), &Json::empty()));
        assert_eq!((head.started_at, head.ended_at, head.created_at), (Some(at(10)), Some(at(30)), at(90)));
    }

    proptest! {
        #[test]
        fn what_decide_admits_evolve_folds_to_the_same_status(
            words in proptest::collection::vec(0usize..9, 0..12)
        ) {
            const WORDS: [&str; 9] = ["run.started", "run.waiting", "run.interrupted", "run.resumed", "run.completed",
                "run.failed", "run.cancelled", "tool.started", "custom.x"];
            let types: Vec<EventType> = words.iter().map(|&i| WORDS[i].parse().unwrap()).collect();
            let now = DateTime::UNIX_EPOCH;
            if let Ok(status) = decide(Status::Queued, &types) {
                let head = types.iter().fold(Head::unborn(now), |head, t| evolve(head, t, now, &Json::empty()));
                prop_assert_eq!(head.status, status);
                prop_assert_eq!(head.last_seq.get(), types.len() as i64);
                prop_assert_eq!(head.ended_at.is_some(), status.is_terminal());
            }
        }
    }
}
