//! [`Configured`]: the agents of the configuration file, hired for one run each.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{
    agent::{Hired, Roster},
    assistant::{Assistant, Pictures},
    registry::{AgentSpec, Agents},
    spawner::Spawner,
    spill::Spill,
};
use crate::{
    auth::Admission,
    clock::Stopwatch,
    domain::{context::RunContext, id::Name},
    engine::Limits,
};

/// What agents reach of the server besides their run: this process itself, or one elsewhere.
#[derive(Clone)]
pub struct Reach {
    /// Where results go that are too long for a run.
    pub spill: Arc<dyn Spill>,
    /// Where pictures are that a message only points to.
    pub pictures: Arc<dyn Pictures>,
    /// Where workers' runs are made.
    pub spawner: Arc<dyn Spawner>,
}

/// The agents of the configuration. Cheap to clone.
#[derive(Clone)]
pub struct Configured {
    agents: Agents,
    reach: Reach,
    stopwatch: Stopwatch,
    admission: Admission,
}

impl Configured {
    pub fn new(agents: Agents, reach: Reach, stopwatch: Stopwatch) -> Self {
        Self { agents, reach, stopwatch, admission: Admission::default() }
    }

    /// With rules on whose runs are carried out: here, because no way by which a run was made gets past.
    #[must_use]
    pub fn admitting(self, admission: Admission) -> Self {
        Self { admission, ..self }
    }

    fn hired(&self, spec: AgentSpec) -> Hired {
        // A step of the model and one of its tools are two steps of the graph.
        let limits = Limits { steps_max: spec.max_steps.saturating_mul(2), node_time_max: spec.run_time_max };
        let assistant = Assistant {
            system: Some(spec.system).filter(|system| !system.is_empty()),
            model: spec.model,
            temperature: spec.temperature,
            max_tokens: spec.max_tokens,
            tools: spec.toolbox,
            parallel_max: spec.parallel_max,
            call_time_max: spec.tool_time_max,
            spill: Some(Arc::clone(&self.reach.spill)),
            pictures: Some(Arc::clone(&self.reach.pictures)),
            workers: spec.workers,
            spawner: Arc::clone(&self.reach.spawner),
            stopwatch: Arc::clone(&self.stopwatch),
        };
        Hired { agent: Arc::new(assistant), limits, time_max: spec.run_time_max }
    }
}

impl Roster for Configured {
    fn names(&self) -> Vec<Name> {
        self.agents.names()
    }

    fn resolve<'a>(&'a self, agent: &'a Name, run: &'a RunContext) -> BoxFuture<'a, Result<Hired, String>> {
        Box::pin(async move {
            if !self.admission.may_use(&run.owner_id, agent) {
                return Err(format!("the agent {agent} is not for whoever this run belongs to"));
            }
            let spec = self.agents.resolve(agent.as_str()).await.map_err(|error| error.to_string())?;
            Ok(self.hired(spec))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.agents.close())
    }
}
