//! Saved sessions: what is kept of a thread, in which file, and how a thread goes on from it.

mod chats;
mod commands;
mod files;
mod names;
mod restores;
mod transcript;
mod trouble;

use std::path::PathBuf;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::support::{
    models::{ModelServer, chat},
    server::{Server, Setup, setup},
};

/// A folder that holds a folder of saved sessions and nothing else, and a server that keeps them there.
pub struct Ground {
    pub dir: tempfile::TempDir,
}

impl Ground {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn folder(&self) -> PathBuf {
        self.dir.path().join("sessions")
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder().join(name)
    }

    /// A server with this configuration whose sessions lie here.
    pub fn setup(&self, config: &str) -> Setup {
        setup().config(config).flags(&["--sessions-dir", self.folder().to_str().unwrap()])
    }

    pub async fn server(&self) -> Server {
        self.setup("").start().await
    }

    /// Every path below, as text, in order.
    pub fn tree(&self) -> Vec<String> {
        let mut paths = Vec::new();
        let mut open = vec![self.dir.path().to_owned()];
        while let Some(dir) = open.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if std::fs::symlink_metadata(&path).unwrap().is_dir() {
                    open.push(path.clone());
                }
                paths.push(path.strip_prefix(self.dir.path()).unwrap().display().to_string());
            }
        }
        paths.sort();
        paths
    }
}

/// A model that answers each text in turn, and the configuration of an agent that asks it.
pub async fn listener(answers: &[&str]) -> (ModelServer, String) {
    let models = ModelServer::start(answers.iter().map(|answer| chat(&[answer], &[])).collect()).await;
    let config = format!(
        "[models.heard]\nmodel = \"openai:any\"\nbase_url = \"{}/v1/\"\n\n[agents.assistant]\nmodel = \"heard\"\n",
        models.base
    );
    (models, config)
}

/// What a model was asked: each message's role and text.
pub fn heard(models: &ModelServer, request: usize) -> Vec<(String, String)> {
    let asked = models.asked();
    let messages = asked[request].body["messages"].as_array().unwrap().clone();
    let text = |content: &Value| match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    };
    let pair = |message: &Value| (message["role"].as_str().unwrap().to_owned(), text(&message["content"]));
    messages.iter().map(pair).collect()
}

/// A value as another framework's serialiser gives it, which nobody here reads.
pub fn foreign() -> Value {
    json!({ "t": "acme.state.v9", "b": STANDARD.encode(b"\x80\x05\x95 nobody reads this") })
}

pub fn json_blob(version: &str, value: &Value) -> Value {
    json!({ "version": version, "t": "json", "b": STANDARD.encode(value.to_string()) })
}

pub fn save_of(name: &str, thread: &str) -> Value {
    json!({ "name": name, "thread_id": thread })
}

pub const SAVED: &str = "/api/saved-sessions";
