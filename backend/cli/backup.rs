//! `runreel backup`: the embedded database and the folders beside it, while the server runs or while it does not.

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
  runreel backup - | zstd > runreel.tar.zst")]
pub(super) struct Args {
    /// The file, which appears only when it is complete; `-` is stdout
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The server's folder of artifacts, if it has another. Default: artifacts/ in the data directory
    #[arg(long, env = "RUNREEL_ARTIFACTS_DIR", value_name = "DIR")]
    artifacts_dir: Option<PathBuf>,
    /// The server's folder of saved sessions, if it has another. Default: sessions/ in the data directory
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
    let database = Database::visit(&args.data).await?;
    let done = pack(&args, &data_dir, &database).await;
    database.leave(STOP_MAX).await?;
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
    base.close().await?;
    let mut files = |name: &str, given: Option<&PathBuf>| {
        let folder = given.cloned().unwrap_or_else(|| data_dir.join(name));
        backup
            .beside(name, &folder, &mut |_| {})
            .map(|files| format!("{} of {}", count(files, "file"), folder.display()))
    };
    // After the database, which then names nothing that is not there.
    let artifacts = files("artifacts", args.artifacts_dir.as_ref())?;
    let sessions = files("sessions", args.sessions_dir.as_ref())?;
    drop(progress);
    let (out, bytes) = backup.finish()?;
    out.finish()?;
    Ok(format!("{} were written: the database, {artifacts}, {sessions}", HumanBytes(bytes)))
}
