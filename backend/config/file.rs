//! [`File`]: the checked configuration file, with models, tools, tool servers and agents; channels are in
//! [`super::channels`].

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{
    Error, SecretSource,
    channels::Channels,
    error,
    models::{ModelConfig, Source, check_base_url},
    read_text,
    retention::Retention,
    sections::{Agent, Mcp, Model, Named, Tool, ToolKind},
};
use crate::domain::{limits::CONFIG_BYTES_MAX, misread::in_words, price::Price};

/// The sections as written in the file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Sections {
    pub models: Named<Model>,
    pub tools: Named<Tool>,
    pub mcp: Named<Mcp>,
    pub agents: Named<Agent>,
    /// Unparsed; [`File::channels`] parses them.
    pub channels: Named<toml::Table>,
    /// In the file's order; the first that matches a run applies.
    pub retention: Vec<Retention>,
    /// Keyed by the model's name in a `usage`.
    pub prices: Named<Price>,
}

/// The configuration file. Without one there are no agents.
#[derive(Clone, Debug, Default)]
pub struct File {
    pub sections: Sections,
    /// Paths in the file are relative to its folder.
    folder: PathBuf,
}

impl File {
    /// Reads and checks the file. The error states line, key and what to do.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = read_text(path, "the configuration file")?;
        // Programs start in other folders, where a relative path would resolve to another one.
        let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let folder = whole.parent().map(Path::to_owned).unwrap_or_default();
        let place = |problem: String| error(format!("{}: {problem}", path.display()));
        Self::parse(&text, &folder).map_err(place)
    }

    /// Parses and checks a text; its paths are relative to `folder`.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, String> {
        if text.len() > CONFIG_BYTES_MAX {
            return Err(format!("a configuration file can have at most {CONFIG_BYTES_MAX} bytes"));
        }
        let sections: Sections = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            // The line itself is not repeated: it may contain a secret.
            let line = line.map_or_else(String::new, |line| format!("line {line}: "));
            format!("{line}{}{}", key_of(text), in_words(error.message()))
        })?;
        let file = Self { sections, folder: folder.to_owned() };
        super::check::check(&file).map_err(|wrong| {
            let line = super::check::line_of(text, &wrong.section, wrong.key);
            let line = line.map_or_else(String::new, |line| format!("line {line}: "));
            let key = if wrong.key.is_empty() { String::new() } else { format!(" {}", wrong.key) };
            format!("{line}[{}]{key}: {}", wrong.section, wrong.what)
        })?;
        Ok(file)
    }

    /// Resolves a path from the file.
    pub fn path(&self, path: &Path) -> PathBuf {
        if self.folder.as_os_str().is_empty() { path.to_owned() } else { self.folder.join(path) }
    }

    /// Parses and checks the channels.
    pub fn channels(&self) -> Result<Channels, Error> {
        let table = |(name, channel): (&String, &toml::Table)| (name.clone(), toml::Value::Table(channel.clone()));
        Channels::of(self.sections.channels.iter().map(table).collect(), &self.sections.agents)
    }

    /// Resolves an agent's `model`.
    pub fn model(&self, reference: &str) -> Result<ModelConfig, String> {
        let named = self.sections.models.get(reference).cloned();
        let section = named.unwrap_or_else(|| Model::direct(reference));
        let Some(source) = Source::parse(&section.model) else {
            let there: Vec<&str> = self.sections.models.keys().map(String::as_str).collect();
            let there = if there.is_empty() { "there are none".to_owned() } else { there.join(", ") };
            return Err(format!(
                "{reference:?} is neither a section of [models] ({there}) nor a model such as echo, script:FILE, \
                 openai:NAME, openai-responses:NAME, anthropic:NAME, gemini:NAME or ollama:NAME"
            ));
        };
        let source = if let Source::Script(path) = source { Source::Script(self.path(&path)) } else { source };
        let (default_url, usual_key) = match &source {
            Source::Provider { kind, .. } => (kind.base_url(), kind.key_variable()),
            Source::Echo | Source::Script(_) | Source::OwnScript => ("http://localhost/", None),
        };
        if section.script.is_some() != (source == Source::OwnScript) {
            return Err("\"script\" plays the turns of its section's script; no other model can have one".to_owned());
        }
        let base_url = check_base_url(section.base_url.as_deref().unwrap_or(default_url))
            .map_err(|why| format!("base_url {why}"))?;
        let key = match (&section.api_key_env, &section.api_key_file) {
            (Some(name), None) => Some(SecretSource::Env(name.clone())),
            (None, Some(path)) => Some(SecretSource::File(self.path(path))),
            (Some(_), Some(_)) => return Err("set either api_key_env or api_key_file, not both".to_owned()),
            // The usual key is only for the provider's own address and never sent to another.
            (None, None) if section.base_url.is_none() => usual_key.map(|name| SecretSource::Env(name.to_owned())),
            (None, None) => None,
        };
        Ok(ModelConfig {
            source,
            script: section.script,
            base_url,
            key,
            answer_time_max: Duration::from_secs(section.timeout_s),
            silence_max: Duration::from_secs(section.silence_s),
            retries: section.retries,
            reasoning: section.reasoning,
            temperature: section.temperature,
            max_tokens: section.max_tokens,
            context_tokens: section.context_tokens,
        })
    }

    /// Resolves an entry of an agent's `tools` that is not a tool server.
    pub fn tool(&self, reference: &str) -> Result<(ToolKind, Tool), String> {
        let section = self.sections.tools.get(reference).cloned();
        let kind = section.as_ref().and_then(|section| section.kind).or_else(|| ToolKind::parse(reference));
        match (kind, section) {
            (Some(kind), Some(section)) => Ok((kind, section)),
            (Some(ToolKind::Fetch), None) => {
                Err("\"fetch\" needs a section [tools.fetch] with the hosts it may reach: allow = [\"example.org\"]"
                    .to_owned())
            }
            (Some(kind), None) => Ok((kind, Tool::default())),
            (None, Some(_)) => Err(format!("[tools.{reference}] needs kind = \"files\", \"fetch\" or \"shell\"")),
            (None, None) => Err(format!(
                "{reference:?} is neither a section of [tools] or [mcp] nor one of \"files\" and \"shell\""
            )),
        }
    }

    /// Whether a tool of any agent starts programs.
    pub fn starts_programs(&self) -> bool {
        let starts = |agent: &Agent| agent.tools.iter().any(|tool| self.starts_program(tool));
        self.sections.agents.values().any(starts)
    }

    fn starts_program(&self, tool: &str) -> bool {
        match self.sections.mcp.get(tool) {
            Some(server) => server.command.is_some(),
            None => self.tool(tool).is_ok_and(|(kind, _)| kind == ToolKind::Shell),
        }
    }

    /// An agent whose shell is open to every principal.
    pub(super) fn open_shell(&self) -> Option<&str> {
        let is_shell = |tool: &String| {
            !self.sections.mcp.contains_key(tool) && self.tool(tool).is_ok_and(|(kind, _)| kind == ToolKind::Shell)
        };
        let mut agents = self.sections.agents.iter();
        let open = agents.find(|(_, agent)| agent.allow.is_none() && agent.tools.iter().any(is_shell));
        open.map(|(name, _)| name.as_str())
    }

    /// The files from which secrets of models and tool servers are read.
    pub(super) fn secret_files(&self) -> Vec<PathBuf> {
        let agents = &self.sections.agents;
        let models = agents.values().filter_map(|agent| self.model(&agent.model).ok()?.key);
        let servers = self.sections.mcp.values().flat_map(|mcp| mcp.env_from.values().chain(mcp.headers_env.values()));
        let servers = servers.chain(agents.values().flat_map(|agent| agent.headers_env.values()));
        models.chain(servers.cloned().map(SecretSource::Env)).filter_map(|secret| secret.file()).collect()
    }

    /// The system prompt of an agent.
    pub fn system(&self, agent: &Agent) -> Result<String, Error> {
        match &agent.system_file {
            Some(path) => read_text(&self.path(path), "the system prompt file"),
            None => Ok(agent.system.clone().unwrap_or_default()),
        }
    }

    /// Reads a model script.
    pub fn script(path: &Path) -> Result<String, Error> {
        read_text(path, "the model script")
    }

    /// Every value with its key, including defaults. Literal variables of tool servers are masked.
    pub fn effective(&self) -> Vec<(String, String)> {
        let mut rows = Vec::new();
        flatten("", &serde_json::to_value(&self.sections).unwrap_or_default(), &mut rows);
        rows
    }

    /// Reads the values of credential headers or variables, each from its environment variable.
    pub fn secrets(from: &BTreeMap<String, String>) -> Result<Vec<(String, super::Secret)>, Error> {
        from.iter().map(|(name, variable)| Ok((name.clone(), SecretSource::Env(variable.clone()).read()?))).collect()
    }
}

/// The key whose value cannot be read, if the text is TOML.
fn key_of(text: &str) -> String {
    let read = toml::Deserializer::parse(text).map(serde_path_to_error::deserialize::<_, Sections>);
    match read {
        Ok(Err(error)) if error.path().iter().next().is_some() => format!("{}: ", error.path()),
        _ => String::new(),
    }
}

fn flatten(at: &str, value: &serde_json::Value, rows: &mut Vec<(String, String)>) {
    use serde_json::Value;
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                // A literal variable may contain a secret. Channels are omitted here.
                let hidden = at.starts_with("mcp.") && at.ends_with(".env");
                let key = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                match member {
                    _ if hidden => rows.push((key, "(set, not shown)".to_owned())),
                    member if name != "channels" => flatten(&key, member, rows),
                    _ => {}
                }
            }
        }
        Value::Null => {}
        Value::Array(items) if items.is_empty() => {}
        other => rows.push((at.to_owned(), other.to_string())),
    }
}

#[cfg(test)]
mod tests;
