//! `runreel restore`: makes a data directory from a backup.

use std::{path::PathBuf, process::ExitCode};

use super::{archive::progress::Progress, render::say};
use crate::{config::DataArgs, postgres::Restore};

/// Make a data directory out of a file of `runreel backup`
///
/// The file is checked first. Nothing that exists is replaced. The log goes on as another history: readers who have
/// seen more than was restored are told so when they come back.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  runreel restore runreel.tar --data-dir /var/lib/runreel-restored
  # is it whole? changes nothing
  runreel restore --check runreel.tar")]
pub(super) struct Args {
    /// The file, not compressed
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Only check the file
    #[arg(long)]
    check: bool,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let progress = Progress::of_bytes("checked", std::fs::metadata(&args.file).map_or(0, |file| file.len()));
    let restore = Restore::check(&args.file, &mut |bytes| progress.add(bytes))?;
    drop(progress);
    if args.check {
        say(format!("the backup is whole: {} files, of Postgres {}", restore.files(), restore.postgres()));
        return Ok(ExitCode::SUCCESS);
    }
    let data_dir = args.data.data_dir()?;
    restore.unpack(&data_dir)?;
    say(format!("{} files are in {}", restore.files(), data_dir.display()));
    let dir = data_dir.display();
    say(format!("the next server needs Postgres {}: runreel serve --data-dir {dir}", restore.postgres()));
    say(format!(
        "beside the original, give it its own folders: --artifacts-dir {dir}/artifacts --sessions-dir {dir}/sessions"
    ));
    Ok(ExitCode::SUCCESS)
}
