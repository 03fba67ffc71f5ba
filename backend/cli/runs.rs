//! `runreel runs`: the newest runs as a table, one run in full or in the browser, answers to interrupts, cancellation
//! and deletion.

use std::{io::IsTerminal as _, process::ExitCode};

use super::{
    connection::Connection,
    render::{print, say, terminal_width},
    run_arg::RunArg,
};
use crate::clock::Clock;
use crate::domain::{
    id::{ExternalId, Name, ThreadId, Title},
    limits::PAGE_ROWS_MAX,
    run::Status,
};

pub(super) mod answer;
mod open;
mod table;

/// List the newest runs; show, open, answer, cancel or delete one
///
/// A run is named by its id, by the beginning of its id (at least 4 digits, as long as it is of one run only), or by:
/// last, your newest run.
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  runreel runs                                   the newest runs
  runreel runs --status running --agent coder
  runreel runs --search invoice --json | jq -r .run_id
  runreel runs show last
  runreel runs open 0198c0de-0000
  runreel runs answer 0198c0de-0000              its open interrupts
  runreel runs answer 0198c0de-0000 approve
  runreel runs cancel 0198c0de-0000 --reason 'wrong input'
  runreel runs delete 0198c0de-0000")]
pub(super) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: List,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// List the newest runs, as without a command
    List(List),
    /// Show one run: its state, input, output or error
    Show(Show),
    /// Answer an interrupt of a run, or list the open ones
    Answer(answer::Answer),
    /// Open the page of a run in a browser, and print its address
    Open(One),
    /// Request cancellation of a run and all its descendants
    Cancel(Cancel),
    /// Delete an ended run with its events; runs below it stay
    Delete(One),
}

#[derive(Clone, Debug, clap::Args)]
struct List {
    /// Only runs with this status
    #[arg(long, value_parser = Status::ALL.map(Status::as_str))]
    status: Option<String>,
    /// Only runs of this thread
    #[arg(long, value_name = "THREAD_ID")]
    thread: Option<ThreadId>,
    /// Only runs of this agent
    #[arg(long, value_name = "NAME")]
    agent: Option<Name>,
    /// Only runs with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<Name>,
    /// Only the run with this id in your own system
    #[arg(long, value_name = "ID")]
    external_id: Option<ExternalId>,
    /// Only runs with this role; default: all except routers
    #[arg(long, value_parser = ["supervisor", "worker", "agent", "router"])]
    role: Option<String>,
    /// Only runs with this text in their title, agent or id
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Maximum number of runs
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(i64).range(1..=PAGE_ROWS_MAX))]
    limit: i64,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Debug, clap::Args)]
struct Show {
    /// The run: its id, the beginning of it, or last
    run: RunArg,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Debug, clap::Args)]
struct One {
    /// The run: its id, the beginning of it, or last
    run: RunArg,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Debug, clap::Args)]
struct Cancel {
    /// The run: its id, the beginning of it, or last
    run: RunArg,
    /// The reason; it is stored in the run's log
    #[arg(long, value_name = "TEXT")]
    reason: Option<Title>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Debug, clap::Args)]
struct Common {
    /// Print each run as one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    match args.action {
        None => list(&args.list).await?,
        Some(Action::List(chosen)) => list(&chosen).await?,
        Some(Action::Show(show)) => {
            let client = show.common.connection.client()?;
            let run = client.run(&show.run.resolve(&client).await?.to_string()).await?;
            print(&if show.common.json { format!("{run}\n") } else { table::details(&run, Clock::System.now()) })?;
        }
        Some(Action::Answer(args)) => answer::run(&args).await?,
        Some(Action::Cancel(cancel)) => {
            let client = cancel.common.connection.client()?;
            let run = cancel.run.resolve(&client).await?.to_string();
            let answer = client.cancel(&run, cancel.reason.as_ref().map(Title::as_str)).await?;
            if cancel.common.json {
                print(&format!("{answer}\n"))?;
            }
            say(format!("requested cancellation of {run}; follow it with: runreel tail {run}"));
        }
        Some(Action::Open(one)) => {
            let client = one.connection.client()?;
            let run = one.run.resolve(&client).await?.to_string();
            // A page of nothing is not opened.
            client.run(&run).await?;
            open::page(&client.page_of(&run))?;
        }
        Some(Action::Delete(one)) => {
            let client = one.connection.client()?;
            let run = one.run.resolve(&client).await?.to_string();
            client.delete(&["runs", &run]).await?;
            say(format!("deleted {run}"));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(list: &List) -> anyhow::Result<()> {
    let page = list.common.connection.client()?.runs(&query(list)).await?;
    let runs = page["runs"].as_array().map(Vec::as_slice).unwrap_or_default();
    if list.common.json {
        print(&runs.iter().fold(String::new(), |lines, run| lines + &run.to_string() + "\n"))?;
    } else if runs.is_empty() {
        say("no runs");
    } else {
        print(&table::list(runs, Clock::System.now(), terminal_width()))?;
    }
    if !page["next_cursor"].is_null() && std::io::stderr().is_terminal() {
        say(format!("more runs exist; use --limit {}", (list.limit * 5).min(PAGE_ROWS_MAX)));
    }
    Ok(())
}

fn query(list: &List) -> Vec<(&'static str, String)> {
    let filters = [
        ("status", list.status.clone()),
        ("thread_id", list.thread.as_ref().map(ToString::to_string)),
        ("agent", list.agent.as_ref().map(ToString::to_string)),
        ("tag", list.tag.as_ref().map(ToString::to_string)),
        ("external_id", list.external_id.as_ref().map(ToString::to_string)),
        ("role", list.role.clone()),
        ("q", list.search.clone()),
        ("limit", Some(list.limit.to_string())),
    ];
    filters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &[&str]) -> Result<Args, clap::Error> {
        Command::try_parse_from(["runs"].iter().chain(words)).map(|command| command.args)
    }

    #[test]
    fn filters_become_the_query() {
        let args = parse(&["--status", "failed", "--thread", "t:1", "--search", "a b", "--limit", "3"]).unwrap();
        let expected = [("status", "failed"), ("thread_id", "t:1"), ("q", "a b"), ("limit", "3")];
        assert_eq!(query(&args.list), expected.map(|(name, value)| (name, value.to_owned())));
    }

    #[test]
    fn what_cannot_mean_anything_is_refused_before_a_request() {
        for words in [
            ["--status", "done"].as_slice(),
            &["--limit", "0"],
            &["--limit", "1001"],
            &["show"],
            &["show", "x"],
            &["delete"],
        ] {
            assert!(parse(words).is_err(), "{words:?}");
        }
        let run = "0198c0de-0000-7000-8000-000000000001";
        assert!(parse(&["show", run, "--json"]).is_ok());
        assert!(parse(&["list", "--status", "failed"]).is_ok());
        for command in ["show", "open", "cancel", "delete", "answer"] {
            assert!(parse(&[command, "0198c0de"]).is_ok() && parse(&[command, "last"]).is_ok(), "{command}");
        }
        assert!(parse(&["answer", run, "perhaps"]).is_err());
        assert!(parse(&["answer", run, "respond", "\"Thursday\""]).is_ok());
    }
}
