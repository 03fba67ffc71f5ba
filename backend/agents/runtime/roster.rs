//! [`Configured`]: the agents of the configuration file, hired for one run each.

use std::sync::Arc;

use futures::future::BoxFuture;

use super::{LocalSpawner, shelf::Shelf};
use crate::{
    agents::{
        agent::{Hired, Roster},
        assistant::Assistant,
        registry::{AgentSpec, Agents},
    },
    clock::Stopwatch,
    domain::{context::RunContext, id::Name},
    engine::Limits,
    timeline::Timeline,
};

/// The agents of the configuration, in this process.
#[derive(Clone)]
pub struct Configured {
    agents: Agents,
    shelf: Arc<Shelf>,
    spawner: Arc<LocalSpawner>,
    stopwatch: Stopwatch,
}

impl Configured {
    pub fn new(agents: Agents, timeline: &Timeline, stopwatch: Stopwatch) -> Self {
        let (shelf, spawner) = (Shelf::new(timeline.clone()), LocalSpawner::new(timeline.clone()));
        Self { agents, shelf: Arc::new(shelf), spawner: Arc::new(spawner), stopwatch }
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
            spill: Some(self.shelf.clone()),
            pictures: Some(self.shelf.clone()),
            workers: spec.workers,
            spawner: self.spawner.clone(),
            stopwatch: Arc::clone(&self.stopwatch),
        };
        Hired { agent: Arc::new(assistant), limits, time_max: spec.run_time_max }
    }
}

impl Roster for Configured {
    fn names(&self) -> Vec<Name> {
        self.agents.names()
    }

    fn resolve<'a>(&'a self, agent: &'a Name, _: &'a RunContext) -> BoxFuture<'a, Result<Hired, String>> {
        Box::pin(async move {
            let spec = self.agents.resolve(agent.as_str()).await.map_err(|error| error.to_string())?;
            Ok(self.hired(spec))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.agents.close())
    }
}
