//! `runreel upgrade`: the embedded database moves to a later major version of Postgres.

use std::{path::PathBuf, process::ExitCode};

use super::{archive::progress::Progress, exit::CliError, render::say};
use crate::{
    config::DataArgs,
    database::options,
    postgres::Upgrade,
    store::copy::{Copying, Table},
};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
The server must be stopped. Programs of both versions are needed. Nothing of
the old cluster is changed: it is kept beside the new one, as postgres-VERSION,
until you remove it. Logins of your own are not copied.

Examples:
  # to the newest version that is installed
  runreel upgrade
  # to the one in this folder, from the one in that folder
  runreel upgrade --to /usr/lib/postgresql/18/bin \\
    --pg-bin /usr/lib/postgresql/15/bin")]
pub(super) struct Args {
    /// The folder of the new initdb and postgres. Default: the newest found.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    if args.data.database_url()?.is_some() {
        let what = "only the embedded database is upgraded, and DATABASE_URL names one of your own";
        return Err(CliError::usage(what).with_hint("use pg_upgrade, or pg_dump and pg_restore").into());
    }
    let upgrade = Upgrade::begin(args.data.postgres()?, args.to.as_deref()).await?;
    let (from, to) = upgrade.majors();
    say(format!("copying the database of Postgres {from} to Postgres {to}"));
    let rows = match copy(&upgrade).await {
        Ok(rows) => rows,
        Err(error) => {
            upgrade.abandon().await?;
            return Err(error.context("nothing was changed"));
        }
    };
    let kept = upgrade.finish().await?;
    say(format!("{rows} rows were copied; the next start runs Postgres {to}"));
    say(format!("the old cluster is in {}: remove it when you have seen that all is there", kept.display()));
    Ok(ExitCode::SUCCESS)
}

/// Copies every table; returns how many rows there are.
async fn copy(upgrade: &Upgrade) -> anyhow::Result<u64> {
    let (from, to) = upgrade.endpoints();
    let mut copying = Copying::begin(&options(from), &options(to)).await?;
    let tables = copying.tables().await?;
    let progress = Progress::of_bytes("copied", tables.iter().map(|table: &Table| table.bytes).sum());
    let mut rows = 0;
    for table in &tables {
        rows += copying.copy(table, |bytes| progress.add(bytes)).await?;
    }
    drop(progress);
    copying.finish().await?;
    Ok(rows)
}
