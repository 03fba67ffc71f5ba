//! `runreel config`.

use std::{fmt::Write as _, path::Path, process::ExitCode};

use clap::{ArgMatches, Command, FromArgMatches};

use super::render::{print, say};
use crate::{
    agents::registry::Agents,
    config::{self, File, Secrets, ServeArgs},
    confine::Confinement,
    domain::misread::did_you_mean,
};

/// The settings of `serve`, and what each was given as.
#[derive(Clone, Debug)]
pub(super) struct Args {
    serve: ServeArgs,
    matches: ArgMatches,
}

impl clap::Args for Args {
    fn augment_args(command: Command) -> Command {
        ServeArgs::augment_args(command)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ServeArgs::augment_args_for_update(command)
    }
}

impl FromArgMatches for Args {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { serve: ServeArgs::from_arg_matches(matches)?, matches: matches.clone() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        Self::from_arg_matches(matches).map(|args| *self = args)
    }
}

/// Checks the configuration that `serve` would use, and prints it. Settings that are valid but rarely right are
/// reported on stderr.
pub(super) fn run(Args { serve: args, matches }: &Args) -> anyhow::Result<ExitCode> {
    let secrets = Secrets::read()?;
    args.check(&secrets)?;
    let file = args.file()?;
    // As `serve` does: models and tools have more rules than the file.
    Agents::new(file.clone(), args.data.data_dir()?, config::path(), Confinement::default())?;
    let values = args.effective(matches, &secrets)?;
    let width = |of: fn(&(String, String, String)) -> usize| values.iter().map(of).max().unwrap_or_default();
    let (names, variables) = (width(|value| value.0.len()), width(|value| value.1.len()));
    let mut text = String::new();
    for (name, variable, value) in &values {
        writeln!(text, "{name:<names$}  {variable:<variables$}  {value}")?;
    }
    for (key, value) in file.effective() {
        writeln!(text, "{key} = {value}")?;
    }
    for (channel, config) in file.channels()?.iter() {
        writeln!(text, "channels.{channel}.agent = {:?}", config.agent.as_str())?;
        let written = file.sections.channels.get(channel.as_str()).into_iter().flatten();
        for (key, value) in written.filter(|(key, _)| *key != "agent") {
            writeln!(text, "channels.{channel}.{key} = {}", serde_json::to_value(value)?)?;
        }
    }
    print(&text)?;
    for doubt in doubts(&file)? {
        say(format!("warning: {doubt}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Problems that would otherwise appear only with the first message or run.
fn doubts(file: &File) -> anyhow::Result<Vec<String>> {
    let (agents, mut doubts) = (&file.sections.agents, Vec::new());
    for (channel, config) in file.channels()?.iter() {
        let agent = config.agent.as_str();
        if !agents.contains_key(agent) {
            let meant = did_you_mean(agent, agents.keys().map(String::as_str));
            doubts.push(format!(
                "[channels.{channel}] is answered by the agent {agent}, which this file does not have{meant}\n  its \
                 messages wait for a runner that serves it; another one is chosen with agent = \"NAME\""
            ));
        }
    }
    for (name, server) in &file.sections.mcp {
        if let Some(command) = server.command.as_deref().filter(|command| !is_there(file, command)) {
            doubts.push(format!("[mcp.{name}] command: there is no program {command}"));
        }
    }
    Ok(doubts)
}

/// Whether a program can be started: a path from the file's folder, or a name in `PATH`.
fn is_there(file: &File, command: &str) -> bool {
    let is_program = |path: &Path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if command.contains('/') {
        return is_program(&file.path(command.as_ref()));
    }
    let path = config::path().unwrap_or_default();
    std::env::split_paths(&path).any(|folder| is_program(&folder.join(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_message_or_a_run_would_show_is_told_before() {
        let text = "[agents.assistant]\nmodel = \"echo\"\n[agents.coder]\nmodel = \"echo\"\n\
            [channels.a]\nagent = \"codre\"\n[channels.b]\n[mcp.x]\ncommand = \"no-such-program\"\n\
            [mcp.y]\ncommand = \"sh\"\n[mcp.z]\ncommand = \"./missing\"";
        let doubts = doubts(&File::parse(text, Path::new("/")).unwrap()).unwrap();
        assert_eq!(doubts.len(), 3, "{doubts:?}");
        assert!(doubts[0].starts_with("[channels.a] is answered by the agent codre"), "{}", doubts[0]);
        assert!(doubts[0].contains("; did you mean coder?"), "{}", doubts[0]);
        assert_eq!(doubts[1], "[mcp.x] command: there is no program no-such-program");
        assert!(doubts[2].starts_with("[mcp.z]"));
    }
}
