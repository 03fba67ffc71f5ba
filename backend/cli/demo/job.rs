//! [`Job`]: one survey: its run, a runner that carries it out, and what its log tells.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{Demo, token};
use crate::{
    agents::{
        spawner::RemoteSpawner,
        survey::{
            Survey,
            source::{Limits, Source},
        },
    },
    client::{Client, Notice},
    clock::{Clock, IdSource, Stopwatch, monotonic},
    domain::{
        context::Role,
        id::{Name, RunId},
    },
    runners::{
        agents::Agents,
        client::{Executor, Runner, Settings},
    },
};

/// Longest time one creation tries again: longer than any restart takes.
const PATIENCE: Duration = Duration::from_mins(2);
/// Runs at work at a time: a supervisor with its workers, and what others of this folder have left behind.
const CAPACITY: u16 = 16;
/// How long the runner has to tidy up after its survey, before it gives back what is not its survey's.
const GRACE: Duration = Duration::from_secs(2);
/// Longest wait for it to leave.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(5);

/// The survey of one folder on one server.
pub(super) struct Job {
    client: Client,
    token: Option<String>,
    source: Source,
    spawner: RemoteSpawner,
    ids: IdSource,
    stopwatch: Stopwatch,
    pace: Duration,
}

/// An event as the stream tells it.
#[derive(Deserialize)]
pub(super) struct Told {
    pub(super) run_id: RunId,
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) payload: Value,
}

impl Told {
    /// The run that a worker's event is about.
    pub(super) fn worker(&self) -> Option<RunId> {
        self.payload["run_id"].as_str()?.parse().ok()
    }
}

impl Job {
    pub(super) fn new(client: &Client, args: &Demo) -> anyhow::Result<Self> {
        let source = Source::open(&args.dir, Limits::default());
        let source = source.with_context(|| format!("the folder {} cannot be read", args.dir.display()))?;
        let (ids, stopwatch) = (IdSource::random(Clock::System), monotonic());
        Ok(Self {
            client: client.clone(),
            // A server of the chaos kind asks for none.
            token: if args.chaos { None } else { token()? },
            source,
            spawner: RemoteSpawner::new(client.clone(), ids.clone(), stopwatch.clone(), PATIENCE),
            ids,
            stopwatch,
            pace: Duration::from_millis(args.pace),
        })
    }

    /// Creates the supervisor's run.
    pub(super) async fn create(&self) -> anyhow::Result<RunId> {
        Ok(self.spawner.root(Role::Supervisor, Survey::run(&self.source)).await?.run_id)
    }

    /// A run that was created before, provided that it is about this folder.
    pub(super) async fn found(&self, root: RunId) -> anyhow::Result<RunId> {
        let run = self.client.run(&root.to_string()).await?;
        anyhow::ensure!(run["input"] == Survey::run(&self.source).input, "the run {root} is no survey of this folder");
        Ok(root)
    }

    /// Whoever knows how to carry the survey's runs out.
    pub(super) fn executor(&self) -> Agents {
        let (spawner, stopwatch) = (Arc::new(self.spawner.clone()), self.stopwatch.clone());
        let survey = Survey::new(self.source.clone(), spawner, stopwatch.clone(), self.pace);
        Agents::new(Arc::new(survey), self.client.clone(), self.ids.clone(), stopwatch)
    }

    /// Carries runs out for as long as `watching` takes. A server that takes no runner ends both.
    pub(super) async fn work<T>(
        &self,
        executor: impl Executor,
        watching: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        let settings = Settings {
            url: self.client.base_url().to_owned(),
            token: self.token.clone(),
            name: Name::trusted("demo"),
            agents: Survey::agents(),
            capacity: CAPACITY,
            grace: GRACE,
        };
        let stop = CancellationToken::new();
        let mut working = Box::pin(Runner::new(settings, executor).run(stop.clone()));
        tokio::select! {
            watched = watching => {
                stop.cancel();
                // What it cannot give back in time is given to others when its lease runs out.
                let _ = timeout(LEAVE_WAIT_MAX, working).await;
                watched
            }
            ended = &mut working => {
                ended?;
                anyhow::bail!("the runner ended before the survey did")
            }
        }
    }

    /// Follows a run and all below it to its end; gives the table it leaves behind.
    pub(super) async fn follow(&self, root: RunId, mut saw: impl FnMut(&Told)) -> anyhow::Result<String> {
        let mut follow = self.client.follow(&format!("/api/stream/runs/{root}?tree=true&tokens=false"), None);
        while let Some(notice) = follow.next().await {
            let Notice::Frame(frame) = notice? else { continue };
            // Control frames are no events.
            let Ok(event) = serde_json::from_str::<Told>(&frame.data) else { continue };
            saw(&event);
            if event.run_id != root {
                continue;
            }
            let text = |value: &Value| value.as_str().map(str::to_owned);
            match event.kind.as_str() {
                "run.completed" => {
                    return text(&event.payload["output"]["table"]).context("the survey has left no table behind");
                }
                "run.failed" => {
                    let reason = text(&event.payload["error"]["message"]).unwrap_or_default();
                    anyhow::bail!("the survey failed: {reason}");
                }
                "run.cancelled" => anyhow::bail!("the survey was cancelled"),
                _ => {}
            }
        }
        anyhow::bail!("the log ended before the survey did")
    }
}
