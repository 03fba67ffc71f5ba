//! `runreel runner`: carries out queued runs, a command per run.

use std::{process::ExitCode, time::Duration};

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{
    connection::Connection,
    exit::{Complaint, REFUSED},
    render::say,
};
use crate::{
    config::LogFormat,
    domain::{id::Name, limits::RUNNER_CAPACITY_MAX},
    runners::{
        client::{Error, Runner, Settings},
        exec::Exec,
    },
    telemetry,
};

/// Carry out queued runs of some agents: a command per run
///
/// A run that is created with `"start": false` and an agent waits for somebody who serves that agent. This command does: it stays
/// connected to the server, and starts the command of --exec for each run it is given.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "The command:
  stdin            the run's input, as one line of JSON
  stdout           each line that is an event ({\"type\": \"tool.started\", \"payload\": {…}, \"span_id\": \"…\"}) goes
                   into the log as one; any other line becomes log.info
  stderr           each line becomes log.warn
  exit code        0 completes the run, another one fails it; run.completed or run.failed on stdout comes before it.
                   After run.interrupted or run.waiting, 0 means: start me again when the run can go on
  environment      RUNREEL_RUN_ID, RUNREEL_AGENT, RUNREEL_THREAD_ID, RUNREEL_ATTEMPT, RUNREEL_URL, and in
                   RUNREEL_ANSWERS the answers to the run's interrupts as a JSON array
  SIGTERM          the run was cancelled, or is another runner's now; after 5 s SIGKILL

Nothing that was said is lost when the server restarts or the network breaks. A runner that dies loses its runs to
others after the server's lease (30 s); three in a row, and the run fails with lease_lost. SIGTERM or Ctrl-C lets what
is under way go on for --grace, then gives it back.

Examples:
  runreel runner --agent echo --exec cat
  runreel runner --agent coder --agent reviewer --capacity 4 --exec './agent.py \"$RUNREEL_AGENT\"'

  curl -d '{\"agent\":\"echo\",\"start\":false,\"input\":{\"q\":1}}' -H 'content-type: application/json' \\
       http://127.0.0.1:7717/api/runs")]
pub(super) struct Args {
    /// An agent whose runs are taken; may be given several times
    #[arg(long = "agent", value_name = "NAME", required = true)]
    agents: Vec<Name>,
    /// The command, for `sh -c`
    #[arg(long, value_name = "COMMAND")]
    exec: String,
    /// What the runner is called
    #[arg(long, value_name = "NAME", default_value = "runner")]
    name: Name,
    /// How many runs at a time
    #[arg(long, value_name = "RUNS", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=i64::from(RUNNER_CAPACITY_MAX)))]
    capacity: u16,
    /// How long what is under way goes on after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,
    #[command(flatten)]
    connection: Connection,
}

/// Works until SIGTERM or Ctrl-C; 5 when the server does not let this runner in.
pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    telemetry::logs(LogFormat::Text);
    // Refuses an address that cannot be one, in the words of the other commands.
    args.connection.client()?;
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let url = args.connection.url.clone();
    let agents: Vec<&str> = args.agents.iter().map(Name::as_str).collect();
    say(format!("runner {} works for {} at {url}, {} at a time", args.name, agents.join(", "), args.capacity));
    let settings = Settings {
        url: url.clone(),
        token: args.connection.token()?,
        name: args.name,
        agents: args.agents,
        capacity: args.capacity,
        grace: Duration::from_secs(args.grace),
    };
    let runner = Runner::new(settings, Exec { command: args.exec, url });
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
        Err(error @ Error::Address(_)) => Err(Complaint::usage(error.to_string()).into()),
        Err(error @ Error::Refused { status: 401 | 403, .. }) => {
            let hint = Some("set RUNREEL_TOKEN to a token with the scope emit".to_owned());
            Err(Complaint { code: REFUSED, what: error.to_string(), hint }.into())
        }
        Err(error) => Err(Complaint::failed(error.to_string()).into()),
    }
}
