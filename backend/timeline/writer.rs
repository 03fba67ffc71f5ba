//! A lane: the task that numbers and commits all events of its runs, one batch after another.
//!
//! Group commit without a timer: requests that wait when a commit ends go into the next one, so a batch holds one event
//! at low load and hundreds at high load. Heads are cached; seqs planned from them are provisional, and the statement
//! returns the actual ones, so other processes may write the same runs. If a run's state differs from its cached head,
//! or an event's key is already used, the statement is rolled back, heads and keys are read again and the batch is
//! planned again.
//!
//! No lock is held between two messages to the database: a process that stops at any point blocks no other.

use std::{collections::HashMap, num::NonZeroUsize, sync::Arc, time::Duration};

use lru::LruCache;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    Contexts,
    emit::{AppendRequest, EmitError},
    health::Health,
    history::Forks,
    learn,
    plan::{self, Item, Known, Plan},
    publish::{Ended, Gate, Publication, Turn},
    relay::{self, WakeupSender},
    write_queue::{WriteQueue, parts_of},
};
use crate::{
    clock::Clock,
    domain::{
        history::Tag,
        id::{EventId, RunId, Seq},
        limits::{COMMIT_BYTES_MAX, COMMIT_EVENTS_MAX, HEADS_MAX},
        principal::OwnerId,
        splice::LogPosition,
    },
    store::{
        self, Fate, Store,
        append::{Appended, Appender, Appenders, Committed, LaneState},
        heads::StoredHead,
    },
    throttle::Resource,
};

/// Longest duration of a commit, all its steps together; after it the connection counts as lost.
const COMMIT_MAX: Duration = Duration::from_millis(2_400);
/// How often a batch is planned, because of other writers or keys already used, before its requests are retried one by
/// one.
const TRIES_MAX: u32 = 8;
/// How long an owner's keys are looked up after it repeated an event.
const REPEATS_FOR: Duration = Duration::from_mins(1);
/// Owners for which that is remembered.
const REPEATERS_MAX: usize = 1_000;

/// The parts that a lane uses.
#[derive(Clone)]
pub(super) struct Parts {
    pub store: Store,
    pub appenders: Arc<Appenders>,
    pub gate: Gate,
    pub contexts: Contexts,
    pub clock: Clock,
    pub wakeup: WakeupSender,
    pub health: Health,
    pub forks: Forks,
}

pub(super) struct Lane {
    pub(super) lane: u8,
    pub(super) parts: Parts,
    pub(super) appender: Option<Appender>,
    heads: LruCache<RunId, StoredHead>,
    /// The owners that repeated an event, and when.
    repeaters: LruCache<OwnerId, Instant>,
    /// The history the cached heads belong to.
    history: Tag,
}

/// The result of an attempt to commit.
enum Attempt {
    Done,
    /// Cached data was out of date and has been dropped: plan again.
    Stale,
}

/// Why an attempt to commit failed.
enum Failure {
    /// Before anything was sent: certainly not stored.
    Before(store::Error),
    /// After the batch was sent: perhaps stored.
    During(Box<Plan>, store::Error),
    /// The log is not the one whose events readers were shown. Nothing was stored.
    SetBack,
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        Self::Before(error)
    }
}

impl Lane {
    pub(super) fn new(lane: u8, parts: Parts) -> Self {
        let most = |count| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        let (heads, repeaters) = (LruCache::new(most(HEADS_MAX)), LruCache::new(most(REPEATERS_MAX)));
        let history = parts.gate.histories().current();
        Self { lane, parts, appender: None, heads, repeaters, history }
    }

    /// Works until `stop`, then finishes what is queued.
    pub(super) async fn run(mut self, queue: &mut WriteQueue, stop: CancellationToken) {
        while queue.wait(&stop).await {
            let requests = queue.take(COMMIT_EVENTS_MAX, COMMIT_BYTES_MAX);
            if !requests.is_empty() {
                let turn = self.parts.gate.turn(self.lane).await;
                Box::pin(self.commit(turn, requests, queue)).await;
            }
        }
        if let Some(appender) = self.appender.take() {
            appender.close().await;
        }
    }

    /// Completes a batch: it is stored and published, answered with an error, or put back into the queue.
    async fn commit(&mut self, turn: Turn, mut requests: Vec<AppendRequest>, queue: &mut WriteQueue) {
        let (started, parts) = (Instant::now(), parts_of(&requests));
        let done = Box::pin(self.tries(&turn, &mut requests, started + COMMIT_MAX)).await;
        let took = started.elapsed();
        for (owner, part) in parts {
            self.parts.store.throttle().used(&owner, Resource::Writing, took.mul_f64(part));
        }
        let failure = match done {
            Ok(()) => {
                metrics::histogram!("runreel_commit_seconds").record(took.as_secs_f64());
                queue.outage = None;
                return;
            }
            Err(failure) => failure,
        };
        match failure {
            Failure::During(plan, error) if matches!(error.fate(), Fate::Unanswered | Fate::Unreadable) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the database did not answer a commit; resolving its outcome"
                );
                self.lost(&error, queue);
                match self.resolve(&plan, &mut requests, queue).await {
                    Some(committed) => {
                        let mut plan = *plan;
                        plan.shift(&requests, &committed.shifts);
                        self.finish(&turn, plan, committed, &mut requests).await;
                    }
                    None => queue.put_back(requests),
                }
            }
            Failure::SetBack => {
                queue.put_back(requests);
                // Reconciling needs the turns of all lanes, including this one.
                drop(turn);
                self.reconcile_history(queue).await;
            }
            Failure::Before(error) | Failure::During(_, error) => match error.fate() {
                Fate::Unanswered | Fate::NotAccepted => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "writer lost its database connection");
                    self.lost(&error, queue);
                    queue.put_back(requests);
                    drop(turn);
                    self.reconnect(queue).await;
                }
                // A batch the database refuses is retried one request at a time, so that only the bad one fails.
                Fate::Locked | Fate::Overtaken | Fate::Refused | Fate::Unreadable if requests.len() > 1 => {
                    queue.take_apart(requests);
                }
                fate @ (Fate::Locked | Fate::Overtaken | Fate::Refused | Fate::Unreadable) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "database refused an emit");
                    // Locked: other transactions are writing the thread of a run that begins.
                    let is_busy = matches!(fate, Fate::Locked | Fate::Overtaken);
                    for mut request in requests {
                        request.answer(Err(if is_busy { EmitError::Busy } else { EmitError::Broken }));
                    }
                }
            },
        }
    }

    /// Drops the cache and the connection, and records the outage.
    fn lost(&mut self, error: &store::Error, queue: &mut WriteQueue) {
        self.heads.clear();
        self.appender = None;
        if let Some(outage) = error.outage() {
            self.parts.health.failed(self.lane, outage);
            queue.outage = Some(outage);
        }
    }

    /// Plans and writes, and retries as long as the only problem is out-of-date cached data.
    async fn tries(
        &mut self,
        turn: &Turn,
        requests: &mut Vec<AppendRequest>,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let mut conflict = None;
        for _ in 0..TRIES_MAX {
            match Box::pin(self.attempt(turn, requests, deadline)).await {
                Ok(Attempt::Done) => return Ok(()),
                Ok(Attempt::Stale) => {}
                Err(Failure::During(_, error @ store::Error::Conflict(_))) => {
                    metrics::counter!("runreel_commit_conflicts_total").increment(1);
                    for request in requests.iter() {
                        self.heads.pop(&request.context.run_id);
                    }
                    conflict = Some(error);
                }
                Err(failure) => {
                    self.heads.clear();
                    self.appender = None;
                    return Err(failure);
                }
            }
        }
        Err(Failure::Before(conflict.unwrap_or_else(store::Error::timeout)))
    }

    async fn attempt(
        &mut self,
        turn: &Turn,
        requests: &mut Vec<AppendRequest>,
        deadline: Instant,
    ) -> Result<Attempt, Failure> {
        let gate = self.parts.gate.clone();
        let (history, least) = (gate.histories().current(), gate.published(self.lane));
        if self.history != history {
            // The state of a connection belongs to the history it wrote in.
            self.heads.clear();
            self.appender = None;
            self.history = history;
        }
        match gate.take_ended(self.lane) {
            Ended::These(runs) => runs.iter().for_each(|run| _ = self.heads.pop(run)),
            Ended::Any => self.heads.clear(),
        }
        let mut appender = match self.appender.take() {
            Some(appender) => appender,
            None => by(deadline, self.parts.appenders.open(self.lane)).await?,
        };
        let is_as_published = |mark: LaneState| mark.history == history && mark.position >= least && !mark.is_elsewhere;
        if !is_as_published(appender.mark()) && !is_as_published(by(deadline, appender.look()).await?) {
            return Err(Failure::SetBack);
        }
        let heads = by(deadline, self.learn_heads(&mut appender, requests)).await?;
        let mut keys = by(deadline, self.learn_keys(&mut appender, requests)).await?;
        keys.extend(by(deadline, learn::questions(&mut appender, requests)).await?);
        let named = by(deadline, learn::names(&mut appender, requests)).await?;
        let known = Known {
            heads: &heads,
            keys: &keys,
            named: &named,
            open: &|run, span| gate.open(run, span),
            now: self.parts.clock.now(),
        };
        let mut plan = plan::plan(requests, &known);
        // A cached head is no reason to refuse: another process may have written since, and may have made the event
        // valid.
        let doubtful: Vec<RunId> = plan.refused_by(requests).filter(|run| self.heads.pop(run).is_some()).collect();
        if !doubtful.is_empty() {
            self.appender = Some(appender);
            return Ok(Attempt::Stale);
        }
        let mut committed = Committed { first_position: least + 1, shifts: Vec::new() };
        if !plan.batch.is_empty() {
            match by(deadline, Box::pin(appender.append(&plan.batch, least))).await {
                Ok(Appended::Committed(there)) => committed = there,
                Ok(Appended::Fenced) => {
                    by(deadline, appender.look()).await?;
                    self.appender = Some(appender);
                    return Ok(Attempt::Stale);
                }
                Err(error) => {
                    // A conflict is a regular answer; after any other error the connection is not trusted.
                    self.appender = matches!(error, store::Error::Conflict(_)).then_some(appender);
                    return Err(Failure::During(Box::new(plan), error));
                }
            }
        }
        self.appender = Some(appender);
        plan.shift(requests, &committed.shifts);
        self.finish(turn, plan, committed, requests).await;
        Ok(Attempt::Done)
    }

    async fn learn_heads(
        &mut self,
        appender: &mut Appender,
        requests: &[AppendRequest],
    ) -> Result<HashMap<RunId, StoredHead>, store::Error> {
        let mut heads = HashMap::new();
        let mut missing = Vec::new();
        for request in requests {
            let run = request.context.run_id;
            match self.heads.get(&run) {
                Some(head) => _ = heads.insert(run, head.clone()),
                None => missing.push(run),
            }
        }
        if !missing.is_empty() {
            missing.sort_unstable();
            missing.dedup();
            heads.extend(appender.heads(&missing).await?);
        }
        Ok(heads)
    }

    /// The keys already used: looked up for runs without a cached head and for owners that recently repeated an event.
    /// Other keys are assumed to be new; the database refuses a used one, and the batch is planned again. So repeated
    /// events cost lookups, and one owner only rarely makes a shared batch fail.
    async fn learn_keys(
        &self,
        appender: &mut Appender,
        requests: &[AppendRequest],
    ) -> Result<HashMap<(RunId, EventId), Seq>, store::Error> {
        let mut keys = Vec::new();
        let repeats = |owner: &OwnerId| self.repeaters.peek(owner).is_some_and(|at| at.elapsed() < REPEATS_FOR);
        let is_looked_up = |request: &&AppendRequest| {
            let context = &request.context;
            request.birth.is_none() && (!self.heads.contains(&context.run_id) || repeats(&context.owner_id))
        };
        for request in requests.iter().filter(is_looked_up) {
            let ids = request.events.iter().filter(|event| !event.event_type.is_ephemeral());
            keys.extend(ids.filter_map(|event| Some((request.context.run_id, event.event_id.clone()?))));
        }
        if keys.is_empty() { Ok(HashMap::new()) } else { appender.known_keys(&keys).await }
    }

    /// After the commit: advances the heads, publishes to readers, then answers the producers.
    async fn finish(&mut self, turn: &Turn, plan: Plan, committed: Committed, requests: &mut Vec<AppendRequest>) {
        let (stored, first_position) = (plan.batch.events.len() as i64, committed.first_position);
        let Parts { store, gate, contexts, wakeup, health, .. } = &self.parts;
        if stored > 0 {
            health.wrote(self.lane);
        }
        for owner in plan.repeaters(requests) {
            self.repeaters.put(owner.clone(), Instant::now());
        }
        for (run, head) in plan.heads {
            // An ended run may be deleted, here or by another process, and its id reused: read its head each time.
            if head.head.status.is_terminal() {
                self.heads.pop(&run);
            } else {
                self.heads.put(run, head);
            }
        }
        if stored > 0 && gate.published(self.lane) + 1 < first_position {
            relay::catch_up(store, gate, contexts, turn, self.lane, first_position - 1).await;
        }
        let mut events = plan.batch.events.into_iter().map(Some).collect::<Vec<_>>();
        let mut publications = Vec::with_capacity(events.len());
        for (request, outcome) in requests.iter().zip(&plan.outcomes) {
            let Ok(accepted) = outcome else { continue };
            for item in &accepted.items {
                let publication = match item {
                    Item::Durable(index) => {
                        let Some(event) = events[*index].take() else { continue };
                        metrics::counter!("runreel_events_total", "family" => event.event_type.family_label())
                            .increment(1);
                        let place = LogPosition {
                            seq: event.seq.unwrap_or_default(),
                            lane: self.lane,
                            position: first_position + *index as i64,
                        };
                        Publication::Durable(place, event)
                    }
                    Item::Delta(event, span_id, text) => {
                        Publication::Delta(event.clone(), span_id.clone(), text.clone())
                    }
                };
                publications.push((Arc::clone(&request.context), publication));
            }
        }
        let up_to = if stored > 0 { first_position + stored - 1 } else { gate.published(self.lane) };
        gate.publish(turn, self.lane, up_to, publications.into_iter());
        for (mut request, outcome) in requests.drain(..).zip(plan.outcomes) {
            request.answer(outcome.map(|accepted| accepted.ack));
        }
        if stored > 0 {
            wakeup.send(self.lane, up_to);
        }
    }
}

/// Bounds one step of a commit: a database that stops responding counts as lost.
async fn by<T>(deadline: Instant, work: impl Future<Output = Result<T, store::Error>>) -> Result<T, store::Error> {
    tokio::time::timeout_at(deadline, work).await.unwrap_or_else(|_| Err(store::Error::timeout()))
}
