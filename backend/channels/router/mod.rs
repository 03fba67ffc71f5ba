//! The way of one message: a graph of the engine, on a run and a thread of its own.
//!
//! The router's run is `router`; each node is a step on its timeline, and its output says what became of the message. A
//! message that waits for its user's code leaves the run interrupted; the answer lets it go on from its checkpoint.
//!
//! Invariants kept here: what was routed is routed again to the same end, wherever it was left, and writes no step twice;
//! the thread is there only as long as the message is on its way. Nothing of a message that was let through depends on
//! this thread: the agent's run has one of the session's.
//!
//! Start reading at [`graph`], then [`nodes`] (what each does) and `Router::route` (how it is carried out).

mod graph;
mod nodes;
mod outcome;
mod own;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use self::{
    graph::{Passage, ROUTER},
    nodes::Work,
    outcome::Outcome,
    own::Own,
};
use crate::{
    clock::Stopwatch,
    domain::{
        event::NewEvent,
        id::{RunId, SpanId},
        interrupt::{Answer, Decision},
        json::Json,
        principal::OwnerId,
        run::{Refusal, Status},
        session::Reason,
    },
    emitters::emitter::{Emitter, Level},
    engine::{Durability, Ended, Limits, RunEnv, visit::Question},
    sessions::steps::{Identity, Routed, Start, StartError, Started, Steps},
    threads::Threads,
    timeline::{Timeline, emit::EmitError, interrupts::AnswerError},
};

/// Routes messages in this process.
#[derive(Clone)]
pub struct Router {
    timeline: Timeline,
    threads: Threads,
    steps: Steps,
    stopwatch: Stopwatch,
}

impl Router {
    pub fn new(timeline: Timeline, threads: Threads, steps: Steps, stopwatch: Stopwatch) -> Self {
        Self { timeline, threads, steps, stopwatch }
    }

    async fn route(&self, routed: &Arc<Routed>) -> Result<Started, StartError> {
        let own = self.open(routed).await?;
        if let Some(outcome) = own.output.as_ref().and_then(|output| Outcome::of(output, routed)) {
            return self.again(routed, outcome).await;
        }
        if own.status == Status::Interrupted {
            let open = self.timeline.store().open_interrupts(&routed.owner, routed.router_run_id).await?;
            self.answer(&own, &open, self.is_known(routed).await?).await?;
        }
        let passage = loop {
            match self.drive(&own, routed).await? {
                Ended::Completed(passage) => break passage,
                Ended::Suspended { questions, .. } => {
                    // The others are gone in a moment; a person may take longer than threads live.
                    self.threads.own(&routed.owner, routed.router_run_id).await?;
                    ask(&*own.emitter, &questions).await?;
                    // The code may have come just as it was asked for, and whoever took it found no run that waits.
                    if !self.is_known(routed).await? {
                        return Ok(Started::Held { router_run_id: routed.router_run_id });
                    }
                    let asked: Vec<_> = questions.into_iter().map(|question| question.interrupt_id).collect();
                    self.answer(&own, &asked, true).await?;
                }
                Ended::Failed { node, error } => {
                    return Err(StartError::Failed(format!("{}: {error}", node.unwrap_or(ROUTER))));
                }
                Ended::Cancelled => return Err(StartError::Other("the routing was cancelled".to_owned())),
            }
        };
        let outcome = passage.outcome.ok_or_else(|| StartError::Failed("a message came to no end".to_owned()))?;
        own.emitter.run_completed(json!(outcome)).await?;
        self.threads.forget_own(&routed.owner, routed.router_run_id).await?;
        Ok(outcome.started(routed, passage.held_no))
    }

    /// Its run had told the outcome before whoever routed it went: it stays what it is.
    async fn again(&self, routed: &Routed, outcome: Outcome) -> Result<Started, StartError> {
        self.threads.forget_own(&routed.owner, routed.router_run_id).await?;
        let held_no = match outcome {
            Outcome::Filtered { reason: Reason::CodeAccepted } => match self.steps.identity(routed).await? {
                Identity::Proven { held_no } => Some(held_no),
                Identity::Known | Identity::NotAllowed | Identity::Unproven { .. } => None,
            },
            Outcome::Filtered { .. } | Outcome::Accepted { .. } => None,
        };
        Ok(outcome.started(routed, held_no))
    }

    /// Carries the graph as far as it goes now.
    async fn drive(&self, own: &Own, routed: &Arc<Routed>) -> Result<Ended<Passage>, StartError> {
        let work = Work { timeline: self.timeline.clone(), steps: self.steps.clone(), routed: Arc::clone(routed) };
        let graph = graph::graph(&Arc::new(work)).map_err(|flaw| StartError::Failed(flaw.to_string()))?;
        let env = RunEnv {
            host: Arc::clone(&own.host),
            emitter: Arc::clone(&own.emitter),
            ids: self.timeline.ids().clone(),
            stopwatch: Arc::clone(&self.stopwatch),
            cancel: CancellationToken::new(),
            // A message whose run somebody has ended goes its way all the same; that run can tell of it no more.
            durability: if own.status.is_terminal() { Durability::Never } else { Durability::EveryStep },
        };
        match env.drive(&graph, Limits::default(), Option::unwrap_or_default).await {
            Ok(ended) => Ok(ended),
            Err(error) => {
                // What failed is what matters; it may be the very reason why nothing can be told.
                if let Err(error) = own.emitter.log(Level::Warn, &format!("not yet: {error}")).await {
                    tracing::debug!(%error, "a line of the router's run was not stored");
                }
                Err(StartError::Other(error.reason))
            }
        }
    }

    async fn is_known(&self, routed: &Routed) -> Result<bool, StartError> {
        Ok(self.steps.identity(routed).await? == Identity::Known)
    }

    /// Answers what the run has asked, so that it goes on. Its graph looks again who the user is: the answer only says
    /// that it is time to.
    async fn answer(&self, own: &Own, asked: &[SpanId], is_verified: bool) -> Result<(), StartError> {
        if asked.is_empty() {
            return Ok(own.emitter.run_resumed("its question was answered").await?);
        }
        for interrupt_id in asked {
            let answer = Answer {
                interrupt_id: interrupt_id.clone(),
                decision: Decision::Respond,
                value: Some(Json::of(&json!({ "verified": is_verified }))),
            };
            match self.timeline.answer_interrupt(own.host.context(), &answer).await {
                // Somebody else has answered meanwhile, and that is as good.
                Ok(()) | Err(AnswerError::AnsweredOtherwise | AnswerError::Expired) => {}
                Err(error) => return Err(StartError::Other(format!("the question was not answered: {error}"))),
            }
        }
        Ok(())
    }

    /// Ends the run of a message that is given up, and takes away what it kept.
    async fn end(&self, owner: &OwnerId, run: RunId, why: &str) {
        if let Err(error) = self.threads.forget_own(owner, run).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the state of a message was left behind");
        }
        let Ok(Some(context)) = self.timeline.context(owner, run).await else { return };
        let error = json!({ "error": { "code": "given_up", "message": why } });
        let failed = NewEvent::new("run.failed", Json::of(&error));
        match self.timeline.emit_run_event(&context, vec![failed]).await {
            Ok(_) | Err(EmitError::Refused(Refusal::Ended { .. })) => {}
            Err(error) => tracing::warn!(%error, "the end of a router's run was not stored"),
        }
    }
}

impl Start for Router {
    fn start(&self, routed: Routed) -> BoxFuture<'_, Result<Started, StartError>> {
        Box::pin(async move { self.route(&Arc::new(routed)).await })
    }

    fn give_up<'a>(&'a self, owner: &'a OwnerId, router_run: RunId, why: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(self.end(owner, router_run, why))
    }
}

/// Puts the graph's questions into the log.
async fn ask(emitter: &dyn Emitter, questions: &[Question]) -> Result<(), StartError> {
    let asked: Vec<_> = questions.iter().map(|asked| (&asked.interrupt_id, &asked.payload, &asked.step)).collect();
    Ok(emitter.run_interrupted(&asked).await?)
}
