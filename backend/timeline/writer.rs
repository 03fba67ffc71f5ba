//! A lane: the task that numbers and commits everything of its runs, one batch after the other.
//!
//! Group commit without a timer: whatever waits when the last commit is done goes into the next one, so a batch holds
//! one event when it is quiet and hundreds under load. Heads and keys are cached while this process is the lane's only
//! writer; as soon as the store says [`Outcome::Moved`] they are forgotten and read again under the lane's lock.

use std::{collections::HashMap, num::NonZeroUsize, sync::Arc, time::Duration};

use lru::LruCache;
use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    Contexts,
    emit::{Emission, EmitError},
    plan::{self, Item, Known, Plan},
    publish::{Publication, Publisher, Turn},
    recover::Backlog,
    relay::{self, Bell},
};
use crate::{
    clock::Clock,
    domain::{
        id::{EventId, RunId, Seq},
        limits::{COMMIT_BYTES_MAX, COMMIT_EVENTS_MAX, HEADS_MAX},
        splice::Place,
    },
    store::{
        self, Store,
        append::{Appender, Outcome},
        heads::StoredHead,
    },
};

/// Longest a commit may take, all its steps together, before its connection counts as lost.
const COMMIT_MAX: Duration = Duration::from_millis(2_400);

pub(crate) struct Lane {
    pub(super) lane: u8,
    pub(super) store: Store,
    publisher: Publisher,
    contexts: Contexts,
    clock: Clock,
    bell: Bell,
    pub(super) appender: Option<Appender>,
    heads: LruCache<RunId, StoredHead>,
    /// Another process wrote in this lane since the last commit: begin with the lock, a try without it would be wasted.
    shared: bool,
}

/// How a try to commit ended.
enum Attempt {
    Done,
    /// Another process wrote in the lane, or may have: try again under its lock.
    Moved,
}

/// Why a try to commit failed.
enum Failure {
    /// Before anything was sent: certainly not stored.
    Before(store::Error),
    /// After the batch was sent: perhaps stored.
    During(Box<Plan>, i64, store::Error),
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        Self::Before(error)
    }
}

impl Lane {
    pub(crate) fn new(
        lane: u8,
        store: Store,
        publisher: Publisher,
        contexts: Contexts,
        clock: Clock,
        bell: Bell,
    ) -> Self {
        let heads = LruCache::new(NonZeroUsize::new(HEADS_MAX).unwrap_or(NonZeroUsize::MIN));
        Self { lane, store, publisher, contexts, clock, bell, appender: None, heads, shared: false }
    }

    /// Works until `stop`, then finishes what is queued.
    pub(crate) async fn run(mut self, receiver: mpsc::Receiver<Emission>, stop: CancellationToken) {
        let mut backlog = Backlog::new(receiver);
        while backlog.wait(&stop).await {
            let emissions = backlog.take(COMMIT_EVENTS_MAX, COMMIT_BYTES_MAX);
            if !emissions.is_empty() {
                Box::pin(self.commit(emissions, &mut backlog)).await;
            }
        }
        if let Some(appender) = self.appender.take() {
            appender.close().await;
        }
    }

    /// Brings a batch to its end: stored and published, or answered with what went wrong.
    async fn commit(&mut self, mut emissions: Vec<Emission>, backlog: &mut Backlog) {
        let started = Instant::now();
        let turn = self.publisher.turn(self.lane).await;
        let deadline = started + COMMIT_MAX;
        let mut locked = self.shared;
        loop {
            match self.attempt(&turn, &mut emissions, locked, deadline).await {
                Ok(Attempt::Done) => break,
                Ok(Attempt::Moved) => locked = true,
                Err(failure) => {
                    self.heads.clear();
                    self.appender = None;
                    match failure {
                        Failure::Before(error) if error.is_unavailable() => {
                            tracing::warn!(error = &error as &dyn std::error::Error, "the writer lost its database");
                            backlog.put_back(std::mem::take(&mut emissions));
                            self.reconnect(backlog).await;
                            return;
                        }
                        Failure::During(plan, first_position, error) if error.is_unavailable() => {
                            tracing::warn!(error = &error as &dyn std::error::Error, "a commit got no answer");
                            let stored = self.resolve(&plan, first_position, &mut emissions, backlog).await;
                            if stored {
                                self.finish(&turn, *plan, first_position, &mut emissions).await;
                            } else {
                                backlog.put_back(std::mem::take(&mut emissions));
                            }
                            return;
                        }
                        Failure::Before(store::Error::Conflict(_))
                        | Failure::During(_, _, store::Error::Conflict(_))
                            if !locked =>
                        {
                            locked = true;
                        }
                        Failure::Before(error) | Failure::During(_, _, error) => {
                            Box::pin(self.split(&turn, emissions, error)).await;
                            return;
                        }
                    }
                }
            }
        }
        metrics::histogram!("runreel_commit_seconds").record(started.elapsed().as_secs_f64());
    }

    /// A batch the database refuses is tried again emission by emission, so that one bad one fails alone.
    async fn split(&mut self, turn: &Turn, emissions: Vec<Emission>, error: store::Error) {
        if emissions.len() == 1 {
            for mut emission in emissions {
                tracing::error!(error = &error as &dyn std::error::Error, "the database refused an emit");
                emission.answer(Err(EmitError::Broken));
            }
            return;
        }
        for emission in emissions {
            let mut alone = vec![emission];
            let failed = self.attempt(turn, &mut alone, true, Instant::now() + COMMIT_MAX).await.is_err();
            if failed {
                self.heads.clear();
                self.appender = None;
                for mut emission in alone {
                    emission.answer(Err(EmitError::Broken));
                }
            }
        }
    }

    async fn attempt(
        &mut self,
        turn: &Turn,
        emissions: &mut Vec<Emission>,
        locked: bool,
        deadline: Instant,
    ) -> Result<Attempt, Failure> {
        let mut appender = match self.appender.take() {
            Some(appender) => appender,
            None => by(deadline, self.store.appender(self.lane)).await?,
        };
        if locked {
            self.shared = by(deadline, appender.lock()).await?;
            if self.shared {
                self.heads.clear();
            }
        }
        let heads = by(deadline, self.learn_heads(&mut appender, emissions)).await?;
        let keys = by(deadline, learn_keys(&mut appender, emissions)).await?;
        let known = Known {
            heads: &heads,
            keys: &keys,
            open: &|run, span| self.publisher.open(run, span),
            now: self.clock.now(),
        };
        let plan = plan::plan(emissions, &known);
        let was_refused =
            plan.outcomes.iter().any(|outcome| matches!(outcome, Err(EmitError::Refused(_) | EmitError::Elsewhere)));
        if was_refused && !locked {
            // By a head that is remembered: another process may have written since, and what it wrote may allow it.
            self.appender = Some(appender);
            return Ok(Attempt::Moved);
        }
        let first_position = appender.position() + 1;
        if !plan.batch.events.is_empty() {
            let outcome = match by(deadline, appender.append(&plan.batch)).await {
                Ok(outcome) => outcome,
                Err(error) => return Err(Failure::During(Box::new(plan), first_position, error)),
            };
            if outcome == Outcome::Moved {
                self.heads.clear();
                self.appender = Some(appender);
                return Ok(Attempt::Moved);
            }
        }
        if locked && let Err(error) = by(deadline, appender.commit()).await {
            return Err(Failure::During(Box::new(plan), first_position, error));
        }
        self.appender = Some(appender);
        self.finish(turn, plan, first_position, emissions).await;
        Ok(Attempt::Done)
    }

    async fn learn_heads(
        &mut self,
        appender: &mut Appender,
        emissions: &[Emission],
    ) -> Result<HashMap<RunId, StoredHead>, store::Error> {
        let mut heads = HashMap::new();
        let mut missing = Vec::new();
        for emission in emissions {
            let run = emission.context.run_id;
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

    /// After the commit: heads advance, readers see, then the producers are answered.
    pub(super) async fn finish(&mut self, turn: &Turn, plan: Plan, first_position: i64, emissions: &mut Vec<Emission>) {
        let stored = plan.batch.events.len() as i64;
        for (run, head) in plan.heads {
            // An ended run may be deleted, here or by another process, and its id used again: ask about it each time.
            if head.head.status.is_terminal() {
                self.heads.pop(&run);
            } else {
                self.heads.put(run, head);
            }
        }
        if stored > 0 && self.publisher.published(self.lane) + 1 < first_position {
            relay::catch_up(&self.store, &self.publisher, &self.contexts, turn, self.lane, first_position - 1).await;
        }
        let mut events = plan.batch.events.into_iter().map(Some).collect::<Vec<_>>();
        let mut publications = Vec::with_capacity(events.len());
        for (emission, outcome) in emissions.iter().zip(&plan.outcomes) {
            let Ok(accepted) = outcome else { continue };
            for item in &accepted.items {
                let publication = match item {
                    Item::Durable(index) => {
                        let Some(event) = events[*index].take() else { continue };
                        metrics::counter!("runreel_events_total", "family" => family(event.event_type.family()))
                            .increment(1);
                        let place = Place {
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
                publications.push((Arc::clone(&emission.context), publication));
            }
        }
        let up_to = if stored > 0 { first_position + stored - 1 } else { self.publisher.published(self.lane) };
        self.publisher.publish(turn, self.lane, up_to, publications.into_iter());
        for (mut emission, outcome) in emissions.drain(..).zip(plan.outcomes) {
            emission.answer(outcome.map(|accepted| accepted.ack));
        }
        if stored > 0 {
            self.bell.ring(self.lane, up_to);
        }
    }
}

/// Families as metric labels: a closed set, so that producers cannot grow it.
fn family(word: &str) -> &'static str {
    const FAMILIES: [&str; 10] =
        ["run", "step", "tool", "worker", "message", "reasoning", "artifact", "state", "interrupt", "log"];
    FAMILIES.into_iter().find(|family| *family == word).unwrap_or("other")
}

async fn learn_keys(
    appender: &mut Appender,
    emissions: &[Emission],
) -> Result<HashMap<(RunId, EventId), Seq>, store::Error> {
    let mut keys = Vec::new();
    for emission in emissions.iter().filter(|emission| emission.birth.is_none()) {
        let ids = emission.events.iter().filter(|event| !event.event_type.is_ephemeral());
        keys.extend(ids.filter_map(|event| Some((emission.context.run_id, event.event_id.clone()?))));
    }
    if keys.is_empty() { Ok(HashMap::new()) } else { appender.known_keys(&keys).await }
}

/// One step of a commit, bounded: a database that falls silent counts as lost.
async fn by<T>(deadline: Instant, work: impl Future<Output = Result<T, store::Error>>) -> Result<T, store::Error> {
    tokio::time::timeout_at(deadline, work).await.unwrap_or_else(|_| Err(store::Error::timeout()))
}
