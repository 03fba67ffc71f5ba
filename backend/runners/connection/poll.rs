//! What a connection does after a wake-up: claims jobs, and checks the state of its runs.

use std::{collections::HashMap, pin::pin};

use futures::StreamExt as _;

use super::{Connection, Step, later};
use crate::{
    domain::{
        id::RunId,
        limits::JOB_CLAIM_MAX,
        run::Status,
        runner::{Ack, Answered, ToRunner},
    },
    runners::{answers::Interrupts, assignment::HeldRun},
    store::jobs::JobState,
};

impl Connection {
    /// Checks everything once.
    pub(super) async fn look(&mut self) -> Step {
        let held: Vec<RunId> = self.held.keys().copied().collect();
        self.end_lost_runs(&held).await?;
        let asking: Vec<RunId> =
            self.held.iter().filter(|(_, held)| !held.asked.is_empty()).map(|(run, _)| *run).collect();
        self.tell_answers(asking).await?;
        self.claim().await
    }

    /// Renews every lease; a heartbeat counts for all of them.
    pub(super) async fn renew(&mut self) -> Step {
        let leases: HashMap<_, _> = self.held.iter().map(|(run, held)| (held.job.lease_id, *run)).collect();
        let ids: Vec<_> = leases.keys().copied().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let dispatch = &self.hub.dispatch;
        let turn = self.hub.renewals.take(&self.peer.owner, 1).await.ok();
        let until = dispatch.timeline().clock().now() + dispatch.lease();
        let renewed = dispatch.renew(&ids).await;
        drop(turn);
        // An unreachable database is not the runner's fault; the next heartbeat tries again.
        let Ok(lost) = renewed else { return Ok(()) };
        for held in self.held.values_mut().filter(|held| !lost.contains(&held.job.lease_id)) {
            held.lease_until = held.lease_until.max(until);
        }
        let lost: Vec<RunId> = lost.iter().filter_map(|lease| leases.get(lease).copied()).collect();
        // A job that was removed because its run has ended is not lost; a check tells the two apart.
        if !lost.is_empty() {
            self.end_lost_runs(&lost).await?;
        }
        for run_id in lost {
            self.lost(run_id).await?;
        }
        if self.wants_claim { self.claim().await } else { Ok(()) }
    }

    /// Claims as many jobs as there is room for.
    pub(super) async fn claim(&mut self) -> Step {
        // Also without room: the claim records that a busy runner still serves its agents.
        let free = self.capacity.saturating_sub(self.held.len());
        let turn = self.hub.turn(&self.peer.owner).await;
        if self.hub.draining.is_cancelled() {
            return Ok(());
        }
        let claimed = later(self.hub.dispatch.claim(&self.who, &self.agents, free).await);
        let given = claimed.as_ref().map_or(0, Vec::len);
        self.wants_claim = claimed.is_none() || (given == JOB_CLAIM_MAX && given < free);
        let jobs = claimed.unwrap_or_default();
        // A runner that takes over a run is sent the earlier answers.
        let repeated: Vec<RunId> = jobs.iter().filter(|job| job.attempt > 1).map(|job| job.context.run_id).collect();
        let interrupts = later(self.hub.interrupts(&self.peer.owner, &repeated).await);
        drop(turn);
        let mut read = pin!(self.inputs(jobs));
        while let Some((job, input)) = read.next().await {
            let Ok(input) = input else { continue };
            let run_id = job.context.run_id;
            let held = HeldRun::new(job, Some(0));
            let answers = interrupts.as_ref().map_or(0, |interrupts| interrupts.answers(run_id));
            let assign = ToRunner::Assign(Box::new(held.assign(input, answers)));
            if let Some(before) = self.held.get(&run_id).filter(|before| before.is_leaving) {
                // Its own `run.done` has just released the job, and this connection claims it again.
                let ack = Ack { run_id, n: before.answered, last_seq: before.last_seq.get() };
                self.leave(run_id);
                self.say(&ToRunner::Ack(ack)).await?;
            }
            // If it is still held, its lease had lapsed, and this connection claims the job again.
            self.lost(run_id).await?;
            self.left.retain(|left| left.run_id != run_id);
            self.held.insert(run_id, held);
            self.say(&assign).await?;
        }
        self.tell(interrupts).await
    }

    /// Sends the answers to these runs' interrupts that this connection has not sent yet.
    pub(super) async fn tell_answers(&mut self, runs: Vec<RunId>) -> Step {
        if runs.is_empty() {
            return Ok(());
        }
        let turn = self.hub.turn(&self.peer.owner).await;
        let interrupts = later(self.hub.interrupts(&self.peer.owner, &runs).await);
        drop(turn);
        self.tell(interrupts).await
    }

    pub(super) async fn tell(&mut self, interrupts: Option<Interrupts>) -> Step {
        let Some(interrupts) = interrupts else { return Ok(()) };
        for (run_id, interrupt_id) in interrupts.open {
            if let Some(held) = self.held.get_mut(&run_id) {
                held.asked.insert(interrupt_id);
            }
        }
        for answer in interrupts.answered {
            if self.is_news(&answer) {
                self.say(&ToRunner::Resume(answer)).await?;
            }
        }
        Ok(())
    }

    /// An answer is sent once per connection.
    fn is_news(&mut self, answer: &Answered) -> bool {
        let Some(held) = self.held.get_mut(&answer.run_id) else { return false };
        held.asked.remove(&answer.interrupt_id);
        if held.status == Status::Interrupted {
            held.status = Status::Running;
        }
        held.told.insert(answer.interrupt_id.clone())
    }

    /// Cancels runs that another party ended, and drops those whose lease is lost.
    pub(super) async fn end_lost_runs(&mut self, runs: &[RunId]) -> Step {
        let held: Vec<_> = runs
            .iter()
            .filter_map(|run| self.held.get(run))
            // A task in progress reports its own outcome.
            .filter(|held| !held.is_busy)
            .map(|held| (held.job.context.run_id, held.job.lease_id))
            .collect();
        if held.is_empty() {
            return Ok(());
        }
        let turn = self.hub.turn(&self.peer.owner).await;
        let standings = later(self.hub.dispatch.standings(&held).await).unwrap_or_default();
        drop(turn);
        for standing in standings {
            let JobState { run_id, status, .. } = standing;
            match (status, standing.held) {
                (Some(status), _) if status.is_terminal() => {
                    let reason = self.reason(run_id, standing, status).await;
                    self.cancel(run_id, reason).await?;
                }
                (None, _) | (Some(_), false) => self.lost(run_id).await?,
                (Some(_), true) => {}
            }
        }
        Ok(())
    }

    /// Why a run was cancelled, as stated by the party that cancelled it.
    async fn reason(&mut self, run_id: RunId, standing: JobState, status: Status) -> Option<String> {
        if status != Status::Cancelled {
            return Some(format!("the run is {}", status.as_str()));
        }
        let store = self.hub.dispatch.timeline().store();
        let last = store.events().page(&self.peer.owner, run_id, standing.last_seq.back(1), 1).await.ok()??;
        last.events.first().and_then(|(_, event)| event.payload.member("reason"))
    }
}
