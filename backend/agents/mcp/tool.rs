//! Adapts a server's tools. Their list is untrusted input: an entry that cannot be used is left out and reported.

use std::{collections::HashSet, sync::Arc, time::Duration};

use rmcp::{
    model::{
        CallToolRequestParams, CallToolResponse, ClientRequest, ListToolsRequest, PaginatedRequestParams,
        RequestMetaObject, ServerResult,
    },
    service::ServiceError,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    connection::{Connection, ERROR_CHARS_MAX},
    message::result_in,
    result,
};
use crate::{
    agents::tools::{Called, Offered, Tool, ToolError, check_name},
    config::sections::{Exclusive, Mcp},
    domain::{
        context::RunContext,
        limits::{MCP_DESCRIPTION_CHARS_MAX, MCP_SCHEMA_BYTES_MAX, TOOLS_MAX},
        trace,
    },
};

/// Maximum pages of a list of tools, and maximum tools and bytes of all pages.
const PAGES_MAX: usize = 64;
const LISTED_MAX: usize = 4_096;
const LISTED_BYTES_MAX: usize = 16 << 20;
/// Maximum notes on what was left out.
const LEFT_OUT_MAX: usize = 32;
const OWN_NAME_BYTES_MAX: usize = 256;

struct McpTool {
    /// With the prefix, as models see it.
    name: String,
    /// The server's own name for it.
    own_name: String,
    server: String,
    description: String,
    schema: Value,
    approval: bool,
    exclusive: Option<String>,
    time_max: Duration,
    connection: Arc<Connection>,
}

/// The tools that the server offers and the configuration selects.
pub(super) async fn list(server: &str, config: &Mcp, connection: &Arc<Connection>) -> Result<Offered, String> {
    let Listed { entries, mut left_out } = read(connection).await?;
    let has = |name: &str| entries.iter().any(|entry| entry["name"] == name);
    // A list that was not read to its end may contain it.
    if left_out.is_empty()
        && let Some(name) = config.tools.iter().flatten().chain(config.exclusive.keys()).find(|name| !has(name))
    {
        return Err(format!("it has no tool named {name}"));
    }
    let (mut tools, mut names): (Vec<Arc<McpTool>>, HashSet<String>) = (Vec::new(), HashSet::new());
    for entry in &entries {
        let Some(own) = entry["name"].as_str().filter(|own| own.len() <= OWN_NAME_BYTES_MAX) else {
            left_out.push(format!("a tool without a name of at most {OWN_NAME_BYTES_MAX} bytes"));
            continue;
        };
        if !config.tools.as_ref().is_none_or(|names| names.iter().any(|name| name == own)) {
            continue;
        }
        match ours(server, config, connection, (own, entry)) {
            Ok(tool) if !names.insert(tool.name.clone()) => {
                left_out.push(format!("another tool {own}: it has one named {} already", tool.name));
            }
            Ok(tool) => tools.push(Arc::new(tool)),
            Err(why) => left_out.push(format!("the tool {}: {why}", own.escape_debug())),
        }
        if tools.len() > TOOLS_MAX {
            return Err(format!("it offers more than {TOOLS_MAX} tools; choose some with tools = [\"name\"]"));
        }
    }
    if left_out.len() > LEFT_OUT_MAX {
        let more = left_out.split_off(LEFT_OUT_MAX).len();
        left_out.push(format!("{more} more"));
    }
    let left_out = left_out.into_iter().map(|what| format!("the tool server {server}: left out: {what}")).collect();
    Ok(Offered { tools: tools.into_iter().map(|tool| tool as Arc<dyn Tool>).collect(), left_out })
}

/// A list as received.
struct Listed {
    entries: Vec<Value>,
    /// Why the list may be incomplete.
    left_out: Vec<String>,
}

/// Reads the pages of the list, as far as they can be read.
async fn read(connection: &Connection) -> Result<Listed, String> {
    let (mut entries, mut bytes, mut cursor): (Vec<Value>, usize, Option<String>) = (Vec::new(), 0, None);
    for n in 1..=PAGES_MAX {
        let mut page = match page(connection, cursor.clone()).await {
            Ok(page) => page,
            Err(why) if n == 1 => return Err(why),
            Err(why) => {
                return Ok(Listed { entries, left_out: vec![format!("page {n} of its list and all after it: {why}")] });
            }
        };
        if let Value::Array(tools) = page["tools"].take() {
            for tool in tools {
                bytes += tool.to_string().len();
                if entries.len() == LISTED_MAX || bytes > LISTED_BYTES_MAX {
                    let left_out = vec![format!("what its list has after its first {} tools", entries.len())];
                    return Ok(Listed { entries, left_out });
                }
                entries.push(tool);
            }
        }
        let next = page["nextCursor"].as_str().filter(|next| !next.is_empty()).map(str::to_owned);
        // A repeated cursor would never end.
        if next.is_none() || next == cursor {
            return Ok(Listed { entries, left_out: Vec::new() });
        }
        cursor = next;
    }
    Ok(Listed { entries, left_out: vec![format!("what its list has after page {PAGES_MAX}")] })
}

async fn page(connection: &Connection, cursor: Option<String>) -> Result<Value, String> {
    let request = ListToolsRequest::with_param(PaginatedRequestParams::default().with_cursor(cursor));
    match connection.peer().send_request(ClientRequest::ListToolsRequest(request)).await {
        Ok(ServerResult::CallToolResult(result)) => {
            let page = result_in(result);
            if page["tools"].is_array() { Ok(page) } else { Err("its list of tools has no tools".to_owned()) }
        }
        Ok(_) => Err(error_text(&ServiceError::UnexpectedResponse)),
        Err(error) => Err(error_text(&error)),
    }
}

fn ours(
    server: &str,
    config: &Mcp,
    connection: &Arc<Connection>,
    (own, entry): (&str, &Value),
) -> Result<McpTool, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let plain: String = own.chars().map(|c| if fits(c) { c } else { '_' }).collect();
    let name = match config.prefix.as_deref().unwrap_or(server) {
        "" => plain,
        prefix => format!("{prefix}_{plain}"),
    };
    check_name(&name)?;
    let schema = schema(&entry["inputSchema"])?;
    // A server's annotations of its tools are hints; where one is missing, the protocol assumes the worst.
    let hints = &entry["annotations"];
    let harmless = hints["readOnlyHint"] == true || hints["destructiveHint"] == false;
    Ok(McpTool {
        name,
        own_name: own.to_owned(),
        server: server.to_owned(),
        description: entry["description"]
            .as_str()
            .unwrap_or_default()
            .chars()
            .take(MCP_DESCRIPTION_CHARS_MAX)
            .collect(),
        schema,
        approval: config.approval.unwrap_or(!harmless),
        exclusive: config.exclusive.get(own).unwrap_or(&Exclusive::Is(!harmless)).shared(server),
        time_max: Duration::from_secs(config.timeout_s),
        connection: Arc::clone(connection),
    })
}

/// The schema for models: that of an object, because arguments always are one.
fn schema(given: &Value) -> Result<Value, String> {
    let mut schema = match given {
        // JSON Schema: `true` is the schema of anything.
        Value::Null | Value::Bool(true) => json!({}),
        Value::Object(_) => given.clone(),
        _ => return Err("its inputSchema is not a schema of an object".to_owned()),
    };
    match &schema["type"] {
        Value::Null => schema["type"] = json!("object"),
        Value::String(kind) if kind == "object" => {}
        Value::Array(kinds) if kinds.iter().any(|kind| kind == "object") => schema["type"] = json!("object"),
        _ => return Err("its inputSchema is not a schema of an object".to_owned()),
    }
    if schema.to_string().len() > MCP_SCHEMA_BYTES_MAX {
        return Err(format!("its inputSchema is longer than {MCP_SCHEMA_BYTES_MAX} bytes"));
    }
    Ok(schema)
}

impl Tool for McpTool {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.description
    }

    fn schema(&self) -> Value {
        self.schema.clone()
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
                Ok(CallToolResponse::Complete(given)) => result::of(result_in(given)),
                Ok(_) => self.failed(&ServiceError::UnexpectedResponse),
                Err(error) => self.failed(&error),
            }
        })
    }
}

impl McpTool {
    fn failed(&self, error: &ServiceError) -> Result<Value, ToolError> {
        Err(ToolError::Failed(format!("the tool server {}: {}", self.server, error_text(error))))
    }
}

/// Identifies the calling run, for servers that act for its user: the protocol's member for the trace, and our own
/// members.
fn about(context: &RunContext) -> RequestMetaObject {
    let mut meta = RequestMetaObject::new();
    if let Some(trace_id) = &context.trace_id {
        meta.set_traceparent(trace::parent_of(trace_id));
    }
    meta.0.0.insert("runreel/run_id".to_owned(), json!(context.run_id));
    let members = [("runreel/thread_id", json!(context.thread_id)), ("runreel/session_id", json!(context.session_id))];
    for (name, value) in members.into_iter().chain([("runreel/origin", json!(context.origin))]) {
        if !value.is_null() {
            meta.0.0.insert(name.to_owned(), value);
        }
    }
    meta
}

/// An error text without headers and addresses.
fn error_text(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => error.message.chars().take(ERROR_CHARS_MAX).collect(),
        ServiceError::Timeout { .. } => "no response in time".to_owned(),
        ServiceError::UnexpectedResponse => "unexpected response".to_owned(),
        _ => "connection lost".to_owned(),
    }
}
