//! [`Job`]: one run of the demo's supervisor: created, executed, and followed to its end.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::{Demo, token};
use crate::{
    agents::agent::AgentResolver,
    cli::{render::say, runner},
    client::{Client, Frame, Kind, Notice},
    clock::{Clock, IdSource, monotonic},
    config::{DataArgs, File},
    domain::{
        context::Role,
        event::EventKind,
        failure::Failure,
        id::{Name, RunId, SpanId, Title},
        interrupt::Decision,
        json::Json,
    },
    runners::{
        agents::Agents,
        client::{Runner, Settings},
    },
    wire::runs::{CreateRun, Resume},
};

/// The agents and what they do.
pub(super) const CONFIG: &str = include_str!("demo.toml");
/// The suffix of the agents' names in it.
const MARK: &str = "-demo";
/// The event types that matter here; the page shows all of them.
const TYPES: &str = "run.*,worker.*,interrupt.*,artifact.*,tool.failed";
/// Longest time to retry one request: longer than any restart takes.
const PATIENCE: Duration = Duration::from_mins(2);
/// Concurrent runs: a supervisor with its workers.
const CAPACITY: u16 = 5;
/// How long the runner has to clean up after its run.
const GRACE: Duration = Duration::from_secs(2);
/// Longest wait for it to disconnect.
const LEAVE_WAIT_MAX: Duration = Duration::from_secs(5);

/// An inspection of one folder, on one server.
pub(super) struct Job {
    client: Client,
    folder: PathBuf,
    agents: Arc<dyn AgentResolver>,
    answer_after: Duration,
    pub(super) run_id: RunId,
}

/// An event of the stream.
#[derive(Deserialize)]
struct Event {
    run_id: RunId,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    span_id: Option<String>,
    #[serde(default)]
    payload: Value,
}

impl Job {
    /// The job of an existing run, or of a new one.
    pub(super) fn new(client: &Client, args: &Demo, resumed: Option<RunId>) -> anyhow::Result<Self> {
        let folder = args.dir.canonicalize().and_then(|folder| folder.read_dir().map(|_| folder));
        let folder = folder.with_context(|| format!("cannot read the folder {}", args.dir.display()))?;
        let run_id = resumed.unwrap_or_else(|| RunId::trusted(IdSource::random(Clock::System).uuid()));
        let mut file = File::parse(&own(CONFIG, run_id), &folder).map_err(anyhow::Error::msg)?;
        for script in file.sections.models.values_mut().filter_map(|model| model.script.as_mut()) {
            script.insert("pace_ms".to_owned(), i64::from(args.pace).into());
        }
        let data = DataArgs { data_dir: args.data_dir.clone(), database_url: None, pg_bin: None };
        Ok(Self {
            client: client.clone(),
            folder,
            agents: runner::known_agents(file, &data)?,
            answer_after: Duration::from_secs(args.answer_after),
            run_id,
        })
    }

    /// Creates the supervisor's run, with the configuration as an artifact for readers of the run.
    pub(super) async fn create(&self) -> anyhow::Result<()> {
        let run_id = self.run_id.to_string();
        let run = CreateRun {
            run_id: Some(self.run_id),
            agent: Some(Name::trusted(&own("lead-demo", self.run_id))),
            role: Some(Role::Supervisor),
            title: Some(Title::trusted(&format!("A look at {}", name(&self.folder)))),
            input: Some(self.input()),
            tags: vec![Name::trusted("demo")],
            start: Some(false),
            ..CreateRun::default()
        };
        self.client.insist(PATIENCE, |_| self.client.create_run(&run)).await?;
        let (query, bytes) =
            ([("name", "demo.toml"), ("event_id", "demo.toml")], Bytes::from_static(CONFIG.as_bytes()));
        self.client
            .insist(PATIENCE, |_| self.client.upload(&run_id, &query, "application/toml", bytes.clone()))
            .await?;
        Ok(())
    }

    /// Rejects a run that was created for something else.
    pub(super) async fn check(&self) -> anyhow::Result<()> {
        let run = self.client.run(&self.run_id.to_string()).await?;
        anyhow::ensure!(run.input == Some(self.input()), "run {} is not a demo of this folder", self.run_id);
        Ok(())
    }

    /// The supervisor's input. It distinguishes this folder from others of its name, without revealing its path.
    fn input(&self) -> Json {
        let place = hex::encode(&Sha256::digest(self.folder.as_os_str().as_encoded_bytes())[..8]);
        Json::of(&json!({"task": format!("Have a look at {}.", name(&self.folder)), "folder": place}))
    }

    /// Executes the runs for as long as `watching` takes. If the server accepts no runner, both end.
    pub(super) async fn work<T>(&self, watching: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let settings = Settings {
            url: self.client.base_url().to_owned(),
            token: token()?,
            name: Name::trusted("demo"),
            agents: self.agents.names(),
            capacity: CAPACITY,
            grace: GRACE,
        };
        let (known, ids) = (Arc::clone(&self.agents), IdSource::random(Clock::System));
        let agents = Agents::new(known, self.client.clone(), ids, monotonic());
        let stop = CancellationToken::new();
        let mut working = Box::pin(Runner::new(settings, agents).run(stop.clone()));
        let watched = tokio::select! {
            watched = watching => {
                stop.cancel();
                // What it cannot release in time is reassigned when its lease lapses.
                let _ = timeout(LEAVE_WAIT_MAX, working).await;
                watched
            }
            ended = &mut working => match ended {
                Ok(()) => Err(anyhow::anyhow!("the runner ended before the run did")),
                Err(error) => Err(error.into()),
            },
        };
        self.agents.close().await;
        watched
    }

    /// Follows the run and all its descendants to its end, and returns its answer. A question that stays unanswered is
    /// answered here after a while.
    pub(super) async fn follow(&self, mut saw: impl FnMut(&Frame)) -> anyhow::Result<String> {
        let path = format!("/api/stream/runs/{}?tree=true&tokens=false&types={TYPES}", self.run_id);
        let mut follow = self.client.follow(&path, None);
        let mut open: Option<(Event, Instant)> = None;
        loop {
            let until = open.as_ref().map_or_else(Instant::now, |(_, until)| *until);
            let notice = tokio::select! {
                notice = follow.next() => notice.context("the stream ended before the run did")??,
                () = sleep_until(until), if open.is_some() => {
                    if let Some((asked, _)) = open.take() {
                        self.answer(&asked).await?;
                    }
                    continue;
                }
            };
            let Notice::Frame(frame) = notice else { continue };
            // Control frames are not events.
            let Ok(event) = serde_json::from_str::<Event>(&frame.data) else { continue };
            saw(&frame);
            let text = |value: &Value| value.as_str().map(str::to_owned);
            match EventKind::parse(&event.kind) {
                Some(EventKind::InterruptRequested) => {
                    let wait_s = self.answer_after.as_secs();
                    say(format!(
                        "\n  Answer the question on the page; without an answer, the demo continues after {wait_s} s.\n"
                    ));
                    open = Some((event, Instant::now() + self.answer_after));
                }
                Some(EventKind::InterruptResolved) => open = None,
                Some(EventKind::RunCompleted) if event.run_id == self.run_id => {
                    return text(&event.payload["output"]["response"]).context("the run has no answer");
                }
                Some(EventKind::RunFailed) if event.run_id == self.run_id => {
                    let failure = Failure::of_event(&event.payload).unwrap_or_default();
                    anyhow::bail!("the run failed: {failure}");
                }
                Some(EventKind::RunCancelled) if event.run_id == self.run_id => anyhow::bail!("the run was cancelled"),
                _ => {}
            }
        }
    }

    /// Answers instead of the person: the call is not made.
    async fn answer(&self, asked: &Event) -> anyhow::Result<()> {
        let value = format!("No answer within {} s, so this was not done.", self.answer_after.as_secs());
        let interrupt_id = SpanId::trusted(asked.span_id.as_deref().unwrap_or_default());
        let answer = Resume { interrupt_id, decision: Decision::Respond, value: Some(Json::of(&value)) };
        let run_id = asked.run_id.to_string();
        match self.client.insist(PATIENCE, |_| self.client.resume(&run_id, &answer)).await {
            // Another answer came first, or the run has ended.
            Err(error) if error.kind == Kind::Invalid => Ok(()),
            answered => Ok(answered.map(drop)?),
        }
    }
}

/// A text of the configuration with names specific to one run: runs are assigned to any process that serves their
/// agent, and two demos at one server must not get each other's.
fn own(text: &str, run_id: RunId) -> String {
    let run_id = run_id.to_string();
    text.replace(MARK, &format!("-{}", &run_id[run_id.len() - 6..]))
}

/// The folder's own name.
fn name(folder: &Path) -> String {
    folder.file_name().map_or_else(|| "the tree".to_owned(), |name| name.to_string_lossy().into_owned())
}
