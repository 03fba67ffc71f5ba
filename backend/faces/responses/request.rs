//! The body of `responses.create`. A member that only advises is ignored; one that would have to change what the agent
//! does, or that does not exist, is rejected by its name.

use serde_json::{Map, Value, json};

use crate::{
    domain::{
        id::{Name, RunId, ThreadId},
        limits::{RESPONSE_METADATA_MAX, RESPONSE_METADATA_NAME_CHARS_MAX, RESPONSE_METADATA_TEXT_CHARS_MAX},
    },
    faces::asked::{Decided, InvalidMember, client_tool},
};

/// Prefix of a response's id, before its run's id.
pub const ID_PREFIX: &str = "resp_";

/// Members that are accepted without effect.
const IGNORED: [&str; 14] = [
    "include",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "stream_options",
    "top_logprobs",
    "truncation",
    "user",
    "background_options",
    "access_programs",
    "context_management",
];

/// Members that cannot take effect, and why. Null is accepted.
const REFUSED: [(&str, &str); 13] = [
    ("instructions", "an agent's instructions are those of its configuration"),
    ("temperature", "an agent's temperature is that of its configuration"),
    ("top_p", "an agent's sampling is that of its configuration"),
    ("presence_penalty", "an agent's sampling is that of its configuration"),
    ("frequency_penalty", "an agent's sampling is that of its configuration"),
    ("max_output_tokens", "an agent's bounds are those of its configuration"),
    ("max_tool_calls", "an agent's bounds are those of its configuration"),
    ("reasoning", "an agent's reasoning is that of its configuration"),
    ("prompt", "there are no stored prompts"),
    ("moderation", "there is no moderation"),
    ("image", "no images are made"),
    ("text", "only plain text is written"),
    ("tool_choice", "the agent chooses its tools"),
];

/// A response to create.
#[derive(Debug, PartialEq)]
pub struct CreateResponse {
    pub agent: Name,
    /// The messages of the run's input, the results of the client's calls among them.
    pub messages: Vec<Value>,
    pub decided: Vec<Decided>,
    /// The run that asked for the approvals.
    approves: Option<RunId>,
    /// The tools that the client executes, as a run's input has them.
    pub tools: Vec<Value>,
    pub background: bool,
    pub store: bool,
    pub stream: bool,
    pub previous: Option<RunId>,
    pub conversation: Option<ThreadId>,
    /// At most 16 pairs of texts.
    pub metadata: Map<String, Value>,
}

impl CreateResponse {
    /// Reads a body.
    pub fn read(body: &Map<String, Value>) -> Result<Self, InvalidMember> {
        let agent = body
            .get("model")
            .and_then(Value::as_str)
            .ok_or_else(|| InvalidMember::new("model", "must name an agent"))?;
        let agent = agent.parse().map_err(|_| InvalidMember::new("model", "must name an agent"))?;
        let mut new = Self {
            agent,
            messages: Vec::new(),
            decided: Vec::new(),
            approves: None,
            tools: Vec::new(),
            background: false,
            store: true,
            stream: false,
            previous: None,
            conversation: None,
            metadata: Map::new(),
        };
        for (name, value) in body.iter().filter(|(_, value)| !value.is_null()) {
            new.take(name, value)?;
        }
        if new.messages.is_empty() && new.decided.is_empty() {
            return Err(InvalidMember::new("input", "must be a text, or a list of at least one item"));
        }
        new.check_approvals()?;
        if new.previous.is_some() && new.conversation.is_some() {
            return Err(InvalidMember::new("conversation", "cannot be given beside previous_response_id"));
        }
        Ok(new)
    }

    /// An approval belongs to the response that asked for it, and to no other with a call of the same id.
    fn check_approvals(&self) -> Result<(), InvalidMember> {
        match (self.previous, self.approves) {
            (None, Some(_)) => {
                let rule = "approvals need previous_response_id, the response that asked";
                Err(InvalidMember::new("previous_response_id", rule))
            }
            (Some(previous), Some(asker)) if previous != asker => {
                let rule = "the approval is of another response than previous_response_id";
                Err(InvalidMember::new("input", rule))
            }
            _ => Ok(()),
        }
    }

    fn take(&mut self, name: &str, value: &Value) -> Result<(), InvalidMember> {
        match name {
            "model" => {}
            "input" => self.take_input(value)?,
            "background" => self.background = flag(name, value)?,
            "store" => self.store = flag(name, value)?,
            "stream" => self.stream = flag(name, value)?,
            "tools" => self.tools = tools(value)?,
            "metadata" => self.metadata = metadata(value)?,
            "previous_response_id" => {
                let id = value.as_str().and_then(run_of);
                self.previous = Some(id.ok_or_else(|| InvalidMember::new(name, "must be the id of a response"))?);
            }
            "conversation" => {
                let id = value.as_str().or_else(|| value["id"].as_str()).and_then(|id| id.parse().ok());
                let rule = "must be the id of a thread: 1 to 255 characters of A-Z a-z 0-9 . _ : @ + -";
                self.conversation = Some(id.ok_or_else(|| InvalidMember::new(name, rule))?);
            }
            "text" if is_plain_text(value) => {}
            "tool_choice" if value == "auto" => {}
            name if IGNORED.contains(&name) => {}
            name => {
                let refused = REFUSED.iter().find(|(refused, _)| *refused == name);
                let rule = refused.map_or("is not a parameter", |(_, rule)| *rule);
                return Err(InvalidMember::new(name, format!("{name}: {rule}")));
            }
        }
        Ok(())
    }

    fn take_input(&mut self, input: &Value) -> Result<(), InvalidMember> {
        if let Some(text) = input.as_str() {
            self.messages.push(json!({"role": "user", "content": [{"type": "text", "text": text}]}));
            return Ok(());
        }
        let items = input.as_array().ok_or_else(|| InvalidMember::new("input", "must be a text or a list of items"))?;
        for (n, item) in items.iter().enumerate() {
            let at = format!("input[{n}]");
            match item["type"].as_str().unwrap_or("message") {
                "message" => self.messages.push(message(&at, item)?),
                "function_call_output" => self.messages.push(tool_output(&at, item)?),
                "mcp_approval_response" => {
                    let (asker, decided) = decided(&at, item)?;
                    if self.approves.replace(asker).is_some_and(|other| other != asker) {
                        return Err(InvalidMember::new(at, "the approvals are of two responses"));
                    }
                    self.decided.push(decided);
                }
                // The thread has these already: a client may send the last response's output back.
                "reasoning" | "function_call" | "mcp_call" | "mcp_approval_request" | "item_reference" => {
                    let rule = "the agent continues from its thread; send previous_response_id and only what is new";
                    return Err(InvalidMember::new(at, rule));
                }
                _ => return Err(InvalidMember::new(format!("{at}.type"), "this kind of item is not supported")),
            }
        }
        Ok(())
    }
}

/// The run that a response's id names.
pub fn run_of(id: &str) -> Option<RunId> {
    id.strip_prefix(ID_PREFIX)?.parse().ok()
}

fn flag(name: &str, value: &Value) -> Result<bool, InvalidMember> {
    value.as_bool().ok_or_else(|| InvalidMember::new(name, format!("{name} must be true or false")))
}

fn is_plain_text(text: &Value) -> bool {
    let is_plain = |(name, value): (&String, &Value)| name == "format" && (value.is_null() || value["type"] == "text");
    text.as_object().is_some_and(|members| members.iter().all(is_plain))
}

fn tools(value: &Value) -> Result<Vec<Value>, InvalidMember> {
    let list = value.as_array().ok_or_else(|| InvalidMember::new("tools", "must be a list"))?;
    let tool = |(n, tool): (usize, &Value)| {
        let at = format!("tools[{n}]");
        if tool["type"] != "function" {
            let rule = "only function tools, which the client executes; the agent has its own";
            return Err(InvalidMember::new(format!("{at}.type"), rule));
        }
        client_tool(&at, tool["name"].as_str(), tool)
    };
    let specs: Vec<Value> = list.iter().enumerate().map(tool).collect::<Result<_, _>>()?;
    crate::faces::asked::client_tools("tools", &Value::Array(specs))
}

fn metadata(value: &Value) -> Result<Map<String, Value>, InvalidMember> {
    let fits = |(name, value): (&String, &Value)| {
        name.chars().count() <= RESPONSE_METADATA_NAME_CHARS_MAX
            && value.as_str().is_some_and(|text| text.chars().count() <= RESPONSE_METADATA_TEXT_CHARS_MAX)
    };
    let pairs = value.as_object().filter(|pairs| pairs.len() <= RESPONSE_METADATA_MAX && pairs.iter().all(fits));
    let rule = || {
        let (name, text) = (RESPONSE_METADATA_NAME_CHARS_MAX, RESPONSE_METADATA_TEXT_CHARS_MAX);
        format!("at most {RESPONSE_METADATA_MAX} pairs: names of at most {name} characters, texts of at most {text}")
    };
    pairs.cloned().ok_or_else(|| InvalidMember::new("metadata", rule()))
}

fn message(at: &str, item: &Value) -> Result<Value, InvalidMember> {
    let role = item["role"].as_str().unwrap_or_default();
    if !matches!(role, "user" | "assistant" | "system" | "developer") {
        return Err(InvalidMember::new(format!("{at}.role"), "must be user, assistant, system or developer"));
    }
    let content = match &item["content"] {
        Value::String(text) => vec![json!({"type": "text", "text": text})],
        Value::Array(parts) => parts
            .iter()
            .enumerate()
            .map(|(n, part)| content_part(&format!("{at}.content[{n}]"), part))
            .collect::<Result<_, _>>()?,
        _ => return Err(InvalidMember::new(format!("{at}.content"), "must be a text or a list of parts")),
    };
    Ok(json!({"role": role, "content": content}))
}

fn content_part(at: &str, part: &Value) -> Result<Value, InvalidMember> {
    match part["type"].as_str() {
        Some("input_text" | "output_text") => {
            Ok(json!({"type": "text", "text": part["text"].as_str().unwrap_or_default()}))
        }
        Some("input_image") => {
            let url = part["image_url"].as_str().unwrap_or_default();
            let media_type =
                url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")).map(|(kind, _)| kind);
            let rule = "an image is a data URI in base64";
            let media_type = media_type.ok_or_else(|| InvalidMember::new(format!("{at}.image_url"), rule))?;
            Ok(json!({"type": "image", "media_type": media_type, "url": url}))
        }
        _ => Err(InvalidMember::new(format!("{at}.type"), "must be input_text or input_image")),
    }
}

fn tool_output(at: &str, item: &Value) -> Result<Value, InvalidMember> {
    let id = item["call_id"].as_str().ok_or_else(|| InvalidMember::new(format!("{at}.call_id"), "must be a text"))?;
    let content = match &item["output"] {
        Value::String(text) => text.clone(),
        Value::Null => return Err(InvalidMember::new(format!("{at}.output"), "must be a text or a list of parts")),
        other => other.to_string(),
    };
    Ok(json!({"role": "tool", "tool_call_id": id, "content": content}))
}

fn decided(at: &str, item: &Value) -> Result<(RunId, Decided), InvalidMember> {
    let id = item["approval_request_id"].as_str().and_then(|id| id.split_once('/'));
    let id = id.and_then(|(run, id)| Some((run.parse().ok()?, id.parse().ok()?)));
    let rule = "must be the id of an mcp_approval_request";
    let (run, interrupt_id) = id.ok_or_else(|| InvalidMember::new(format!("{at}.approval_request_id"), rule))?;
    let approved = item["approve"].as_bool();
    let approved = approved.ok_or_else(|| InvalidMember::new(format!("{at}.approve"), "must be true or false"))?;
    let reason = item["reason"].as_str().map(str::to_owned);
    Ok((run, Decided { run_id: Some(run), interrupt_id, approved, reason }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(more: &Value) -> Result<CreateResponse, InvalidMember> {
        let mut body = json!({"model": "helper", "input": "hi"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        CreateResponse::read(body.as_object().unwrap())
    }

    #[test]
    fn a_text_and_a_list_of_messages_become_the_messages_of_a_run() {
        let user = json!({"role": "user", "content": [{"type": "text", "text": "hi"}]});
        assert_eq!(read(&json!({})).unwrap().messages, std::slice::from_ref(&user));
        let items = json!([{"role": "user", "content": "hi"}, {"type": "message", "role": "assistant",
            "content": [{"type": "output_text", "text": "hello"}]},
            {"type": "function_call_output", "call_id": "c", "output": "42"}]);
        let messages = read(&json!({"input": items})).unwrap().messages;
        assert_eq!(messages[0], user);
        assert_eq!(messages[1], json!({"role": "assistant", "content": [{"type": "text", "text": "hello"}]}));
        assert_eq!(messages[2], json!({"role": "tool", "tool_call_id": "c", "content": "42"}));
    }

    #[test]
    fn a_member_is_used_or_ignored_or_refused_by_its_name() {
        assert!(read(&json!({"user": "u", "truncation": "auto", "instructions": null, "tool_choice": "auto"})).is_ok());
        assert!(read(&json!({"text": {"format": {"type": "text"}}})).is_ok());
        for name in ["instructions", "temperature", "max_output_tokens", "reasoning", "text", "tool_choice", "typo"] {
            let invalid = read(&json!({name: {"format": {"type": "json_schema"}}})).unwrap_err();
            assert_eq!(invalid.field, name);
        }
        assert_eq!(read(&json!({"tools": [{"type": "web_search"}]})).unwrap_err().field, "tools[0].type");
        assert_eq!(read(&json!({"input": []})).unwrap_err().field, "input");
        assert_eq!(read(&json!({"model": null})).unwrap_err().field, "model");
        assert_eq!(read(&json!({"stream": "yes"})).unwrap_err().field, "stream");
        assert_eq!(read(&json!({"metadata": {"a": 1}})).unwrap_err().field, "metadata");
        assert_eq!(read(&json!({"previous_response_id": "resp_x"})).unwrap_err().field, "previous_response_id");
    }

    #[test]
    fn tools_and_approvals_are_those_of_a_run() {
        let tool = json!({"type": "function", "name": "weather", "parameters": {"type": "object"}, "strict": true});
        let run = "0198c0de-0000-7000-8000-000000000001";
        let approval = |id: &str| json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": true});
        let id = format!("{run}/s2.tools.0");
        let body = json!({"tools": [tool], "input": [approval(&id)], "store": false,
            "previous_response_id": format!("resp_{run}")});
        let new = read(&body).unwrap();
        assert_eq!(new.tools, [json!({"name": "weather", "description": "", "parameters": {"type": "object"}})]);
        let interrupt_id = "s2.tools.0".parse().unwrap();
        assert_eq!(new.decided, [Decided { run_id: run.parse().ok(), interrupt_id, approved: true, reason: None }]);
        assert!(!new.store && new.messages.is_empty());
        let other = "resp_0198c0de-0000-7000-8000-000000000002";
        for (id, previous, field) in [
            (id.as_str(), None, "previous_response_id"),
            (&id, Some(other), "input"),
            ("s2.tools.0", Some(other), "input[0].approval_request_id"),
        ] {
            let body = json!({"input": [approval(id)], "previous_response_id": previous});
            assert_eq!(read(&body).unwrap_err().field, field);
        }
    }
}
