//! The run an [`Emitter`] emits for: fixed at construction, impossible to change or to omit.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    emitter::{Draft, Emitted, Emitter},
    host::RunHost,
};
use crate::domain::{
    context::{Role, RunContext},
    event::NewEvent,
    id::EventId,
};

/// Longest prefix of event ids, characters; it leaves room for the counter.
pub const PREFIX_CHARS_MAX: usize = 100;

/// Why an emitter could not be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidIdentity {
    #[error("this emitter cannot emit for a run with the role {}", .0.as_str())]
    Role(Role),
    #[error("an event id prefix is 1 to {PREFIX_CHARS_MAX} characters without control characters")]
    Prefix,
}

/// How the events of an emitter get their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventIds {
    /// `<prefix>-<n>`.
    Counted,
    /// An event with a span is the only one of its type in that span: `<type>:<span>`. All others are counted.
    Spans,
}

/// The part both emitters share. Event ids are `<prefix>-<n>`: a retry of the same events repeats their ids, and the
/// log keeps one of each. The prefix must be new for every producer of a run.
struct Identity {
    prefix: String,
    ids: EventIds,
    next: AtomicU64,
    host: Arc<dyn RunHost>,
}

impl Identity {
    fn new(host: Arc<dyn RunHost>, prefix: &str) -> Result<Self, InvalidIdentity> {
        let fits = prefix.chars().count() <= PREFIX_CHARS_MAX && prefix.parse::<EventId>().is_ok();
        if !fits {
            return Err(InvalidIdentity::Prefix);
        }
        Ok(Self { prefix: prefix.to_owned(), ids: EventIds::Counted, next: AtomicU64::new(1), host })
    }

    fn emit_all(&self, drafts: Vec<Draft>) -> Emitted<'_> {
        self.host.emit(self.events(drafts))
    }

    fn events(&self, drafts: Vec<Draft>) -> Vec<NewEvent> {
        drafts.into_iter().map(|draft| self.identified(draft.into_event())).collect()
    }

    fn identified(&self, event: NewEvent) -> NewEvent {
        // A delta is not stored, so it cannot be a duplicate.
        if event.event_type.is_ephemeral() || event.event_id.is_some() {
            return event;
        }
        let of_span = event.span_id.as_ref().filter(|_| self.ids == EventIds::Spans);
        let of_span = of_span.and_then(|span| format!("{}:{span}", event.event_type).parse::<EventId>().ok());
        let id = of_span.unwrap_or_else(|| {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            EventId::trusted(&format!("{}-{n}", self.prefix))
        });
        event.event_id(id)
    }
}

/// Emits for a run that is not a worker's: a supervisor, an agent that works alone, a router.
pub struct SupervisorEmitter(Identity);

impl SupervisorEmitter {
    /// Refuses a worker's context.
    pub fn new(host: Arc<dyn RunHost>, event_id_prefix: &str) -> Result<Self, InvalidIdentity> {
        match host.context().role {
            Role::Supervisor | Role::Agent | Role::Router => Identity::new(host, event_id_prefix).map(Self),
            role @ Role::Worker => Err(InvalidIdentity::Role(role)),
        }
    }

    /// Derives event ids from spans: for a producer that repeats everything after a crash, and starts and ends each
    /// span once. The prefix must still be new for every attempt.
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.0.ids = EventIds::Spans;
        self
    }

    pub fn context(&self) -> &RunContext {
        self.0.host.context()
    }

    /// The events with their identity, for a caller that sends them later.
    pub fn events(&self, drafts: Vec<Draft>) -> Vec<NewEvent> {
        self.0.events(drafts)
    }
}

impl Emitter for SupervisorEmitter {
    fn emit_all(&self, drafts: Vec<Draft>) -> Emitted<'_> {
        self.0.emit_all(drafts)
    }
}

/// Emits for a run that a supervisor spawned.
pub struct WorkerEmitter(Identity);

impl WorkerEmitter {
    /// Refuses every context but a worker's.
    pub fn new(host: Arc<dyn RunHost>, event_id_prefix: &str) -> Result<Self, InvalidIdentity> {
        match host.context().role {
            Role::Worker => Identity::new(host, event_id_prefix).map(Self),
            role @ (Role::Supervisor | Role::Agent | Role::Router) => Err(InvalidIdentity::Role(role)),
        }
    }

    /// As [`SupervisorEmitter::repeatable`].
    #[must_use]
    pub fn repeatable(mut self) -> Self {
        self.0.ids = EventIds::Spans;
        self
    }

    pub fn context(&self) -> &RunContext {
        self.0.host.context()
    }
}

impl Emitter for WorkerEmitter {
    fn emit_all(&self, drafts: Vec<Draft>) -> Emitted<'_> {
        self.0.emit_all(drafts)
    }
}

/// Discards everything: for work that is not logged.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullEmitter;

impl Emitter for NullEmitter {
    fn emit_all(&self, _: Vec<Draft>) -> Emitted<'_> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests;
