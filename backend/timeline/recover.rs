//! What a lane does while its database is away: keep answering.
//!
//! An emit that was never sent is refused when it has waited too long, and is then certainly not stored. One whose
//! commit got no answer is resolved by looking, on a new connection, what the lane holds; its client is told that the
//! outcome is unknown if that takes longer than a client may wait.

use std::{collections::VecDeque, pin::pin, time::Duration};

use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::{
    emit::{Emission, EmitError},
    plan::Plan,
    writer::Lane,
};
use crate::domain::limits::{EMIT_WAIT_MS_MAX, LANE_QUEUE_MAX};

/// How long an emit may wait before it is sent at all: the commit that follows has the rest of the client's patience.
const UNSENT_MAX: Duration = Duration::from_millis(EMIT_WAIT_MS_MAX - 2_500);
/// How long a client waits for any answer.
const ANSWER_MAX: Duration = Duration::from_millis(EMIT_WAIT_MS_MAX);
/// How often patience is looked at while the database is away.
const TICK: Duration = Duration::from_millis(50);

/// Emissions a lane has taken from its queue but not committed.
pub(super) struct Backlog {
    receiver: mpsc::Receiver<Emission>,
    waiting: VecDeque<Emission>,
}

impl Backlog {
    pub(super) fn new(receiver: mpsc::Receiver<Emission>) -> Self {
        Self { receiver, waiting: VecDeque::new() }
    }

    /// Waits for work; `false` when the lane shall stop and nothing is left to do.
    pub(super) async fn wait(&mut self, stop: &CancellationToken) -> bool {
        if !self.waiting.is_empty() {
            return true;
        }
        tokio::select! {
            biased;
            emission = self.receiver.recv() => match emission {
                Some(emission) => self.waiting.push_back(emission),
                None => return false,
            },
            () = stop.cancelled() => {
                self.receiver.close();
                match self.receiver.recv().await {
                    Some(emission) => self.waiting.push_back(emission),
                    None => return false,
                }
            }
        }
        true
    }

    /// Takes what waits, up to these bounds; a single emission over them goes alone.
    pub(super) fn take(&mut self, events_max: usize, bytes_max: usize) -> Vec<Emission> {
        self.expire();
        let (mut taken, mut events, mut bytes) = (Vec::new(), 0, 0);
        loop {
            if self.waiting.is_empty() {
                match self.receiver.try_recv() {
                    Ok(emission) => self.waiting.push_back(emission),
                    Err(_) => return taken,
                }
            }
            let Some(next) = self.waiting.front() else { return taken };
            events += next.events.len().max(1);
            bytes += next.bytes();
            if !taken.is_empty() && (events > events_max || bytes > bytes_max) {
                return taken;
            }
            taken.extend(self.waiting.pop_front());
        }
    }

    /// Puts back what was taken and certainly not stored.
    pub(super) fn put_back(&mut self, emissions: Vec<Emission>) {
        for emission in emissions.into_iter().rev() {
            // One that was already answered must not be stored after all.
            if emission.reply.is_some() {
                self.waiting.push_front(emission);
            }
        }
    }

    /// Refuses what has waited too long to be sent.
    fn expire(&mut self) {
        while self.waiting.len() < LANE_QUEUE_MAX
            && let Ok(emission) = self.receiver.try_recv()
        {
            self.waiting.push_back(emission);
        }
        self.waiting.retain_mut(|emission| {
            let expired = emission.arrived.elapsed() > UNSENT_MAX;
            if expired {
                emission.answer(Err(EmitError::Unavailable));
            }
            !expired
        });
    }
}

impl Lane {
    /// Opens the lane's connection again, refusing in the meantime what waits too long.
    pub(super) async fn reconnect(&mut self, backlog: &mut Backlog) {
        while self.appender.is_none() {
            let store = self.store.clone();
            let lane = self.lane;
            let mut opening = pin!(store.appender(lane));
            let opened = loop {
                tokio::select! {
                    opened = &mut opening => break opened,
                    () = tokio::time::sleep(TICK) => backlog.expire(),
                }
            };
            match opened {
                Ok(appender) => self.appender = Some(appender),
                Err(error) => {
                    tracing::debug!(error = &error as &dyn std::error::Error, "the database is still away");
                    tokio::time::sleep(TICK).await;
                    backlog.expire();
                    if backlog.waiting.is_empty() {
                        // Nobody waits: the next emit tries again.
                        return;
                    }
                }
            }
        }
    }

    /// Finds out whether a batch whose commit got no answer is stored. Gives no answer before it knows.
    pub(super) async fn resolve(
        &mut self,
        plan: &Plan,
        first_position: i64,
        emissions: &mut [Emission],
        backlog: &mut Backlog,
    ) -> bool {
        loop {
            let store = self.store.clone();
            let lane = self.lane;
            let mut looking = pin!(async {
                let mut appender = store.appender(lane).await?;
                let stored = appender.resolve(first_position, &plan.batch).await?;
                Ok::<_, crate::store::Error>((appender, stored))
            });
            let answer_by = Instant::now() + ANSWER_MAX;
            let found = loop {
                tokio::select! {
                    found = &mut looking => break Some(found),
                    () = tokio::time::sleep(TICK) => {
                        backlog.expire();
                        give_up(emissions);
                        if Instant::now() > answer_by {
                            break None;
                        }
                    }
                }
            };
            match found {
                Some(Ok((appender, stored))) => {
                    self.appender = Some(appender);
                    tracing::info!(stored, "the outcome of a commit is known");
                    return stored;
                }
                Some(Err(_)) | None => tokio::time::sleep(TICK).await,
            }
            backlog.expire();
            give_up(emissions);
        }
    }
}

/// Tells clients that have waited long enough that nobody knows yet.
fn give_up(emissions: &mut [Emission]) {
    for emission in emissions.iter_mut().filter(|emission| emission.arrived.elapsed() > ANSWER_MAX) {
        emission.answer(Err(EmitError::OutcomeUnknown));
    }
}
