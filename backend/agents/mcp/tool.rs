//! A server's tool as one of ours.

use std::{sync::Arc, time::Duration};

use rmcp::{
    model::{
        CallToolRequestParams, CallToolResponse, JsonObject, PaginatedRequestParams, RequestMetaObject,
        Tool as TheirTool,
    },
    service::ServiceError,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{connection::Connection, result};
use crate::{
    agents::tools::{Called, Tool, ToolError, check_name},
    config::sections::{Exclusive, Mcp},
    domain::{
        context::RunContext,
        limits::{MCP_DESCRIPTION_CHARS_MAX, MCP_SCHEMA_BYTES_MAX, TOOLS_MAX},
        trace,
    },
};

/// Most pages of a list of tools.
const PAGES_MAX: usize = 64;
/// Characters kept of a server's error.
const ERROR_CHARS_MAX: usize = 1_000;

struct McpTool {
    /// With the prefix, as models see it.
    name: String,
    /// The server's own name for it.
    own_name: String,
    server: String,
    description: String,
    schema: Arc<JsonObject>,
    approval: bool,
    exclusive: Option<String>,
    time_max: Duration,
    connection: Arc<Connection>,
}

/// The tools that the server offers and the configuration selects.
pub(super) async fn list(
    server: &str,
    config: &Mcp,
    connection: &Arc<Connection>,
) -> Result<Vec<Arc<dyn Tool>>, String> {
    let (mut found, mut cursor) = (Vec::new(), None);
    for _ in 0..PAGES_MAX {
        let page = PaginatedRequestParams::default().with_cursor(cursor);
        let page = connection.peer().list_tools(Some(page)).await.map_err(|error| told(&error))?;
        let wanted =
            |tool: &TheirTool| config.tools.as_ref().is_none_or(|names| names.iter().any(|name| *name == tool.name));
        found.extend(page.tools.into_iter().filter(wanted));
        if found.len() > TOOLS_MAX {
            return Err(format!("it offers more than {TOOLS_MAX} tools; choose some with tools = [\"name\"]"));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if cursor.is_some() {
        return Err(format!("its list of tools has more than {PAGES_MAX} pages"));
    }
    for name in config.tools.iter().flatten().chain(config.exclusive.keys()) {
        if !found.iter().any(|tool| tool.name == *name) {
            return Err(format!("it has no tool named {name}"));
        }
    }
    found.into_iter().map(|tool| ours(server, config, connection, tool)).collect()
}

fn ours(server: &str, config: &Mcp, connection: &Arc<Connection>, tool: TheirTool) -> Result<Arc<dyn Tool>, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let own: String = tool.name.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let name = match config.prefix.as_deref().unwrap_or(server) {
        "" => own,
        prefix => format!("{prefix}_{own}"),
    };
    check_name(&name)?;
    if serde_json::to_vec(&tool.input_schema).map_or(usize::MAX, |bytes| bytes.len()) > MCP_SCHEMA_BYTES_MAX {
        return Err(format!("the schema of {name} is longer than {MCP_SCHEMA_BYTES_MAX} bytes"));
    }
    // A server's annotations of its tools are hints; where one is missing, the protocol assumes the worst.
    let hints = tool.annotations.unwrap_or_default();
    let harmless = hints.read_only_hint == Some(true) || hints.destructive_hint == Some(false);
    Ok(Arc::new(McpTool {
        name,
        server: server.to_owned(),
        description: tool.description.unwrap_or_default().chars().take(MCP_DESCRIPTION_CHARS_MAX).collect(),
        schema: tool.input_schema,
        approval: config.approval.unwrap_or(!harmless),
        exclusive: config.exclusive.get(&*tool.name).unwrap_or(&Exclusive::Is(!harmless)).shared(server),
        time_max: Duration::from_secs(config.timeout_s),
        connection: Arc::clone(connection),
        own_name: tool.name.into_owned(),
    }))
}

impl Tool for McpTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn schema(&self) -> Value {
        Value::Object((*self.schema).clone())
    }

    fn exclusive(&self, _: &RunContext) -> Option<String> {
        self.exclusive.clone()
    }

    fn needs_approval(&self, _: &Value) -> bool {
        self.approval
    }

    fn time_max(&self) -> Option<Duration> {
        Some(self.time_max)
    }

    fn call<'a>(&'a self, context: &'a RunContext, args: Value, cancel: &'a CancellationToken) -> Called<'a> {
        Box::pin(async move {
            let mut params = CallToolRequestParams::new(self.own_name.clone());
            params.arguments = if let Value::Object(args) = args { Some(args) } else { None };
            params.meta = Some(about(context));
            // Dropping the call notifies the server that the caller no longer waits.
            let given = tokio::select! {
                biased;
                () = cancel.cancelled() => return Err(ToolError::Cancelled),
                given = self.connection.peer().call_tool_once(params) => given,
            };
            match given {
                Ok(CallToolResponse::Complete(given)) => result::of(given),
                Ok(_) => Err(ToolError::Failed("the server asked for input, which is not supported".to_owned())),
                Err(error) => Err(ToolError::Failed(format!("the tool server {}: {}", self.server, told(&error)))),
            }
        })
    }
}

/// Which run calls, for servers that act for its user: the protocol's member for the trace, and our own members.
fn about(context: &RunContext) -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    if let Some(trace_id) = &context.trace_id {
        meta.set_traceparent(trace::parent_of(trace_id));
    }
    meta.0.0.insert("runreel/run_id".to_owned(), json!(context.run_id));
    let told = [("runreel/thread_id", json!(context.thread_id)), ("runreel/session_id", json!(context.session_id))];
    for (name, value) in told.into_iter().chain([("runreel/origin", json!(context.origin))]) {
        if !value.is_null() {
            meta.0.0.insert(name.to_owned(), value);
        }
    }
    meta
}

/// An error text without headers and addresses.
fn told(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => error.message.chars().take(ERROR_CHARS_MAX).collect(),
        ServiceError::Timeout { .. } => "no response in time".to_owned(),
        ServiceError::UnexpectedResponse => "unexpected response".to_owned(),
        _ => "connection lost".to_owned(),
    }
}
