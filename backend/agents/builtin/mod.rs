//! The built-in tools: files of one folder, pages of allowed hosts, commands, and artifacts.
//!
//! Invariant kept here: what a tool may reach is fixed at construction. A path, a host or a link in the arguments can
//! only name something inside.
//!
//! Start reading at [`files`].

pub mod artifact;
pub mod fetch;
pub mod files;
mod guard;
pub mod shell;

use serde_json::Value;

use crate::agents::tools::ToolError;

fn failed(error: impl std::fmt::Display) -> ToolError {
    ToolError::Failed(error.to_string())
}

/// A text argument; the schema guarantees that a required one exists.
fn text<'a>(args: &'a Value, name: &str) -> &'a str {
    args.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn number(args: &Value, name: &str, default: u64) -> u64 {
    args.get(name).and_then(Value::as_u64).unwrap_or(default)
}
