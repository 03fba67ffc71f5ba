//! The engine: graphs of named nodes over a typed state, with a checkpoint after every step.
//!
//! A graph runs in steps. All nodes of a step run concurrently on the same state; when the last one is done, their
//! updates are applied in the order of the nodes' names, the state is saved, and the edges select the next nodes. So a
//! graph killed anywhere resumes at its last step, and of that step only the unfinished nodes run again: a node's
//! update, and what it memoizes with [`NodeContext::once`], is saved before anything builds on it. (The update of a
//! node that is alone in its step is saved with the step's checkpoint, which follows at once.)
//!
//! Invariant kept here: state first, then events. The end of a step is logged only when its updates can no longer be
//! lost, and event ids derive from spans, so a repeated step writes no event twice.
//!
//! Nothing is ambient: the run's [`RunHost`](crate::emitters::host::RunHost), its emitter and the cancellation are
//! arguments. Start reading at [`graph`], then [`context`] (what a node may do), [`env`](mod@env) and [`drive`];
//! `checkpointer` saves the state.

mod checkpointer;
pub mod context;
pub mod drive;
pub mod env;
pub mod graph;

use serde::{Serialize, de::DeserializeOwned};

pub use self::{
    context::{NodeContext, Stop},
    drive::{Ended, Limits},
    env::{Durability, RunEnv},
    graph::{Graph, Next},
};

/// What a graph works on. It serialises as a JSON object; each member is stored as a channel of the thread's
/// checkpoint, and again only when it changed.
pub trait State: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// What a node returns.
    type Update: Serialize + DeserializeOwned + Send + 'static;

    /// List members that only grow at the end; only the new part of such a list is stored.
    const APPENDED: &'static [&'static str] = &[];

    /// Applies a node's update. Updates of one step are applied in the order of the nodes' names.
    fn apply(&mut self, update: Self::Update);
}

#[cfg(test)]
mod tests;
