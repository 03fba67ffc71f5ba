//! `runreel demo`: agents at work on a folder, from nothing to a live page in one command.
//!
//! It starts `runreel serve` as a separate process (or uses a server that is already running), creates a run for a
//! supervisor, and executes its agents as `runreel runner --config` would, with the configuration in [`job::CONFIG`].
//! No model is involved: the agents follow a script, and what they report about the folder is what their tools found.

use std::{
    io::{IsTerminal as _, stderr},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use self::{job::Job, server::Server};
use super::{
    exit::INTERRUPTED,
    render::{clean_lines, local_offset, print, say, terminal_width},
    run_arg::RunArg,
    tail::view::View,
};
use crate::{
    client::Client,
    clock::Clock,
    config,
    domain::id::{RunId, Title},
};

mod job;
mod server;

/// Watch agents inspect a folder: a supervisor, four workers, their tools, and a question to you
#[derive(Debug, clap::Args)]
pub(super) struct Demo {
    /// Folder to inspect
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Address of the server to start; a server already running there is used instead. Port 0 picks a free port
    #[arg(long, env = "RUNREEL_LISTEN", default_value = "127.0.0.1:7717", value_parser = crate::config::listen, value_name = "ADDR:PORT")]
    listen: SocketAddr,
    /// Data directory of the server to start
    #[arg(long, env = "RUNREEL_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Use this running server instead of starting one
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// Delay between two words of a message, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 35)]
    pace: u32,
    /// How long to wait for your answer; then the demo continues without it
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(..=86_400))]
    answer_after: u64,
    /// Resume an unfinished run of this folder instead of starting a new one
    #[arg(long, value_name = "RUN")]
    resume: Option<RunArg>,
    /// Exit when the run ends, also in a terminal
    #[arg(long, conflicts_with = "stay")]
    exit: bool,
    /// Keep the server running until Ctrl-C, also without a terminal
    #[arg(long)]
    stay: bool,
    /// Only print the configuration of the agents, for `runreel serve --config`
    #[arg(long)]
    print_config: bool,
}

/// The token for a server that requires one, from `RUNREEL_TOKEN` or the file in `RUNREEL_TOKEN_FILE`.
fn token() -> anyhow::Result<Option<String>> {
    match config::variable("RUNREEL_TOKEN") {
        Some(token) => Ok(Some(token)),
        None => Ok(config::secret_from_file("RUNREEL_TOKEN")?),
    }
}

/// Runs the command. The exit code is 130 after Ctrl-C during the run.
pub(super) async fn run(args: Demo) -> anyhow::Result<ExitCode> {
    if args.print_config {
        print(job::CONFIG)?;
        return Ok(ExitCode::SUCCESS);
    }
    let url = args.url.clone().unwrap_or_else(|| format!("http://{}", args.listen));
    let there = Client::new(&url, token()?)?;
    // No server has an address with port 0.
    if (args.url.is_some() || args.listen.port() != 0) && there.ready().await {
        say(format!("Using the server at {url}"));
        return watch_one(&args, &there, false).await;
    }
    anyhow::ensure!(args.url.is_none(), "no server is ready at {url}");
    let server = Server::start(args.listen, args.data_dir.clone()).await?;
    let outcome = match Client::new(&server.url, token()?) {
        Ok(client) => watch_one(&args, &client, true).await,
        Err(error) => Err(error.into()),
    };
    server.stop().await?;
    outcome
}

/// Watches one run, then keeps its page available if requested.
async fn watch_one(args: &Demo, client: &Client, own_server: bool) -> anyhow::Result<ExitCode> {
    let resumed = match args.resume {
        Some(run) => Some(run.resolve(client).await?),
        None => None,
    };
    let job = Job::new(client, args, resumed)?;
    if resumed.is_some() {
        job.check().await?;
    } else {
        job.create().await?;
    }
    say_where(client, job.run_id);
    let mut view = View::new(local_offset(Clock::System.now()), terminal_width(), true);
    let watching = async {
        tokio::select! {
            answer = job.follow(|frame| say(view.frame(frame).trim_end())) => answer.map(Some),
            () = interrupted() => {
                say("Interrupted; the run is cancelled.");
                let run_id = job.run_id.to_string();
                let cancel = client.cancel(&run_id, Some(Title::trusted("the demo was interrupted")));
                // A server that cannot be notified in time is about to be stopped anyway.
                let _ = tokio::time::timeout(Duration::from_secs(2), cancel).await;
                Ok(None)
            }
        }
    };
    let Some(answer) = job.work(watching).await? else { return Ok(ExitCode::from(INTERRUPTED)) };
    print(&format!("\n{}\n", clean_lines(&answer)))?;
    say_where(client, job.run_id);
    if args.stays(own_server) {
        say("The page stays available until Ctrl-C.");
        interrupted().await;
    }
    Ok(ExitCode::SUCCESS)
}

impl Demo {
    /// In a terminal, a page that would disappear with this command stays, for the person to read.
    fn stays(&self, own_server: bool) -> bool {
        self.stay || (!self.exit && own_server && stderr().is_terminal())
    }
}

/// Waits until this program is asked to end.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

fn say_where(client: &Client, run_id: RunId) {
    let bold = anstyle::Style::new().bold();
    say(format!("\n  {bold}Live:{bold:#} {}\n", client.page_of(&run_id.to_string())));
}
