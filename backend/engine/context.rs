//! [`NodeContext`]: what a node gets, and why it stops early.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::{Durability, RunEnv, checkpointer};
use crate::{
    domain::{
        checkpoint::CheckpointId,
        context::RunContext,
        id::{RunId, SpanId},
    },
    emitters::host::{Answered, ChildEnd, HostError},
};

/// A question to a person.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    pub interrupt_id: SpanId,
    /// The payload of `interrupt.requested`: `kind`, `prompt`, what else the person should see, `expires_at`.
    pub payload: Value,
    /// The step that asks.
    pub step: SpanId,
}

/// Why a node returns no update.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Stop {
    /// The node failed, and with it the run. The text is for the person who runs the agent.
    #[error("{0}")]
    Failed(String),
    /// Waiting for a person; the node runs again once the answer exists.
    #[error("waits for answers")]
    Ask(Vec<Question>),
    /// Waiting for runs; the node runs again once they have ended.
    #[error("waits for runs")]
    Wait { reason: String, runs: Vec<RunId> },
    /// The host cannot be reached, or refuses. Says nothing about the run, which stays where it was; the node runs
    /// again when the graph is driven again.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl Stop {
    pub fn failed(reason: impl std::fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }
}

/// The span of a node in a step; steps count from 1.
pub(super) fn span_of(step: u32, node: &str) -> SpanId {
    SpanId::trusted(&format!("s{step}.{node}"))
}

/// The values memoized in the current step, by node and key.
pub(super) type Memoized = HashMap<(String, String), Value>;

/// The current step, shared by its nodes.
pub(super) struct Step {
    pub checkpoint_id: CheckpointId,
    /// Counts from 1.
    pub number: u32,
    pub memos: Mutex<Memoized>,
}

/// One execution of a node.
pub struct NodeContext<S> {
    /// Its cancellation drops the node's future; work on other threads should check it.
    pub env: RunEnv,
    /// The state when the step began; the same for all nodes of the step.
    pub state: Arc<S>,
    /// The step's span, the parent of everything the node does.
    pub span: SpanId,
    pub(super) node: &'static str,
    pub(super) step: Arc<Step>,
}

impl<S> Clone for NodeContext<S> {
    fn clone(&self) -> Self {
        let Self { env, state, span, node, step } = self;
        Self { env: env.clone(), state: Arc::clone(state), span: span.clone(), node, step: Arc::clone(step) }
    }
}

impl<S> NodeContext<S> {
    /// The run the node acts for.
    pub fn context(&self) -> &RunContext {
        self.env.host.context()
    }

    /// Runs `work` once in this step: its value is saved before it is returned, and a later execution gets the saved
    /// value. A crash between the end of `work` and the save makes it run again, so work with external effects needs an
    /// idempotency key of its own. `key`: at most 64 bytes, unique in the node.
    pub async fn once<T, F>(&self, key: &str, work: impl FnOnce() -> F) -> Result<T, Stop>
    where
        T: Serialize + DeserializeOwned,
        F: Future<Output = Result<T, Stop>>,
    {
        if let Some(kept) = self.kept(key) {
            return Ok(kept);
        }
        let value = work().await?;
        let kept = serde_json::to_value(&value).map_err(|error| Stop::failed(format!("{key} not saved: {error}")))?;
        self.keep(key, kept).await?;
        Ok(value)
    }

    /// The value kept under a key in this step, by this execution or by an earlier one.
    pub fn kept<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        let found = self.memos().get(&(self.node.to_owned(), key.to_owned())).cloned();
        // A value that no longer deserialises counts as missing.
        found.and_then(|kept| serde_json::from_value(kept).ok())
    }

    /// Keeps a value for the rest of the step, across crashes. Each key is kept once.
    pub async fn keep(&self, key: &str, kept: Value) -> Result<(), Stop> {
        if self.env.durability == Durability::EveryStep {
            let memo = checkpointer::memo(&self.step.checkpoint_id, self.node, key, &kept)?;
            self.env.host.put_writes(memo).await?;
        }
        self.memos().insert((self.node.to_owned(), key.to_owned()), kept);
        Ok(())
    }

    /// Asks a person. The run is interrupted until the answer exists; then the node runs again and gets it here. A
    /// question is no larger than an event ([`PAYLOAD_BYTES_MAX`](crate::domain::limits::PAYLOAD_BYTES_MAX)) and,
    /// except for its `expires_at`, the same in every execution.
    ///
    /// `key` distinguishes the questions of one node. The answer may also be the expiry of the question.
    pub async fn ask(&self, key: &str, payload: Value) -> Result<Answered, Stop> {
        let mut answers = self.ask_all(vec![(key.to_owned(), payload)]).await?;
        answers.pop().ok_or_else(|| Stop::failed("a question without an answer"))
    }

    /// Asks several questions at once and waits until all are answered. The answers are in the order asked.
    pub async fn ask_all(&self, questions: Vec<(String, Value)>) -> Result<Vec<Answered>, Stop> {
        let (mut answers, mut open) = (Vec::new(), Vec::new());
        for (key, payload) in questions {
            let interrupt_id = SpanId::trusted(&self.id(&format!("ask.{key}")).await?.to_string());
            match self.env.host.answer(&interrupt_id).await? {
                Some(answered) if answered.is_of(&payload) => answers.push(answered),
                Some(_) => return Err(Stop::failed("a question changed after it was asked")),
                None => open.push(Question { interrupt_id, payload, step: self.span.clone() }),
            }
        }
        if open.is_empty() { Ok(answers) } else { Err(Stop::Ask(open)) }
    }

    /// Waits for runs below this one; meanwhile the run is suspended and occupies no executor. Their ends are in the
    /// order asked.
    pub async fn wait_for(&self, reason: &str, runs: &[RunId]) -> Result<Vec<ChildEnd>, Stop> {
        let ends = self.env.host.ends(runs).await?;
        if ends.len() == runs.len() {
            return Ok(ends);
        }
        Err(Stop::Wait { reason: reason.to_owned(), runs: runs.to_vec() })
    }

    /// A new id, the same in every execution of this step.
    pub async fn id(&self, key: &str) -> Result<uuid::Uuid, Stop> {
        let ids = self.env.ids.clone();
        self.once(key, || async move { Ok(ids.uuid()) }).await
    }

    /// A span below the step's, the same in every execution.
    pub fn sub_span(&self, name: &str) -> SpanId {
        SpanId::trusted(&format!("{}.{name}", self.span))
    }

    /// The span of a node in the step after this one.
    pub fn next_span(&self, node: &str) -> SpanId {
        span_of(self.step.number + 1, node)
    }

    /// A span below the step's that no other execution has.
    pub fn fresh_span(&self, name: &str) -> SpanId {
        let id = self.env.ids.uuid().simple().to_string();
        SpanId::trusted(&format!("{}.{name}.{}", self.span, &id[20..]))
    }

    fn memos(&self) -> MutexGuard<'_, Memoized> {
        self.step.memos.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
