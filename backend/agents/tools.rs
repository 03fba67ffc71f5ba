//! [`Tool`]: one thing an agent can do, and [`Toolbox`]: the tools of a run.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{
    model::{Part, ToolSpec},
    schema::Schema,
};
use crate::domain::{
    context::RunContext,
    limits::{TOOL_NAME_CHARS_MAX, TOOLS_MAX},
};

/// Why a tool gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolError {
    #[error("there is no tool named {0}")]
    Unknown(String),
    /// Which argument is wrong and how.
    #[error("wrong arguments: {0}")]
    Arguments(String),
    #[error("{0}")]
    Failed(String),
    #[error("the tool panicked: {0}")]
    Panicked(String),
    #[error("the tool took longer than {0:?}")]
    TimedOut(Duration),
    #[error("the call was cancelled")]
    Cancelled,
}

/// The result of a call.
pub type Called<'a> = BoxFuture<'a, Result<Value, ToolError>>;

/// One thing an agent can do. The run it acts for is an argument of every call and stored nowhere.
///
/// A result is any JSON. `{"content": [part, …]}` with the parts of a message ([`parts`]) also gives a model images.
pub trait Tool: Send + Sync {
    /// 1 to 64 characters of `[A-Za-z0-9_-]`.
    fn name(&self) -> &str;

    /// What it does, for the model that chooses among tools.
    fn description(&self) -> &str;

    /// JSON Schema of the arguments.
    fn schema(&self) -> Value;

    /// The resource that it writes and other calls may write too: calls that name the same one, in any run of this
    /// process, are made one at a time.
    fn exclusive(&self, _context: &RunContext) -> Option<String> {
        None
    }

    /// Whether it blocks its thread; if so, it is called outside the async threads.
    fn blocking(&self) -> bool {
        false
    }

    /// Whether a call with these arguments needs approval first.
    fn needs_approval(&self, _args: &Value) -> bool {
        false
    }

    /// Longest time one call may take, if it differs from the step's.
    fn time_max(&self) -> Option<Duration> {
        None
    }

    /// `args` match the schema, if it compiles. Once `cancel` is cancelled (with the run, or because the call is late)
    /// the tool has a moment to clean up; then an async call is dropped, and a blocking one is no longer waited for.
    fn call<'a>(&'a self, context: &'a RunContext, args: Value, cancel: &'a CancellationToken) -> Called<'a>;
}

/// A result as the model sees it: its parts if it has some, its text, or its JSON.
pub fn parts(result: &Result<Value, ToolError>) -> Vec<Part> {
    match result {
        Ok(Value::String(text)) => vec![Part::text(text)],
        Ok(value) => match serde_json::from_value::<Vec<Part>>(value.get("content").cloned().unwrap_or_default()) {
            Ok(parts) if !parts.is_empty() => parts,
            _ => vec![Part::text(value.to_string())],
        },
        Err(error) => vec![Part::text(format!("error: {error}"))],
    }
}

/// The tools of servers, and one sentence for each item that cannot be used.
#[derive(Clone, Default)]
pub struct Offered {
    pub tools: Vec<Arc<dyn Tool>>,
    pub left_out: Vec<String>,
}

#[derive(Clone)]
struct Entry {
    tool: Arc<dyn Tool>,
    schema: Arc<Schema>,
}

/// The tools of a run, as resolved when it starts or resumes. Clones share them.
#[derive(Clone, Default)]
pub struct Toolbox {
    entries: Arc<BTreeMap<String, Entry>>,
}

impl Toolbox {
    /// Of two tools with one name, the later one is kept.
    pub fn new(tools: impl IntoIterator<Item = Arc<dyn Tool>>) -> Self {
        Self { entries: Arc::new(tools.into_iter().map(entry).collect()) }
    }

    /// Adds a tool, unless its name is taken.
    #[must_use]
    pub fn with(&self, tool: Arc<dyn Tool>) -> Self {
        let (name, added) = entry(tool);
        let mut entries = (*self.entries).clone();
        entries.entry(name).or_insert(added);
        Self { entries: Arc::new(entries) }
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Adds the tools of servers, and returns notes on them. Of two tools with one name the first stays; arguments are
    /// not checked against a schema that does not compile.
    pub fn joined(mut self, offered: Offered) -> Result<(Self, Vec<String>), String> {
        let count = self.entries.len() + offered.tools.len();
        if count > TOOLS_MAX {
            return Err(format!("{count} tools exceed the limit of {TOOLS_MAX}"));
        }
        let (entries, mut notes) = (Arc::make_mut(&mut self.entries), offered.left_out);
        for tool in offered.tools {
            let (name, added) = entry(tool);
            if entries.contains_key(&name) {
                notes.push(format!("left out: another tool named {name}"));
                continue;
            }
            if let Some(why) = added.schema.invalid() {
                notes.push(format!("arguments of the tool {name} are not checked: its schema cannot be used: {why}"));
            }
            entries.insert(name, added);
        }
        Ok((self, notes))
    }

    /// Rejects what no model accepts: too many tools, two of one name, invalid names and schemas.
    pub fn checked(tools: Vec<Arc<dyn Tool>>) -> Result<Self, String> {
        let count = tools.len();
        if count > TOOLS_MAX {
            return Err(format!("{count} tools exceed the limit of {TOOLS_MAX}"));
        }
        let mut names = std::collections::BTreeSet::new();
        for tool in &tools {
            check_name(tool.name())?;
            if !names.insert(tool.name().to_owned()) {
                return Err(format!("two tools are named {}", tool.name()));
            }
        }
        let toolbox = Self::new(tools);
        let unfit = toolbox.entries.iter().find_map(|(name, entry)| entry.schema.invalid().map(|why| (name, why)));
        unfit.map_or(Ok(()), |(name, why)| Err(format!("the schema of tool {name} cannot be used: {why}")))?;
        Ok(toolbox)
    }

    pub fn get(&self, name: &str) -> Result<Arc<dyn Tool>, ToolError> {
        self.entry(name).map(|entry| Arc::clone(&entry.tool))
    }

    /// The tool, if the arguments fit it.
    pub fn fit(&self, name: &str, args: &Value) -> Result<Arc<dyn Tool>, ToolError> {
        let entry = self.entry(name)?;
        entry.schema.check(args).map(|()| Arc::clone(&entry.tool))
    }

    /// Whether this call needs approval first. A call that must fail anyway needs none.
    pub fn needs_approval(&self, name: &str, args: &Value) -> bool {
        self.fit(name, args).is_ok_and(|tool| tool.needs_approval(args))
    }

    /// The tools as described to a model, sorted by name.
    pub fn specs(&self) -> Vec<ToolSpec> {
        let spec = |tool: &Arc<dyn Tool>| ToolSpec {
            name: tool.name().to_owned(),
            description: tool.description().to_owned(),
            schema: tool.schema(),
        };
        self.iter().map(spec).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Tool>> {
        self.entries.values().map(|entry| &entry.tool)
    }

    fn entry(&self, name: &str) -> Result<&Entry, ToolError> {
        self.entries.get(name).ok_or_else(|| ToolError::Unknown(name.to_owned()))
    }
}

fn entry(tool: Arc<dyn Tool>) -> (String, Entry) {
    (tool.name().to_owned(), Entry { schema: Arc::new(Schema::new(&tool.schema())), tool })
}

/// Checks that every provider accepts the name.
pub fn check_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=TOOL_NAME_CHARS_MAX).contains(&name.chars().count()) && name.chars().all(fits) {
        return Ok(());
    }
    Err(format!("a tool's name is 1 to {TOOL_NAME_CHARS_MAX} of A-Z, a-z, 0-9, _ and -, not {name:?}"))
}
