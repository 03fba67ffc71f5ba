//! Models that only play back: [`Echo`] and [`Script`]. For tests, demos and trying out a configuration.
//!
//! Their tokens are words. The same conversation always gets the same answer, because the number of the assistant's
//! messages so far selects the turn.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::agents::model::{
    Completing, Completion, Delta, Deltas, Finish, Message, MessageRole, Model, ModelError, ModelErrorKind, Part,
    Request, ToolCall, Usage,
};

/// Answers `echo: ` and the text of the last user message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Model for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn complete<'a>(&'a self, request: &'a Request, deltas: &'a mut Deltas<'_>) -> Completing<'a> {
        let text = format!("echo: {}", last_text(request, MessageRole::User));
        Box::pin(async move { Ok(played(request, &text, Vec::new(), Duration::ZERO, deltas).await) })
    }
}

/// Turns played one after the other.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// As the configuration names it.
    #[serde(skip)]
    name: String,
    turns: Vec<Turn>,
    /// Starts over after the last turn; otherwise answers that there are no more turns.
    #[serde(default)]
    repeat: bool,
    /// Pause after each word.
    #[serde(default)]
    pace_ms: u64,
}

/// One answer. Its text and the texts in its arguments may hold placeholders:
///
/// - `{user}` stands for the last user's text, `{tool}` for the last tool result,
/// - `{NAME}` for the last result of the calls of that name (`as`),
/// - `{tool.a.0.b}`, `{NAME.a.0.b}` for a member of a JSON result: a text without
///   trailing blanks, a list as its length, `?` if there is none.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Turn {
    pub text: Option<String>,
    pub reasoning: Option<String>,
    pub tool_calls: Vec<ScriptedCall>,
    /// Pause before the first word.
    pub delay_ms: u64,
    /// Fails in this way after the text, if any, was streamed.
    pub error: Option<Failure>,
}

/// A tool call of a script.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    pub name: String,
    /// The name by which placeholders refer to its result.
    #[serde(rename = "as")]
    pub called: Option<String>,
    #[serde(default = "no_args")]
    pub args: Value,
}

fn no_args() -> Value {
    Value::Object(serde_json::Map::new())
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Failure {
    pub kind: ModelErrorKind,
    pub message: String,
}

impl Script {
    pub fn new(name: &str, turns: Vec<Turn>, repeat: bool) -> Self {
        Self { name: name.to_owned(), turns, repeat, pace_ms: 0 }
    }

    /// Reads TOML: `[[turns]]` tables of `text`, `reasoning`, `tool_calls`, `delay_ms`, `error`, and `repeat` and
    /// `pace_ms` above.
    pub fn parse(name: &str, text: &str) -> Result<Self, toml::de::Error> {
        Self::of(name, toml::from_str(text)?)
    }

    /// Reads the same from a table of another document.
    pub fn of(name: &str, table: toml::Table) -> Result<Self, toml::de::Error> {
        Ok(Self { name: name.to_owned(), ..table.try_into()? })
    }

    /// The turn for the answer of this number.
    fn turn(&self, number: usize) -> Option<&Turn> {
        let at = if self.repeat && !self.turns.is_empty() { number % self.turns.len() } else { number };
        self.turns.get(at)
    }

    /// The text with its placeholders filled in, in one pass: inserted results are not expanded again.
    fn filled(&self, text: &str, request: &Request) -> String {
        let (mut out, mut rest) = (String::with_capacity(text.len()), text);
        while let Some((before, after)) = rest.split_once('{') {
            out.push_str(before);
            let placeholder = after.split_once('}');
            let found = placeholder.and_then(|(word, after)| Some((self.meant(word, request)?, after)));
            let (meant, after) = found.unwrap_or_else(|| ("{".to_owned(), after));
            out.push_str(&meant);
            rest = after;
        }
        out + rest
    }

    /// The value of a placeholder; `None` if it is not one.
    fn meant(&self, placeholder: &str, request: &Request) -> Option<String> {
        let (name, path) = placeholder.split_once('.').unwrap_or((placeholder, ""));
        match name {
            "user" => Some(last_text(request, MessageRole::User)),
            "tool" => Some(member(last_text(request, MessageRole::Tool), path)),
            name => self.result(name, request).map(|result| member(result, path)),
        }
    }

    /// The last result of the calls of this name; `None` if no call has it.
    fn result(&self, name: &str, request: &Request) -> Option<String> {
        let is_called = |wanted: &ScriptedCall| wanted.called.as_deref() == Some(name);
        let is_meant = |message: &&Message| {
            let place = message.tool_call_id.as_deref().and_then(place);
            let wanted = place.and_then(|(number, n)| self.turn(number)?.tool_calls.get(n));
            wanted.is_some_and(is_called)
        };
        let result = request.messages.iter().rfind(is_meant).map(Message::text);
        let is_known = self.turns.iter().flat_map(|turn| &turn.tool_calls).any(is_called);
        is_known.then(|| result.unwrap_or_default())
    }

    /// Arguments with the placeholders in their texts filled in.
    fn filled_in(&self, args: Value, request: &Request) -> Value {
        match args {
            Value::String(text) => Value::String(self.filled(&text, request)),
            Value::Array(items) => items.into_iter().map(|item| self.filled_in(item, request)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(name, member)| (name, self.filled_in(member, request))).collect()
            }
            other => other,
        }
    }
}

/// The call's id: the number of the answer in the conversation, and of the call in the answer.
fn call_id(number: usize, n: usize) -> String {
    format!("call_{number}_{n}")
}

/// The numbers in a call's id.
fn place(id: &str) -> Option<(usize, usize)> {
    let (number, n) = id.strip_prefix("call_")?.split_once('_')?;
    Some((number.parse().ok()?, n.parse().ok()?))
}

/// A member of a JSON result. A result that is not JSON (an error, say) is returned whole.
fn member(result: String, path: &str) -> String {
    if path.is_empty() {
        return result;
    }
    let Ok(whole @ (Value::Object(_) | Value::Array(_))) = serde_json::from_str::<Value>(&result) else {
        return result;
    };
    match whole.pointer(&format!("/{}", path.replace('.', "/"))) {
        Some(Value::String(text)) => text.trim_end().to_owned(),
        Some(Value::Array(items)) => items.len().to_string(),
        Some(other) => other.to_string(),
        None => "?".to_owned(),
    }
}

impl Model for Script {
    fn name(&self) -> &str {
        &self.name
    }

    fn complete<'a>(&'a self, request: &'a Request, deltas: &'a mut Deltas<'_>) -> Completing<'a> {
        Box::pin(async move {
            let number = request.messages.iter().filter(|message| message.role == MessageRole::Assistant).count();
            let over = || Turn { text: Some("The script has no more turns.".to_owned()), ..Turn::default() };
            let turn = self.turn(number).cloned().unwrap_or_else(over);
            if turn.delay_ms > 0 {
                tokio::time::sleep(Duration::from_millis(turn.delay_ms)).await;
            }
            if let Some(thought) = &turn.reasoning {
                deltas(Delta::Reasoning(thought.clone()));
            }
            let text = self.filled(&turn.text.unwrap_or_default(), request);
            let call = |(n, wanted): (usize, ScriptedCall)| ToolCall {
                id: call_id(number, n),
                name: wanted.name,
                args: self.filled_in(wanted.args, request),
                signatures: Vec::new(),
                origin: None,
            };
            let calls = turn.tool_calls.into_iter().enumerate().map(call).collect();
            let mut completion = played(request, &text, calls, Duration::from_millis(self.pace_ms), deltas).await;
            let thought = turn.reasoning.map(|text| Part::Reasoning { text, signature: None });
            completion.message.content.splice(0..0, thought);
            turn.error.map_or(Ok(completion), |error| Err(ModelError::new(error.kind, error.message)))
        })
    }
}

fn last_text(request: &Request, role: MessageRole) -> String {
    request.messages.iter().rfind(|message| message.role == role).map(Message::text).unwrap_or_default()
}

/// Streams the text word by word, yielding between two words.
async fn played(
    request: &Request,
    text: &str,
    tool_calls: Vec<ToolCall>,
    pace: Duration,
    deltas: &mut Deltas<'_>,
) -> Completion {
    for word in text.split_inclusive(char::is_whitespace) {
        deltas(Delta::Text(word.to_owned()));
        if pace.is_zero() || word.trim().is_empty() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pace).await;
        }
    }
    let words = |text: &str| text.split_whitespace().count() as u64;
    let usage = Usage {
        input_tokens: request.messages.iter().map(|message| words(&message.text())).sum(),
        output_tokens: words(text),
        ..Usage::default()
    };
    let finish = if tool_calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
    let content = if text.is_empty() { Vec::new() } else { vec![Part::text(text)] };
    let message = Message { role: MessageRole::Assistant, content, tool_calls, tool_call_id: None };
    Completion { message, usage, finish }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn ask(model: &dyn Model, messages: Vec<Message>) -> (Result<Completion, ModelError>, Vec<Delta>) {
        let (request, mut deltas) = (Request { messages, ..Request::default() }, Vec::new());
        let answer = model.complete(&request, &mut |delta| deltas.push(delta)).await;
        (answer, deltas)
    }

    #[tokio::test]
    async fn echo_says_what_the_last_user_said_word_by_word() {
        let (answer, deltas) = ask(&Echo, vec![Message::user("first"), Message::user("[t] [bob]: hello  you")]).await;
        let answer = answer.unwrap();
        assert_eq!(answer.message, Message::assistant("echo: [t] [bob]: hello  you"));
        assert_eq!(answer.finish, Finish::Stop);
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (5, 5));
        assert_eq!(deltas.len(), 6);
        let whole: String = deltas.iter().map(|delta| if let Delta::Text(text) = delta { text } else { "" }).collect();
        assert_eq!(whole, "echo: [t] [bob]: hello  you");
    }

    const SCRIPT: &str = r#"
        [[turns]]
        reasoning = "I need the file."
        tool_calls = [{ name = "files", args = { action = "list" } }, { name = "clock" }]
        [[turns]]
        text = "{user}: {tool}"
        [[turns]]
        text = "half "
        error = { kind = "transient", message = "overloaded" }
    "#;

    #[tokio::test]
    async fn a_script_goes_on_from_where_the_conversation_is() {
        let script = Script::parse("script:x", SCRIPT).unwrap();
        let mut messages = vec![Message::user("what is there?")];
        let (first, deltas) = ask(&script, messages.clone()).await;
        let first = first.unwrap();
        assert_eq!(first.finish, Finish::ToolCalls);
        assert_eq!(deltas, [Delta::Reasoning("I need the file.".to_owned())]);
        let thought = Part::Reasoning { text: "I need the file.".to_owned(), signature: None };
        assert_eq!(first.message.content, [thought]);
        let calls: Vec<_> = first.message.tool_calls.iter().map(|call| (call.id.as_str(), &call.args)).collect();
        assert_eq!(calls, [("call_0_0", &json!({"action": "list"})), ("call_0_1", &json!({}))]);

        messages.extend([first.message, Message::tool("call_0_0", "a.txt")]);
        let second = ask(&script, messages.clone()).await.0.unwrap();
        assert_eq!(second.message.text(), "what is there?: a.txt");
        // Asked again, it gives the same answer: it is stateless.
        assert_eq!(ask(&script, messages.clone()).await.0.unwrap(), second);

        messages.push(second.message);
        let (third, deltas) = ask(&script, messages.clone()).await;
        assert_eq!(third.unwrap_err().kind, ModelErrorKind::Transient);
        assert_eq!(deltas, [Delta::Text("half ".to_owned())]);
        messages.push(Message::assistant("half"));
        assert_eq!(ask(&script, messages).await.0.unwrap().message.text(), "The script has no more turns.");
    }

    #[tokio::test]
    async fn a_script_tells_what_its_calls_brought() {
        let text = r#"
            [[turns]]
            tool_calls = [{ name = "shell", as = "count" }, { name = "files_search", as = "found" }]
            [[turns]]
            text = "{count.stdout} files, {found.lines} lines, first in {found.lines.0.path}, {found.no} {x} {user}"
            tool_calls = [{ name = "files_read", as = "gone", args = { path = "{found.lines.0.path}" } }]
            [[turns]]
            text = "{gone.text} {found.lines} {tool}"
        "#;
        let script = Script::parse("script:x", text).unwrap();
        let mut messages =
            vec![Message::user("as {count} says"), Message { tool_calls: Vec::new(), ..Message::assistant("") }];
        messages.push(Message::tool("call_0_0", r#"{"exit_code":0,"stdout":"12\n"}"#));
        messages.push(Message::tool("call_0_1", r#"{"lines":[{"path":"a.rs"},{"path":"{user}"}]}"#));
        let answer = ask(&script, messages.clone()).await.0.unwrap().message;
        assert_eq!(answer.text(), "12 files, 2 lines, first in a.rs, ? {x} as {count} says");
        assert_eq!(answer.tool_calls[0].args, json!({"path": "a.rs"}));
        messages.extend([answer, Message::tool("call_1_0", "error: no such file")]);
        let answer = ask(&script, messages).await.0.unwrap().message;
        assert_eq!(answer.text(), "error: no such file 2 error: no such file");
    }

    #[tokio::test(start_paused = true)]
    async fn a_script_takes_its_time_between_two_words() {
        let script = Script::parse("script:x", "pace_ms = 50\n[[turns]]\ntext = \"one  two\\nthree\"").unwrap();
        let began = tokio::time::Instant::now();
        let (answer, deltas) = ask(&script, vec![Message::user("?")]).await;
        assert_eq!((answer.unwrap().message.text().as_str(), deltas.len()), ("one  two\nthree", 4));
        assert_eq!(began.elapsed(), Duration::from_millis(150));
    }

    #[tokio::test]
    async fn a_script_may_begin_again() {
        let script = Script::parse("script:x", "repeat = true\n[[turns]]\ntext = 'a'\n[[turns]]\ntext = 'b'").unwrap();
        let messages = vec![Message::assistant("a"), Message::assistant("b"), Message::user("?")];
        assert_eq!(ask(&script, messages).await.0.unwrap().message.text(), "a");
        assert!(Script::parse("script:x", "turn = []").is_err());
    }
}
