//! A client's request: a `RunAgentInput`.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::VERSION;
use crate::domain::{
    id::{ExternalId, Malformed, SpanId, ThreadId},
    interrupt::{Answer, Decision},
    json::Json,
    limits::AGUI_RESUME_MAX,
};

/// A parsed request.
#[derive(Debug)]
pub struct Input {
    pub thread_id: ThreadId,
    /// The client's id of the AG-UI run.
    pub run_id: ExternalId,
    /// The answers in `resume`.
    pub answers: Vec<Answer>,
    /// The request as it was sent.
    whole: Json,
    members: Value,
}

/// What is wrong with a request: the member and the rule it breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidInput {
    pub field: &'static str,
    pub rule: &'static str,
}

impl InvalidInput {
    fn new(field: &'static str, rule: &'static str) -> Self {
        Self { field, rule }
    }
}

/// An entry of `resume`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    interrupt_id: SpanId,
    status: String,
    payload: Option<Json>,
}

impl Input {
    /// Parses a request. Unknown members are accepted, because AG-UI may add some.
    pub fn read(whole: Json) -> Result<Self, InvalidInput> {
        let members: Value =
            serde_json::from_str(whole.as_str()).map_err(|_| InvalidInput::new("", "this is not JSON"))?;
        let text =
            |name: &'static str| members[name].as_str().ok_or(InvalidInput::new(name, "a RunAgentInput has this text"));
        let broken = |field: &'static str| move |Malformed(rule): Malformed| InvalidInput { field, rule };
        let thread_id = text("threadId")?.parse().map_err(broken("threadId"))?;
        let run_id = text("runId")?.parse().map_err(broken("runId"))?;
        if !members["messages"].is_array() {
            return Err(InvalidInput::new("messages", "a RunAgentInput has a list of messages"));
        }
        let entries: Option<Vec<Entry>> = match members.get("resume") {
            None | Some(Value::Null) => Some(Vec::new()),
            Some(_) => whole.member("resume"),
        };
        let entries = entries.filter(|entries| entries.len() <= AGUI_RESUME_MAX);
        let rule = InvalidInput::new("resume", "resume is a list of at most 64 answers: interruptId, status, payload");
        let answers =
            entries.ok_or(rule)?.into_iter().map(|entry| answer(entry).ok_or(rule)).collect::<Result<_, _>>()?;
        Ok(Self { thread_id, run_id, answers, whole, members })
    }

    /// The stream that rejects the request, which has changed nothing.
    pub fn refusal(&self, code: &str, message: &str) -> Bytes {
        let (thread, run) = (&self.thread_id, &self.run_id);
        let started = json!({"type": "RUN_STARTED", "threadId": thread, "runId": run, "protocolVersion": VERSION});
        let error = json!({"type": "RUN_ERROR", "message": message, "code": code});
        format!("data: {started}\n\ndata: {error}\n\n").into()
    }

    /// The input for an agent without memory of its own: the whole request.
    pub fn whole(&self) -> Json {
        self.whole.clone()
    }

    /// The input for an agent that remembers the thread: the messages after its last one, without the request's ids, so
    /// that it is not mistaken for a whole request.
    pub fn news(&self) -> Json {
        let messages = self.members["messages"].as_array().map_or(&[][..], Vec::as_slice);
        let last_answer = messages.iter().rposition(|message| message["role"] == "assistant");
        let is_input = |message: &&Value| matches!(message["role"].as_str(), Some("user" | "tool"));
        let news: Vec<&Value> = messages[last_answer.map_or(0, |at| at + 1)..].iter().filter(is_input).collect();
        let mut input = json!({"messages": news});
        for name in ["tools", "context", "state", "forwardedProps"] {
            if let Some(value) = self.members.get(name).filter(|value| !value.is_null()) {
                input[name] = value.clone();
            }
        }
        Json::of(&input)
    }
}

/// Reads an entry of `resume`. `approved` decides; the value is the `value` or `reason` beside it, or the payload if it
/// has other members. A payload without `approved` is the answer. `None`: unknown status, or no payload.
fn answer(Entry { interrupt_id, status, payload }: Entry) -> Option<Answer> {
    let of = |decision, value| Some(Answer::new(interrupt_id.clone(), decision, value));
    match status.as_str() {
        "cancelled" => return of(Decision::Reject, None),
        "resolved" => {}
        _ => return None,
    }
    let value: Value = payload.as_ref().and_then(|payload| serde_json::from_str(payload.as_str()).ok())?;
    let only = |names: &[&str]| {
        value.as_object().is_some_and(|members| members.keys().all(|name| names.contains(&name.as_str())))
    };
    let part = |name: &str| payload.as_ref().and_then(|payload| payload.raw_member(name));
    match value["approved"].as_bool() {
        Some(true) if only(&["approved", "value"]) => of(Decision::Approve, part("value")),
        Some(false) if only(&["approved", "reason"]) => of(Decision::Reject, part("reason")),
        Some(true) => of(Decision::Approve, payload.clone()),
        Some(false) => of(Decision::Reject, payload.clone()),
        None => of(Decision::Respond, payload.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(members: &Value) -> Result<Input, InvalidInput> {
        let mut whole = json!({"threadId": "t", "runId": "r", "messages": []});
        for (name, value) in members.as_object().unwrap() {
            whole[name] = value.clone();
        }
        Input::read(Json::of(&whole))
    }

    #[test]
    fn what_is_new_comes_after_the_agents_last_message() {
        let messages = json!([
            {"id": "1", "role": "user", "content": "a"}, {"id": "2", "role": "assistant", "content": "b"},
            {"id": "3", "role": "tool", "content": "c", "toolCallId": "0198c0de-0000-7000-8000-000000000001/s1.tools.0"},
            {"id": "4", "role": "user", "content": "d"}, {"id": "5", "role": "tool", "content": "e", "toolCallId": "a/b"},
        ]);
        let input = input(&json!({"messages": messages, "tools": [{"name": "x"}], "state": null})).unwrap();
        let news: Value = serde_json::from_str(input.news().as_str()).unwrap();
        assert_eq!(news["messages"][0]["toolCallId"], messages[2]["toolCallId"]);
        assert_eq!((&news["messages"][1]["id"], &news["messages"][2]["toolCallId"]), (&json!("4"), &json!("a/b")));
        assert_eq!((news["tools"].clone(), news.get("state")), (json!([{"name": "x"}]), None));
        assert_eq!(input.whole().member::<Value>("messages").unwrap(), messages);
    }

    #[test]
    fn an_answer_decides_or_is_the_value() {
        let decided = |payload: Value| {
            let entry = json!({"interruptId": "i", "status": "resolved", "payload": payload});
            let answer = input(&json!({"resume": [entry]})).unwrap().answers.remove(0);
            (answer.decision, answer.value.map_or(Value::Null, |value| serde_json::from_str(value.as_str()).unwrap()))
        };
        assert_eq!(decided(json!({"approved": true})), (Decision::Approve, Value::Null));
        assert_eq!(decided(json!({"approved": false, "reason": "no"})), (Decision::Reject, json!("no")));
        let edited = json!({"approved": true, "editedArgs": {"a": 1}});
        assert_eq!(decided(edited.clone()), (Decision::Approve, edited));
        assert_eq!(decided(json!("blue")), (Decision::Respond, json!("blue")));
        let cancelled = input(&json!({"resume": [{"interruptId": "i", "status": "cancelled"}]})).unwrap();
        assert_eq!(cancelled.answers[0].decision, Decision::Reject);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (members, field) in [
            (json!({"threadId": "a b"}), "threadId"),
            (json!({"runId": 5}), "runId"),
            (json!({"messages": {}}), "messages"),
            (json!({"resume": [{"interruptId": "i", "status": "maybe"}]}), "resume"),
            (json!({"resume": vec![json!({"interruptId": "i", "status": "cancelled"}); 65]}), "resume"),
        ] {
            assert_eq!(input(&members).unwrap_err().field, field);
        }
    }
}
