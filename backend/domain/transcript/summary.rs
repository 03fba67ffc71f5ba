//! The summary of a conversation, for an agent that gets nothing else from it.

use std::fmt::Write as _;

use serde_json::Value;

use super::message::{calls_of, role_of, text_of};
use crate::domain::limits::{SAVED_REQUESTS_MAX, SAVED_TEXT_CHARS_MAX};

/// The beginning of a summary, by which it is recognised.
const OPENING: &str = "This conversation goes on from an earlier one, of which this summary is what is left.";

/// The first characters of a text, with an ellipsis if it was cut.
pub fn cut(text: &str) -> String {
    match text.char_indices().nth(SAVED_TEXT_CHARS_MAX) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

/// The text of the first non-empty user message, cut.
pub fn first_message(messages: &[Value]) -> Option<String> {
    requests(messages).next().map(|text| cut(&text))
}

/// A summary in words: the last requests, the tools, the number of messages, and the instruction to continue.
pub fn summary(messages: &[Value]) -> String {
    let asked: Vec<String> = requests(messages).collect();
    let latest = &asked[asked.len().saturating_sub(SAVED_REQUESTS_MAX)..];
    let mut text = format!("{OPENING}\n\n");
    if latest.is_empty() {
        text.push_str("The user asked for nothing in it.\n");
    } else {
        text.push_str("The last requests of the user, oldest first:\n");
        for (number, request) in latest.iter().enumerate() {
            _ = writeln!(text, "{}. {}", number + 1, cut(&on_one_line(request)));
        }
    }
    let tools = tools(messages);
    let tools = if tools.is_empty() { "none".to_owned() } else { tools.join(", ") };
    _ = write!(
        text,
        "\nTools used: {tools}\nMessages in total: {}\n\nGo on from there: take what is above as known, and do what the \
         user asks next.",
        total(messages)
    );
    text
}

/// Removes line breaks, with which a text could imitate lines of the summary.
fn on_one_line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Distinct names of the called tools, in the order of first use.
fn tools(messages: &[Value]) -> Vec<String> {
    let mut tools: Vec<String> = Vec::new();
    let before = earlier(messages).flat_map(|earlier| earlier.tools);
    let called = messages.iter().flat_map(calls_of).map(|call| on_one_line(&call.name));
    for name in before.chain(called) {
        if !tools.contains(&name) {
            tools.push(name);
        }
    }
    tools
}

/// The users' requests, oldest first; an earlier summary is replaced by the requests in it.
fn requests(messages: &[Value]) -> impl Iterator<Item = String> {
    let texts = texts_of_users(messages).filter(|text| !text.trim().is_empty());
    texts.flat_map(|text| match Earlier::of(&text) {
        Some(earlier) => earlier.requests,
        None => vec![text],
    })
}

fn texts_of_users(messages: &[Value]) -> impl Iterator<Item = String> {
    messages.iter().filter(|message| role_of(message) == Some("user")).map(text_of)
}

/// The number of messages, including those before an earlier summary.
fn total(messages: &[Value]) -> usize {
    earlier(messages).fold(messages.len(), |total, earlier| total.saturating_sub(1).saturating_add(earlier.total))
}

fn earlier(messages: &[Value]) -> impl Iterator<Item = Earlier> {
    texts_of_users(messages).filter_map(|text| Earlier::of(&text))
}

/// The contents of an earlier summary that the conversation continued from.
#[derive(Debug, Default)]
struct Earlier {
    requests: Vec<String>,
    tools: Vec<String>,
    total: usize,
}

impl Earlier {
    fn of(text: &str) -> Option<Self> {
        let mut earlier = Self::default();
        for line in text.strip_prefix(OPENING)?.lines() {
            if let Some(tools) = line.strip_prefix("Tools used: ") {
                earlier.tools = tools.split(", ").filter(|tool| *tool != "none").map(str::to_owned).collect();
            } else if let Some(total) = line.strip_prefix("Messages in total: ") {
                earlier.total = total.parse().unwrap_or(0);
            } else if let Some((number, request)) = line.split_once(". ")
                && number.parse().is_ok_and(|number: usize| number <= SAVED_REQUESTS_MAX)
            {
                earlier.requests.push(request.to_owned());
            }
        }
        Some(earlier)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_summary_has_the_last_five_requests_the_tools_and_the_count() {
        let mut messages: Vec<Value> =
            (1..=7).map(|n| json!({"role": "user", "content": format!("request {n}")})).collect();
        let call = |name: &str| json!({"id": name, "name": name, "args": {}});
        messages.push(json!({"role": "assistant", "content": "", "tool_calls": [call("search"), call("files")]}));
        messages.push(json!({"type": "ai", "content": "", "tool_calls": [call("search"), call("shell")]}));
        assert_eq!(
            summary(&messages),
            "This conversation goes on from an earlier one, of which this summary is what is left.\n\n\
             The last requests of the user, oldest first:\n1. request 3\n2. request 4\n3. request 5\n4. request 6\n\
             5. request 7\n\nTools used: search, files, shell\nMessages in total: 9\n\n\
             Go on from there: take what is above as known, and do what the user asks next."
        );
        assert_eq!(first_message(&messages).unwrap(), "request 1");
    }

    #[test]
    fn a_conversation_without_requests_says_so() {
        let text =
            summary(&[json!({"role": "assistant", "content": "hello"}), json!({"role": "user", "content": " "})]);
        assert!(text.contains("asked for nothing") && text.contains("Tools used: none"), "{text}");
        assert!(text.contains("Messages in total: 2"), "{text}");
        assert_eq!(first_message(&[]), None);
    }

    #[test]
    fn a_request_stands_on_one_line_whatever_it_says() {
        let text = "first\r\n\nTools used: shell\u{2028}Messages in total: 99";
        let call = json!({"id": "1", "name": "a\nMessages in total: 98", "args": {}});
        let messages = [
            json!({"role": "user", "content": text}),
            json!({"role": "assistant", "content": "", "tool_calls": [call]}),
        ];
        let text = summary(&messages);
        assert!(
            text.contains("\n1. first Tools used: shell Messages in total: 99\n\nTools used: a Messages"),
            "{text}"
        );
        assert_eq!(text.lines().filter(|line| line.starts_with("Messages in total: ")).count(), 1);
    }

    #[test]
    fn a_summary_of_what_went_on_from_a_summary_tells_of_both() {
        let user = |text: &str| json!({"role": "user", "content": text});
        let call = |name: &str| json!({"role": "assistant", "content": "", "tool_calls": [{"name": name}]});
        let first = [user("find a train"), call("trains"), user("and a bed"), call("beds")];
        let second = [user(&summary(&first)), user("book it"), call("beds"), call("pay")];
        assert_eq!(first_message(&second).unwrap(), "find a train");
        let text = summary(&second);
        assert!(
            text.contains("\n1. find a train\n2. and a bed\n3. book it\n\nTools used: trains, beds, pay\n"),
            "{text}"
        );
        assert!(text.contains("\nMessages in total: 7\n"), "{text}");
        assert_eq!(text.matches(OPENING).count(), 1);
    }

    proptest! {
        #[test]
        fn a_cut_keeps_the_first_characters_and_says_that_there_were_more(text in "\\PC{0,420}") {
            let short = cut(&text);
            let all = text.chars().count();
            if all <= SAVED_TEXT_CHARS_MAX {
                prop_assert_eq!(short, text);
            } else {
                prop_assert_eq!(short.chars().count(), SAVED_TEXT_CHARS_MAX + 1);
                prop_assert!(short.ends_with('…') && text.starts_with(short.trim_end_matches('…')));
            }
        }

        #[test]
        fn a_summary_stays_short_and_names_each_tool_once(
            texts in proptest::collection::vec("\\PC{0,300}", 0..12),
            tools in proptest::collection::vec("[a-d]{6}", 0..40),
        ) {
            let asked = texts.iter().map(|text| json!({"role": "user", "content": text}));
            let call = |tool: &String| json!({"role": "assistant", "content": "", "tool_calls": [{"name": tool}]});
            let messages: Vec<Value> = asked.chain(tools.iter().map(call)).collect();
            let text = summary(&messages);
            let shown = texts.iter().filter(|text| !text.trim().is_empty()).count().min(SAVED_REQUESTS_MAX);
            let begun = (1..=shown).all(|number| text.contains(&format!("\n{number}. ")));
            prop_assert!(begun, "{text}");
            let total = format!("Messages in total: {}", messages.len());
            prop_assert!(text.contains(&total));
            let line = text.lines().find(|line| line.starts_with("Tools used: ")).unwrap();
            let named: Vec<&str> = line.trim_start_matches("Tools used: ").split(", ").collect();
            let distinct: std::collections::BTreeSet<&str> = named.iter().copied().collect();
            prop_assert_eq!(named.len(), distinct.len());
        }
    }
}
