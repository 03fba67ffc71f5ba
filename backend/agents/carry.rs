//! [`Carrier`]: brings one run as far as it goes, in the server as in a runner.
//!
//! What differs between the two is the [`Office`]: how the run's log, its state and the runs below it are reached. A run
//! is failed only by its own agent, never because one of those was away for a moment; what works for a run ends before
//! it does; and an answer that comes just before the run says that it waits lets it go on.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::agent::{Desk, Roster};
use crate::{
    clock::{IdSource, Stopwatch},
    domain::{
        context::{Role, RunContext},
        id::{RunId, SpanId, ThreadId},
        json::Json,
        run::Status,
    },
    emitters::{
        emitter::Emitter,
        identity::{SupervisorEmitter, Unfit, WorkerEmitter},
        sink::{Sink, SinkError},
    },
    engine::{
        Ended,
        drive::DriveError,
        journal::{Journal, JournalError},
        visit::{Facts, Question},
    },
    threads::own_thread,
};

/// Wait before a run is worked on again after something outside it was away.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Tries of what is refused, and not out of reach, before the run is failed.
const REFUSED_MAX: u32 = 2;

/// What is no fault of the run.
#[derive(Debug, thiserror::Error)]
pub enum Outside {
    #[error(transparent)]
    Log(#[from] SinkError),
    #[error(transparent)]
    Drive(#[from] DriveError),
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error(transparent)]
    Identity(#[from] Unfit),
    /// The server or its database could not be asked.
    #[error("{0}")]
    Away(String),
}

impl Outside {
    pub fn away(error: impl std::fmt::Display) -> Self {
        Self::Away(error.to_string())
    }

    /// Whether the same would happen again: something was refused, not out of reach.
    fn is_lasting(&self) -> bool {
        match self {
            Self::Log(error) | Self::Drive(DriveError::Log(error)) => !error.is_passing,
            Self::Journal(error) | Self::Drive(DriveError::Journal(error)) => !error.transient,
            Self::Identity(_) => true,
            Self::Drive(DriveError::Later(_)) | Self::Away(_) => false,
        }
    }
}

/// An answer of the office.
pub type Told<'a, T> = BoxFuture<'a, Result<T, Outside>>;

/// The server as one run needs it: this process itself, or another one over the wire.
pub trait Office: Send + Sync {
    /// Takes the events of the run.
    fn sink(&self) -> Arc<dyn Sink>;

    fn journal(&self, thread: ThreadId) -> Arc<dyn Journal>;

    fn facts(&self) -> Arc<dyn Facts>;

    /// Where the run stands; `None` when it is there no more.
    fn status(&self) -> Told<'_, Option<Status>>;

    /// Says that the run begins; once, however often this is called.
    fn begin(&self) -> Told<'_, ()>;

    /// Says that the run goes on because this interrupt has been answered. Nothing happens if somebody has said so.
    fn go_on<'a>(&'a self, interrupt: &'a SpanId) -> Told<'a, ()>;

    /// Cancels every run below this one that has not ended.
    fn cancel_below<'a>(&'a self, reason: &'a str) -> Told<'a, ()>;

    /// Makes sure of the run's own thread, which stays until it is dropped.
    fn open_own_thread(&self) -> Told<'_, ()>;

    /// Removes it with its checkpoints.
    fn drop_own_thread(&self) -> Told<'_, ()>;
}

/// How far a run came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The run has ended.
    Ended,
    /// It waits, and is anybody's when it can go on.
    Suspended,
    /// The work was cancelled: it is somebody else's now, or nobody's.
    Stopped,
}

/// One run in the hands of whoever has its lease.
pub struct Carrier {
    pub context: Arc<RunContext>,
    /// As the run was created.
    pub input: Option<Json>,
    /// 1 for the first holder of the run.
    pub attempt: i32,
    pub office: Arc<dyn Office>,
    pub roster: Arc<dyn Roster>,
    pub ids: IdSource,
    pub stopwatch: Stopwatch,
}

impl Carrier {
    /// Works until the run has ended or waits, or `cancel`; what is away is waited for.
    pub async fn carry(&self, cancel: &CancellationToken) -> Done {
        let (mut asked, mut refused) = (Vec::new(), 0);
        loop {
            match self.once(cancel, &mut asked).await {
                Ok(Some(done)) => return done,
                Ok(None) => refused = 0,
                Err(_) if cancel.is_cancelled() => return Done::Stopped,
                Err(error) if error.is_lasting() && refused >= REFUSED_MAX => return self.give_up(&error).await,
                Err(error) => {
                    refused += u32::from(error.is_lasting());
                    tracing::warn!(run_id = %self.context.run_id, %error, "a run could not go on; it is tried again");
                    if cancel.run_until_cancelled(tokio::time::sleep(AGAIN_AFTER)).await.is_none() {
                        return Done::Stopped;
                    }
                }
            }
        }
    }

    /// Fails a run whose log or state is refused again and again: nobody could carry it further.
    async fn give_up(&self, error: &Outside) -> Done {
        let told = async { self.failed(&*self.emitter()?, &error.to_string()).await };
        told.await.unwrap_or_else(|error| {
            tracing::warn!(run_id = %self.context.run_id, %error, "a run that cannot go on could not be failed");
            Done::Stopped
        })
    }

    /// Removes the state of a run that has ended, if nobody can go on from it.
    pub async fn forget(&self) {
        if self.place() != own_thread(self.context.run_id) {
            return;
        }
        if let Err(error) = self.office.drop_own_thread().await {
            tracing::warn!(run_id = %self.context.run_id, %error, "the state of an ended run was left behind");
        }
    }

    /// One attempt; `None` when the run can go on at once. `asked` holds the questions of the attempt before.
    async fn once(&self, cancel: &CancellationToken, asked: &mut Vec<SpanId>) -> Result<Option<Done>, Outside> {
        let status = match self.office.status().await? {
            None => return Ok(Some(Done::Ended)),
            Some(status) if status.is_terminal() => return Ok(Some(Done::Ended)),
            Some(status) => status,
        };
        let (emitter, facts) = (self.emitter()?, self.office.facts());
        match status {
            Status::Queued => self.office.begin().await?,
            Status::Waiting => emitter.run_resumed("the runs it waited for have ended").await?,
            Status::Interrupted => return self.answered_meanwhile(&*facts, asked).await,
            _ => {}
        }
        let context = &self.context;
        let hired = match &context.agent {
            Some(agent) => self.roster.resolve(agent, context).await,
            None => Err("a run without an agent is nobody's to carry out".to_owned()),
        };
        let hired = match hired {
            Ok(hired) => hired,
            Err(reason) => return self.failed(&*emitter, &reason).await.map(Some),
        };
        let ended = hired.work(self.desk(&emitter, &facts, cancel).await?).await?;
        match ended {
            Ended::Completed(output) => {
                emitter.run_completed(output).await?;
                Ok(Some(Done::Ended))
            }
            Ended::Failed { node, error } => {
                let reason = node.map_or_else(|| error.clone(), |node| format!("{node}: {error}"));
                self.failed(&*emitter, &reason).await.map(Some)
            }
            Ended::Suspended { questions, waits } => {
                *asked = questions.iter().map(|question| question.interrupt_id.clone()).collect();
                suspend(&*emitter, &questions, &waits).await?;
                self.answered_meanwhile(&*facts, asked).await
            }
            Ended::Cancelled => Ok(Some(Done::Stopped)),
        }
    }

    async fn desk(
        &self,
        emitter: &Arc<dyn Emitter>,
        facts: &Arc<dyn Facts>,
        cancel: &CancellationToken,
    ) -> Result<Desk, Outside> {
        let thread = self.place();
        if thread == own_thread(self.context.run_id) {
            // It goes with the run, not with time: a run may wait for a person longer than threads live.
            self.office.open_own_thread().await?;
        }
        let read = |input: &Json| serde_json::from_str(input.as_str()).unwrap_or_else(|_| Value::from(input.as_str()));
        Ok(Desk {
            context: Arc::clone(&self.context),
            emitter: Arc::clone(emitter),
            journal: self.office.journal(thread),
            facts: Arc::clone(facts),
            ids: self.ids.clone(),
            stopwatch: Arc::clone(&self.stopwatch),
            cancel: cancel.clone(),
            input: self.input.as_ref().map_or(Value::Null, read),
        })
    }

    /// Lets the run go on if an answer came after the graph had looked for it and before the run said that it waits:
    /// whoever answered then found a run at work.
    async fn answered_meanwhile(&self, facts: &dyn Facts, asked: &[SpanId]) -> Result<Option<Done>, Outside> {
        for interrupt in asked {
            if facts.answer(interrupt).await?.is_some() {
                self.office.go_on(interrupt).await?;
                return Ok(None);
            }
        }
        Ok(Some(Done::Suspended))
    }

    /// Fails the run, and cancels what works for it first: the end of a run is the last word of its tree.
    async fn failed(&self, emitter: &dyn Emitter, reason: &str) -> Result<Done, Outside> {
        self.office.cancel_below("the run it worked for failed").await?;
        emitter.run_failed(reason).await?;
        Ok(Done::Ended)
    }

    fn emitter(&self) -> Result<Arc<dyn Emitter>, Unfit> {
        // A try after an outage must not take the ids of the try before it.
        let prefix = format!("attempt{}-{}", self.attempt, self.ids.uuid().simple());
        let (context, sink) = ((*self.context).clone(), self.office.sink());
        Ok(match context.role {
            Role::Worker => Arc::new(WorkerEmitter::new(context, &prefix, sink)?.repeatable()),
            Role::Supervisor | Role::Agent => Arc::new(SupervisorEmitter::new(context, &prefix, sink)?.repeatable()),
        })
    }

    /// Where the run keeps its state: in its thread, or in one of its own if it has none or works for another run.
    fn place(&self) -> ThreadId {
        match &self.context.thread_id {
            Some(thread) if self.context.parent_run_id.is_none() => thread.clone(),
            _ => own_thread(self.context.run_id),
        }
    }
}

/// Says why a run rests: for questions to people, and without any for other runs.
async fn suspend(
    emitter: &dyn Emitter,
    questions: &[Question],
    waits: &[(String, Vec<RunId>)],
) -> Result<(), SinkError> {
    if questions.is_empty() {
        let runs: Vec<RunId> = waits.iter().flat_map(|(_, runs)| runs.iter().copied()).collect();
        let reason = waits.first().map_or("it waits", |(reason, _)| reason);
        return emitter.run_waiting(reason, &runs).await;
    }
    let asked: Vec<_> = questions.iter().map(|asked| (&asked.interrupt_id, &asked.payload, &asked.step)).collect();
    emitter.run_interrupted(&asked).await
}
