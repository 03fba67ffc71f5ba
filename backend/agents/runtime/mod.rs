//! The runtime: takes jobs whose agents this process knows and carries them out, each on the engine.
//!
//! It composes and decides nothing about who somebody is or which session a message belongs to: that was settled before
//! the run was made. Invariants kept here: work happens under a lease that is renewed, and stops when it is lost; a run
//! that waits (for people, for workers) holds no place and no lease; a run is failed only by its own graph, never because
//! the database was away for a moment.
//!
//! Start reading at [`Runtime::run`], then `carry_out`.

mod facts;
mod roster;
mod shelf;
mod sink;
mod spawner;

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{facts::StoreFacts, roster::Configured, shelf::Shelf, sink::TimelineSink, spawner::LocalSpawner};
use super::agent::{Desk, Roster, suspend};
use crate::{
    clock::Stopwatch,
    dispatch::{Assignment, Dispatch, keep::Fate},
    domain::{
        context::{Role, RunContext},
        event::NewEvent,
        id::{Name, RunId, ThreadId, Title},
        interrupt::{Answer, Decision},
        job::{Claimer, started_event_id},
        json::Json,
        run::Status,
    },
    emitters::{
        emitter::Emitter,
        identity::{SupervisorEmitter, Unfit, WorkerEmitter},
        sink::SinkError,
    },
    engine::{Ended, drive::DriveError, journal::ThreadJournal, visit::Question},
    threads::Threads,
    timeline::emit::EmitError,
};

/// Wait before a graph is driven again after the database was away.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long one emission tries before the work is given back.
const LOG_PATIENCE: Duration = Duration::from_mins(1);

/// Carries out jobs in this process. Cheap to clone.
#[derive(Clone)]
pub struct Runtime {
    pub dispatch: Dispatch,
    pub threads: Threads,
    pub roster: Arc<dyn Roster>,
    pub stopwatch: Stopwatch,
    pub name: Name,
    /// Jobs under way at a time; runs that wait do not count.
    pub places: usize,
}

/// How far the work of one assignment came.
enum Done {
    /// The run has ended.
    Ended,
    /// It waits, and is anybody's when it can go on.
    Suspended,
    /// The work stopped for a reason outside the run.
    Stopped,
}

impl Runtime {
    /// Takes jobs until `stop`, then gives back what is under way so that another process goes on at once.
    pub async fn run(self, stop: CancellationToken) {
        let agents = self.roster.names();
        if agents.is_empty() {
            return;
        }
        let session = self.dispatch.timeline().ids().uuid();
        let who = Claimer { name: self.name.clone(), session, owner: None };
        let (places, tasks) = (Arc::new(Semaphore::new(self.places)), TaskTracker::new());
        let mut bell = self.dispatch.bell();
        while !stop.is_cancelled() {
            let claimed = match self.dispatch.claim(&who, &agents, places.available_permits()).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "jobs could not be claimed");
                    Vec::new()
                }
            };
            for assignment in claimed {
                let Ok(place) = Arc::clone(&places).try_acquire_owned() else { break };
                let (runtime, stop) = (self.clone(), stop.clone());
                tasks.spawn(async move {
                    runtime.carry_out(&assignment, &stop).await;
                    drop(place);
                    // The place is free again: somebody may have waited for it.
                    runtime.dispatch.nudge();
                });
            }
            stop.run_until_cancelled(bell.rung()).await;
        }
        tasks.close();
        tasks.wait().await;
        self.roster.close().await;
    }

    /// Carries one assignment as far as it goes, and says so to the dispatch.
    pub async fn carry_out(&self, assignment: &Assignment, stop: &CancellationToken) {
        let hold = self.dispatch.hold(assignment);
        let cancel = stop.child_token();
        let watch = async {
            hold.stop().cancelled().await;
            cancel.cancel();
            std::future::pending::<()>().await;
        };
        let done = tokio::select! {
            done = Box::pin(self.work(assignment, &cancel)) => done,
            () = watch => Done::Stopped,
        };
        let lease = assignment.lease_id;
        let told = match (done, hold.fate()) {
            (Done::Ended, _) | (_, Some(Fate::Ended(_))) => {
                self.forget(assignment).await;
                self.dispatch.finish(lease).await
            }
            (_, Some(Fate::Lost)) => Ok(false),
            (Done::Suspended | Done::Stopped, None) => self.dispatch.release(lease).await,
        };
        if let Err(error) = told {
            // The lease runs out by itself, and the sweep knows the rest.
            tracing::warn!(error = &error as &dyn std::error::Error, "a job could not be given back");
        }
    }

    async fn work(&self, assignment: &Assignment, cancel: &CancellationToken) -> Done {
        loop {
            match self.once(assignment, cancel).await {
                Ok(done) => return done,
                Err(_) if cancel.is_cancelled() => return Done::Stopped,
                Err(error) => {
                    tracing::warn!(run_id = %assignment.context.run_id, %error, "a run could not go on; it is tried again");
                    if cancel.run_until_cancelled(tokio::time::sleep(AGAIN_AFTER)).await.is_none() {
                        return Done::Stopped;
                    }
                }
            }
        }
    }

    /// One attempt. The error is the log's, the journal's or the database's, and says nothing about the run.
    async fn once(&self, assignment: &Assignment, cancel: &CancellationToken) -> Result<Done, Outside> {
        let context = &assignment.context;
        let record = self.dispatch.timeline().run(&context.owner_id, context.run_id).await?;
        let status = match record.map(|record| record.head.status) {
            None => return Ok(Done::Ended),
            Some(status) if status.is_terminal() => return Ok(Done::Ended),
            Some(status) => status,
        };
        let emitter = self.emitter(assignment)?;
        match status {
            Status::Queued => {
                let started = NewEvent::new("run.started", Json::empty()).event_id(started_event_id());
                self.dispatch.timeline().emit_run_event(context, vec![started]).await.map_err(SinkError::new)?;
            }
            Status::Waiting => emitter.run_resumed("the runs it waited for have ended").await?,
            _ => {}
        }
        let hired = match &context.agent {
            Some(agent) => self.roster.resolve(agent, context).await,
            None => Err("a run without an agent is nobody's to carry out".to_owned()),
        };
        let hired = match hired {
            Ok(hired) => hired,
            Err(reason) => return self.failed(context, &*emitter, &reason).await,
        };
        let input = assignment.input.as_ref().map_or(Value::Null, |input| {
            serde_json::from_str(input.as_str()).unwrap_or_else(|_| Value::from(input.as_str()))
        });
        let desk = self.desk(assignment, &emitter, input, cancel).await?;
        let ended = hired.work(desk).await?;
        self.conclude(context, &*emitter, ended).await
    }

    async fn desk(
        &self,
        assignment: &Assignment,
        emitter: &Arc<dyn Emitter>,
        input: Value,
        cancel: &CancellationToken,
    ) -> Result<Desk, Outside> {
        let (context, timeline) = (&assignment.context, self.dispatch.timeline());
        let journal = ThreadJournal {
            store: timeline.store().clone(),
            clock: timeline.clock().clone(),
            owner: context.owner_id.clone(),
            thread: self.place(context).await?,
        };
        Ok(Desk {
            context: Arc::clone(context),
            emitter: Arc::clone(emitter),
            journal: Arc::new(journal),
            facts: Arc::new(StoreFacts::new(timeline.store().clone(), context)),
            ids: timeline.ids().clone(),
            stopwatch: Arc::clone(&self.stopwatch),
            cancel: cancel.clone(),
            input,
        })
    }

    async fn conclude(
        &self,
        context: &Arc<RunContext>,
        emitter: &dyn Emitter,
        ended: Ended<Value>,
    ) -> Result<Done, Outside> {
        match ended {
            Ended::Completed(output) => {
                emitter.run_completed(output).await?;
                Ok(Done::Ended)
            }
            Ended::Failed { node, error } => {
                let reason = node.map_or_else(|| error.clone(), |node| format!("{node}: {error}"));
                self.failed(context, emitter, &reason).await
            }
            Ended::Suspended { questions, waits } => {
                suspend(emitter, &questions, &waits).await?;
                self.answered_meanwhile(context, &questions).await?;
                Ok(Done::Suspended)
            }
            Ended::Cancelled => Ok(Done::Stopped),
        }
    }

    /// Lets the run go on if an answer came after the graph had looked for it and before the run said that it waits: whoever
    /// answered then found a run at work. The event's id is the answer's, so that it is told once whoever tells it.
    async fn answered_meanwhile(&self, context: &Arc<RunContext>, questions: &[Question]) -> Result<(), Outside> {
        let (timeline, owner) = (self.dispatch.timeline(), &context.owner_id);
        for Question { interrupt_id, .. } in questions {
            let known = timeline.store().interrupt(owner, context.run_id, interrupt_id.as_str()).await?;
            if known.iter().all(|event| event.event_type.as_str() != "interrupt.resolved") {
                continue;
            }
            let id = Answer::of_nobody(interrupt_id.clone(), Decision::Expired).resumed_event_id();
            let resumed = NewEvent::new("run.resumed", Json::of(&json!({"interrupt_id": interrupt_id}))).event_id(id);
            return match timeline.emit_run_event(context, vec![resumed]).await {
                Ok(_) | Err(EmitError::Refused(_)) => Ok(()),
                Err(error) => Err(SinkError::new(error).into()),
            };
        }
        Ok(())
    }

    /// Fails the run, and cancels what works for it first: the end of a run is the last word of its tree.
    async fn failed(&self, context: &RunContext, emitter: &dyn Emitter, reason: &str) -> Result<Done, Outside> {
        let why = Title::trusted("the run it worked for failed");
        let cancelled = self.dispatch.timeline().cancel_below(&context.owner_id, context.run_id, Some(&why)).await;
        cancelled.map_err(SinkError::new)?;
        emitter.run_failed(reason).await?;
        Ok(Done::Ended)
    }

    fn emitter(&self, assignment: &Assignment) -> Result<Arc<dyn Emitter>, Unfit> {
        let sink = Arc::new(TimelineSink::new(self.dispatch.timeline().clone(), LOG_PATIENCE));
        // A try after an outage must not take the ids of the try before it.
        let attempt = self.dispatch.timeline().ids().uuid().simple().to_string();
        let (context, prefix) = ((*assignment.context).clone(), format!("attempt{}-{attempt}", assignment.attempt));
        Ok(match context.role {
            Role::Worker => Arc::new(WorkerEmitter::new(context, &prefix, sink)?.repeatable()),
            Role::Supervisor | Role::Agent => Arc::new(SupervisorEmitter::new(context, &prefix, sink)?.repeatable()),
        })
    }

    /// Where the run keeps its state: in its thread, or in one of its own if it has none or works for another run.
    async fn place(&self, context: &RunContext) -> Result<ThreadId, Outside> {
        match &context.thread_id {
            Some(thread) if context.parent_run_id.is_none() => Ok(thread.clone()),
            _ => Ok(self.threads.own(&context.owner_id, context.run_id).await?),
        }
    }

    /// Removes the state of a run that has ended, if nobody can go on from it.
    async fn forget(&self, assignment: &Assignment) {
        let context = &assignment.context;
        if context.parent_run_id.is_none() && context.thread_id.is_some() {
            return;
        }
        if let Err(error) = self.threads.forget_own(&context.owner_id, context.run_id).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the state of an ended run was left behind");
        }
    }
}

/// What is no fault of the run.
#[derive(Debug, thiserror::Error)]
enum Outside {
    #[error(transparent)]
    Log(#[from] SinkError),
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error(transparent)]
    Store(#[from] crate::store::Error),
    #[error(transparent)]
    Identity(#[from] Unfit),
}
