//! [`Sink`]: where an emitter's events go. Either into this process's timeline or through a runner into another's.

use std::fmt::Display;

use futures::future::BoxFuture;

use crate::domain::{context::RunContext, event::NewEvent};

/// The log did not take the events: it refused them, or could not be reached for as long as the sink was patient.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the log did not take the events: {reason}")]
pub struct SinkError {
    /// In words for the person who runs the agent.
    pub reason: String,
    /// Whether the same may work later: the log was away, and refused nothing.
    pub is_passing: bool,
}

impl SinkError {
    pub fn new(reason: impl Display) -> Self {
        Self { reason: reason.to_string(), is_passing: false }
    }

    pub fn passing(reason: impl Display) -> Self {
        Self { is_passing: true, ..Self::new(reason) }
    }
}

/// Takes events of any run, each call with the run it is for.
///
/// `Ok` means that the durable events of the call are committed. Events are kept in the order of the call, and a call
/// that is made again with the same `event_id`s changes nothing.
pub trait Sink: Send + Sync {
    fn emit<'a>(&'a self, context: &'a RunContext, events: Vec<NewEvent>) -> BoxFuture<'a, Result<(), SinkError>>;
}
