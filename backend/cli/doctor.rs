//! `runreel doctor`: one check per line, and how to fix what fails.

mod connectivity;
mod machine;
mod servers;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anstyle::{AnsiColor, Style};

use self::connectivity::Connectivity;
use super::{connection::Connection, render::print};
use crate::config::DataArgs;

/// How long a check may take before it counts as failed.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exits 0 when every check passes, 1 otherwise. A check that cannot be performed
is shown as such and does not fail.

With the URL that your users have, it detects what a proxy in between does:
whether it buffers, compresses or cuts a stream, drops the cursor of a
reconnecting reader, rejects large bodies, or prevents runners from connecting.
It listens for up to 15 s and changes nothing on the server. When the server is
on another machine, this machine is not checked. With a configuration file, the
tool servers in it are started or reached, and what they offer is listed.

Examples:
  runreel doctor
  runreel doctor --url https://runreel.example --token-file ~/.runreel-token")]
pub(super) struct Args {
    #[command(flatten)]
    data: DataArgs,
    #[command(flatten)]
    connection: Connection,
    /// The server's configuration file.
    #[arg(long, env = "RUNREEL_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// One JSON object per check.
    #[arg(long)]
    json: bool,
}

enum CheckResult {
    Good(String),
    Bad(String, &'static str),
    /// Not applicable now, with the reason.
    Open(String),
}

/// Prints each result at once: the next check may take a while.
struct Findings {
    as_json: bool,
    all_good: bool,
}

impl Findings {
    fn tell(&mut self, name: &str, outcome: &CheckResult) -> anyhow::Result<()> {
        self.all_good &= !matches!(outcome, CheckResult::Bad(..));
        print(&if self.as_json { as_json(name, outcome) } else { as_line(name, outcome) })?;
        Ok(())
    }
}

pub(super) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut findings = Findings { as_json: args.json, all_good: true };
    let connectivity = Connectivity::to(&args.connection).await;
    findings.tell("configuration", &machine::secrets())?;
    if connectivity.is_elsewhere() {
        findings
            .tell("this machine", &CheckResult::Open("not checked: the server is on another machine".to_owned()))?;
    } else {
        findings.tell("descriptors", &machine::descriptors())?;
        findings.tell("data directory", &machine::data_dir(&args.data))?;
        findings.tell("postgres programs", &machine::programs(&args.data).await)?;
        findings.tell("database", &machine::database(&args.data).await)?;
        findings.tell("confinement", &machine::confinement(&args.data).await)?;
        for (name, outcome) in servers::tools(args.config.as_deref(), &args.data).await {
            findings.tell(&name, &outcome)?;
        }
    }
    findings.tell("server", connectivity.server())?;
    findings.tell("resume", &connectivity.resume().await)?;
    findings.tell("bodies", &connectivity.bodies().await)?;
    findings.tell("runners", &connectivity.runners().await)?;
    findings.tell("stream", &connectivity.stream().await)?;
    Ok(if findings.all_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn as_line(name: &str, outcome: &CheckResult) -> String {
    let (sign, color, text, remedy) = match outcome {
        CheckResult::Good(text) => ("✓", AnsiColor::Green, text, None),
        CheckResult::Bad(text, remedy) => ("✗", AnsiColor::Red, text, Some(*remedy)),
        CheckResult::Open(text) => ("·", AnsiColor::BrightBlack, text, None),
    };
    let style = Style::new().fg_color(Some(color.into()));
    let remedy = remedy.map_or_else(String::new, |remedy| format!("  → {remedy}\n"));
    format!("{style}{sign}{style:#} {name:<18} {text}\n{remedy}")
}

fn as_json(name: &str, outcome: &CheckResult) -> String {
    let (state, text, remedy) = match outcome {
        CheckResult::Good(text) => ("good", text, None),
        CheckResult::Bad(text, remedy) => ("bad", text, Some(*remedy)),
        CheckResult::Open(text) => ("open", text, None),
    };
    serde_json::json!({ "check": name, "state": state, "detail": text, "remedy": remedy }).to_string() + "\n"
}
