//! Agents: what this server and its runners execute, the queues, and the runs that executors hold.

use axum::{Json as Reply, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{Server, extract::Caller, handler::routes, problem::Problem};
use crate::{
    config::sections::{Agent as Section, AgentKind, Named},
    domain::{event::timestamp, id::Name, limits::QUEUED_COUNTED_MAX, principal::Scope, run::Status},
    runners::ConnectedRunner,
    store::queue::HeldJob,
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(list))
}

/// An agent of the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredAgent {
    pub(super) name: Name,
    pub(super) temperature: Option<f64>,
    kind: AgentKind,
    model: Option<String>,
    tools: Vec<String>,
    workers: Vec<String>,
}

impl ConfiguredAgent {
    /// All agents of the configuration, by name.
    pub fn all(sections: &Named<Section>) -> Vec<Self> {
        let agents = sections.iter().map(|(name, section)| Self {
            name: Name::trusted(name),
            temperature: section.temperature,
            kind: section.kind,
            model: Some(section.model.clone()).filter(|model| !model.is_empty()),
            tools: section.tools.clone(),
            workers: section.workers.clone(),
        });
        agents.collect()
    }
}

/// An agent of the configuration, as callers see it.
#[derive(Debug, Serialize, ToSchema)]
struct Agent {
    name: String,
    #[schema(value_type = String)]
    kind: AgentKind,
    /// The model's name in the configuration; null for an endpoint of AG-UI.
    model: Option<String>,
    tools: Vec<String>,
    /// Agents that it may give work to.
    workers: Vec<String>,
}

/// A runner that is connected to the process that answers.
#[derive(Debug, Serialize, ToSchema)]
struct Runner {
    name: String,
    agents: Vec<String>,
    /// How many runs it executes at a time.
    capacity: usize,
    /// RFC 3339, UTC, microseconds.
    connected_at: String,
}

/// Runs of an agent that an executor has or may claim.
#[derive(Debug, Serialize, ToSchema)]
struct QueueLength {
    agent: String,
    #[schema(value_type = String)]
    status: Status,
    runs: i64,
}

/// A run that an executor holds.
#[derive(Debug, Serialize, ToSchema)]
struct HeldRun {
    run_id: uuid::Uuid,
    title: Option<String>,
    agent: String,
    /// The runner's name, or `the server`.
    runner: String,
    /// When the lease ends unless it is renewed.
    lease_until: String,
    /// How often the run was assigned: 1 for the first time.
    attempt: i32,
}

/// Who executes the principal's runs.
#[derive(Debug, Serialize, ToSchema)]
struct Executors {
    /// The configured ones that the principal may use, by name.
    agents: Vec<Agent>,
    /// The principal's, by name.
    runners: Vec<Runner>,
    /// By agent and status.
    queues: Vec<QueueLength>,
    /// Whether there are more runs than were counted: the oldest 10 000.
    is_partial: bool,
    /// The 100 whose leases end first.
    held: Vec<HeldRun>,
}

impl From<ConnectedRunner> for Runner {
    fn from(runner: ConnectedRunner) -> Self {
        Self {
            name: runner.name.as_str().to_owned(),
            agents: runner.agents.iter().map(|agent| agent.as_str().to_owned()).collect(),
            capacity: runner.capacity,
            connected_at: timestamp(runner.connected_at),
        }
    }
}

impl From<HeldJob> for HeldRun {
    fn from(job: HeldJob) -> Self {
        Self {
            run_id: job.run_id.uuid(),
            title: job.title,
            agent: job.agent.as_str().to_owned(),
            runner: job.runner.as_str().to_owned(),
            lease_until: timestamp(job.lease_until),
            attempt: job.attempt,
        }
    }
}

/// List the agents that the principal may use, its connected runners, its queues, and who holds which of its runs.
#[utoipa::path(get, operation_id = "list_agents", path = "/api/agents", tag = "runners",
    responses((status = 200, body = Executors, description = "As it is now"), (status = 403, body = Problem, description = "`forbidden`")))]
async fn list(State(server): State<Server>, caller: Caller) -> Result<Reply<Executors>, Problem> {
    let owner = caller.needs_all(Scope::Read)?.owner();
    let jobs = server.timeline.store().jobs();
    let counted = jobs.queues(owner).await?;
    let held = jobs.held(owner, server.timeline.clock().held()).await?;
    let admission = server.authenticator.admission();
    let may_use = |agent: &Name| admission.may_use(owner, agent);
    let agents = server.agents.iter().filter(|agent| may_use(&agent.name)).map(|agent| Agent {
        name: agent.name.as_str().to_owned(),
        kind: agent.kind,
        model: agent.model.clone(),
        tools: agent.tools.clone(),
        workers: agent.workers.iter().filter(|worker| may_use(&Name::trusted(worker))).cloned().collect(),
    });
    Ok(Reply(Executors {
        agents: agents.collect(),
        runners: server.runners.connected(owner).into_iter().map(Runner::from).collect(),
        is_partial: counted.iter().map(|queue| queue.runs).sum::<i64>() >= QUEUED_COUNTED_MAX,
        queues: counted
            .into_iter()
            .map(|queue| QueueLength { agent: queue.agent.as_str().to_owned(), status: queue.status, runs: queue.runs })
            .collect(),
        held: held.into_iter().map(HeldRun::from).collect(),
    }))
}
