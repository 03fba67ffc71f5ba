//! Routing of a message: a graph of the engine that identifies the sender and the session, and starts the agent's run.
//!
//! The router's run has the role `router`; each node is a step on its timeline, and its output is the outcome of the
//! message. It is stored in one append when the graph has ended. A message that waits for its user's code leaves the
//! run interrupted, with a checkpoint in a thread of its own, from which the answer resumes it. Otherwise no checkpoint
//! is stored: routing a message again has the same result.
//!
//! Start reading at [`graph`], then [`nodes`] (what each does) and [`Router::route`] (how it is executed).

mod graph;
mod message;
mod nodes;
mod outcome;
mod telemetry;

use std::sync::Arc;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::{graph::RouteState, message::request_hash, telemetry::Telemetry};
pub use self::{message::Message, outcome::Outcome};
use crate::{
    channels::log::SessionLog,
    clock::Stopwatch,
    config::channels::ChannelAuth,
    domain::{
        event::{EventKind, NewEvent},
        id::SpanId,
        interrupt::{Answer, Decision},
        json::Json,
        run::{Refusal, Status},
    },
    emitters::{
        emitter::{Emitter, Level},
        host::HostError,
    },
    engine::{Durability, Ended, Limits, RunEnv, context::Question},
    store::{self, Store, codes::Verification, inbox::ClaimedMessage},
    threads::Threads,
    timeline::{
        Timeline,
        emit::{EmitError, Opening},
        interrupts::AnswerError,
    },
};

/// The agent name of the router's runs, and the name of the graph.
const ROUTER: &str = "router";

/// Why a message has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum RouteError {
    /// It will never have one.
    #[error("{0}")]
    Failed(String),
    /// Not yet: it stays in the inbox.
    #[error("{0}")]
    Later(String),
}

impl From<HostError> for RouteError {
    fn from(error: HostError) -> Self {
        Self::Later(error.reason)
    }
}

impl From<store::Error> for RouteError {
    fn from(error: store::Error) -> Self {
        Self::Later(error.to_string())
    }
}

/// Routes messages in this process.
#[derive(Clone)]
pub struct Router {
    timeline: Timeline,
    threads: Threads,
    log: SessionLog,
    /// The key for the hashes of users and codes.
    key: Arc<[u8]>,
    stopwatch: Stopwatch,
}

/// A message being routed.
#[derive(Clone)]
struct RoutedMessage {
    router: Router,
    message: Arc<Message>,
    telemetry: Arc<Telemetry>,
}

impl Router {
    pub fn new(timeline: Timeline, threads: Threads, log: SessionLog, key: Arc<[u8]>, stopwatch: Stopwatch) -> Self {
        Self { timeline, threads, log, key, stopwatch }
    }

    pub fn key(&self) -> &[u8] {
        &self.key
    }

    fn store(&self) -> &Store {
        self.timeline.store()
    }

    /// Routes a message and creates its run, or returns why not. Routing the same message again has the same result.
    pub async fn route(&self, message: Message) -> Result<Outcome, RouteError> {
        let telemetry = Arc::new(Telemetry::of(self, &message).await?);
        let routing = RoutedMessage { router: self.clone(), message: Arc::new(message), telemetry };
        let mut waited = routing.telemetry.found == Some(Status::Interrupted);
        if waited {
            let Message { owner, router_run_id, .. } = &*routing.message;
            let asked = self.store().interrupts().open(owner, *router_run_id).await?;
            routing.answer(&asked).await?;
        }
        loop {
            match routing.drive(waited).await? {
                Ended::Completed(state) => {
                    let outcome = state.outcome.ok_or_else(|| RouteError::Failed("no outcome".to_owned()))?;
                    routing.telemetry.run_completed(outcome.output()).await?;
                    routing.telemetry.send().await?;
                    if waited || routing.message.attempts > 1 {
                        routing.telemetry.host.drop_state().await?;
                    }
                    return Ok(outcome);
                }
                Ended::Suspended { questions, .. } => {
                    routing.ask(&questions).await?;
                    // The code may have arrived while it was asked for, when there was no waiting run to resume yet.
                    if !routing.is_verified().await? {
                        return Ok(Outcome::AwaitingCode);
                    }
                    let asked: Vec<_> = questions.into_iter().map(|question| question.interrupt_id).collect();
                    routing.answer(&asked).await?;
                    waited = true;
                }
                Ended::Failed { node, error, .. } => {
                    routing.telemetry.send().await?;
                    return Err(RouteError::Failed(format!("{}: {error}", node.unwrap_or(ROUTER))));
                }
                Ended::Cancelled => return Err(RouteError::Later("the routing was cancelled".to_owned())),
            }
        }
    }

    /// Fails the run of an abandoned message, and deletes its state.
    pub async fn give_up(&self, claimed: &ClaimedMessage, why: &str) {
        let ClaimedMessage { owner_id: owner, router_run_id: run, .. } = claimed;
        if let Err(error) = self.threads.forget_own(owner, &[*run]).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "state of a message not removed");
        }
        let error = json!({ "error": { "code": "given_up", "message": why } });
        let failed = vec![NewEvent::new(EventKind::RunFailed, Json::of(&error))];
        let opening = Opening { events: failed.clone(), ..Opening::default() };
        let spec = message::router_spec(owner, &claimed.channel, *run);
        let context = Arc::new(spec.context.clone());
        let ended = match self.timeline.open_run_with(spec, request_hash(*run), opening).await {
            Ok(ack) if ack.already_open => self.timeline.emit_run_event(&context, failed).await,
            opened => opened,
        };
        match ended {
            Ok(_) | Err(EmitError::Refused(Refusal::Ended { .. })) => {}
            Err(error) => tracing::warn!(%error, "end of a router run not stored"),
        }
    }
}

impl RoutedMessage {
    /// Runs the graph as far as possible, from where it waited or from the beginning.
    async fn drive(&self, waited: bool) -> Result<Ended<RouteState>, RouteError> {
        let Self { router, telemetry, .. } = self;
        let graph = graph::graph(self).map_err(|flaw| RouteError::Failed(flaw.to_string()))?;
        let durability = match telemetry.found {
            // If a client has ended the run, its message is routed all the same, but the run can record nothing more.
            Some(status) if status.is_terminal() => Durability::Never,
            _ => Durability::WhenWaiting { waited },
        };
        let env = RunEnv {
            host: Arc::clone(&telemetry.host),
            emitter: Arc::clone(telemetry) as Arc<dyn Emitter>,
            ids: router.timeline.ids().clone(),
            stopwatch: Arc::clone(&router.stopwatch),
            cancel: CancellationToken::new(),
            durability,
        };
        match env.drive(&graph, Limits::default(), Option::unwrap_or_default).await {
            Ok(ended) => Ok(ended),
            Err(error) => {
                // The first error matters; it may also be why the events cannot be stored.
                telemetry.log(Level::Warn, &format!("will retry: {error}")).await?;
                if let Err(error) = telemetry.send().await {
                    tracing::debug!(%error, "events of the router's run not stored");
                }
                Err(error.into())
            }
        }
    }

    /// Stores the questions and all events before them.
    async fn ask(&self, questions: &[Question]) -> Result<(), RouteError> {
        // A person may take longer to answer than the lifetime of threads.
        self.telemetry.host.hold_state().await?;
        let asked: Vec<_> = questions.iter().map(|asked| (&asked.interrupt_id, &asked.payload, &asked.step)).collect();
        self.telemetry.run_interrupted(&asked).await?;
        Ok(self.telemetry.send().await?)
    }

    /// Answers what the run has asked, so that it resumes. The graph then verifies the user again: the answer is only a
    /// signal to do so.
    async fn answer(&self, asked: &[SpanId]) -> Result<(), RouteError> {
        if asked.is_empty() {
            self.telemetry.run_resumed("its question was answered").await?;
            return Ok(self.telemetry.send().await?);
        }
        let value = Json::of(&json!({ "verified": self.is_verified().await? }));
        for interrupt_id in asked {
            let answer = Answer::new(interrupt_id.clone(), Decision::Respond, Some(value.clone()));
            match self.router.timeline.answer_interrupt(self.telemetry.host.context(), &answer).await {
                // Already answered by another party, or expired: the run resumes all the same.
                Ok(()) | Err(AnswerError::AnsweredOtherwise | AnswerError::Expired) => {}
                Err(error) => return Err(RouteError::Later(format!("the question was not answered: {error}"))),
            }
        }
        Ok(())
    }

    /// Whether the user is now verified on the channel.
    async fn is_verified(&self) -> Result<bool, RouteError> {
        let (Message { owner, channel, config, inbound, inbound_no, .. }, store) =
            (&*self.message, self.router.store());
        if config.auth == ChannelAuth::None {
            return Ok(true);
        }
        let expired_until = config.expired_until(self.router.timeline.clock().now());
        let standing = store.codes().verification(owner, channel, &inbound.user_id, *inbound_no, expired_until).await?;
        Ok(matches!(standing, Verification::Verified { .. }))
    }
}
