//! `runreel runs`: the newest runs as a table, one run in full or in the browser, answers to interrupts, cancellation
//! and deletion.

use std::process::ExitCode;

use serde_json::value::RawValue;

use super::{
    connection::Connection,
    render::{print, say},
    run_arg::RunArg,
};
use crate::{clock::Clock, domain::id::Title, wire};

pub(super) mod answer;
mod list;
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
  runreel runs --status running,waiting --agent coder --since 1d
  runreel runs --status failed --sort duration --min-duration 10s
  runreel runs --roots                           with counts of the runs below
  runreel runs --search 'invoice timeout*' --json | jq -r .run_id
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
    list: list::List,
}

#[derive(Clone, Debug, clap::Subcommand)]
enum Action {
    /// List the newest runs, as without a command
    List(Box<list::List>),
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
        None => list::list(&args.list).await?,
        Some(Action::List(chosen)) => list::list(&chosen).await?,
        Some(Action::Show(show)) => {
            let client = show.common.connection.client()?;
            let id = show.run.resolve(&client).await?.to_string();
            let answer: Box<RawValue> = client.get(&["runs", &id], &[]).await?;
            print(&if show.common.json {
                format!("{answer}\n")
            } else {
                table::details(&serde_json::from_str(answer.get())?, &client.page_of(&id), Clock::System.now())
            })?;
        }
        Some(Action::Answer(args)) => answer::run(&args).await?,
        Some(Action::Cancel(cancel)) => {
            let client = cancel.common.connection.client()?;
            let run = cancel.run.resolve(&client).await?.to_string();
            let body = wire::runs::Cancel { reason: cancel.reason };
            let answer: Box<RawValue> = client.post(&["runs", &run, "cancel"], &body).await?;
            if cancel.common.json {
                print(&format!("{answer}\n"))?;
            }
            say(format!("requested cancellation of {run}; follow it with: runreel tail {run}"));
        }
        Some(Action::Open(one)) => {
            let client = one.connection.client()?;
            let run = one.run.resolve(&client).await?.to_string();
            // Fails before anything is opened if the run does not exist.
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
