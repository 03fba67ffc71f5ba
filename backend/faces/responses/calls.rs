//! Tool calls as items, the client's and the agent's own, and the approvals of calls.

use serde_json::{Value, json};

use super::{Responses, Said, output::AboutItem};
use crate::domain::json::JsonSlice;

/// The protocol's label for the server that executes the agent's own tools.
const SERVER_LABEL: &str = "runreel";

/// A call that has begun.
#[derive(Debug)]
pub(super) struct Call {
    index: usize,
    item: Value,
}

impl Responses {
    /// A call that the client executes: its result comes in the request for the next response.
    pub(super) fn client_call(&mut self, id: &str, name: &str, args: &str, out: &mut Vec<Said>) {
        let call_id = self.run.scoped(id);
        let item_id = format!("fc_{call_id}");
        let item = |status: &str, args: &str| {
            json!({"id": item_id, "type": "function_call", "call_id": call_id, "name": name, "arguments": args,
                "status": status})
        };
        let index = self.output.add(&item("in_progress", ""), out);
        let about = AboutItem { item_id: Some(&item_id), output_index: index, ..AboutItem::default() };
        let event_type = "response.function_call_arguments.delta";
        out.push(Said::of(&AboutItem { event_type, delta: Some(args), ..about }));
        let event_type = "response.function_call_arguments.done";
        out.push(Said::of(&AboutItem { event_type, name: Some(name), arguments: Some(args), ..about }));
        self.output.done(index, &item("completed", args), out);
    }

    /// A call that the agent executes itself.
    pub(super) fn call(&mut self, id: &str, name: &str, args: &str, out: &mut Vec<Said>) {
        let Call { index, item } = self.begin_call(id, name, args, out);
        let about = AboutItem { item_id: item["id"].as_str(), output_index: index, ..AboutItem::default() };
        out.push(Said::of(&AboutItem { event_type: "response.mcp_call.in_progress", ..about }));
        let event_type = "response.mcp_call_arguments.done";
        out.push(Said::of(&AboutItem { event_type, arguments: Some(args), ..about }));
        self.calls.insert(id.to_owned(), Call { index, item });
    }

    fn begin_call(&mut self, id: &str, name: &str, args: &str, out: &mut Vec<Said>) -> Call {
        let approval = self.approvals.remove(id).map(|id| self.run.scoped(&id));
        let item = json!({"id": self.item_id("mcp", id), "type": "mcp_call", "server_label": SERVER_LABEL, "name": name,
            "arguments": args, "status": "in_progress", "output": null, "error": null, "approval_request_id": approval});
        Call { index: self.output.add(&item, out), item }
    }

    /// Ends a call. One whose start is not known is begun here, without its arguments.
    pub(super) fn call_ends(&mut self, id: &str, name: &str, result: Result<&str, &str>, out: &mut Vec<Said>) {
        let begun = self.calls.remove(id);
        let Call { index, mut item } = begun.unwrap_or_else(|| self.begin_call(id, name, "{}", out));
        let (event_type, status) = match result {
            Ok(output) => {
                item["output"] = json!(output);
                ("response.mcp_call.completed", "completed")
            }
            Err(error) => {
                item["error"] =
                    json!({"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": error}]});
                ("response.mcp_call.failed", "failed")
            }
        };
        item["status"] = json!(status);
        let item_id = item["id"].as_str();
        out.push(Said::of(&AboutItem { event_type, item_id, output_index: index, ..AboutItem::default() }));
        self.output.done(index, &item, out);
    }

    pub(super) fn asked(&mut self, id: &str, call: Option<&str>, payload: JsonSlice<'_>, out: &mut Vec<Said>) {
        if payload.member::<String>("kind").as_deref() != Some("approval") {
            return;
        }
        let name: String = payload.member("tool").unwrap_or_else(|| "approval".to_owned());
        let args = payload.members().raw("args").map_or_else(|| "{}".to_owned(), |args| args.to_string());
        self.approvals.insert(call.unwrap_or(id).to_owned(), id.to_owned());
        let item = json!({"id": self.run.scoped(id), "type": "mcp_approval_request", "server_label": SERVER_LABEL,
            "name": name, "arguments": args});
        let index = self.output.add(&item, out);
        self.output.done(index, &item, out);
    }
}
