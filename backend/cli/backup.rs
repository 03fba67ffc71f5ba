//! `runreel backup`: the embedded database and the folders beside it, with the server running or stopped.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use indicatif::HumanBytes;

use super::{
    archive::{
        out::Out,
        progress::{Progress, count},
    },
    exit::CliError,
    render::say,
};
use crate::{
    config::DataArgs,
    database::Database,
    postgres::{Backup, Error, STOP_MAX, cluster_bytes, may_hold_a_cluster},
    store::backup::BaseBackup,
};

/// Copy the embedded database, artifacts and saved sessions to one file
///
/// The server may run meanwhile: what it acknowledged before the end of the backup may be in it, what it acknowledged
/// before the beginning is. Whoever can read the file can read the whole log.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Artifacts in a bucket are not copied. For a Postgres of your own, use its
pg_basebackup or pg_dump.

Examples:
  runreel backup runreel.tar
  runreel backup - | zstd > runreel.tar.zst
  runreel backup runreel.tar --without-artifacts")]
pub(super) struct Args {
    /// The file, which appears only when it is complete; `-` is stdout
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The server's folder of artifacts. Default: the one that the last server used
    #[arg(long, env = "RUNREEL_ARTIFACTS_DIR", value_name = "DIR")]
    artifacts_dir: Option<PathBuf>,
    /// Copy no artifacts: they are in a bucket
    #[arg(long, conflicts_with = "artifacts_dir")]
    without_artifacts: bool,
    /// The server's folder of saved sessions. Default: sessions/ in the data directory
    #[arg(long, env = "RUNREEL_SESSIONS_DIR", value_name = "DIR")]
    sessions_dir: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.data.database_url()?.is_some() {
        let what = "only the embedded database is copied, and DATABASE_URL names one of your own";
        return Err(CliError::usage(what).with_hint("use pg_basebackup or pg_dump").into());
    }
    let data_dir = args.data.data_dir()?;
    if !may_hold_a_cluster(&data_dir) {
        return Err(Error::NoCluster { path: data_dir }.into());
    }
    let database = Database::attach(&args.data).await?;
    let done = pack(&args, &data_dir, &database).await;
    database.detach(STOP_MAX).await?;
    say(done?);
    Ok(ExitCode::SUCCESS)
}

/// Returns what was copied.
async fn pack(args: &Args, data_dir: &Path, database: &Database) -> anyhow::Result<String> {
    let mut backup = Backup::begin(data_dir, Out::open(Some(&*args.file).filter(|file| *file != Path::new("-")))?)?;
    let mut base = BaseBackup::begin(&database.options).await?;
    let progress = Progress::of_bytes("copied", cluster_bytes(data_dir)?);
    backup.cluster(&mut |bytes| progress.add(bytes))?;
    let consistency = base.stop().await?;
    let (first, last) = &consistency.segments;
    backup.log(&consistency.label, (first, last))?;
    let has_artifacts = base.has_artifacts().await?;
    base.close().await?;
    let mut copied = vec!["the database".to_owned()];
    let mut files = |name: &str, folder: &Path, is_given: bool| {
        if is_given && !folder.is_dir() {
            return Err(CliError::usage(format!("{} is no folder", folder.display())).into());
        }
        let files = backup.beside(name, folder)?;
        copied.push(format!("{} of {}", count(files, "file"), folder.display()));
        anyhow::Ok(files)
    };
    // Copied after the database, so that nearly every artifact it names is included.
    if !args.without_artifacts {
        let folder = args.data.artifacts_dir(args.artifacts_dir.as_ref())?;
        if files("artifacts", &folder, args.artifacts_dir.is_some())? == 0 && has_artifacts {
            let what = format!("the database has artifacts, and {} has no file", folder.display());
            return Err(CliError::usage(what)
                .with_hint("--artifacts-dir DIR, or --without-artifacts: a bucket")
                .into());
        }
    }
    let sessions = args.data.sessions_dir(args.sessions_dir.as_ref())?;
    files("sessions", &sessions, args.sessions_dir.is_some())?;
    drop(progress);
    let (out, bytes) = backup.finish()?;
    out.finish()?;
    Ok(format!("{} were written: {}", HumanBytes(bytes), copied.join(", ")))
}
