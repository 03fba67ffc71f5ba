//! `runreel verify`: whether the log is as it was written.

use std::process::ExitCode;

use serde::Deserialize as _;
use serde_json::Value;

use super::{
    connection::Connection,
    exit::FAILED,
    render::{clean, print, say},
    run_arg::RunArg,
};
use crate::{
    config::DataArgs,
    domain::artifact::Hash,
    wire::verification::{Verification, VerificationState},
};

mod all;

/// Verify that the log is as it was written: one run, or all of them
///
/// Each event has a hash that binds it to the one before; seals bind the heads of all runs. An event that was changed,
/// removed, added or moved is named by its seq, and the exit code is 1. One run is verified by its server; --all reads
/// the database itself, so it needs no running server.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  runreel verify last
  runreel verify 0198c0de --json
  # everything, the seals signed by this key, one of them noted elsewhere
  runreel verify --all --key 3b6a27bc… --seal 9f86d081…")]
pub(super) struct Args {
    /// The run: its id, the beginning of it, or last
    #[arg(value_name = "RUN", required_unless_present = "all", conflicts_with = "all")]
    run: Option<RunArg>,
    /// All runs of the database, and the seals
    #[arg(long)]
    all: bool,
    /// With --all: the public key that must have signed a seal and all after it, 64 hexadecimal digits
    #[arg(long, value_name = "KEY", requires = "all")]
    key: Option<Hash>,
    /// With --all: a seal that was noted elsewhere and must be there, 64 hexadecimal digits
    #[arg(long, value_name = "SEAL", requires = "all")]
    seal: Option<Hash>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Some(run) = args.run else { return all::run(&args).await };
    let client = args.connection.client()?;
    let run = run.resolve(&client).await?;
    let (id, mut after, mut covered_from) = (run.to_string(), 0, None);
    let (mut answer, mut json) = loop {
        let json: Value = client.get(&["runs", &id, "verify"], &[("after", after.to_string())]).await?;
        let answer = Verification::deserialize(&json)?;
        covered_from = covered_from.or(answer.covered_from);
        if answer.state != VerificationState::Partial {
            break (answer, json);
        }
        after = answer.checked_to;
    };
    // The value for the whole log.
    answer.covered_from = covered_from;
    if args.json {
        json["covered_from"] = covered_from.into();
        print(&format!("{json}\n"))?;
    } else {
        show(&id, &answer)?;
    }
    Ok(ExitCode::from(if answer.state == VerificationState::Altered { FAILED } else { 0 }))
}

fn show(run: &str, answer: &Verification) -> anyhow::Result<()> {
    for fault in &answer.faults {
        print(&format!("{run} seq {}: {}\n", fault.seq, clean(&fault.detail)))?;
    }
    let (last, head) = (answer.last_seq, answer.head.as_deref().unwrap_or("none"));
    match (answer.state, answer.covered_from) {
        (VerificationState::Altered, _) => say(format!("run {run} is not as it was written")),
        (_, None) => say(format!("run {run} is older than the chain: its {last} events are not covered")),
        (_, Some(1)) => say(format!("run {run} is as it was written: {last} events, head {head}")),
        (_, Some(from)) => {
            say(format!("run {run} is as it was written from seq {from} to {last}, head {head}; not covered before"));
        }
    }
    if let Some(seal) = &answer.seal {
        let by = seal.key.as_ref().map_or_else(|| "not signed".to_owned(), |key| format!("signed by {}", clean(key)));
        say(format!("seal {} names it at seq {}, {by}", seal.number, seal.last_seq));
    }
    Ok(())
}
