//! `runreel demo`: a real job to watch, from nothing to a live page in one command.
//!
//! It starts `runreel serve` as a process of its own (or uses the server that answers already), creates a run for a
//! supervisor, and carries out the runs of the survey's agents as any runner would, while it follows them and draws their
//! progress. What the agents say is put together from measured numbers; no model takes part. With `--chaos` it also
//! breaks things on purpose and proves that no reader noticed: see [`chaos`].

use std::{
    io::{IsTerminal as _, Write as _, stderr},
    net::SocketAddr,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use self::{bars::Bars, job::Job, server::Server};
use crate::{client::Client, config, domain::id::RunId};

mod bars;
mod chaos;
mod compare;
mod job;
mod readers;
mod server;

/// Survey a source tree with a supervisor and its workers, and follow them live
#[derive(Debug, clap::Args)]
pub(super) struct Demo {
    /// Folder to survey
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Address of the server to start; one that answers there already is used as it is
    #[arg(long, env = "RUNREEL_LISTEN", default_value = "127.0.0.1:7717", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// Data directory of the server to start
    #[arg(long, env = "RUNREEL_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Use this running server instead of starting one
    #[arg(long, value_name = "URL", conflicts_with = "chaos")]
    url: Option<String>,
    /// Time between two words of a message, milliseconds
    #[arg(long, value_name = "MS", default_value_t = 35)]
    pace: u64,
    /// Go on with a survey of this folder that was left behind, instead of beginning one
    #[arg(long, value_name = "RUN", conflicts_with = "chaos")]
    resume: Option<RunId>,
    /// Cut readers and kill the server while the job runs, then compare what was seen with what is stored
    #[arg(long)]
    chaos: bool,
    /// How often the server is killed
    #[arg(long, value_name = "N", default_value_t = 3, requires = "chaos", value_parser = clap::value_parser!(u32).range(..=100))]
    kills: u32,
    /// End when the job is done, also in a terminal
    #[arg(long, conflicts_with = "stay")]
    exit: bool,
    /// Keep the server up until Ctrl-C, also without a terminal
    #[arg(long)]
    stay: bool,
}

/// The token for a server that asks for one, from `RUNREEL_TOKEN` or the file `RUNREEL_TOKEN_FILE` names.
fn token() -> anyhow::Result<Option<String>> {
    match config::variable("RUNREEL_TOKEN") {
        Some(token) => Ok(Some(token)),
        None => Ok(config::secret_from_file("RUNREEL_TOKEN")?),
    }
}

/// What a shell calls an interrupted program.
const INTERRUPTED: u8 = 130;

/// Runs the command. The exit code is 1 when chaos found a difference, 130 after Ctrl-C during the job.
pub(super) async fn run(args: Demo) -> anyhow::Result<ExitCode> {
    if args.chaos {
        return chaos::run(&args).await;
    }
    let url = args.url.clone().unwrap_or_else(|| format!("http://{}", args.listen));
    let client = Client::new(&url, token()?)?;
    let server = if client.ready().await {
        say(&format!("Using the server at {url}"));
        None
    } else if args.url.is_some() {
        anyhow::bail!("no server that is ready answers at {url}");
    } else {
        Some(Server::start(args.listen, args.data_dir.clone(), &client).await?)
    };
    let outcome = watch_one(&args, &client, server.is_some()).await;
    if let Some(server) = server {
        server.stop().await?;
    }
    outcome
}

/// One survey, then the page for as long as it is wanted.
async fn watch_one(args: &Demo, client: &Client, own_server: bool) -> anyhow::Result<ExitCode> {
    let job = Job::new(client, args)?;
    let root = match args.resume {
        Some(root) => job.found(root).await?,
        None => job.create().await?,
    };
    say_where(client, root);
    let mut bars = Bars::new(root);
    let watching = async {
        tokio::select! {
            table = job.follow(root, |event| bars.saw(event)) => table.map(Some),
            () = interrupted() => {
                bars.clear();
                say("Interrupted; the run is cancelled.");
                let run_id = root.to_string();
                let cancel = client.cancel(&run_id, Some("the demo was interrupted"));
                // A server that cannot be told in time is about to be stopped anyway.
                let _ = tokio::time::timeout(Duration::from_secs(2), cancel).await;
                Ok(None)
            }
        }
    };
    let table = job.work(job.executor(), watching).await;
    bars.clear();
    let Some(table) = table? else { return Ok(ExitCode::from(INTERRUPTED)) };
    print_table(&table)?;
    say_where(client, root);
    if args.stays(own_server) {
        say("The page stays up until Ctrl-C.");
        interrupted().await;
    }
    Ok(ExitCode::SUCCESS)
}

impl Demo {
    /// In a terminal somebody looks at the page, if it would go away with this command.
    fn stays(&self, own_server: bool) -> bool {
        self.stay || (!self.exit && own_server && stderr().is_terminal())
    }
}

/// Until somebody asks this program to end.
async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminated) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminated.recv() => {}
    }
}

/// A line for people. A terminal that went away is no reason to stop.
fn say(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

fn say_where(client: &Client, root: RunId) {
    let bold = anstyle::Style::new().bold();
    say(&format!("\n  {bold}Live:{bold:#} {}/runs/{root}\n", client.base_url()));
}

fn print_table(table: &str) -> std::io::Result<()> {
    writeln!(anstream::stdout(), "{table}")
}
