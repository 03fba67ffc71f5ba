//! The queue of a lane: each principal's requests in order, the principals in turn.
//!
//! However many requests one principal has waiting, the next request of another is in the next commit.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};
use tokio_util::sync::CancellationToken;

use super::emit::{AppendRequest, EmitError};
use crate::{
    domain::{
        limits::{COMMIT_OWN_BYTES_MAX, COMMIT_SMALL_BYTES, EMIT_WAIT_MS_MAX, LANE_QUEUE_MAX, THROTTLE_REST_MS_MAX},
        principal::OwnerId,
    },
    store::Outage,
    throttle::{Resource, Throttle},
};

/// How long a request may wait to be sent; the rest of the time that a client waits is left for the commit.
const UNSENT_MAX: Duration = Duration::from_millis(EMIT_WAIT_MS_MAX - 2_500);

/// Requests that a lane has received but not committed.
#[derive(Debug)]
pub(super) struct WriteQueue {
    receiver: mpsc::Receiver<AppendRequest>,
    waiting: HashMap<OwnerId, VecDeque<AppendRequest>>,
    /// The principals with waiting requests; the first is next.
    order: VecDeque<OwnerId>,
    count: usize,
    throttle: Throttle,
    /// While stopping, no principal is throttled.
    is_stopping: bool,
    /// To be retried one by one, because their batch was refused.
    apart: VecDeque<AppendRequest>,
    /// Why the last commit failed, if it did: the error for requests that have waited too long.
    pub(super) outage: Option<Outage>,
}

impl WriteQueue {
    pub(super) fn new(receiver: mpsc::Receiver<AppendRequest>, throttle: Throttle) -> Self {
        let (waiting, order, apart) = (HashMap::new(), VecDeque::new(), VecDeque::new());
        Self { receiver, waiting, order, count: 0, throttle, is_stopping: false, apart, outage: None }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0 && self.apart.is_empty()
    }

    /// Waits for work; `false` if the lane is to stop and nothing is left to do.
    pub(super) async fn wait(&mut self, stop: &CancellationToken) -> bool {
        self.is_stopping = stop.is_cancelled();
        let rests_until = self.rests_until();
        if !self.is_empty() && rests_until.is_none() {
            return true;
        }
        let request = tokio::select! {
            biased;
            request = self.receiver.recv(), if self.count < LANE_QUEUE_MAX => request,
            () = tokio::time::sleep_until(rests_until.unwrap_or_else(Instant::now)), if rests_until.is_some() => return true,
            () = stop.cancelled(), if rests_until.is_some() => return Box::pin(self.wait(stop)).await,
            () = stop.cancelled() => {
                self.receiver.close();
                self.receiver.recv().await
            }
        };
        let Some(request) = request else {
            if let Some(until) = rests_until {
                tokio::time::sleep_until(until).await;
            }
            return !self.is_empty();
        };
        self.push(request);
        true
    }

    /// When the throttle admits a principal with waiting requests; `None` if it admits one now or none waits.
    fn rests_until(&self) -> Option<Instant> {
        if !self.apart.is_empty() {
            return None;
        }
        self.order.iter().map(|owner| self.rest_of(owner)).min().flatten()
    }

    /// Until when a principal's next request is throttled: not for so long that the request would be refused.
    fn rest_of(&self, owner: &OwnerId) -> Option<Instant> {
        let oldest = self.waiting.get(owner)?.front()?.arrived;
        let until = self.throttle.rests_until(owner, Resource::Writing)?;
        let until = until.min(oldest + Duration::from_millis(THROTTLE_REST_MS_MAX));
        (!self.is_stopping && until > Instant::now()).then_some(until)
    }

    /// Takes waiting requests, one of each principal in turn, up to these bounds; a request over them is taken alone.
    /// Requests of throttled principals stay.
    pub(super) fn take(&mut self, events_max: usize, bytes_max: usize) -> Vec<AppendRequest> {
        self.expire();
        if let Some(request) = self.apart.pop_front() {
            return vec![request];
        }
        let (mut batch, mut events, mut bytes) = (Vec::new(), 0, 0);
        let (mut left, mut own) = (Vec::new(), HashMap::<OwnerId, usize>::new());
        while let Some(owner) = self.order.pop_front() {
            let rests = self.rest_of(&owner).is_some();
            // A throttled principal whose request has waited for long gets only this one into the batch.
            let is_late = !self.is_stopping && self.throttle.rests_until(&owner, Resource::Writing).is_some();
            let Some(queue) = self.waiting.get_mut(&owner) else { continue };
            let Some(next) = queue.front() else { continue };
            let own = own.entry(owner.clone()).or_default();
            let is_full = *own > 0
                && (is_late || *own + next.bytes() > COMMIT_OWN_BYTES_MAX && self.throttle.has_company(&owner));
            if is_full || rests {
                left.push(owner);
                continue;
            }
            *own += next.bytes().max(1);
            events += next.events.len().max(1);
            bytes += next.bytes();
            if !batch.is_empty() && (events > events_max || bytes > bytes_max) {
                self.order.push_front(owner);
                break;
            }
            batch.extend(queue.pop_front());
            self.count -= 1;
            if queue.is_empty() {
                self.waiting.remove(&owner);
            } else {
                self.order.push_back(owner);
            }
        }
        for owner in left.into_iter().rev() {
            self.order.push_front(owner);
        }
        batch
    }

    /// Puts back requests that were taken and are certainly not stored.
    pub(super) fn put_back(&mut self, requests: Vec<AppendRequest>) {
        for request in requests.into_iter().rev() {
            // A request that was already answered must not be stored later.
            if request.reply.is_some() {
                self.queue(&request.context.owner_id.clone()).push_front(request);
            }
        }
    }

    /// Puts back the requests of a refused batch, to be retried one by one.
    pub(super) fn take_apart(&mut self, requests: Vec<AppendRequest>) {
        self.apart.extend(requests.into_iter().filter(|request| request.reply.is_some()));
    }

    /// Receives what has arrived, and refuses requests that have waited too long to be sent.
    pub(super) fn expire(&mut self) {
        while self.count < LANE_QUEUE_MAX
            && let Ok(request) = self.receiver.try_recv()
        {
            self.push(request);
        }
        let refusal = || self.outage.map_or(EmitError::Busy, EmitError::Unavailable);
        let mut expired = 0;
        self.apart.retain_mut(|request| {
            let waits = request.arrived.elapsed() <= UNSENT_MAX;
            if !waits {
                request.answer(Err(refusal()));
            }
            waits
        });
        // Each queue is in the order of arrival.
        for queue in self.waiting.values_mut() {
            while queue.front().is_some_and(|request| request.arrived.elapsed() > UNSENT_MAX) {
                if let Some(mut request) = queue.pop_front() {
                    request.answer(Err(refusal()));
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

    fn push(&mut self, request: AppendRequest) {
        self.queue(&request.context.owner_id.clone()).push_back(request);
    }

    /// The queue of a principal, for one more request, which is counted here.
    fn queue(&mut self, owner: &OwnerId) -> &mut VecDeque<AppendRequest> {
        self.count += 1;
        self.waiting.entry(owner.clone()).or_insert_with(|| {
            self.order.push_back(owner.clone());
            VecDeque::new()
        })
    }
}

/// Each principal's part of a batch, from 0 to 1; 0 below [`COMMIT_SMALL_BYTES`].
pub(super) fn parts_of(requests: &[AppendRequest]) -> HashMap<OwnerId, f64> {
    let mut bytes = HashMap::<&OwnerId, usize>::new();
    for request in requests {
        *bytes.entry(&request.context.owner_id).or_default() += request.bytes();
    }
    let all = bytes.values().sum::<usize>().max(1) as f64;
    let part = |own: usize| if own < COMMIT_SMALL_BYTES { 0.0 } else { own as f64 / all };
    bytes.into_iter().map(|(owner, own)| (owner.clone(), part(own))).collect()
}

#[cfg(test)]
mod tests;
