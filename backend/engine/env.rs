//! [`RunEnv`]: what a graph, and its driver, get for one run.

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

/// When a graph's state is saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// After each step, and memoized values at once: no finished step runs again.
    #[default]
    EveryStep,
    /// When the graph waits; `waited` states whether it has waited before. A killed graph resumes where it last waited,
    /// or begins again.
    WhenWaiting { waited: bool },
    /// Never: the graph begins again each time.
    Never,
}

/// What the executor of a run needs.
#[derive(Clone)]
pub struct RunEnv {
    pub host: Arc<dyn RunHost>,
    /// Must derive event ids from spans, see
    /// [`SupervisorEmitter::repeatable`](crate::emitters::identity::SupervisorEmitter::repeatable).
    pub emitter: Arc<dyn Emitter>,
    pub ids: IdSource,
    pub stopwatch: Stopwatch,
    pub cancel: CancellationToken,
    pub durability: Durability,
}

impl RunEnv {
    /// Continues from the run's last checkpoint, or begins: `begin` gets the state that an earlier run of this graph
    /// left in the thread, if there is one.
    ///
    /// After a host error, the graph is where it was and may be driven again.
    pub async fn drive<S: State>(
        &self,
        graph: &Graph<S>,
        limits: Limits,
        begin: impl FnOnce(Option<S>) -> S + Send,
    ) -> Result<Ended<S>, HostError> {
        Drive::new(graph, self, limits).run(begin).await
    }
}
