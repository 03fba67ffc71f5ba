//! Drives a graph ([`RunEnv::drive`]) from its last position until it completes, fails, waits or is cancelled.

use std::{
    any::Any,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::FutureExt as _;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::{
    Durability, Graph, NodeContext, RunEnv, State, Stop,
    checkpointer::{self, Snapshot, StoredValues},
    context::{Memoized, Question, Step, span_of},
    graph::Work,
};
use crate::{
    domain::{
        checkpoint::CheckpointId,
        id::{RunId, SpanId, ThreadId},
    },
    emitters::{emitter::Turn, host::HostError},
    threads::state_thread,
};

/// The bounds within which a graph runs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum steps of one run.
    pub steps_max: u32,
    /// Longest time one execution of a node may take.
    pub node_time_max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { steps_max: 100, node_time_max: Duration::from_mins(10) }
    }
}

/// How driving a graph ended.
#[derive(Debug)]
pub enum Ended<S> {
    Completed(S),
    /// Waiting for people or for other runs; driven again, it continues from here.
    Suspended {
        questions: Vec<Question>,
        waits: Vec<(String, Vec<RunId>)>,
    },
    /// A node failed, timed out or panicked, or a bound was reached.
    Failed {
        node: Option<&'static str>,
        /// A stable name of the failure, if programs have to recognize it.
        code: Option<String>,
        error: String,
    },
    /// Cancelled before it ended.
    Cancelled,
}

impl<S> Ended<S> {
    /// Maps the state of a completed graph.
    pub fn map<T>(self, of: impl FnOnce(S) -> T) -> Ended<T> {
        match self {
            Self::Completed(state) => Ended::Completed(of(state)),
            Self::Suspended { questions, waits } => Ended::Suspended { questions, waits },
            Self::Failed { node, code, error } => Ended::Failed { node, code, error },
            Self::Cancelled => Ended::Cancelled,
        }
    }
}

/// A graph being driven.
pub(super) struct Drive<'a, S: State> {
    graph: &'a Graph<S>,
    env: &'a RunEnv,
    limits: Limits,
    thread: ThreadId,
}

/// The position between two steps.
struct At<S> {
    checkpoint_id: CheckpointId,
    /// The newest saved checkpoint, this one or an earlier one.
    kept_id: Option<CheckpointId>,
    snapshot: Snapshot<S>,
    /// The values of the newest saved checkpoint.
    kept: StoredValues,
    memos: Memoized,
}

/// A node's update, as kept until the step is over.
#[derive(Serialize, Deserialize)]
struct NodeOutput<U> {
    update: U,
    took: Duration,
}

/// Characters shown of an unknown node's name.
const NODE_CHARS_SHOWN: usize = 64;
/// The key under which a node's update is kept.
const UPDATE: &str = "=";

impl<'a, S: State> Drive<'a, S> {
    pub(super) fn new(graph: &'a Graph<S>, env: &'a RunEnv, limits: Limits) -> Self {
        Self { graph, env, limits, thread: state_thread(env.host.context()) }
    }

    pub(super) async fn run(self, begin: impl FnOnce(Option<S>) -> S + Send) -> Result<Ended<S>, HostError> {
        let mut at = self.open(begin).await?;
        loop {
            if self.env.cancel.is_cancelled() {
                return Ok(Ended::Cancelled);
            }
            if at.snapshot.next.is_empty() {
                return Ok(Ended::Completed(at.snapshot.state));
            }
            if at.snapshot.step >= self.limits.steps_max {
                let error = format!("the graph took more than {} steps", self.limits.steps_max);
                return Ok(Ended::Failed { node: None, code: None, error });
            }
            let Some((updates, stops)) = self.step(&mut at).await? else { return Ok(Ended::Cancelled) };
            if let Some(ended) = stopped(stops)? {
                if matches!((self.env.durability, &ended), (Durability::WhenWaiting { .. }, Ended::Suspended { .. })) {
                    self.keep_waiting(at).await?;
                }
                return Ok(ended);
            }
            at = match self.advance(at, updates).await? {
                Ok(at) => at,
                Err(error) => return Ok(Ended::Failed { node: None, code: None, error }),
            };
        }
    }

    async fn open(&self, begin: impl FnOnce(Option<S>) -> S + Send) -> Result<At<S>, HostError> {
        let latest = match self.env.durability {
            Durability::Never | Durability::WhenWaiting { waited: false } => None,
            _ => self.env.host.latest_checkpoint().await?,
        };
        let read = latest.as_ref().and_then(checkpointer::decode::<S>).filter(|read| read.graph == self.graph.name());
        let parent = latest.map(|latest| latest.checkpoint_id);
        let (state, kept) = match (read, &parent) {
            (Some(read), Some(at)) if read.run_id == Some(self.env.host.context().run_id) => {
                let snapshot = Snapshot { ended: read.ended, ..self.snapshot(read.step, read.next, read.state) };
                // Anyone who may write to the thread may have written this checkpoint, and its names become spans.
                let named = snapshot.next.iter().chain(snapshot.ended.iter().map(|(node, _)| node));
                if let Some(node) = named.into_iter().find(|node| self.graph.work(node).is_none()) {
                    let node: String = node.chars().filter(|c| !c.is_control()).take(NODE_CHARS_SHOWN).collect();
                    return Err(checkpointer::unfit(format!("the graph no longer has a node {node}")));
                }
                // It may have been saved without its events having been emitted.
                self.tell(Some(at), &snapshot).await?;
                let (checkpoint_id, kept_id) = (at.clone(), parent.clone());
                return Ok(At { checkpoint_id, kept_id, snapshot, kept: read.kept, memos: read.memos });
            }
            (Some(read), _) => (Some(read.state), read.kept),
            (None, _) => (None, StoredValues::new()),
        };
        let first = self.snapshot(0, vec![self.graph.entry().to_owned()], begin(state));
        self.save(first, (parent.as_ref(), parent.clone(), kept)).await
    }

    fn snapshot(&self, step: u32, next: Vec<String>, state: S) -> Snapshot<S> {
        Snapshot {
            run_id: self.env.host.context().run_id,
            graph: self.graph.name().to_owned(),
            step,
            next,
            ended: None,
            state,
        }
    }

    /// Saves the position after the checkpoint `before`, if every step is saved, and emits the step's events.
    async fn save(
        &self,
        snapshot: Snapshot<S>,
        (before, kept_id, kept): (Option<&CheckpointId>, Option<CheckpointId>, StoredValues),
    ) -> Result<At<S>, HostError> {
        let checkpoint_id = checkpointer::id_after(self.env.ids.uuid(), before)?;
        let mut at = At { checkpoint_id, kept_id, snapshot, kept, memos: Memoized::new() };
        let keeps = self.env.durability == Durability::EveryStep;
        if keeps {
            self.keep(&mut at).await?;
        }
        self.tell(at.kept_id.as_ref().filter(|_| keeps), &at.snapshot).await?;
        Ok(at)
    }

    async fn keep(&self, at: &mut At<S>) -> Result<(), HostError> {
        let At { checkpoint_id, kept_id, snapshot, kept, .. } = at;
        let (new, now) = checkpointer::encode(snapshot, checkpoint_id.clone(), kept_id.take(), kept)?;
        self.env.host.put_checkpoint(new).await?;
        (*kept_id, *kept) = (Some(checkpoint_id.clone()), now);
        Ok(())
    }

    /// Saves a waiting graph, with the values memoized in the unfinished step.
    async fn keep_waiting(&self, mut at: At<S>) -> Result<(), HostError> {
        if at.kept_id.as_ref() != Some(&at.checkpoint_id) {
            self.keep(&mut at).await?;
        }
        for ((node, key), value) in &at.memos {
            self.env.host.put_writes(checkpointer::memo(&at.checkpoint_id, node, key, value)?).await?;
        }
        let Snapshot { step, next, .. } = &at.snapshot;
        let next = next.iter().map(String::as_str).collect();
        let checkpoint = Some(SpanId::trusted(at.checkpoint_id.as_str()));
        let turn = Turn { ended: Vec::new(), checkpoint, thread: &self.thread, step: *step, begun: Vec::new(), next };
        self.env.emitter.step_turned(&turn).await
    }

    /// Emits how the last step ended, which checkpoint was saved and which nodes begin: all at once, after the save.
    async fn tell(&self, kept: Option<&CheckpointId>, snapshot: &Snapshot<S>) -> Result<(), HostError> {
        let Snapshot { step, next, ended, .. } = snapshot;
        let goes_on = *step < self.limits.steps_max && !self.env.cancel.is_cancelled();
        let begins = |node: &&str| goes_on && self.graph.work(node).is_some();
        let next: Vec<&str> = next.iter().map(String::as_str).collect();
        let turn = Turn {
            ended: ended.iter().map(|(node, took)| (span_of(*step, node), node.as_str(), *took)).collect(),
            // The first checkpoint holds the input and the last one the outcome: neither is reported.
            checkpoint: kept.filter(|_| *step > 0 && !next.is_empty()).map(|kept| SpanId::trusted(kept.as_str())),
            thread: &self.thread,
            step: *step,
            begun: next.iter().copied().filter(begins).map(|node| (span_of(step + 1, node), node)).collect(),
            next,
        };
        self.env.emitter.step_turned(&turn).await
    }

    /// Executes every node of the step; `None` if the run was cancelled meanwhile.
    async fn step(&self, at: &mut At<S>) -> Result<Option<Outcomes<S>>, HostError> {
        let number = at.snapshot.step + 1;
        let step = Arc::new(Step {
            checkpoint_id: at.checkpoint_id.clone(),
            number,
            memos: Mutex::new(std::mem::take(&mut at.memos)),
        });
        let state = Arc::new(at.snapshot.state.clone());
        let alone = at.snapshot.next.len() == 1;
        let mut tasks = JoinSet::new();
        for (index, node) in at.snapshot.next.iter().enumerate() {
            let Some((node, work)) = self.graph.work(node) else {
                return Err(checkpointer::unfit(format!("the graph no longer has a node {node}")));
            };
            let (env, state, step) = (self.env.clone(), Arc::clone(&state), Arc::clone(&step));
            let (context, longest) =
                (NodeContext { env, state, span: span_of(number, node), node, step }, self.limits.node_time_max);
            tasks.spawn(async move { (index, node, execute(context, work, alone, longest).await) });
        }
        let all = async {
            let (mut updates, mut stops) = (Vec::new(), Vec::new());
            while let Some(joined) = tasks.join_next().await {
                // A node's task catches panics and is aborted only with the set.
                let Ok((index, node, outcome)) = joined else { continue };
                match outcome {
                    Ok(given) => updates.push((index, given)),
                    Err(short) => stops.push((node, short)),
                }
            }
            updates.sort_by_key(|(index, _)| *index);
            (updates.into_iter().map(|(_, given)| given).collect(), stops)
        };
        let outcomes = self.env.cancel.run_until_cancelled(all).await;
        at.memos = std::mem::take(&mut *step.memos.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(outcomes)
    }

    /// Applies the updates, saves and emits. The inner error means that the graph contradicts itself.
    async fn advance(&self, at: At<S>, given: Vec<NodeOutput<S::Update>>) -> Result<Result<At<S>, String>, HostError> {
        let mut state = at.snapshot.state;
        let alone = match (at.snapshot.next.as_slice(), given.as_slice()) {
            ([node], [given]) => Some((node.clone(), given.took)),
            _ => None,
        };
        for NodeOutput { update, .. } in given {
            state.apply(update);
        }
        let next = match self.graph.after(&at.snapshot.next, &state) {
            Ok(next) => next,
            Err(contradiction) => {
                if let Some((node, took)) = &alone {
                    let span = span_of(at.snapshot.step + 1, node);
                    self.env.emitter.step_failed(&span, node, &contradiction, *took).await?;
                }
                return Ok(Err(contradiction));
            }
        };
        let snapshot = Snapshot { ended: alone, ..self.snapshot(at.snapshot.step + 1, next, state) };
        Ok(Ok(self.save(snapshot, (Some(&at.checkpoint_id), at.kept_id, at.kept)).await?))
    }
}

type Outcomes<S> = (Vec<NodeOutput<<S as State>::Update>>, Vec<(&'static str, Stop)>);

/// What follows when nodes stopped early: a host error first, then a failure, then waiting.
fn stopped<S>(stops: Vec<(&'static str, Stop)>) -> Result<Option<Ended<S>>, HostError> {
    if stops.is_empty() {
        return Ok(None);
    }
    let (mut questions, mut waits, mut failed) = (Vec::new(), Vec::new(), None);
    for (node, stop) in stops {
        match stop {
            Stop::Host(error) => return Err(error),
            Stop::Failed(error) => failed = failed.or(Some((node, error))),
            Stop::Ask(asked) => questions.extend(asked),
            Stop::Wait { reason, runs } => waits.push((reason, runs)),
        }
    }
    Ok(Some(match failed {
        Some((node, error)) => Ended::Failed { node: Some(node), code: None, error },
        None => Ended::Suspended { questions, waits },
    }))
}

/// Executes one node, whose start was already emitted. An update that was kept before a crash is used again.
///
/// When several nodes run in the step, each update is kept, and its end emitted, as soon as the node is done; the
/// others may take long. A node that runs alone has its update saved by the checkpoint that follows at once, and its
/// end emitted with it.
async fn execute<S: State>(
    context: NodeContext<S>,
    work: Work<S>,
    alone: bool,
    longest: Duration,
) -> Result<NodeOutput<S::Update>, Stop> {
    let (emitter, stopwatch) = (Arc::clone(&context.env.emitter), &Arc::clone(&context.env.stopwatch));
    let (span, node) = (context.span.clone(), context.node);
    let (began, again) = (stopwatch(), context.clone());
    let work = || async move {
        let work = std::panic::AssertUnwindSafe(async { work(context).await }).catch_unwind();
        let update = match tokio::time::timeout(longest, work).await {
            Ok(Ok(outcome)) => outcome?,
            Ok(Err(panic)) => return Err(Stop::failed(format!("the node panicked: {}", panic_text(&*panic)))),
            Err(_) => return Err(Stop::failed(format!("the node took longer than {longest:?}"))),
        };
        Ok(NodeOutput { update, took: stopwatch().saturating_sub(began) })
    };
    let worked = match again.kept(UPDATE) {
        Some(given) => Ok(given),
        None if alone => work().await,
        None => again.once(UPDATE, work).await,
    };
    match worked {
        Ok(given) if alone => Ok(given),
        Ok(given) => {
            emitter.step_completed(&span, node, given.took).await?;
            Ok(given)
        }
        Err(Stop::Failed(error)) => {
            emitter.step_failed(&span, node, &error, stopwatch().saturating_sub(began)).await?;
            Err(Stop::Failed(error))
        }
        Err(stop) => Err(stop),
    }
}

/// The message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "without a message".to_owned())
}
