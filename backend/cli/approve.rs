//! `runreel approve`: lists what waits for a person, or approves it.

use std::process::ExitCode;

use super::{
    connection::Connection,
    render::{clean, print, say},
    run_arg::RunArg,
    runs::answer::{self, Asked},
};
use crate::{
    client::Client,
    domain::{id::SpanId, interrupt::Decision},
    wire::runs::Run,
};

/// Runs listed at most.
const RUNS_MAX: usize = 20;

/// Approve what a run asks; without a run, list the runs that wait for an answer
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Other answers: runreel runs answer RUN reject|respond VALUE

Examples:
  runreel approve
  runreel approve 0198c0de-0000
  runreel approve last")]
pub(super) struct Args {
    /// The run: its id, the beginning of it, or last
    run: Option<RunArg>,
    /// A value for the run: JSON, otherwise taken as text
    #[arg(requires = "run")]
    value: Option<String>,
    /// Id of the interrupt, when the run has more than one
    #[arg(long, value_name = "ID", requires = "run")]
    interrupt: Option<SpanId>,
    #[command(flatten)]
    connection: Connection,
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let client = args.connection.client()?;
    match args.run {
        None => list(&client).await?,
        Some(run) => {
            let run = run.resolve(&client).await?.to_string();
            let answered =
                answer::give(&client, &run, (Decision::Approve, args.value.as_deref()), args.interrupt.as_ref())
                    .await?;
            say(answer::told(&answered)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client) -> anyhow::Result<()> {
    let query = [("status", "interrupted,waiting".to_owned()), ("limit", RUNS_MAX.to_string())];
    let mut is_asked = false;
    for run in client.runs(&query).await?.runs {
        let open = answer::open_of(client, &run.run_id.to_string()).await?;
        is_asked |= !open.is_empty();
        print(&open.iter().map(|open| line(&run, open)).collect::<String>())?;
    }
    say(if is_asked { "answer with: runreel approve RUN" } else { "nothing waits for an answer" });
    Ok(())
}

fn line(run: &Run, open: &Asked) -> String {
    let about = [&run.title, &run.agent].into_iter().flatten().find(|text| !text.is_empty());
    format!("{}  {}\n  {}", run.run_id, clean(about.map_or("", String::as_str)), open.line())
}
