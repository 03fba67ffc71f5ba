//! The commands, one file each.
//!
//! Invariant: data goes to stdout, messages go to stderr, and the exit code states the outcome ([`exit`]): 0 done, 1
//! failed, 2 wrong arguments, 3 no server, 4 not found, 5 not allowed, 130 interrupted.
//!
//! Start reading at [`Cli`].

mod approve;
mod archive;
mod backup;
mod channel;
mod chat;
mod completions;
mod config;
mod connection;
#[cfg(feature = "demo")]
mod demo;
#[cfg(not(feature = "demo"))]
#[path = "demo_absent.rs"]
mod demo;
mod doctor;
mod emit;
pub mod exit;
mod export;
#[cfg(test)]
#[expect(dead_code, reason = "the tests of the client use more of it")]
#[path = "../client/tests/fake.rs"]
mod fake;
mod import;
mod man;
mod moment;
pub mod render;
mod restore;
mod retention;
mod run_arg;
mod runner;
mod runs;
mod serve;
mod session;
mod sql;
mod summary;
mod tail;
mod threads;
mod token;
mod upgrade;
mod verify;

use std::{process::ExitCode, time::Duration};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// A durable, gap-free, SQL-queryable log of AI-agent runs, followed live.
#[derive(Debug, Parser)]
#[command(
    name = "runreel",
    version,
    propagate_version = true,
    after_help = "\
Start with:
  # watch agents at work in the browser, with a database of its own
  runreel demo
  # the server alone, on http://127.0.0.1:7717
  runreel serve

Then, in another terminal:
  echo '{\"type\":\"log.info\",\"payload\":{\"message\":\"hello\"}}' | \\
    runreel emit --title 'My first run' --end completed
  # follow the newest run, list the newest
  runreel tail
  runreel runs

  runreel sql \"select type, count(*) from run_events group by 1\""
)]
pub struct Cli {
    #[command(flatten)]
    colors: render::Colors,
    #[command(subcommand)]
    command: Option<Command>,
}

/// Printed when no command is given.
const FIRST: &str = "\
Runreel keeps the log of AI-agent runs and streams it live. Start with one of:

  runreel demo     watch agents at work in the browser; needs nothing
  runreel serve    start the server and its UI on http://127.0.0.1:7717
  runreel --help   see how to emit events and follow runs, and all commands
";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server.
    Serve(Box<crate::config::ServeArgs>),
    /// Run a demo: a supervisor and workers inspect a folder, with tools and one approval.
    Demo(Box<demo::Demo>),
    /// Emit events from stdin (NDJSON) or from flags.
    Emit(Box<emit::Args>),
    /// Follow a run; reconnects and resumes automatically.
    Tail(Box<tail::Args>),
    /// List, show, open, answer, cancel and delete runs.
    Runs(Box<runs::Args>),
    /// List threads.
    Threads(Box<threads::Args>),
    /// Approve what a run asks, or list the runs that wait for an answer.
    Approve(Box<approve::Args>),
    /// Chat with an agent in the terminal.
    Chat(Box<chat::Args>),
    /// Execute queued runs, with agents from a configuration file or one command per run.
    Runner(Box<runner::Args>),
    /// Save conversations to files, list and restore them.
    Session(session::Args),
    /// Export runs to a self-verifying file.
    Export(Box<export::Args>),
    /// Import an exported file into a server.
    Import(Box<import::Args>),
    /// Copy the embedded database, artifacts and saved sessions to one file.
    Backup(backup::Args),
    /// Make a data directory out of such a file.
    Restore(restore::Args),
    /// Verify that the log is as it was written.
    Verify(Box<verify::Args>),
    /// Move the embedded database to a later version of Postgres.
    Upgrade(upgrade::Args),
    /// Show which runs are due for removal by age; removes nothing.
    Retention(Box<retention::Args>),
    /// Query the log with SQL, read-only.
    Sql(sql::Args),
    /// Create, list and revoke API tokens.
    Token(token::Args),
    /// Create one-time codes for channels that require them.
    Channel(channel::Args),
    /// Print the effective configuration, secrets masked.
    Config(Box<config::Args>),
    /// Check this machine, the database and a running server, and suggest fixes.
    Doctor(Box<doctor::Args>),
    /// Print the `OpenAPI` 3.1 document of the API.
    Openapi,
    /// Print a shell completion script.
    Completions(completions::Args),
    /// Write the manual pages.
    Man(man::Args),
}

/// The program: parses the arguments, runs the command, returns its exit code. Not `async`: the crate that polls a
/// future compiles all of it once more.
pub fn main() -> ExitCode {
    let cli = match given() {
        Ok(cli) => cli,
        Err(error) => return exit::report(&error),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return exit::report(&anyhow::Error::new(error).context("cannot start the async runtime")),
    };
    let code = runtime.block_on(run(cli));
    // A thread that still reads or writes a file, or waits for a key, does not delay the exit.
    runtime.shutdown_timeout(Duration::from_millis(100));
    code
}

/// Parses the command line. A command on the embedded database is restarted without `PGOPTIONS`, which applies to other
/// databases.
fn given() -> anyhow::Result<Cli> {
    let matches = Cli::command().get_matches();
    let mut command = &matches;
    while let Some((_, below)) = command.subcommand() {
        command = below;
    }
    // Every command that opens a database has this setting, and no other has.
    if command.try_get_one::<String>("database_url").is_ok_and(|url| url.is_none_or(String::is_empty)) {
        crate::config::libpq::start_again_without_options()?;
    }
    Ok(Cli::from_arg_matches(&matches)?)
}

/// Runs a command and reports errors.
async fn run(cli: Cli) -> ExitCode {
    cli.colors.apply();
    keep_to_itself();
    let Some(command) = cli.command else {
        render::say(FIRST.trim_end());
        return ExitCode::from(exit::USAGE);
    };
    let done = match command {
        Command::Serve(args) => Box::pin(serve::run(*args)).await,
        Command::Demo(args) => demo::run(*args).await,
        Command::Emit(args) => emit::run(*args).await,
        Command::Tail(args) => tail::run(*args).await,
        Command::Runs(args) => runs::run(*args).await,
        Command::Threads(args) => threads::run(*args).await,
        Command::Approve(args) => approve::run(*args).await,
        Command::Chat(args) => chat::run(*args).await,
        Command::Runner(args) => runner::run(*args).await,
        Command::Session(args) => session::run(args).await,
        Command::Export(args) => export::run(*args).await,
        Command::Import(args) => import::run(*args).await,
        Command::Backup(args) => backup::run(args).await,
        Command::Restore(args) => restore::run(&args),
        Command::Verify(args) => verify::run(*args).await,
        Command::Upgrade(args) => upgrade::run(args).await,
        Command::Retention(args) => retention::run(*args).await,
        Command::Sql(args) => sql::run(args).await,
        Command::Token(args) => token::run(args).await,
        Command::Channel(args) => channel::run(args).await,
        Command::Config(args) => config::run(&args),
        Command::Doctor(args) => doctor::run(*args).await,
        Command::Openapi => openapi(),
        Command::Completions(args) => completions::run(&args, Cli::command()),
        Command::Man(args) => man::run(&args, Cli::command()),
    };
    done.unwrap_or_else(|error| exit::report(&error))
}

/// Hides the environment and the memory, which contain keys, from the programs that tools start under the same user.
/// Root still sees everything, and there are no core dumps any more.
fn keep_to_itself() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable) {
        tracing::debug!(%error, "cannot hide the environment from other programs of this user");
    }
}

fn openapi() -> anyhow::Result<ExitCode> {
    render::print(&format!("{}\n", crate::http::openapi().to_pretty_json()?))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns; clap wraps a longer line on a terminal that has 80.
    const WIDTH_MAX: usize = 79;

    fn check(command: &clap::Command) {
        let before = [command.get_before_help(), command.get_before_long_help()];
        let after = [command.get_after_help(), command.get_after_long_help()];
        for text in before.into_iter().chain(after).flatten() {
            for line in text.to_string().lines() {
                assert!(line.chars().count() <= WIDTH_MAX, "{}: {line}", command.get_name());
            }
        }
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn no_line_of_a_help_text_is_wider_than_a_terminal() {
        check(&Cli::command());
        assert!(FIRST.lines().all(|line| line.chars().count() <= WIDTH_MAX));
    }

    #[test]
    fn an_example_is_printed_as_it_stands_on_a_terminal_of_eighty_columns() {
        let command = Cli::command().term_width(80);
        let mut commands = vec![command];
        while let Some(mut command) = commands.pop() {
            let after =
                [command.get_after_help(), command.get_after_long_help()].map(|text| text.map(ToString::to_string));
            let shown = command.render_long_help().to_string();
            for line in after.iter().flatten().flat_map(|text| text.lines()) {
                assert!(shown.lines().any(|whole| whole == line), "{}: {line}\n{shown}", command.get_name());
            }
            commands.extend(command.get_subcommands().map(|below| below.clone().term_width(80)));
        }
    }
}
