//! Selects the part of a conversation that fits the model's context window. The rest stays in the thread, and a summary
//! takes its place in the prompt.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Assistant, Conversation};
use crate::{
    agents::model::{Message, MessageRole, Part, ToolSpec},
    domain::{
        limits::{IMAGE_TOKENS, TOKEN_BYTES},
        transcript::summary::summary,
    },
};

/// Tokens of a message apart from its content.
const MESSAGE_TOKENS: usize = 8;
/// After a cut at most `room / USED_AFTER_CUT` is in use, so that the next turns only append to the prompt.
const USED_AFTER_CUT: usize = 2;
/// Without a configured longest answer, `window / ANSWER_PART` is reserved for the answer.
const ANSWER_PART: usize = 8;

/// The messages that the model is no longer shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// The number of messages left out at the beginning.
    pub messages: usize,
    /// A summary of them.
    pub summary: String,
}

/// A cut as the log reports it.
pub(super) struct Compaction {
    pub cut: Cut,
    /// Approximate tokens of the conversation's part of the prompt, before and after the cut.
    pub tokens_before: usize,
    pub tokens_after: usize,
}

impl Compaction {
    pub(super) fn payload(&self) -> Value {
        json!({
            "messages_left_out": self.cut.messages, "summary": self.cut.summary,
            "tokens_before": self.tokens_before, "tokens_after": self.tokens_after,
        })
    }
}

/// The cut that the next prompt needs; `None` while everything shown so far fits.
///
/// It cuts before one of the user's messages or, if the work on the last one alone is too long, between the calls of
/// that work: a tool's result is never shown without its call, and the last request is always shown.
pub(super) fn compaction(assistant: &Assistant, conversation: &Conversation, tools: &[ToolSpec]) -> Option<Compaction> {
    let (messages, from) = (&conversation.messages, conversation.shown_from());
    let room = room(assistant, conversation, tools);
    let shown = |from: usize| -> usize { prompt(messages, from).map(tokens).sum() };
    let tokens_before = shown(from);
    if tokens_before <= room {
        return None;
    }
    let starts = |role: MessageRole| (from + 1..messages.len()).filter(move |at| messages[*at].role == role);
    let fits = |at: &usize| shown(*at) <= room / USED_AFTER_CUT;
    let cut = starts(MessageRole::User).find(fits);
    let cut = cut.or_else(|| starts(MessageRole::Assistant).find(fits));
    // If even the shortest prompt is too long, the provider refuses it.
    let cut = cut.or_else(|| starts(MessageRole::Assistant).chain(starts(MessageRole::User)).max())?;
    let mut left_out: Vec<Value> = messages[from..cut].iter().map(|message| json!(message)).collect();
    if let Some(earlier) = &conversation.cut {
        left_out.insert(0, json!({"role": "user", "content": earlier.summary}));
    }
    let cut = Cut { messages: cut, summary: summary(&left_out) };
    Some(Compaction { tokens_after: shown(cut.messages), cut, tokens_before })
}

/// The messages from `from` on, after the last request if that is earlier.
pub(super) fn prompt(messages: &[Message], from: usize) -> impl Iterator<Item = &Message> {
    let request = messages.iter().rposition(|message| message.role == MessageRole::User).filter(|at| *at < from);
    request.map(|at| &messages[at]).into_iter().chain(&messages[from..])
}

/// Tokens of the window left for the conversation.
fn room(assistant: &Assistant, conversation: &Conversation, tools: &[ToolSpec]) -> usize {
    let window = assistant.context_tokens as usize;
    let answer = assistant.max_tokens.map_or(window / ANSWER_PART, |tokens| tokens as usize);
    let summary = conversation.cut.as_ref().map_or(0, |cut| cut.summary.len());
    let specs: usize = tools.iter().map(|tool| tool.description.len() + tool.schema.to_string().len()).sum();
    let fixed = (assistant.system.len() + summary + specs).div_ceil(TOKEN_BYTES);
    window.saturating_sub(answer).saturating_sub(fixed)
}

/// Approximate tokens of a message.
fn tokens(message: &Message) -> usize {
    let of_part = |part: &Part| match part {
        Part::Text { text } | Part::Reasoning { text, .. } => text.len().div_ceil(TOKEN_BYTES),
        Part::Image { .. } => IMAGE_TOKENS,
    };
    let calls = message.tool_calls.iter().map(|call| call.args.to_string().len().div_ceil(TOKEN_BYTES));
    MESSAGE_TOKENS + message.content.iter().map(of_part).chain(calls).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::{
        agents::{assistant::Said, exclusive::Locks, model::ToolCall, models::scripted::Echo, tools::Toolbox},
        engine::{Limits, State as _},
    };

    fn assistant(context_tokens: u32) -> Assistant {
        Assistant {
            system: "be brief".to_owned(),
            model: Arc::new(Echo),
            temperature: None,
            max_tokens: Some(100),
            context_tokens,
            notes: Vec::new(),
            toolbox: Toolbox::default(),
            locks: Locks::default(),
            parallel_max: 1,
            call_time_max: Duration::from_secs(1),
            workers: Vec::new(),
            client_tools: Vec::new(),
            limits: Limits::default(),
        }
    }

    fn add(conversation: &mut Conversation, message: Message) {
        let usage = crate::agents::model::Usage::default();
        conversation.apply(Said { messages: vec![message], usage, cut: None, waiting: Vec::new() });
    }

    fn answer(text: &str) -> Message {
        Message { role: MessageRole::Assistant, ..Message::user(text) }
    }

    #[test]
    fn the_prompt_of_a_conversation_that_goes_on_for_ever_stays_within_the_window() {
        let (assistant, mut conversation, mut cuts) = (assistant(4_000), Conversation::default(), 0);
        for turn in 0..200 {
            add(&mut conversation, Message::user(format!("request {turn} {}", "x".repeat(500))));
            if let Some(Compaction { cut, tokens_before, tokens_after }) = compaction(&assistant, &conversation, &[]) {
                assert!(tokens_after < tokens_before && tokens_after <= 2_000, "{tokens_before} {tokens_after}");
                assert!(cut.summary.contains(&format!("Messages in total: {}", cut.messages)), "{}", cut.summary);
                (conversation.cut, cuts) = (Some(cut), cuts + 1);
            }
            let from = conversation.shown_from();
            let shown: Vec<&Message> = prompt(&conversation.messages, from).collect();
            assert!(shown.iter().map(|message| tokens(message)).sum::<usize>() < 3_900, "turn {turn}");
            assert_eq!(shown[0].role, MessageRole::User);
            assert_eq!(shown.last().unwrap().text(), conversation.messages.last().unwrap().text());
            add(&mut conversation, answer(&"y".repeat(500)));
        }
        assert!((10..50).contains(&cuts), "{cuts} cuts of 200 turns");
        assert_eq!(conversation.messages.len(), 400, "nothing is taken from the thread");
    }

    #[test]
    fn work_on_one_request_that_is_too_long_is_cut_between_calls_and_keeps_the_request() {
        let (assistant, mut conversation) = (assistant(4_000), Conversation::default());
        add(&mut conversation, Message::user("look at everything"));
        for n in 0..12 {
            let call = ToolCall {
                id: format!("c{n}"),
                name: "look".to_owned(),
                args: json!({"at": n}),
                signatures: Vec::new(),
                origin: None,
            };
            add(&mut conversation, Message { tool_calls: vec![call], ..answer("") });
            add(&mut conversation, Message::tool(format!("c{n}"), "z".repeat(1_500)));
        }
        let Some(Compaction { cut, .. }) = compaction(&assistant, &conversation, &[]) else { panic!("it is too long") };
        let shown: Vec<&Message> = prompt(&conversation.messages, cut.messages).collect();
        assert_eq!(shown[0].text(), "look at everything");
        assert_eq!(shown[1].tool_calls.len(), 1, "a call before its result");
        assert!(cut.summary.contains("Tools used: look"), "{}", cut.summary);
    }

    #[test]
    fn what_fits_is_not_cut() {
        let mut conversation = Conversation::default();
        add(&mut conversation, Message::user("x".repeat(9_000)));
        assert!(compaction(&assistant(4_000), &conversation, &[]).is_none());
        // A single message that is too long is left to the provider to refuse.
        add(&mut conversation, Message::user("x".repeat(90_000)));
        let cut = compaction(&assistant(4_000), &conversation, &[]).unwrap().cut;
        assert_eq!(cut.messages, 1);
    }
}
