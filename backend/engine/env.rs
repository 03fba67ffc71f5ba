//! [`RunEnv`]: what a graph, and whoever drives it, has of its run.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::{
    Graph, State,
    drive::{Drive, Ended, Limits},
};
use crate::{
    clock::{IdSource, Stopwatch},
    emitters::{
        emitter::Emitter,
        host::{HostError, RunHost},
    },
};

/// When a graph's state is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After each step, and what nodes remember inside it at once: no step is taken twice.
    #[default]
    EveryStep,
    /// When the graph waits; `waited` says whether it has before. One that was killed goes on from where it waited last, or
    /// begins again.
    WhenWaiting { waited: bool },
    /// Never: it begins each time.
    Never,
}

/// What somebody works with who carries a run out.
#[derive(Clone)]
pub struct RunEnv {
    pub host: Arc<dyn RunHost>,
    /// Its event ids must follow from the spans, see [`SupervisorEmitter::repeatable`](crate::emitters::identity::SupervisorEmitter::repeatable).
    pub emitter: Arc<dyn Emitter>,
    pub ids: IdSource,
    pub stopwatch: Stopwatch,
    pub cancel: CancellationToken,
    pub durability: Durability,
}

impl RunEnv {
    /// Goes on from the run's last checkpoint, or begins: `begin` gets the state the thread was left in by an earlier
    /// run of this graph, if there is one.
    ///
    /// After an error of the host the graph stands where it stood and may be driven again.
    pub async fn drive<S: State>(
        &self,
        graph: &Graph<S>,
        limits: Limits,
        begin: impl FnOnce(Option<S>) -> S + Send,
    ) -> Result<Ended<S>, HostError> {
        Drive::new(graph, self, limits).run(begin).await
    }
}
