//! The engine: graphs of named nodes over a typed state, with a checkpoint after every step.
//!
//! A graph runs in steps. All nodes of a step run side by side on the same state; when the last one is done their
//! updates are applied in the order of the nodes' names, the state is saved, and the edges say which nodes are next. So a
//! graph that was killed anywhere goes on from its last step, and inside that step only the nodes that had not finished
//! run again: what a node gives, and what it remembers with [`NodeContext::once`], is saved before anything is built on it.
//! (What a node gives that is alone in its step is saved with the step's checkpoint, which follows at once.)
//!
//! Invariant kept here: state first, then events. The end of a step is logged only when what it gave can no longer be
//! lost, and events carry ids that follow from their spans, so a step that is repeated writes no event twice.
//!
//! Nothing is ambient: the run's [`RunHost`](crate::emitters::host::RunHost), its emitter and the cancellation are
//! arguments. Start reading at [`graph`], then [`visit`] (what a node may do), [`env`](mod@env) and [`drive`]; `checkpointer` says how a
//! state is kept.

mod checkpointer;
pub mod drive;
pub mod env;
pub mod graph;
pub mod visit;

use serde::{Serialize, de::DeserializeOwned};

pub use self::{
    drive::{Ended, Limits},
    env::{Durability, RunEnv},
    graph::{Graph, Next},
    visit::{NodeContext, Stop},
};

/// What a graph works on. It serialises as a JSON object; each member is kept as a channel of the thread's checkpoint,
/// stored anew only when it changed.
pub trait State: Serialize + DeserializeOwned + Clone + Send + Sync + 'static {
    /// What a node gives back.
    type Update: Serialize + DeserializeOwned + Send + 'static;

    /// Members that are lists to which nothing is done but adding at the end; of such a list only what is new is stored.
    const APPENDED: &'static [&'static str] = &[];

    /// Takes in what one node gave. Nodes of one step apply in the order of their names.
    fn apply(&mut self, update: Self::Update);
}

#[cfg(test)]
mod tests;
