//! [`Execution`]: executes one run as far as possible, in the server or in a runner.
//!
//! Only the [`RunHost`] differs between the two. A run never fails because its host was temporarily unavailable; its
//! workers end before it does; and an answer that arrives just before the run reports that it waits lets it continue.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::agent::AgentResolver;
use crate::{
    clock::{IdSource, Stopwatch},
    domain::{
        artifact::Pointer,
        context::Role,
        event::{EventKind, NewEvent},
        id::{RunId, SpanId},
        interrupt::{Answer, Decision},
        job::started_event_id,
        json::Json,
        limits::INPUT_ARTIFACT_BYTES_MAX,
        run::Status,
    },
    emitters::{
        emitter::Emitter,
        host::{HostError, RunHost},
        identity::{InvalidIdentity, SupervisorEmitter, WorkerEmitter},
    },
    engine::{Durability, Ended, RunEnv, context::Question},
};

/// Pause before an attempt is repeated.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Retries after a refusal (not an outage) before the run fails.
const REFUSED_MAX: u32 = 1;

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// The run has ended.
    Ended,
    /// It waits; any process may claim it once it can continue.
    Suspended,
    /// The work was cancelled: another holder has the run, or none.
    Stopped,
}

/// The execution of one run by the holder of its lease.
pub struct Execution {
    pub host: Arc<dyn RunHost>,
    /// The input the run was created with.
    pub input: Option<Json>,
    /// The status of the run when it was claimed, if known.
    pub status: Option<Status>,
    /// 1 for the first holder of the run.
    pub attempt: i32,
    pub agents: Arc<dyn AgentResolver>,
    pub ids: IdSource,
    pub stopwatch: Stopwatch,
}

impl Execution {
    /// Executes the run until it ends or waits, or `cancel`; retries while the host is unavailable.
    pub async fn run(&self, cancel: &CancellationToken) -> Done {
        let (mut asked, mut refused, mut claimed) = (Vec::new(), 0, self.status);
        loop {
            let as_claimed = claimed.take();
            match self.once(cancel, &mut asked, as_claimed).await {
                Ok(Some(done)) => return done,
                Ok(None) => refused = 0,
                Err(_) if cancel.is_cancelled() => return Done::Stopped,
                // The status of the run has changed since it was claimed.
                Err(error) if !error.is_retryable && as_claimed.is_some() => {}
                Err(error) if !error.is_retryable && refused >= REFUSED_MAX => return self.give_up(&error).await,
                Err(error) => {
                    refused += u32::from(!error.is_retryable);
                    self.warn(&error, "executing a run failed; will retry");
                    if cancel.run_until_cancelled(tokio::time::sleep(AGAIN_AFTER)).await.is_none() {
                        return Done::Stopped;
                    }
                }
            }
        }
    }

    /// Fails a run whose events or state are refused repeatedly: no process could continue it.
    async fn give_up(&self, error: &HostError) -> Done {
        let failed = async { self.failed(&*self.emitter()?, &error.to_string()).await };
        failed.await.unwrap_or_else(|error| {
            self.warn(&error, "the failure of a run could not be recorded");
            Done::Stopped
        })
    }

    /// Removes the state of a run that has ended, if no other run can continue from it.
    pub async fn forget(&self) {
        if let Err(error) = self.host.drop_state().await {
            self.warn(&error, "state of an ended run not removed");
        }
    }

    fn warn(&self, error: &HostError, what: &str) {
        tracing::warn!(run_id = %self.host.context().run_id, %error, "{what}");
    }

    /// One attempt; `None` if the run can continue at once. `asked` holds the questions of the previous attempt,
    /// `claimed` the run's status when it was claimed (first attempt only).
    async fn once(
        &self,
        cancel: &CancellationToken,
        asked: &mut Vec<SpanId>,
        claimed: Option<Status>,
    ) -> Result<Option<Done>, HostError> {
        let found = if claimed.is_some() { claimed } else { self.host.status().await? };
        let status = match found {
            None => return Ok(Some(Done::Ended)),
            Some(status) if status.is_terminal() => return Ok(Some(Done::Ended)),
            Some(status) => status,
        };
        let emitter = self.emitter()?;
        match status {
            Status::Queued => {
                let started = NewEvent::new(EventKind::RunStarted, Json::empty()).event_id(started_event_id());
                self.host.emit(vec![started]).await?;
            }
            Status::Waiting => emitter.run_resumed("the runs it waited for have ended").await?,
            Status::Interrupted => return self.answered_meanwhile(asked).await,
            _ => {}
        }
        let context = self.host.context();
        let agent = match &context.agent {
            Some(agent) => self.agents.resolve(agent, context).await,
            None => Err("the run names no agent".to_owned()),
        };
        let agent = match agent {
            Ok(agent) => agent,
            Err(reason) => return self.failed(&*emitter, &reason).await.map(Some),
        };
        let input = match self.input().await? {
            Ok(input) => input,
            Err(reason) => return self.failed_as(&*emitter, Some("input_unreadable"), &reason).await.map(Some),
        };
        self.host.hold_state().await?;
        let env = RunEnv {
            host: Arc::clone(&self.host),
            emitter: Arc::clone(&emitter),
            ids: self.ids.clone(),
            stopwatch: Arc::clone(&self.stopwatch),
            cancel: cancel.clone(),
            durability: Durability::EveryStep,
        };
        let time_max = agent.time_max();
        let late = |_| {
            let (code, error) = (None, format!("the run took longer than {time_max:?}"));
            Ok(Ended::Failed { node: None, code, error })
        };
        match tokio::time::timeout(time_max, agent.work(env, input)).await.unwrap_or_else(late)? {
            Ended::Completed(output) => {
                emitter.run_completed(output).await?;
                Ok(Some(Done::Ended))
            }
            Ended::Failed { node, code, error } => {
                let reason = node.map_or_else(|| error.clone(), |node| format!("{node}: {error}"));
                self.failed_as(&*emitter, code.as_deref(), &reason).await.map(Some)
            }
            Ended::Suspended { questions, waits } => {
                *asked = questions.iter().map(|question| question.interrupt_id.clone()).collect();
                suspend(&*emitter, &questions, &waits).await?;
                self.answered_meanwhile(asked).await
            }
            Ended::Cancelled => Ok(Some(Done::Stopped)),
        }
    }

    /// The run's input, from its artifact if it is one. The inner error becomes the run's failure.
    async fn input(&self) -> Result<Result<Value, String>, HostError> {
        let read = |input: &Json| serde_json::from_str(input.as_str()).unwrap_or_else(|_| Value::from(input.as_str()));
        let input = self.input.as_ref().map_or(Value::Null, read);
        let Some(artifact) = self.input.as_ref().and_then(Pointer::of_input) else { return Ok(Ok(input)) };
        let piece = self.host.read_artifact(&artifact.to_string(), 0, INPUT_ARTIFACT_BYTES_MAX).await?;
        let whole = piece.filter(|piece| piece.bytes.len() as u64 == piece.size);
        let Some(whole) = whole else {
            return Ok(Err("the input is an artifact that does not exist, is damaged or is too large".to_owned()));
        };
        Ok(serde_json::from_slice(&whole.bytes).map_err(|error| format!("the input is not JSON: {error}")))
    }

    /// Lets the run continue if an answer arrived between the graph's check and the run's report that it waits: then
    /// the answer did not resume the run, which was still running.
    async fn answered_meanwhile(&self, asked: &[SpanId]) -> Result<Option<Done>, HostError> {
        for interrupt in asked {
            if self.host.answer(interrupt).await?.is_none() {
                continue;
            }
            // The event's id derives from the answer, so that it is stored once, whichever process emits it.
            let id = Answer::of_nobody(interrupt.clone(), Decision::Expired).resumed_event_id();
            let resumed =
                NewEvent::new(EventKind::RunResumed, Json::of(&json!({"interrupt_id": interrupt}))).event_id(id);
            return match self.host.emit(vec![resumed]).await {
                Err(error) if error.is_retryable => Err(error),
                // A run that has already resumed refuses the event; its status shows that.
                Ok(()) | Err(_) => Ok(None),
            };
        }
        Ok(Some(Done::Suspended))
    }

    /// Fails the run, after cancelling its workers: the end of a run is the last event of its tree.
    async fn failed(&self, emitter: &dyn Emitter, reason: &str) -> Result<Done, HostError> {
        self.failed_as(emitter, None, reason).await
    }

    async fn failed_as(&self, emitter: &dyn Emitter, code: Option<&str>, reason: &str) -> Result<Done, HostError> {
        self.host.cancel_below("the run it worked for failed").await?;
        emitter.run_failed_as(code, reason).await?;
        Ok(Done::Ended)
    }

    fn emitter(&self) -> Result<Arc<dyn Emitter>, HostError> {
        // An attempt after an outage must not reuse the ids of the one before it.
        let prefix = format!("attempt{}-{}", self.attempt, self.ids.uuid().simple());
        let host = Arc::clone(&self.host);
        let emitter: Result<Arc<dyn Emitter>, InvalidIdentity> = match host.context().role {
            Role::Worker => WorkerEmitter::new(host, &prefix).map(|emitter| Arc::new(emitter.repeatable()) as _),
            Role::Supervisor | Role::Agent | Role::Router => {
                SupervisorEmitter::new(host, &prefix).map(|emitter| Arc::new(emitter.repeatable()) as _)
            }
        };
        emitter.map_err(HostError::refused)
    }
}

/// Emits why a run is suspended: for questions to people or, without any, for other runs.
async fn suspend(
    emitter: &dyn Emitter,
    questions: &[Question],
    waits: &[(String, Vec<RunId>)],
) -> Result<(), HostError> {
    if questions.is_empty() {
        let runs: Vec<RunId> = waits.iter().flat_map(|(_, runs)| runs.iter().copied()).collect();
        let reason = waits.first().map_or("waiting for other runs", |(reason, _)| reason);
        return emitter.run_waiting(reason, &runs).await;
    }
    let asked: Vec<_> = questions.iter().map(|asked| (&asked.interrupt_id, &asked.payload, &asked.step)).collect();
    emitter.run_interrupted(&asked).await
}
