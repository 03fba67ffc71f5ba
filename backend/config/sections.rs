//! The sections of the configuration file, as written.
//!
//! Every section rejects unknown keys. Secrets are never written here: a key names the variable or the file that
//! contains one.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::models::Reasoning;
use crate::domain::limits::CONTEXT_TOKENS_DEFAULT;

/// Sections of one kind, by name.
pub type Named<T> = BTreeMap<String, T>;

/// `[models.NAME]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// `echo`, `script`, `script:FILE`, `openai:NAME`, `openai-responses:NAME`, `anthropic:NAME`, `gemini:NAME`,
    /// `ollama:NAME`.
    pub model: String,
    /// The turns that `model = "script"` plays back.
    pub script: Option<toml::Table>,
    /// Another base URL with the provider's API.
    pub base_url: Option<String>,
    /// The variable that holds the key; `<NAME>_FILE` may name a file instead.
    pub api_key_env: Option<String>,
    /// The file that holds the key.
    pub api_key_file: Option<PathBuf>,
    /// Longest time for one whole answer, seconds.
    #[serde(default = "answer_time")]
    pub timeout_s: u64,
    /// Longest silence of the provider, seconds.
    #[serde(default = "silence")]
    pub silence_s: u64,
    /// How often a call that failed before its first output is retried.
    #[serde(default = "retries")]
    pub retries: u32,
    pub reasoning: Option<Reasoning>,
    pub temperature: Option<f64>,
    /// Longest answer, tokens.
    pub max_tokens: Option<u32>,
    /// Size of the context window, including the answer, tokens.
    #[serde(default = "context_tokens")]
    pub context_tokens: u32,
}

impl Model {
    /// The section for a model named directly.
    pub(super) fn direct(model: &str) -> Self {
        Self {
            model: model.to_owned(),
            script: None,
            base_url: None,
            api_key_env: None,
            api_key_file: None,
            timeout_s: answer_time(),
            silence_s: silence(),
            retries: retries(),
            reasoning: None,
            temperature: None,
            max_tokens: None,
            context_tokens: context_tokens(),
        }
    }
}

fn context_tokens() -> u32 {
    CONTEXT_TOKENS_DEFAULT
}

fn answer_time() -> u64 {
    600
}

fn silence() -> u64 {
    120
}

fn retries() -> u32 {
    2
}

/// The built-in tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolKind {
    Files,
    Fetch,
    Shell,
}

impl ToolKind {
    pub fn parse(word: &str) -> Option<Self> {
        [("files", Self::Files), ("fetch", Self::Fetch), ("shell", Self::Shell)]
            .into_iter()
            .find(|(name, _)| *name == word)
            .map(|(_, kind)| kind)
    }
}

/// `[tools.NAME]`
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tool {
    /// Which tool it is. Default: the section's own name, if that is a tool.
    pub kind: Option<ToolKind>,
    /// Whether every call requires approval. Default: the tool decides.
    pub approval: Option<bool>,
    /// Longest time of one call, seconds.
    pub timeout_s: Option<u64>,
    /// `files`: the folder; `shell`: where commands run. Default: `<data-dir>/files`.
    pub root: Option<PathBuf>,
    /// `files`: whether it may write. Default: yes.
    pub write: Option<bool>,
    /// `fetch`: the hosts, such as `example.org`, `*.example.org`, `*`, `example.org:8443`.
    pub allow: Option<Vec<String>>,
    /// `fetch`: those of `allow` that may resolve to private addresses.
    pub allow_private: Option<Vec<String>>,
    /// `fetch`, `shell`: most bytes of one response or output.
    pub bytes_max: Option<usize>,
    /// Which calls of other tools its calls exclude. Default: those that write to the same folder.
    pub exclusive: Option<Exclusive>,
}

/// Which calls never run concurrently.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Exclusive {
    /// Those of this section, or none.
    Is(bool),
    /// Those of all sections with this name.
    Named(String),
}

impl Exclusive {
    /// The key of the group of calls that exclude each other, for a tool of this section.
    pub fn shared(&self, section: &str) -> Option<String> {
        match self {
            Self::Is(is) => is.then(|| format!("section {section}")),
            Self::Named(name) => Some(format!("name {name}")),
        }
    }
}

/// `[mcp.NAME]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Mcp {
    /// A program that speaks MCP on its input and output; or `url`.
    pub command: Option<String>,
    #[serde(default)]
    pub args: Vec<String>,
    /// Where the program runs. Default: the folder of the configuration file.
    pub dir: Option<PathBuf>,
    /// Environment variables of the program, in addition to PATH, HOME and LANG. No secrets: see `env_from`.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Variables of the program, each with the server's variable it is read from.
    #[serde(default)]
    pub env_from: BTreeMap<String, String>,
    /// The address of a server that speaks streamable HTTP.
    pub url: Option<String>,
    /// Headers of every request, each with the server's variable that holds its value.
    #[serde(default)]
    pub headers_env: BTreeMap<String, String>,
    /// Prefix of the tools' names, before an underscore. Default: the section's name; `""` for none.
    pub prefix: Option<String>,
    /// Only these of its tools, by the server's own names.
    pub tools: Option<Vec<String>>,
    /// Whether every call requires approval. Default: only calls of tools that may destroy something.
    pub approval: Option<bool>,
    /// By the server's own tool names, which calls exclude each other. Default: calls of tools that may destroy
    /// something share this section.
    #[serde(default)]
    pub exclusive: BTreeMap<String, Exclusive>,
    /// Longest time of one call, seconds.
    #[serde(default = "call_time")]
    pub timeout_s: u64,
    /// Longest time to start and to list its tools, seconds.
    #[serde(default = "start_time")]
    pub start_timeout_s: u64,
    /// A separate connection for each run, for servers that keep state.
    #[serde(default)]
    pub per_run: bool,
}

fn call_time() -> u64 {
    60
}

fn start_time() -> u64 {
    30
}

/// A principal as its credential names it: a JWT's `sub`, with its `iss` if it has one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged)]
pub enum Subject {
    Sub(String),
    Issued(IssuedSubject),
}

/// `{ sub = "…", iss = "…" }`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct IssuedSubject {
    pub sub: String,
    pub iss: String,
}

impl Subject {
    pub fn sub(&self) -> &str {
        match self {
            Self::Sub(sub) | Self::Issued(IssuedSubject { sub, .. }) => sub,
        }
    }

    pub fn iss(&self) -> &str {
        match self {
            Self::Sub(_) => "",
            Self::Issued(IssuedSubject { iss, .. }) => iss,
        }
    }
}

/// What executes an agent's runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentKind {
    /// A model of this file with its tools.
    #[default]
    Assistant,
    /// An AG-UI endpoint, anywhere.
    Agui,
}

/// What to do when an endpoint's stream ends before its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// Repeat the request with the messages completed so far.
    Continue,
    /// Fail the run.
    Never,
}

/// `[agents.NAME]`
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Agent {
    #[serde(default)]
    pub kind: AgentKind,
    /// `assistant`: a section of `[models]`, or a model named directly, such as `openai:gpt-5`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub model: String,
    /// `agui`: the address to which a run's input is posted.
    pub url: Option<String>,
    /// `agui`: headers of every request, each with the server's variable that holds its value.
    #[serde(default)]
    pub headers_env: BTreeMap<String, String>,
    /// `agui`: longest silence of the endpoint, seconds. Default: 120.
    pub silence_s: Option<u64>,
    /// `agui`: how often a request is retried that got no event, or whose stream broke before anything was complete.
    /// Default: 5.
    pub retries: Option<u32>,
    /// `agui`: whether a broken stream is continued. Default: yes.
    pub retry: Option<Retry>,
    /// The system prompt.
    pub system: Option<String>,
    /// The file that contains the system prompt.
    pub system_file: Option<PathBuf>,
    /// Sections of `[tools]` and `[mcp]`; `files` and `shell` need no section.
    #[serde(default)]
    pub tools: Vec<String>,
    /// Agents to which it may delegate work.
    #[serde(default)]
    pub workers: Vec<String>,
    /// Principals whose runs it executes, as supervisor and as worker. Default: all.
    pub allow: Option<Vec<Subject>>,
    /// Principals who answer its runs' interrupts. Default: the run's owner.
    pub approvers: Option<Vec<Subject>>,
    /// Most answers of the model in one run.
    #[serde(default = "steps")]
    pub max_steps: u32,
    /// Most concurrent tool calls.
    #[serde(default = "parallel")]
    pub parallel: usize,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    /// Longest time of one tool call, seconds, unless the tool has its own limit.
    #[serde(default = "call_time")]
    pub tool_timeout_s: u64,
    /// Longest working time of a run, seconds, without the time it waits for people and workers.
    #[serde(default = "run_time")]
    pub timeout_s: u64,
}

fn steps() -> u32 {
    32
}

fn parallel() -> usize {
    8
}

fn run_time() -> u64 {
    3_600
}
