//! Models that only play back: [`Echo`] and [`Script`]. For tests, demos and trying a configuration out.
//!
//! They understand nothing. Their tokens are words. The same conversation always gets the same answer, because which
//! turn is played follows from the conversation alone: it is the number of the assistant's messages so far.

use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::agents::model::{
    Completing, Completion, Delta, Deltas, Finish, Message, Model, ModelError, ModelErrorKind, Part, Request, Speaker,
    ToolCall, Usage,
};

/// Answers `echo: ` and the text of the last user's message.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Model for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn complete<'a>(&'a self, request: &'a Request, deltas: &'a mut Deltas<'_>) -> Completing<'a> {
        let text = format!("echo: {}", last_text(request, Speaker::User));
        Box::pin(async move { Ok(played(request, &text, Vec::new(), deltas).await) })
    }
}

/// Turns that are played one after the other.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// As the configuration names it.
    #[serde(skip)]
    name: String,
    turns: Vec<Turn>,
    /// Begins again after the last turn; otherwise the script then has nothing to say, and says so.
    #[serde(default)]
    repeat: bool,
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Turn {
    /// `{user}` stands for the last user's text, `{tool}` for the last tool result.
    pub text: Option<String>,
    pub reasoning: Option<String>,
    pub tool_calls: Vec<Wanted>,
    /// Waits so long before the first word.
    pub delay_ms: u64,
    /// Fails in this way after the text, if any, was told.
    pub error: Option<Failure>,
}

/// A tool call of a script.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    pub name: String,
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
        Self { name: name.to_owned(), turns, repeat }
    }

    /// Reads TOML: `[[turns]]` tables of `text`, `reasoning`, `tool_calls`, `delay_ms`, `error`, and `repeat` above.
    pub fn parse(name: &str, text: &str) -> Result<Self, toml::de::Error> {
        Ok(Self { name: name.to_owned(), ..toml::from_str(text)? })
    }

    /// The turn a conversation has come to, and its number.
    fn turn(&self, request: &Request) -> (usize, Turn) {
        let said = request.messages.iter().filter(|message| message.role == Speaker::Assistant).count();
        let at = if self.repeat && !self.turns.is_empty() { said % self.turns.len() } else { said };
        let over = || Turn { text: Some("The script has no more turns.".to_owned()), ..Turn::default() };
        (said, self.turns.get(at).cloned().unwrap_or_else(over))
    }
}

impl Model for Script {
    fn name(&self) -> &str {
        &self.name
    }

    fn complete<'a>(&'a self, request: &'a Request, deltas: &'a mut Deltas<'_>) -> Completing<'a> {
        Box::pin(async move {
            let (number, turn) = self.turn(request);
            if turn.delay_ms > 0 {
                tokio::time::sleep(Duration::from_millis(turn.delay_ms)).await;
            }
            if let Some(thought) = turn.reasoning {
                deltas(Delta::Reasoning(thought));
            }
            let text = turn.text.unwrap_or_default();
            let text = text.replace("{user}", &last_text(request, Speaker::User));
            let text = text.replace("{tool}", &last_text(request, Speaker::Tool));
            let call = |(n, wanted): (usize, Wanted)| ToolCall {
                id: format!("call_{number}_{n}"),
                name: wanted.name,
                args: wanted.args,
                signatures: Vec::new(),
            };
            let calls = turn.tool_calls.into_iter().enumerate().map(call).collect();
            let completion = played(request, &text, calls, deltas).await;
            turn.error.map_or(Ok(completion), |error| Err(ModelError::new(error.kind, error.message)))
        })
    }
}

fn last_text(request: &Request, role: Speaker) -> String {
    request.messages.iter().rfind(|message| message.role == role).map(Message::text).unwrap_or_default()
}

/// Tells the text word by word; others get their turn between two words.
async fn played(request: &Request, text: &str, tool_calls: Vec<ToolCall>, deltas: &mut Deltas<'_>) -> Completion {
    for word in text.split_inclusive(' ') {
        deltas(Delta::Text(word.to_owned()));
        tokio::task::yield_now().await;
    }
    let words = |text: &str| text.split_whitespace().count() as u64;
    let usage = Usage {
        input_tokens: request.messages.iter().map(|message| words(&message.text())).sum(),
        output_tokens: words(text),
        ..Usage::default()
    };
    let finish = if tool_calls.is_empty() { Finish::Stop } else { Finish::ToolCalls };
    let content = if text.is_empty() { Vec::new() } else { vec![Part::text(text)] };
    let message = Message { role: Speaker::Assistant, content, tool_calls, tool_call_id: None };
    Completion { message, usage, finish }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    async fn ask(model: &dyn Model, messages: Vec<Message>) -> (Result<Completion, ModelError>, Vec<Delta>) {
        let (request, mut told) = (Request { messages, ..Request::default() }, Vec::new());
        let answer = model.complete(&request, &mut |delta| told.push(delta)).await;
        (answer, told)
    }

    #[tokio::test]
    async fn echo_says_what_the_last_user_said_word_by_word() {
        let (answer, told) = ask(&Echo, vec![Message::user("first"), Message::user("[t] [bob]: hello  you")]).await;
        let answer = answer.unwrap();
        assert_eq!(answer.message, Message::assistant("echo: [t] [bob]: hello  you"));
        assert_eq!(answer.finish, Finish::Stop);
        assert_eq!((answer.usage.input_tokens, answer.usage.output_tokens), (5, 5));
        assert_eq!(told.len(), 6);
        let whole: String = told.iter().map(|delta| if let Delta::Text(text) = delta { text } else { "" }).collect();
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
        let (first, told) = ask(&script, messages.clone()).await;
        let first = first.unwrap();
        assert_eq!(first.finish, Finish::ToolCalls);
        assert_eq!(told, [Delta::Reasoning("I need the file.".to_owned())]);
        let calls: Vec<_> = first.message.tool_calls.iter().map(|call| (call.id.as_str(), &call.args)).collect();
        assert_eq!(calls, [("call_0_0", &json!({"action": "list"})), ("call_0_1", &json!({}))]);

        messages.extend([first.message, Message::tool("call_0_0", "a.txt")]);
        let second = ask(&script, messages.clone()).await.0.unwrap();
        assert_eq!(second.message.text(), "what is there?: a.txt");
        // Asked again, it answers again the same: nothing is remembered.
        assert_eq!(ask(&script, messages.clone()).await.0.unwrap(), second);

        messages.push(second.message);
        let (third, told) = ask(&script, messages.clone()).await;
        assert_eq!(third.unwrap_err().kind, ModelErrorKind::Transient);
        assert_eq!(told, [Delta::Text("half ".to_owned())]);
        messages.push(Message::assistant("half"));
        assert_eq!(ask(&script, messages).await.0.unwrap().message.text(), "The script has no more turns.");
    }

    #[tokio::test]
    async fn a_script_may_begin_again() {
        let script = Script::parse("script:x", "repeat = true\n[[turns]]\ntext = 'a'\n[[turns]]\ntext = 'b'").unwrap();
        let messages = vec![Message::assistant("a"), Message::assistant("b"), Message::user("?")];
        assert_eq!(ask(&script, messages).await.0.unwrap().message.text(), "a");
        assert!(Script::parse("script:x", "turn = []").is_err());
    }
}
