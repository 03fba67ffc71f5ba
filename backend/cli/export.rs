//! `runreel export`: exports runs as lines that can be verified and imported again.
//!
//! Every line is verified as it arrives, so an export reported as complete is complete. Same logs, same bytes.

use std::{io::IsTerminal as _, path::PathBuf, process::ExitCode, time::Duration};

use self::{select::Chosen, write::ExportWriter};
use super::{
    archive::{
        out::Out,
        progress::{Progress, count},
    },
    connection::Connection,
    exit::{CliError, FAILED, INTERRUPTED},
    moment::{Moment, moment},
    render::{clean, say},
    run_arg::RunArg,
};
use crate::domain::id::ThreadId;

mod select;
mod tar;
mod write;

/// How long to retry while the server is unreachable or busy.
const PATIENCE: Duration = Duration::from_mins(1);

/// Export runs as NDJSON, or with their artifacts as one tar, for `runreel import`
///
/// A run that is still active is exported up to its current end. One whose log is incomplete is left out, and the exit
/// code is 1.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  runreel export --all -o log.ndjson
  runreel export --since 7d | gzip > week.ndjson.gz
  runreel export --thread support:42 | jq -c .event.type
  # a run and its descendants
  runreel export --run 0198c0de-… --with-artifacts -o run.tar")]
pub(super) struct Args {
    #[command(flatten)]
    what: What,
    /// Write to this file, which appears only when it is complete; `-` is stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Include the bytes of artifacts; the export is then a tar
    #[arg(long)]
    with_artifacts: bool,
    #[command(flatten)]
    connection: Connection,
}

// Not a doc comment: clap would show it as the text of the command.
#[derive(Clone, Debug, clap::Args)]
#[group(required = true, multiple = false)]
struct What {
    /// This run (its id, the beginning of it, or last) and all its descendants
    #[arg(long, value_name = "RUN")]
    run: Option<RunArg>,
    /// All runs of this thread, and their descendants
    #[arg(long, value_name = "THREAD_ID")]
    thread: Option<ThreadId>,
    /// Runs created since this time (RFC 3339), or within an age, such as 7d
    #[arg(long, value_name = "TIME", value_parser = moment)]
    since: Option<Moment>,
    /// All runs
    #[arg(long)]
    all: bool,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    let to_stdout = args.output.as_ref().is_none_or(|path| path.as_os_str() == "-");
    if to_stdout && args.with_artifacts && std::io::stdout().is_terminal() {
        return Err(CliError::usage("cannot write a tar to a terminal; specify a file: -o FILE").into());
    }
    let work = async {
        let chosen = select::choose(&client, &args.what).await?;
        let mut out = Out::open(args.output.as_deref().filter(|_| !to_stdout))?;
        let report = if args.with_artifacts {
            tar::pack(&client, &chosen, &mut out).await?
        } else {
            let mut teller = ExportWriter::new(client.clone(), &mut out)?;
            let progress = Progress::of_runs(chosen.len() as u64);
            tell_all(&mut teller, &chosen, &progress).await?;
            teller.finish()?
        };
        if report.total.runs > 0 || report.left_out.is_empty() {
            out.finish()?;
        }
        anyhow::Ok(report)
    };
    let report = tokio::select! {
        report = work => report?,
        // Unfinished output is removed with its temporary file.
        _ = tokio::signal::ctrl_c() => return Ok(ExitCode::from(INTERRUPTED)),
    };
    for (run, why) in &report.left_out {
        say(format!("run {run} is left out: {}", clean(why)));
    }
    if report.total.runs == 0 {
        if report.left_out.is_empty() {
            say("nothing to export: no run matches");
            return Ok(ExitCode::SUCCESS);
        }
        return Ok(ExitCode::from(FAILED));
    }
    let (runs, events) = (count(report.total.runs, "run"), count(report.total.events, "event"));
    say(format!("{runs}, {events}, {}", count(report.artifacts, "artifact")));
    if !args.with_artifacts && report.mentions > 0 {
        let left = count(report.mentions, "artifact");
        say(format!("the export lists {left} without the bytes; --with-artifacts includes them"));
    }
    Ok(if report.left_out.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}

async fn tell_all(teller: &mut ExportWriter<'_>, chosen: &[Chosen], progress: &Progress) -> anyhow::Result<()> {
    for run in chosen {
        teller.run(run.run_id, progress).await?;
        progress.add(1);
    }
    Ok(())
}
