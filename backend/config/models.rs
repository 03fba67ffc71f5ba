//! Which model to use, and how to reach it.

use std::{fmt, path::PathBuf, time::Duration};

use reqwest::Url;
use serde::{Deserialize, Serialize};

use super::SecretSource;

/// The API that a provider implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Chat completions: `OpenAI` and compatible providers.
    OpenAi,
    /// `OpenAI`'s Responses API.
    OpenAiResponses,
    Anthropic,
    Gemini,
    Ollama,
}

impl Kind {
    /// Each kind with its prefix in model names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("openai", Self::OpenAi),
        ("openai-responses", Self::OpenAiResponses),
        ("anthropic", Self::Anthropic),
        ("gemini", Self::Gemini),
        ("ollama", Self::Ollama),
    ];

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|(name, _)| *name == word).map(|(_, kind)| kind)
    }

    pub fn as_str(self) -> &'static str {
        Self::ALL.into_iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// The provider's own base URL.
    pub fn base_url(self) -> &'static str {
        match self {
            Self::OpenAi | Self::OpenAiResponses => "https://api.openai.com/v1/",
            Self::Anthropic => "https://api.anthropic.com/v1/",
            Self::Gemini => "https://generativelanguage.googleapis.com/v1beta/",
            Self::Ollama => "http://localhost:11434/",
        }
    }

    /// The variable that usually contains the key for that address; `None` if no key is needed.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            Self::OpenAi | Self::OpenAiResponses => Some("OPENAI_API_KEY"),
            Self::Anthropic => Some("ANTHROPIC_API_KEY"),
            Self::Gemini => Some("GEMINI_API_KEY"),
            Self::Ollama => None,
        }
    }
}

/// Reasoning effort of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reasoning {
    None,
    Low,
    Medium,
    High,
    Max,
}

/// What generates the answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    Echo,
    /// A file of turns that are played back.
    Script(PathBuf),
    /// Turns in the model's own section.
    OwnScript,
    Provider {
        kind: Kind,
        model: String,
    },
}

impl Source {
    /// `echo`, `script`, `script:FILE`, `openai:NAME`; `None` if it is none of these forms.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "echo" => return Some(Self::Echo),
            "script" => return Some(Self::OwnScript),
            _ => {}
        }
        let (word, rest) = text.split_once(':').filter(|(_, rest)| !rest.is_empty())?;
        if word == "script" {
            return Some(Self::Script(PathBuf::from(rest)));
        }
        Kind::parse(word).map(|kind| Self::Provider { kind, model: rest.to_owned() })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo => f.write_str("echo"),
            Self::Script(path) => write!(f, "script:{}", path.display()),
            Self::OwnScript => f.write_str("script"),
            Self::Provider { kind, model } => write!(f, "{}:{model}", kind.as_str()),
        }
    }
}

/// A model as configured for an agent, including defaults.
#[derive(Clone, Debug)]
pub struct ModelConfig {
    pub source: Source,
    /// The turns of [`Source::OwnScript`].
    pub script: Option<toml::Table>,
    pub base_url: Url,
    /// Read once for each run.
    pub key: Option<SecretSource>,
    /// Longest time for one complete answer.
    pub answer_time_max: Duration,
    /// Longest silence: before the first byte and between two bytes.
    pub silence_max: Duration,
    /// How often a failed call is retried.
    pub retries: u32,
    pub reasoning: Option<Reasoning>,
    pub temperature: Option<f64>,
    pub max_tokens: Option<u32>,
    /// Size of the context window, including the answer, tokens.
    pub context_tokens: u32,
}

/// Parses an address to which keys may be sent, adding a trailing slash. The error does not repeat the address.
pub fn check_base_url(text: &str) -> Result<Url, String> {
    let text = text.trim();
    let slash = if text.ends_with('/') { "" } else { "/" };
    check_url(&format!("{text}{slash}"))
}

/// Parses an address to which keys may be sent, unchanged. The error does not repeat the address.
pub fn check_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text.trim()).map_err(|error| format!("is not a URL ({error})"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err("must begin with http:// or https://".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("must not contain a user name or password; put the key in a variable or a file".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() || !url.has_host() {
        return Err("must have a host, and must not contain ? or #".to_owned());
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_keys_holds_none_itself() {
        assert_eq!(check_base_url("http://127.0.0.1:8000/v1").unwrap().as_str(), "http://127.0.0.1:8000/v1/");
        assert_eq!(check_base_url(" https://models.example/ ").unwrap().as_str(), "https://models.example/");
        for wrong in ["models.example", "ftp://a/", "https://me:pw@a/", "https://a/?k=1", "https://a/#x", ""] {
            assert!(check_base_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_model_is_named_by_its_provider_and_its_name_there() {
        for text in ["echo", "script", "script:demo.toml", "openai:gpt-5", "ollama:gemma3:4b", "openai-responses:o5"] {
            assert_eq!(Source::parse(text).unwrap().to_string(), text);
        }
        for wrong in ["", "gpt-5", "openai:", "mystery:x", "script:"] {
            assert_eq!(Source::parse(wrong), None, "{wrong}");
        }
    }
}
