//! Who an [`Emitter`] speaks for: fixed when it is made, and impossible to change or to leave out.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::{
    emitter::{Draft, Emitted, Emitter},
    sink::Sink,
};
use crate::domain::{
    context::{Role, RunContext},
    id::EventId,
};

/// Longest prefix of event ids, characters; it leaves room for the counter.
pub const PREFIX_CHARS_MAX: usize = 100;

/// Why an emitter could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    #[error("a run whose role is {} cannot be spoken for by this emitter", .0.as_str())]
    Role(Role),
    #[error("an event id prefix is 1 to {PREFIX_CHARS_MAX} characters without control characters")]
    Prefix,
}

/// The part both emitters share. Event ids are `<prefix>-<n>`: whoever repeats a call with the same events repeats
/// their ids, and the log keeps one of each. The prefix must be new for every producer of a run.
struct Identity {
    context: RunContext,
    prefix: String,
    next: AtomicU64,
    sink: Arc<dyn Sink>,
}

impl Identity {
    fn new(context: RunContext, prefix: &str, sink: Arc<dyn Sink>) -> Result<Self, Unfit> {
        let fits = prefix.chars().count() <= PREFIX_CHARS_MAX && prefix.parse::<EventId>().is_ok();
        if !fits {
            return Err(Unfit::Prefix);
        }
        Ok(Self { context, prefix: prefix.to_owned(), next: AtomicU64::new(1), sink })
    }

    fn emit(&self, draft: Draft) -> Emitted<'_> {
        let event = draft.into_event();
        // A delta is no row, so there is nothing a repeated one could be a duplicate of.
        let event = if event.event_type.is_ephemeral() {
            event
        } else {
            let n = self.next.fetch_add(1, Ordering::Relaxed);
            event.event_id(EventId::trusted(&format!("{}-{n}", self.prefix)))
        };
        self.sink.emit(&self.context, vec![event])
    }
}

/// Speaks for a run that answers for itself: a supervisor, or an agent that works alone.
pub struct SupervisorEmitter(Identity);

impl SupervisorEmitter {
    /// Refuses a worker's context.
    pub fn new(context: RunContext, event_id_prefix: &str, sink: Arc<dyn Sink>) -> Result<Self, Unfit> {
        match context.role {
            Role::Supervisor | Role::Agent => Identity::new(context, event_id_prefix, sink).map(Self),
            Role::Worker => Err(Unfit::Role(context.role)),
        }
    }

    pub fn context(&self) -> &RunContext {
        &self.0.context
    }
}

impl Emitter for SupervisorEmitter {
    fn emit(&self, draft: Draft) -> Emitted<'_> {
        self.0.emit(draft)
    }
}

/// Speaks for a run that a supervisor spawned.
pub struct WorkerEmitter(Identity);

impl WorkerEmitter {
    /// Refuses every context but a worker's.
    pub fn new(context: RunContext, event_id_prefix: &str, sink: Arc<dyn Sink>) -> Result<Self, Unfit> {
        match context.role {
            Role::Worker => Identity::new(context, event_id_prefix, sink).map(Self),
            Role::Supervisor | Role::Agent => Err(Unfit::Role(context.role)),
        }
    }

    pub fn context(&self) -> &RunContext {
        &self.0.context
    }
}

impl Emitter for WorkerEmitter {
    fn emit(&self, draft: Draft) -> Emitted<'_> {
        self.0.emit(draft)
    }
}

/// For work nobody logs: says nothing and remembers nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NullEmitter;

impl Emitter for NullEmitter {
    fn emit(&self, _: Draft) -> Emitted<'_> {
        Box::pin(std::future::ready(Ok(())))
    }
}

#[cfg(test)]
mod tests;
