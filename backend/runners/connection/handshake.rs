//! A runner's hello, which may resume its runs.

use std::{pin::pin, time::Duration};

use axum::extract::ws::{WebSocket, close_code};
use futures::{StreamExt as _, stream::SplitStream};

use super::{Connection, Over, later};
use crate::{
    domain::{
        id::RunId,
        job::Claimer,
        limits::{RUNNER_CAPACITY_MAX, RUNNER_RESUMED_MAX, RUNNER_WAIT_MS_MAX},
        runner::{FromRunner, Hello, LastAcked, Resume, RunnerCode, RunnerError, ToRunner, Welcome},
    },
    runners::{ConnectedRunner, Speaking, assignment::HeldRun},
};

impl Connection {
    /// Performs the handshake; from then on the connection speaks for the session.
    pub(super) async fn arrive(&mut self, stream: &mut SplitStream<WebSocket>) -> Result<Speaking, Over> {
        let hello = self.hello(stream).await?;
        self.who.name = hello.runner.clone();
        self.capacity = usize::from(hello.capacity);
        tracing::info!(runner = %hello.runner, version = %version_of(&hello), capacity = hello.capacity, "runner connected");
        self.agents = hello.agents;
        let speaking = match &hello.resume {
            None => self.hub.runner_sessions.take(self.who.session, self.described()),
            Some(resume) => self.come_back(resume).await,
        };
        let dispatch = &self.hub.dispatch;
        let lease_ms = u64::try_from(dispatch.lease().as_millis()).unwrap_or(u64::MAX);
        let mut runs: Vec<RunId> = self.held.keys().copied().collect();
        runs.sort_unstable();
        let welcome = Welcome { lease_id: self.who.session, heartbeat_ms: (lease_ms / 3).max(1), lease_ms, runs };
        self.say(&ToRunner::Welcome(welcome)).await?;
        if let Some(resume) = hello.resume {
            self.tell_what_became(&resume.last_acked).await?;
        }
        Ok(speaking)
    }

    /// Reads the first message, which must be a hello and must come soon.
    async fn hello(&mut self, stream: &mut SplitStream<WebSocket>) -> Result<Hello, Over> {
        let first = async {
            loop {
                if let Some(text) = self.read(stream.next().await).await? {
                    return Ok(text);
                }
            }
        };
        let Ok(first) = tokio::time::timeout(greeting_wait(), first).await else {
            return self
                .fatal(RunnerCode::Unexpected.because("the first message must be hello"), close_code::POLICY)
                .await;
        };
        match FromRunner::parse(&first?) {
            Ok(FromRunner::Hello(hello)) => match hello.check() {
                Ok(()) => Ok(hello),
                Err(rule) => self.fatal(RunnerCode::Malformed.because(rule.0), close_code::INVALID).await,
            },
            Ok(_) => {
                let error = RunnerCode::Unexpected.because("the first message must be hello");
                self.fatal(error, close_code::PROTOCOL).await
            }
            Err(error) => {
                let code = if error.code == RunnerCode::Malformed { close_code::INVALID } else { close_code::PROTOCOL };
                self.fatal(error, code).await
            }
        }
    }

    /// Takes over what a session still holds. A session of another owner, or one that is over, holds nothing.
    async fn come_back(&mut self, resume: &Resume) -> Speaking {
        let who = Claimer { session: resume.lease_id, ..self.who.clone() };
        let most = usize::from(RUNNER_CAPACITY_MAX).max(RUNNER_RESUMED_MAX);
        let jobs = later(self.hub.dispatch.adopt(&who, most).await).unwrap_or_default();
        if jobs.is_empty() {
            return self.hub.runner_sessions.take(self.who.session, self.described());
        }
        self.who = who;
        for job in jobs {
            let acked = match &resume.last_acked {
                // A run that is not named is unknown to the runner: its assignment was lost in transit.
                LastAcked::Runs(runs) => Some(runs.get(&job.context.run_id).copied().unwrap_or(0)),
                LastAcked::All(_) | LastAcked::None => None,
            };
            self.held.insert(job.context.run_id, HeldRun::adopted(job, acked));
        }
        self.hub.runner_sessions.take(self.who.session, self.described())
    }

    /// The runner as its owner sees it.
    fn described(&self) -> ConnectedRunner {
        ConnectedRunner {
            owner: self.peer.owner.clone(),
            name: self.who.name.clone(),
            agents: self.agents.clone(),
            capacity: self.capacity,
            connected_at: self.hub.dispatch.timeline().clock().now(),
        }
    }

    /// Reports the runs that were lost, assigns those the runner does not know of, and repeats answers.
    async fn tell_what_became(&mut self, acked: &LastAcked) -> Result<(), Over> {
        let held: Vec<RunId> = self.held.keys().copied().collect();
        let interrupts = later(self.hub.interrupts(&self.peer.owner, &held).await);
        if let LastAcked::Runs(runs) = acked {
            for run_id in runs.keys().filter(|run| !self.held.contains_key(run)).copied().collect::<Vec<_>>() {
                let error = if self.has_ended(run_id).await {
                    RunnerCode::RunEnded.because("the run has ended")
                } else {
                    RunnerError::lease_lost()
                };
                self.say(&ToRunner::Error(error.of(run_id, None))).await?;
            }
            let unknown = self.held.iter().filter(|(run, _)| !runs.contains_key(run));
            let mut read = pin!(self.inputs(unknown.map(|(_, held)| held.job.clone()).collect()));
            while let Some((job, input)) = read.next().await {
                let run = job.context.run_id;
                let answers = interrupts.as_ref().map_or(0, |interrupts| interrupts.answers(run));
                match (self.held.get(&run), input) {
                    (Some(held), Ok(input)) => {
                        let assign = ToRunner::Assign(Box::new(held.assign(input, answers)));
                        self.say(&assign).await?;
                    }
                    _ => _ = self.held.remove(&run),
                }
            }
        }
        self.tell(interrupts).await
    }
}

/// How long a runner may take to send its hello.
fn greeting_wait() -> Duration {
    Duration::from_millis(RUNNER_WAIT_MS_MAX)
}

/// The version that a runner reports.
fn version_of(hello: &Hello) -> String {
    hello.version.as_deref().unwrap_or("?").chars().filter(|c| !c.is_control()).take(40).collect()
}
