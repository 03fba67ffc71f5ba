//! Rewrites a server's messages before the library parses them: its types refuse a whole message for one member they do
//! not know, and a message refused without its id leaves its caller waiting until the time limit.
//!
//! So every answer that names its request becomes one that the library accepts, readable or not. A result is passed on
//! unchanged, under `structuredContent`; `result` and `tool` read it ([`result_in`]).

use rmcp::model::{CallToolResult, ErrorCode};
use serde_json::{Map, Value, json};

use crate::domain::lenient;

/// Maximum bytes kept of a top-level token of an unreadable message.
const TOKEN_BYTES_MAX: usize = 64;

/// The messages in one line, body or event. `asked` is the id of the request that a message without a usable id
/// answers.
pub(super) fn read(bytes: &[u8], asked: Option<&Value>) -> Vec<Value> {
    match lenient::value(bytes) {
        // Protocol version 2025-03-26 has batches.
        Ok(Value::Array(batch)) => batch.into_iter().filter_map(|message| one(message, asked)).collect(),
        Ok(message) => one(message, asked).into_iter().collect(),
        Err(error) => {
            let mut outline = Outline::default();
            outline.push(bytes);
            outline.failure(&format!("its answer cannot be read: {error}")).into_iter().collect()
        }
    }
}

/// Maximum nesting of a result: `serde_json` reads 127 levels, of which the library uses two around the result.
const RESULT_DEPTH_MAX: usize = 125;

/// An error as the answer to a request.
pub(super) fn failure(id: &Value, message: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": ErrorCode::PARSE_ERROR, "message": message}})
}

/// Whether this ends a request.
pub(super) fn is_answer(message: &Value) -> bool {
    message.get("result").is_some() || message.get("error").is_some()
}

/// A result as the server sent it.
pub(super) fn result_in(result: CallToolResult) -> Value {
    result.structured_content.unwrap_or_default()
}

fn one(message: Value, asked: Option<&Value>) -> Option<Value> {
    let Value::Object(mut members) = message else { return None };
    let error = members.remove("error").filter(|error| !error.is_null());
    let result = members.remove("result");
    let is_call = members.get("method").and_then(Value::as_str).is_some_and(|method| !method.is_empty());
    if is_call && error.is_none() && result.is_none() {
        return Some(Value::Object(members));
    }
    let own = members.get("id").and_then(id);
    // A message without any of them is not an answer.
    let is_named = own.is_some() || error.is_some() || result.is_some();
    let id = own.or_else(|| asked.cloned()).filter(|_| is_named)?;
    Some(match (error, result) {
        (Some(error), _) => json!({"jsonrpc": "2.0", "id": id, "error": readable_error(&error)}),
        (None, Some(result)) if !is_within(&result, RESULT_DEPTH_MAX) => failure(&id, "its answer is nested too deep"),
        (None, Some(result)) => json!({"jsonrpc": "2.0", "id": id, "result": wrapped(result)}),
        (None, None) => failure(&id, "its answer has neither a result nor an error"),
    })
}

/// An id as the library reads it: a string or a whole number, which may be written as `3.0`.
fn id(id: &Value) -> Option<Value> {
    match id {
        Value::String(_) => Some(id.clone()),
        Value::Number(number) if number.is_i64() || number.is_u64() => Some(id.clone()),
        Value::Number(number) => number.to_string().strip_suffix(".0")?.parse::<i64>().ok().map(Value::from),
        _ => None,
    }
}

/// The readable parts of an error: a code that is not a number is put before the message.
fn readable_error(error: &Value) -> Value {
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let code = error.get("code");
    let number = code.and_then(Value::as_i64).and_then(|code| i32::try_from(code).ok());
    let detail = ["message", "data"].iter().find_map(|name| error.get(name).and_then(text));
    let message = match (number, code.and_then(text), detail) {
        (None, Some(code), Some(detail)) => format!("{code}: {detail}"),
        (Some(_), _, Some(detail)) | (None, None, Some(detail)) => detail,
        (_, Some(code), None) => format!("error {code}"),
        (_, None, None) => text(error).unwrap_or_default(),
    };
    json!({"code": number.unwrap_or(ErrorCode::INTERNAL_ERROR.0), "message": message})
}

fn is_within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| is_within(item, levels - 1)),
        Value::Object(members) => levels > 0 && members.values().all(|member| is_within(member, levels - 1)),
        _ => true,
    }
}

/// A result in a form that the library accepts. Of the handshake only the version is used.
fn wrapped(result: Value) -> Value {
    match result.get("protocolVersion") {
        Some(Value::String(version)) => {
            json!({"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "", "version": ""}})
        }
        _ => Value::Object(Map::from_iter([("structuredContent".to_owned(), result)])),
    }
}

/// The top level of a message that is not JSON or is too long: enough to identify the request it answers.
#[derive(Debug, Default)]
pub(super) struct Outline {
    depth: usize,
    in_text: bool,
    is_escaped: bool,
    token: Vec<u8>,
    key: Vec<u8>,
    id: Option<Value>,
    is_call: bool,
}

impl Outline {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.take(*byte);
        }
    }

    /// An error as the answer to the request; `None` if the message names none.
    pub(super) fn failure(&self, why: &str) -> Option<Value> {
        self.id.as_ref().filter(|_| !self.is_call).map(|id| failure(id, why))
    }

    fn take(&mut self, byte: u8) {
        if self.in_text {
            self.in_text = self.is_escaped || byte != b'"';
            self.is_escaped = byte == b'\\' && !self.is_escaped;
            return self.keep(byte);
        }
        match byte {
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.member();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.member(),
            b':' if self.depth == 1 => self.key = std::mem::take(&mut self.token),
            _ => {
                self.in_text = byte == b'"';
                self.keep(byte);
            }
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < TOKEN_BYTES_MAX {
            self.token.push(byte);
        }
    }

    /// Ends a member of the top level.
    fn member(&mut self) {
        if self.depth != 1 {
            return;
        }
        let (key, value) = (std::mem::take(&mut self.key), std::mem::take(&mut self.token));
        match key.trim_ascii() {
            b"\"id\"" if self.id.is_none() => self.id = serde_json::from_slice(&value).ok().as_ref().and_then(id),
            b"\"method\"" => self.is_call = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_of(text: &str) -> Value {
        let mut messages = read(text.as_bytes(), None);
        assert_eq!(messages.len(), 1, "{text}: {messages:?}");
        messages.remove(0)
    }

    #[test]
    fn an_error_is_told_with_what_can_be_read_of_it() {
        for (error, code, message) in [
            (r#"{"code": -32000, "message": "it broke"}"#, -32000, "it broke"),
            (r#"{"code": -32000}"#, -32000, "error -32000"),
            (r#"{"code": "E_FAIL", "message": "it broke"}"#, -32603, "E_FAIL: it broke"),
            (r#"{"message": {"en": "no"}}"#, -32603, r#"{"en":"no"}"#),
            (r#"{"code": true, "data": "why"}"#, -32603, "true: why"),
            (r#""plain""#, -32603, "plain"),
            ("[]", -32603, "[]"),
            ("{}", -32603, "{}"),
        ] {
            let read = one_of(&format!(r#"{{"jsonrpc":"2.0","id":3,"error":{error}}}"#));
            assert_eq!(read, json!({"jsonrpc": "2.0", "id": 3, "error": {"code": code, "message": message}}));
            assert!(serde_json::from_value::<rmcp::model::ServerJsonRpcMessage>(read).is_ok());
        }
    }

    #[test]
    fn every_result_is_accepted_by_the_library_and_comes_back_whole() {
        use rmcp::model::{ServerJsonRpcMessage, ServerResult};
        for result in [
            json!(null),
            json!("text"),
            json!([]),
            json!({}),
            json!({"tools": [{"name": "a"}]}),
            json!({"content": [{"type": "video"}], "isError": 1}),
            json!({"resultType": "input_required"}),
            json!({"action": "accept", "messages": [], "completion": 3}),
        ] {
            let read = one_of(&json!({"id": "7", "error": null, "result": result}).to_string());
            let Ok(ServerJsonRpcMessage::Response(response)) = serde_json::from_value(read) else { panic!("{result}") };
            let ServerResult::CallToolResult(read) = response.result else { panic!("{result}") };
            assert_eq!(result_in(read), result);
        }
        let begun = one_of(r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":[]}}"#);
        let Ok(ServerJsonRpcMessage::Response(response)) = serde_json::from_value(begun) else { panic!() };
        assert!(matches!(response.result, ServerResult::InitializeResult(_)));
    }

    #[test]
    fn an_answer_ends_its_call_however_deep_it_is_nested() {
        let nested = |depth: usize| format!(r#"{{"id":7,"result":{}{}}}"#, "[".repeat(depth), "]".repeat(depth));
        for depth in 1..=200 {
            // As it goes to the library.
            let read: Value = serde_json::from_str(&one_of(&nested(depth)).to_string()).unwrap();
            assert_eq!((&read["id"], read["error"].is_null()), (&json!(7), depth <= RESULT_DEPTH_MAX), "{depth}");
        }
    }

    #[test]
    fn what_cannot_be_read_still_fails_the_request_it_names() {
        for text in [
            r#"{"jsonrpc":"2.0","id":3,"result":{"n":NaN}}"#,
            r#"{"result":{"text":"\x"},"jsonrpc":"2.0","id":3}"#,
            r#"{"result":{"id":9,"a":[1,"}"]},"id": 3 ,"x"#,
            r#"{"id":3.0,"result":{"content":[{"type":"text","text":"cut"#,
            r#"{"id":3}"#,
        ] {
            let read = one_of(text);
            assert_eq!((&read["id"], &read["error"]["code"]), (&json!(3), &json!(-32700)), "{text}");
        }
        for nobodys in ["hello", "{", "[]", "3", r#"{"id":3,"method":"ping","params":NaN}"#, r#"{"id":null}"#] {
            assert_eq!(read(nobodys.as_bytes(), None), Vec::<Value>::new(), "{nobodys}");
        }
    }

    #[test]
    fn an_answer_without_an_id_is_that_of_the_request_it_came_with() {
        let asked = json!(5);
        let error = read(br#"{"id":null,"error":{"code":-32600,"message":"no"}}"#, Some(&asked));
        assert_eq!(error[0]["id"], asked);
        let batch = read(br#"[{"method":"notifications/message"},{"id":5,"result":1},{"id":1.5}]"#, Some(&asked));
        assert_eq!(batch.iter().map(is_answer).collect::<Vec<_>>(), [false, true]);
        assert!(read(br#"{"hello":1}"#, Some(&asked)).is_empty());
    }
}
