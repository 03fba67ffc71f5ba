//! The body that `DefaultChatTransport` posts: the whole chat as the browser has it, and what triggered the post.
//!
//! The server's agents continue from their thread, so only new messages count: the user's after the last answer or, if
//! the last message is an answer, what the user added to its tool parts.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    domain::{
        id::{RunId, ThreadId},
        limits::AI_SDK_MESSAGE_ID_BYTES_MAX,
    },
    faces::asked::{Decided, InvalidMember, client_tools, id_of_run},
};

/// The body of a post. Members that an application adds are ignored.
#[derive(Debug, Deserialize)]
pub struct ChatRequest {
    /// The chat's id, also the thread's.
    pub id: ThreadId,
    messages: Vec<UiMessage>,
    #[serde(default)]
    tools: Value,
}

#[derive(Debug, Deserialize)]
struct UiMessage {
    #[serde(default)]
    id: String,
    role: Role,
    #[serde(default)]
    parts: Vec<Value>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Role {
    System,
    User,
    Assistant,
}

/// What is new in a post.
#[derive(Debug, PartialEq)]
pub enum Turn {
    /// The user wrote: the messages of a run's input.
    Wrote(Vec<Value>),
    /// The user answered questions of the last answer, or ran its tools.
    Continued(Continued),
}

/// What the user added to an answer.
#[derive(Debug, Default, PartialEq)]
pub struct Continued {
    /// The message to continue.
    pub message_id: String,
    pub decided: Vec<Decided>,
    pub outputs: Vec<Output>,
}

/// The result of a call that the client executed.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// As sent to the client.
    pub tool_call_id: String,
    /// A text, or the JSON of another value.
    pub content: String,
}

impl Output {
    /// The message of the next run's input, for the call with this id.
    pub fn message(&self, id: &str) -> Value {
        json!({"role": "tool", "tool_call_id": id, "content": self.content})
    }
}

impl Continued {
    /// The result for each of a run's calls, given by their ids in the run. Of several calls with one id, the client
    /// knows the second as `ID~2`, and so on in order.
    pub fn outputs_of(&self, run: RunId, calls: &[&str]) -> Vec<Option<&Output>> {
        let mut left: Vec<(&str, &Output)> = Vec::new();
        for output in &self.outputs {
            let (of, name) = id_of_run(&output.tool_call_id);
            if of.is_none_or(|of| of == run) {
                left.push((name, output));
            }
        }
        let mut take = |is: &dyn Fn(&str) -> bool| {
            let at = left.iter().position(|(name, _)| is(name))?;
            Some(left.remove(at).1)
        };
        let is_numbered = |name: &str, id: &str| {
            let number = name.strip_prefix(id).and_then(|rest| rest.strip_prefix('~'));
            number.is_some_and(|number| number.parse::<u32>().is_ok())
        };
        let exactly: Vec<_> = calls.iter().map(|id| take(&|name| name == *id)).collect();
        exactly
            .into_iter()
            .zip(calls)
            .map(|(found, id)| found.or_else(|| take(&|name| is_numbered(name, id))))
            .collect()
    }
}

impl ChatRequest {
    /// Determines what is new.
    pub fn turn(&self) -> Result<Turn, InvalidMember> {
        let last =
            self.messages.last().ok_or_else(|| InvalidMember::new("messages", "there must be at least one message"))?;
        if last.role == Role::Assistant {
            return self.continued(last).map(Turn::Continued);
        }
        let is_answer = |message: &UiMessage| message.role == Role::Assistant;
        let from = self.messages.iter().rposition(is_answer).map_or(0, |at| at + 1);
        let new = self.messages.iter().enumerate().skip(from);
        new.map(|(n, message)| written(n, message)).collect::<Result<_, _>>().map(Turn::Wrote)
    }

    /// The tools that the client executes, as a run's input has them.
    pub fn tools(&self) -> Result<Vec<Value>, InvalidMember> {
        client_tools("tools", &self.tools)
    }

    fn continued(&self, message: &UiMessage) -> Result<Continued, InvalidMember> {
        let at = format!("messages[{}]", self.messages.len() - 1);
        if !(1..=AI_SDK_MESSAGE_ID_BYTES_MAX).contains(&message.id.len()) {
            let rule = format!("a message's id has 1 to {AI_SDK_MESSAGE_ID_BYTES_MAX} bytes");
            return Err(InvalidMember::new(format!("{at}.id"), rule));
        }
        let mut continued = Continued { message_id: message.id.clone(), ..Continued::default() };
        let is_clients = |part: &Value| part["providerExecuted"] != true;
        for (n, part) in message.parts.iter().enumerate().filter(|(_, part)| is_tool(part)) {
            let invalid = |what: &str, rule: &str| InvalidMember::new(format!("{at}.parts[{n}].{what}"), rule);
            let call = || part["toolCallId"].as_str().ok_or_else(|| invalid("toolCallId", "must be a text"));
            match part["state"].as_str() {
                Some("approval-responded") => {
                    let (run_id, id) = part["approval"]["id"].as_str().map_or((None, ""), id_of_run);
                    let id = id.parse().ok();
                    let approved = part["approval"]["approved"].as_bool();
                    continued.decided.push(Decided {
                        run_id,
                        interrupt_id: id.ok_or_else(|| invalid("approval.id", "must be a span id"))?,
                        approved: approved.ok_or_else(|| invalid("approval.approved", "must be true or false"))?,
                        reason: part["approval"]["reason"].as_str().map(str::to_owned),
                    });
                }
                Some("output-available") if is_clients(part) => {
                    let content = part["output"].as_str().map_or_else(|| part["output"].to_string(), str::to_owned);
                    continued.outputs.push(Output { tool_call_id: call()?.to_owned(), content });
                }
                Some("output-error") if is_clients(part) => {
                    let content = format!("error: {}", part["errorText"].as_str().unwrap_or("the tool failed"));
                    continued.outputs.push(Output { tool_call_id: call()?.to_owned(), content });
                }
                _ => {}
            }
        }
        Ok(continued)
    }
}

fn is_tool(part: &Value) -> bool {
    part["type"].as_str().is_some_and(|kind| kind.starts_with("tool-") || kind == "dynamic-tool")
}

/// A user's message, as a run's input has it.
fn written(n: usize, message: &UiMessage) -> Result<Value, InvalidMember> {
    if message.role == Role::System {
        let rule = "system messages come from the agent's configuration; send the user's";
        return Err(InvalidMember::new(format!("messages[{n}].role"), rule));
    }
    let content: Vec<Value> = message.parts.iter().map(content_part).collect();
    if content.is_empty() {
        return Err(InvalidMember::new(format!("messages[{n}].parts"), "a message has at least one part"));
    }
    Ok(json!({"role": "user", "content": content}))
}

/// The server's agents read texts and images; other parts are passed unchanged, for other agents.
fn content_part(part: &Value) -> Value {
    let media_type = part["mediaType"].as_str().unwrap_or_default();
    match part["type"].as_str() {
        Some("text") => json!({"type": "text", "text": part["text"].as_str().unwrap_or_default()}),
        Some("file") if media_type.starts_with("image/") => {
            json!({"type": "image", "media_type": media_type, "url": part["url"]})
        }
        _ => part.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "0198c0de-0000-7000-8000-000000000001";

    #[test]
    fn each_call_gets_the_result_that_the_client_gave_under_the_calls_name() {
        let other = "0198c0de-0000-7000-8000-000000000002";
        let output = |id: &str| Output { tool_call_id: id.to_owned(), content: id.to_owned() };
        let of_run = |run: &str, id: &str| output(&format!("{run}/{id}"));
        let outputs = vec![of_run(other, "a"), of_run(RUN, "a~3"), of_run(RUN, "a"), of_run(RUN, "a~2"), output("b")];
        let continued = Continued { outputs, ..Continued::default() };
        let found = continued.outputs_of(RUN.parse().unwrap(), &["a~2", "a", "b", "a", "a"]);
        let found: Vec<_> = found.into_iter().map(|output| output.map(|output| output.content.as_str())).collect();
        let [a, second, third] = ["a", "a~2", "a~3"].map(|id| format!("{RUN}/{id}"));
        assert_eq!(found, [Some(&*second), Some(&*a), Some("b"), Some(&*third), None]);
    }

    fn turn(messages: &Value) -> Result<Turn, InvalidMember> {
        let body = json!({"id": "chat", "messages": messages, "trigger": "submit-message", "messageId": null});
        serde_json::from_value::<ChatRequest>(body).unwrap().turn()
    }

    fn text(role: &str, text: &str) -> Value {
        json!({"id": "m", "role": role, "parts": [{"type": "text", "text": text}]})
    }

    #[test]
    fn only_what_the_user_wrote_after_the_last_answer_is_new() {
        let found = turn(&json!([text("user", "a"), text("assistant", "b"), text("user", "c"), text("user", "d")]));
        let user = |words: &str| json!({"role": "user", "content": [{"type": "text", "text": words}]});
        assert_eq!(found, Ok(Turn::Wrote(vec![user("c"), user("d")])));
        assert_eq!(turn(&json!([text("user", "a")])), Ok(Turn::Wrote(vec![user("a")])));
    }

    #[test]
    fn a_picture_becomes_an_image_and_other_files_stay_as_they_are() {
        let file = json!({"type": "file", "mediaType": "application/pdf", "url": "data:application/pdf;base64,QQ=="});
        let image = json!({"type": "file", "mediaType": "image/png", "url": "data:image/png;base64,QQ=="});
        let Ok(Turn::Wrote(messages)) = turn(&json!([{"role": "user", "parts": [image, file]}])) else {
            panic!("a user wrote")
        };
        let shown = json!({"type": "image", "media_type": "image/png", "url": "data:image/png;base64,QQ=="});
        assert_eq!(messages[0]["content"], json!([shown, file]));
    }

    #[test]
    fn an_answer_with_decisions_and_outputs_goes_on() {
        let parts = json!([
            {"type": "step-start"},
            {"type": "tool-shell", "toolCallId": "s2.tools.0", "state": "approval-responded", "input": {},
             "approval": {"id": format!("{RUN}/s2.tools.0"), "approved": false, "reason": "no"}},
            {"type": "dynamic-tool", "toolName": "weather", "toolCallId": "c1", "state": "output-available",
             "output": {"sun": true}},
            {"type": "tool-weather", "toolCallId": "c2", "state": "output-available", "output": "rain"},
            {"type": "tool-weather", "toolCallId": "c3", "state": "output-error", "errorText": "offline"},
            {"type": "tool-weather", "toolCallId": "c4", "state": "input-available", "input": {}},
            {"type": "dynamic-tool", "toolName": "search", "toolCallId": "c5", "state": "output-available",
             "providerExecuted": true, "output": "found"},
        ]);
        let found = turn(&json!([text("user", "a"), {"id": "m1", "role": "assistant", "parts": parts}]));
        let output = |id: &str, content: &str| Output { tool_call_id: id.to_owned(), content: content.to_owned() };
        let (run_id, interrupt_id) = (RUN.parse().ok(), "s2.tools.0".parse().unwrap());
        let decided = vec![Decided { run_id, interrupt_id, approved: false, reason: Some("no".to_owned()) }];
        let outputs = vec![output("c1", r#"{"sun":true}"#), output("c2", "rain"), output("c3", "error: offline")];
        assert_eq!(found, Ok(Turn::Continued(Continued { message_id: "m1".to_owned(), decided, outputs })));
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let field = |messages: Value| turn(&messages).unwrap_err().field;
        assert_eq!(field(json!([])), "messages");
        assert_eq!(field(json!([text("system", "x"), text("user", "y")])), "messages[0].role");
        assert_eq!(field(json!([{"role": "user", "parts": []}])), "messages[0].parts");
        assert_eq!(field(json!([{"role": "assistant", "parts": []}])), "messages[0].id");
        let undecided =
            json!({"type": "tool-x", "toolCallId": "c", "state": "approval-responded", "approval": {"id": "c"}});
        assert_eq!(
            field(json!([{"id": "m", "role": "assistant", "parts": [undecided]}])),
            "messages[0].parts[0].approval.approved"
        );
    }
}
