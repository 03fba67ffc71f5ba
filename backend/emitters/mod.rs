//! How a run speaks: emitters with an identity, and the sinks their events go to.
//!
//! Invariant kept here: whoever acts says for whom. An emitter carries the
//! [`RunContext`](crate::domain::context::RunContext) it was built with; nothing is looked up in a task-local, a static
//! or the payload. So two runs that work side by side in one process cannot be confused.
//!
//! Events leave through a [`sink::Sink`], which is the in-process timeline or a runner; code here cannot tell which.
//!
//! Start reading at [`emitter`] (the sentences), then [`identity`] (who says them).

pub mod emitter;
pub mod identity;
pub mod sink;

#[cfg(test)]
pub(crate) mod testing;
