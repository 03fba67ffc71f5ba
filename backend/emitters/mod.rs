//! How a run speaks, and what else it needs of the place that carries it out: emitters with an identity, and the host.
//!
//! Invariant kept here: whoever acts says for whom. An emitter carries the
//! [`RunContext`](crate::domain::context::RunContext) it was built with; nothing is looked up in a task-local, a static
//! or the payload. So two runs that work side by side in one process cannot be confused.
//!
//! Events leave through the run's [`host::RunHost`], which is the server itself or a runner; code here cannot tell which.
//!
//! Start reading at [`host`], then [`emitter`] (the sentences) and [`identity`] (who says them).

pub mod emitter;
pub mod host;
pub mod identity;

#[cfg(test)]
pub(crate) mod testing;
