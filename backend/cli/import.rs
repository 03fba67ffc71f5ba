//! `runreel import`: runs from an export into a server, where they become the caller's.
//!
//! The whole file is checked before anything is sent. What exists already stays as it is, so the command can be
//! repeated: after an interruption it continues, and after it is done it changes nothing.

use std::{fmt::Write as _, fs::File, io, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Context as _;

use self::send::{ImportCounts, Sender};
use super::{
    archive::{Region, progress::count},
    connection::Connection,
    exit::{FAILED, INTERRUPTED},
    render::say,
};

mod check;
mod send;
mod spool;

/// Import runs from a file of `runreel export`: NDJSON lines, or a tar with artifacts
///
/// Nothing is sent before the whole file has been checked. Runs that already exist stay as they are; one that differs
/// is rejected.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  runreel import log.ndjson
  zcat week.ndjson.gz | runreel import -
  runreel import --check run.tar          only check the file, without a server")]
pub(super) struct Args {
    /// The file; `-` or none is stdin
    file: Option<PathBuf>,
    /// Check the file and send nothing
    #[arg(long)]
    check: bool,
    /// Skip runs that the server rejects instead of stopping at the first; the exit code is still 1
    #[arg(long)]
    keep_going: bool,
    /// Maximum bytes to read from a pipe; they are buffered in a temporary file
    #[arg(long, value_name = "BYTES", default_value_t = spool::BYTES_MAX)]
    pipe_max: u64,
    /// How long to retry while the server is unreachable or busy
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    retry_timeout: u64,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let checked = match open(args.file.filter(|path| path.as_os_str() != "-").as_ref())? {
        ImportSource::File(file) => check::check(&file)?,
        ImportSource::Pipe(mut input) => spool::spool(&mut input, args.pipe_max)?,
    };
    let total = checked.total;
    if args.check {
        let (runs, events) = (count(total.runs, "run"), count(total.events, "event"));
        say(format!("the file is complete: {runs}, {events}, {}", count(checked.artifacts(), "artifact")));
        return Ok(ExitCode::SUCCESS);
    }
    let patience = Duration::from_secs(args.retry_timeout);
    let mut sender = Sender::new(args.connection.client()?, patience, args.keep_going);
    let outcome = tokio::select! {
        outcome = sender.send(&checked) => Some(outcome),
        _ = tokio::signal::ctrl_c() => None,
    };
    let tally = sender.tally();
    if tally != ImportCounts::default() || matches!(outcome, Some(Ok(()))) {
        say(summary(&tally));
    }
    let Some(outcome) = outcome else {
        say("interrupted; repeat the command to continue");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    outcome?;
    if checked.missing > 0 {
        let missing = count(checked.missing, "artifact");
        say(format!("{missing} were not in the export; runreel export --with-artifacts includes them"));
    }
    Ok(if tally.refused > 0 { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn summary(tally: &ImportCounts) -> String {
    let (runs, events) = (count(tally.imported, "run"), count(tally.events, "event"));
    let mut text = format!("imported {runs} ({events}), {} already present", count(tally.there, "run"));
    if tally.artifacts > 0 {
        _ = write!(text, ", {}", count(tally.artifacts, "artifact"));
    }
    if tally.refused > 0 {
        _ = write!(text, ", {} rejected", count(tally.refused, "run"));
    }
    text
}

/// The source of the export.
enum ImportSource {
    /// A file that can be read twice.
    File(Region),
    /// A pipe.
    Pipe(Box<dyn io::Read>),
}

#[expect(clippy::disallowed_methods, reason = "the file that the command is given")]
fn open(path: Option<&PathBuf>) -> anyhow::Result<ImportSource> {
    if let Some(path) = path {
        let context = || path.display().to_string();
        let file = File::open(path).with_context(context)?;
        if file.metadata().with_context(context)?.is_file() {
            return Ok(ImportSource::File(Region::whole(file)?));
        }
        return Ok(ImportSource::Pipe(Box::new(file)));
    }
    Ok(ImportSource::Pipe(Box::new(io::stdin().lock())))
}
