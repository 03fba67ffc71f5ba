//! `runreel approve`: what waits for a person, and the usual answer to it.

use std::process::ExitCode;

use serde_json::Value;

use super::{
    connection::Connection,
    render::{clean, print, say},
    run_arg::RunArg,
    runs::answer,
};
use crate::{client::Client, domain::id::SpanId};

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
                answer::give(&client, &run, ("approve", args.value.as_deref()), args.interrupt.as_ref()).await?;
            say(answer::told(&answered));
        }
    }
    Ok(ExitCode::SUCCESS)
}

async fn list(client: &Client) -> anyhow::Result<()> {
    let query = [("status", "interrupted,waiting".to_owned()), ("limit", RUNS_MAX.to_string())];
    let page = client.runs(&query).await?;
    let mut is_asked = false;
    for run in page["runs"].as_array().into_iter().flatten() {
        let run_id = run["run_id"].as_str().unwrap_or_default();
        let open = answer::open_of(client, run_id).await?;
        is_asked |= !open.is_empty();
        print(&open.iter().map(|open| line(run, open)).collect::<String>())?;
    }
    say(if is_asked { "answer with: runreel approve RUN" } else { "nothing waits for an answer" });
    Ok(())
}

fn line(run: &Value, open: &Value) -> String {
    let text = |name: &str| clean(run[name].as_str().unwrap_or_default());
    let about = [text("title"), text("agent")].into_iter().find(|text| !text.is_empty()).unwrap_or_default();
    format!("{}  {about}\n  {}", text("run_id"), answer::line(open))
}
