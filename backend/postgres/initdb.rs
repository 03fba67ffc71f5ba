//! The first start: creates a new cluster with its database, or nothing.
//!
//! It is created in `postgres.new-<pid>`, synced, and renamed: a directory called `postgres` is always complete. What a
//! killed start left behind is removed by the next. The name includes this process's pid because the `initdb` of a
//! killed owner may still be writing; it must not write into the new one.

use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::path::Path;
use std::process::Stdio;

use tokio::io::AsyncWriteExt;
use tracing::info;

use super::NAME;
use super::account::Account;
use super::command::{self, OnDirectory};
use super::data_dir::DataDir;
use super::error::Error;
use super::find::Programs;
use super::secret::{self, Password, SCRAM};

const UNFINISHED: &str = "postgres.new-";
/// How much of a program's output an error message includes.
const OUTPUT_BYTES_MAX: usize = 2000;

pub(super) async fn create(home: &DataDir, programs: &Programs, account: Account) -> Result<(), Error> {
    let fresh = home.root().join(format!("{UNFINISHED}{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&fresh).map_err(Error::file(&fresh))?;
    if let Account::Other { uid, gid } = account {
        lchown(&fresh, Some(uid), Some(gid)).map_err(Error::file(&fresh))?;
    }
    info!(data_dir = %home.root().display(), major = programs.major, "creating a new Postgres cluster");
    let password = Password::fresh();
    if let Err(error) = fill(&fresh, programs, account, &password).await {
        // A full disk is the likeliest cause, so the space is freed at once.
        let _ = fs::remove_dir_all(&fresh);
        return Err(error);
    }
    // Stored before the cluster gets its name: after a crash in between, the next start creates both again.
    secret::keep(home, &password)?;
    let cluster = home.cluster();
    fs::rename(&fresh, &cluster).map_err(Error::file(&cluster))?;
    // The rename is durable only once its folder is synced.
    File::open(home.root()).and_then(|root| root.sync_all()).map_err(Error::file(home.root()))
}

async fn fill(fresh: &Path, programs: &Programs, account: Account, password: &Password) -> Result<(), Error> {
    let initdb = programs.initdb();
    let mut init = command::on_directory(&initdb, fresh, account)?;
    // Synced once, at the end, instead of by each program. No connection is allowed before there is a password.
    init.command
        .arg("-D")
        .arg(&init.directory)
        .args(["--username", NAME, "--auth=reject", "--encoding=UTF8", "--locale=C"])
        .args(["--data-checksums", "--no-sync", "--no-instructions"]);
    finish(&initdb, init, "").await?;

    // The database is created here, in single-user mode, so that the rename covers it as well.
    let statements = format!("create database {NAME}\n{}", password.statement());
    single(fresh, programs, account, &["exit_on_error=on", "fsync=off", SCRAM], &statements).await?;
    secret::close(fresh)?;

    let mut sync = command::on_directory(&initdb, fresh, account)?;
    sync.command.arg("-D").arg(&sync.directory).arg("--sync-only");
    finish(&initdb, sync, "").await
}

/// Executes statements, one per line, in single-user mode, which accepts no connections.
pub(super) async fn single(
    cluster: &Path,
    programs: &Programs,
    account: Account,
    settings: &[&str],
    statements: &str,
) -> Result<(), Error> {
    let postgres = programs.postgres();
    let mut single = command::on_directory(&postgres, cluster, account)?;
    single.command.args(["--single", "-D"]).arg(&single.directory);
    // A restored cluster recovers here; with hot standby on, that ends in an error of Postgres 18.
    single.command.args(["-c", "hot_standby=off"]);
    for setting in settings {
        single.command.args(["-c", setting]);
    }
    single.command.arg("postgres");
    finish(&postgres, single, statements).await
}

async fn finish(program: &Path, mut on: OnDirectory, input: &str) -> Result<(), Error> {
    on.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = on.command.spawn().map_err(Error::run(program))?;
    if let Some(mut stdin) = child.stdin.take() {
        // If the program ended before reading, its output states why.
        let _ = stdin.write_all(input.as_bytes()).await;
    }
    let output = child.wait_with_output().await.map_err(Error::run(program))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stdout, output.stderr].concat();
    let tail = String::from_utf8_lossy(&text[text.len().saturating_sub(OUTPUT_BYTES_MAX)..]).trim().to_owned();
    Err(Error::Create { program: program.to_path_buf(), output: format!("{} ({tail})", output.status) })
}

/// Called at every start, not only the first: what could not be removed then can be now.
pub(super) fn remove_unfinished(home: &DataDir) -> Result<(), Error> {
    let root = home.root();
    for entry in fs::read_dir(root).map_err(Error::file(root))?.flatten() {
        if !entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            continue;
        }
        let path = entry.path();
        if let Err(error) = fs::remove_dir_all(&path) {
            // Likely a dying `initdb` still writes there. Its name differs, so it can wait for the next start.
            info!(path = %path.display(), %error, "cannot remove an unfinished cluster yet");
        }
    }
    Ok(())
}
