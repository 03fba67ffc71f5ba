//! `runreel retention`: shows what is due. Works on the database, so it needs no running server.

use std::{path::PathBuf, process::ExitCode};

use chrono::{DateTime, Utc};
use serde_json::json;

use super::render::{print, say};
use crate::{
    clock::Clock,
    config::{
        DataArgs,
        file::File,
        retention::{Ttl, policy},
    },
    database::Database,
    domain::{event::timestamp, retention::Policy},
    postgres::STOP_MAX,
    retention::due,
    store::{Settings, Store, expiry::EndedTree},
};

/// Show which runs would be removed by age now; removes nothing
///
/// A server removes them by itself. A tree of runs goes as a whole, its time to live after its last run has ended: that
/// of its root (`ttl_s`), else of the first rule of the configuration file that matches, else --run-ttl.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # what a server with this setting would remove
  runreel retention --run-ttl 90d
  # with the rules of a configuration file ([[retention]] agent, tag, run_ttl)
  runreel retention --config runreel.toml --json")]
pub(super) struct Args {
    /// How long a run stays after it has ended: seconds, or a number with s, m, h or d. Default: forever.
    #[arg(long, env = "RUNREEL_RUN_TTL", value_name = "TIME")]
    run_ttl: Option<Ttl>,
    /// The server's configuration file.
    #[arg(long, env = "RUNREEL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print one JSON object per tree.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    data: DataArgs,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let file = args.config.as_deref().map_or_else(|| Ok(File::default()), File::read)?;
    let policy = policy(args.run_ttl, &file)?;
    let database = Database::attach(&args.data).await?;
    let settings = Settings::few(database.options.clone());
    let store = Store::connect(settings).await?;
    let clock = Clock::database();
    store.tell_time(&clock).await?;
    let done = show(&store, &policy, clock.now(), args.json).await;
    store.close().await;
    database.detach(STOP_MAX).await?;
    done.map(|()| ExitCode::SUCCESS)
}

async fn show(store: &Store, policy: &Policy, now: DateTime<Utc>, as_json: bool) -> anyhow::Result<()> {
    let (mut trees, mut runs, mut events, mut after) = (0, 0, 0, None);
    loop {
        let found = due(store, policy, now, after).await?;
        for tree in &found.trees {
            if trees == 0 && !as_json {
                say("ROOT                                  DUE                       RUNS  EVENTS  AGENT");
            }
            print(&line(tree, policy, as_json))?;
            (trees, runs, events) = (trees + 1, runs + tree.runs.len(), events + tree.events);
        }
        after = found.next;
        if after.is_none() {
            break;
        }
    }
    say(match trees {
        0 if policy.least().is_none() => "nothing is due; only runs with a time to live of their own are removed: set \
                                          --run-ttl, or name the configuration file with --config"
            .to_owned(),
        0 => "nothing is due".to_owned(),
        _ => format!("due: trees of runs: {trees}, runs: {runs}, events: {events}; nothing was removed"),
    });
    Ok(())
}

fn line(tree: &EndedTree, policy: &Policy, as_json: bool) -> String {
    let due_at = policy.due_at(&tree.age).map(timestamp);
    let (root, runs, events, agent) = (tree.root, tree.runs.len(), tree.events, tree.age.agent.as_deref());
    if as_json {
        let line = json!({
            "root_run_id": root, "owner_id": tree.owner, "agent": agent, "tags": tree.age.tags, "due_at": due_at,
            "runs": runs, "events": events,
        });
        return format!("{line}\n");
    }
    let due_at = due_at.unwrap_or_default();
    format!("{root}  {due_at:<24}  {runs:>4}  {events:>6}  {}\n", agent.unwrap_or("-"))
}
