//! `runreel runner`: executes queued runs, with a command or with the agents of a configuration.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use serde::de::IgnoredAny;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{
    connection::Connection,
    exit::{CliError, REFUSED},
    render::say,
};
use crate::{
    agents::{agent::AgentResolver, registry},
    client::{Client, Kind},
    clock::{Clock, IdSource, monotonic},
    config::{self, DataArgs, File, LogFormat},
    confine::Confinement,
    domain::{id::Name, limits::RUNNER_CAPACITY_MAX, misread::did_you_mean},
    runners::{
        agents::Agents,
        client::{Error, Executor, Runner, Settings},
        exec::Exec,
    },
    telemetry,
};

/// Default concurrency: agents mostly wait for their models, a command is a process.
const AGENTS_CAPACITY: u16 = 8;
const EXEC_CAPACITY: u16 = 1;

/// Execute queued runs, with agents from a configuration file or one command per run
///
/// A run created with `"start": false` and an agent waits for a process that serves that agent. This command stays
/// connected to the server and executes each run assigned to it, with the agent of that name from the file of --config
/// or with the command of --exec.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Agents of a configuration:
  The file has the format of `runreel serve --config`; only its agents with
  their models and tools are used. They run on this machine: models' keys come
  from this process's environment, commands and files are local to this
  machine, and no setting is sent to the server. Events, checkpoints,
  interrupts and artifacts are stored on the server, so another runner, or the
  server itself, continues where this one stopped. The token needs the scopes
  read and emit. To leave an agent to runners, the server's own file must have
  no [agents.NAME] for it.

The command:
  stdin        the run's input, as one line of JSON
  stdout       each line that is an event
               ({\"type\": \"tool.started\", \"payload\": {…}, \"span_id\": \"…\"})
               goes into the log; any other line becomes log.info
  stderr       each line becomes log.warn
  exit code    0 completes the run, another one fails it; run.completed or
               run.failed on stdout comes before it. After run.interrupted or
               run.waiting, 0 means: start again when the run can continue
  environment  RUNREEL_RUN_ID, RUNREEL_AGENT, RUNREEL_THREAD_ID,
               RUNREEL_ATTEMPT, RUNREEL_URL, and in RUNREEL_ANSWERS the answers
               to the run's interrupts as a JSON array (at most 128 KiB); where
               the run has them, RUNREEL_SESSION_ID, RUNREEL_ORIGIN_CHANNEL,
               _CHAT and _USER, RUNREEL_TRACE_ID and TRACEPARENT; no other
               variable that begins with RUNREEL_ or DATABASE_URL
  SIGTERM      the run was cancelled, or is another runner's now; after 5 s
               SIGKILL

No output is lost when the server restarts or the network fails. When a runner
dies, its runs are assigned to others after the server's lease (30 s); after
three in a row, the run fails with lease_lost. On SIGTERM or Ctrl-C, current
runs continue for --grace; those that have not ended by then are given back.

Examples:
  runreel runner --config agents.toml
  runreel runner --config agents.toml --agent code --agent review --capacity 16
  runreel runner --agent echo --exec cat
  runreel runner --agent code --agent review --capacity 4 \\
    --exec './agent.py \"$RUNREEL_AGENT\"'

  curl http://127.0.0.1:7717/api/runs -H 'content-type: application/json' \\
    -d '{\"agent\":\"echo\",\"start\":false,\"input\":{\"q\":1}}'")]
pub(super) struct Args {
    /// An agent whose runs to execute; can be given several times. With --config, default: all of its agents
    #[arg(long = "agent", value_name = "NAME")]
    agents: Vec<Name>,
    /// The command, for `sh -c`
    #[arg(long, value_name = "COMMAND", requires = "agents", conflicts_with = "config")]
    exec: Option<String>,
    /// The TOML file whose agents execute the runs. Default without --exec: the file in `RUNREEL_CONFIG`
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// With --config: where tools store their files. Default: as for `runreel serve`
    #[arg(long, env = "RUNREEL_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// The runner's name
    #[arg(long, value_name = "NAME", default_value = "runner")]
    name: Name,
    /// Maximum concurrent runs; those that wait do not count. Default: 1, with --config 8
    #[arg(long, value_name = "RUNS", value_parser = clap::value_parser!(u16).range(1..=i64::from(RUNNER_CAPACITY_MAX)))]
    capacity: Option<u16>,
    /// How long current runs continue after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    #[command(flatten)]
    connection: Connection,
}

/// Works until SIGTERM or Ctrl-C; exit code 5 if the server does not accept this runner.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    telemetry::logs(LogFormat::Text);
    if let Some(command) = args.exec.clone() {
        let confinement = Confinement::around(args.data().kept(&File::default())?);
        let exec = Exec { command, url: args.connection.url.clone(), confinement };
        let settings = args.settings(args.agents.clone(), EXEC_CAPACITY)?;
        return work(settings, exec).await;
    }
    let known = args.known()?;
    let settings = args.settings(args.served(&*known)?, AGENTS_CAPACITY)?;
    let client = args.connection.client()?;
    may_read(&client).await?;
    let agents = Agents::new(Arc::clone(&known), client, ids(), monotonic());
    let done = work(settings, agents).await;
    known.close().await;
    done
}

impl Args {
    fn settings(&self, agents: Vec<Name>, capacity: u16) -> anyhow::Result<Settings> {
        // Rejects an invalid address, with the same error as the other commands.
        self.connection.client()?;
        Ok(Settings {
            url: self.connection.url.clone(),
            token: self.connection.token()?,
            name: self.name.clone(),
            agents,
            capacity: self.capacity.unwrap_or(capacity),
            grace: Duration::from_secs(self.grace),
        })
    }

    /// Where a server of this user stores its data, which tools must not reach.
    fn data(&self) -> DataArgs {
        DataArgs { data_dir: self.data_dir.clone(), database_url: None, pg_bin: None }
    }

    /// The file with the agents, as it was named.
    fn file(&self) -> anyhow::Result<PathBuf> {
        let named = self.config.clone().or_else(|| config::variable("RUNREEL_CONFIG").map(PathBuf::from));
        named.ok_or_else(|| {
            let what = "nothing to execute runs with".to_owned();
            let hint = "specify a configuration with agents, --config FILE, or a command, --agent NAME --exec COMMAND";
            CliError { hint: Some(hint.to_owned()), ..CliError::usage(what) }.into()
        })
    }

    /// The agents of the file.
    fn known(&self) -> anyhow::Result<Arc<dyn AgentResolver>> {
        let file = File::read(&self.file()?).map_err(|error| CliError::usage(error.to_string()))?;
        known_agents(file, &self.data())
    }

    /// The agents whose runs are accepted: the named ones, else all of the file.
    fn served(&self, known: &dyn AgentResolver) -> anyhow::Result<Vec<Name>> {
        let there = known.names();
        let file = self.file()?;
        if there.is_empty() {
            let hint = Some("add one, such as: [agents.assistant] and below it model = \"echo\"".to_owned());
            let what = format!("{} has no agents", file.display());
            return Err(CliError { hint, ..CliError::usage(what) }.into());
        }
        if let Some(unknown) = self.agents.iter().find(|name| !there.contains(name)) {
            let there: Vec<&str> = there.iter().map(Name::as_str).collect();
            let meant = did_you_mean(unknown.as_str(), there.iter().copied());
            let what = format!("{} has no agent {unknown}{meant}", file.display());
            return Err(CliError::usage(what).with_hint(format!("it has: {}", there.join(", "))).into());
        }
        Ok(if self.agents.is_empty() { there } else { self.agents.clone() })
    }
}

/// The agents of a configuration, with what this machine has.
pub(super) fn known_agents(file: File, data: &DataArgs) -> anyhow::Result<Arc<dyn AgentResolver>> {
    let confinement = Confinement::around(data.kept(&file)?);
    let agents = registry::Agents::new(file, data.data_dir()?, config::path(), confinement);
    Ok(Arc::new(agents.map_err(|error| CliError::usage(error.to_string()))?))
}

/// Rejects a token that could claim runs but not read their state. Other errors are left to the runner's own retries.
async fn may_read(client: &Client) -> anyhow::Result<()> {
    let listed: Result<IgnoredAny, _> = client.get(&["runs"], &[("limit", "1".to_owned())]).await;
    match listed {
        Err(error) if error.kind == Kind::Refused => {
            let hint = Some("set RUNREEL_TOKEN to a token with the scopes read and emit".to_owned());
            let what = format!("the server does not allow this runner to read its runs: {error}");
            Err(CliError { code: REFUSED, what, hint }.into())
        }
        _ => Ok(()),
    }
}

fn ids() -> IdSource {
    IdSource::random(Clock::System)
}

async fn work<E: Executor>(settings: Settings, executor: E) -> anyhow::Result<ExitCode> {
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let Settings { name, url, capacity, .. } = &settings;
    let agents: Vec<&str> = settings.agents.iter().map(Name::as_str).collect();
    say(format!("runner {name} serves {} at {url}, {capacity} at a time", agents.join(", ")));
    let runner = Runner::new(settings, executor);
    let stop = CancellationToken::new();
    let working = runner.run(stop.clone());
    tokio::pin!(working);
    let done = loop {
        tokio::select! {
            done = &mut working => break done,
            _ = terminate.recv() => stop.cancel(),
            _ = interrupt.recv() => stop.cancel(),
        }
    };
    match done {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ Error::Address(_)) => Err(CliError::usage(error.to_string()).into()),
        Err(error @ Error::Refused { status: 401 | 403, .. }) => {
            let hint = Some("set RUNREEL_TOKEN to a token with the scope emit".to_owned());
            Err(CliError { code: REFUSED, what: error.to_string(), hint }.into())
        }
        Err(error) => Err(CliError::failed(error.to_string()).into()),
    }
}
