//! How a run emits events, and what else it needs from its executor: emitters with an identity, and the host.
//!
//! Invariant kept here: identity is explicit. An emitter carries the [`RunContext`](crate::domain::context::RunContext)
//! it was built with; nothing is looked up in a task-local, a static or the payload, so two runs that work concurrently
//! in one process cannot be confused.
//!
//! Events leave through the run's [`host::RunHost`], the server itself or a runner; code here cannot tell which.
//!
//! Start reading at [`host`], then [`emitter`] (the events) and [`identity`] (whom they are for).

pub mod emitter;
pub mod host;
pub mod identity;
pub mod proxied;

#[cfg(test)]
pub(crate) mod testing;
