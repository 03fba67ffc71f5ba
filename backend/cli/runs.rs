//! `runreel runs`: the newest runs as a table, one run in full, answers to interrupts, and cancellation.

use std::{io::IsTerminal as _, process::ExitCode};

use super::{
    connection::Connection,
    render::{print, say},
};
use crate::clock::Clock;
use crate::domain::{
    id::{Name, RunId, ThreadId, Title},
    limits::PAGE_ROWS_MAX,
    run::Status,
};

mod answer;
mod table;

/// List the newest runs, show one, answer its interrupts, or cancel it
#[derive(Clone, Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  runreel runs                                   the newest runs
  runreel runs --status running --agent coder
  runreel runs --search invoice --json | jq -r .run_id
  runreel runs show 0198c0de-…
  runreel runs answer 0198c0de-…                 its open interrupts
  runreel runs answer 0198c0de-… approve
  runreel runs cancel 0198c0de-… --reason 'wrong input'")]
pub(super) struct Args {
    #[command(subcommand)]
    action: Option<Action>,
    #[command(flatten)]
    list: List,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// Show one run: its state, input, output or error
    Show(Show),
    /// Answer an interrupt of a run, or list the open ones
    Answer(answer::Answer),
    /// Request cancellation of a run and all its descendants
    Cancel(Cancel),
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
    /// Only runs with this role; default: all except routers
    #[arg(long, value_parser = ["supervisor", "worker", "agent", "router"])]
    role: Option<String>,
    /// Only runs that contain this text
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
    /// The run
    run: RunId,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Debug, clap::Args)]
struct Cancel {
    /// The run
    run: RunId,
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
        Some(Action::Show(show)) => {
            let run = show.common.connection.client()?.run(&show.run.to_string()).await?;
            print(&if show.common.json { format!("{run}\n") } else { table::details(&run, Clock::System.now()) })?;
        }
        Some(Action::Answer(args)) => answer::run(&args).await?,
        Some(Action::Cancel(cancel)) => {
            let reason = cancel.reason.as_ref().map(Title::as_str);
            let answer = cancel.common.connection.client()?.cancel(&cancel.run.to_string(), reason).await?;
            if cancel.common.json {
                print(&format!("{answer}\n"))?;
            }
            say(format!("requested cancellation of {}; follow it with: runreel tail {}", cancel.run, cancel.run));
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
        print(&table::list(runs, Clock::System.now()))?;
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
        for words in
            [["--status", "done"].as_slice(), &["--limit", "0"], &["--limit", "1001"], &["show"], &["show", "x"]]
        {
            assert!(parse(words).is_err(), "{words:?}");
        }
        let run = "0198c0de-0000-7000-8000-000000000001";
        assert!(parse(&["show", run, "--json"]).is_ok());
        assert!(parse(&["answer", run, "perhaps"]).is_err());
        assert!(parse(&["answer", run, "respond", "\"Thursday\""]).is_ok());
    }
}
