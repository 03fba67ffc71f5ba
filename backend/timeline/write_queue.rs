//! The queue of a lane: each principal's emissions in order, the principals in turn.
//!
//! However many emissions one principal has waiting, another's next one is in the next commit.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::emit::{AppendRequest, EmitError};
use crate::{
    domain::{
        limits::{EMIT_WAIT_MS_MAX, LANE_QUEUE_MAX},
        principal::OwnerId,
    },
    store::Outage,
};

/// How long an emit may wait before it is sent: the rest of the time a client waits is left for the commit.
const UNSENT_MAX: Duration = Duration::from_millis(EMIT_WAIT_MS_MAX - 2_500);

/// Emissions a lane has taken from its queue but not committed.
#[derive(Debug)]
pub(super) struct WriteQueue {
    receiver: mpsc::Receiver<AppendRequest>,
    waiting: HashMap<OwnerId, VecDeque<AppendRequest>>,
    /// The principals with emissions waiting; the first is next.
    order: VecDeque<OwnerId>,
    count: usize,
    /// To be tried one by one, because they were refused together.
    apart: VecDeque<AppendRequest>,
    /// Why the last commit failed, for emissions that have waited too long.
    pub(super) outage: Outage,
}

impl WriteQueue {
    pub(super) fn new(receiver: mpsc::Receiver<AppendRequest>) -> Self {
        let (waiting, order, apart) = (HashMap::new(), VecDeque::new(), VecDeque::new());
        Self { receiver, waiting, order, count: 0, apart, outage: Outage::Unreachable }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.apart.is_empty()
    }

    /// Waits for work; `false` if the lane is to stop and nothing is left to do.
    pub(super) async fn wait(&mut self, stop: &CancellationToken) -> bool {
        if !self.is_empty() {
            return true;
        }
        let emission = tokio::select! {
            biased;
            emission = self.receiver.recv() => emission,
            () = stop.cancelled() => {
                self.receiver.close();
                self.receiver.recv().await
            }
        };
        let Some(emission) = emission else { return false };
        self.push(emission);
        true
    }

    /// Takes waiting emissions, one of each principal in turn, up to these bounds; one over them is taken alone.
    pub(super) fn take(&mut self, events_max: usize, bytes_max: usize) -> Vec<AppendRequest> {
        self.expire();
        if let Some(emission) = self.apart.pop_front() {
            return vec![emission];
        }
        let (mut taken, mut events, mut bytes) = (Vec::new(), 0, 0);
        while let Some(owner) = self.order.pop_front() {
            let Some(queue) = self.waiting.get_mut(&owner) else { continue };
            let Some(next) = queue.front() else { continue };
            events += next.events.len().max(1);
            bytes += next.bytes();
            if !taken.is_empty() && (events > events_max || bytes > bytes_max) {
                self.order.push_front(owner);
                break;
            }
            taken.extend(queue.pop_front());
            self.count -= 1;
            if queue.is_empty() {
                self.waiting.remove(&owner);
            } else {
                self.order.push_back(owner);
            }
        }
        taken
    }

    /// Puts back emissions that were taken and are certainly not stored.
    pub(super) fn put_back(&mut self, emissions: Vec<AppendRequest>) {
        for emission in emissions.into_iter().rev() {
            // One that was already answered must not be stored later.
            if emission.reply.is_some() {
                self.queue(&emission.context.owner_id.clone()).push_front(emission);
            }
        }
    }

    /// Puts back emissions that were refused together, to be tried one by one.
    pub(super) fn take_apart(&mut self, emissions: Vec<AppendRequest>) {
        self.apart.extend(emissions.into_iter().filter(|emission| emission.reply.is_some()));
    }

    /// Takes in what has arrived, and refuses what has waited too long to be sent.
    pub(super) fn expire(&mut self) {
        while self.count < LANE_QUEUE_MAX
            && let Ok(emission) = self.receiver.try_recv()
        {
            self.push(emission);
        }
        let (outage, mut expired) = (self.outage, 0);
        self.apart.retain_mut(|emission| {
            let waits = emission.arrived.elapsed() <= UNSENT_MAX;
            if !waits {
                emission.answer(Err(EmitError::Unavailable(outage)));
            }
            waits
        });
        // Each queue is in the order of arrival.
        for queue in self.waiting.values_mut() {
            while queue.front().is_some_and(|emission| emission.arrived.elapsed() > UNSENT_MAX) {
                if let Some(mut emission) = queue.pop_front() {
                    emission.answer(Err(EmitError::Unavailable(outage)));
                    expired += 1;
                }
            }
        }
        if expired > 0 {
            self.count -= expired;
            self.waiting.retain(|_, queue| !queue.is_empty());
            self.order.retain(|owner| self.waiting.contains_key(owner));
        }
    }

    fn push(&mut self, emission: AppendRequest) {
        self.queue(&emission.context.owner_id.clone()).push_back(emission);
    }

    /// The queue of a principal that is about to have one more emission waiting.
    fn queue(&mut self, owner: &OwnerId) -> &mut VecDeque<AppendRequest> {
        self.count += 1;
        self.waiting.entry(owner.clone()).or_insert_with(|| {
            self.order.push_back(owner.clone());
            VecDeque::new()
        })
    }
}

#[cfg(test)]
mod tests;
