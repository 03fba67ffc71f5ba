//! Ids of tool calls, and signatures: what a provider made is sent back to that provider only.
//!
//! A conversation may continue with another provider than it began with. So a call is stored with its provider and the
//! id that it gave, which it gets back byte for byte: some ids carry meaning. For other providers ids are adapted.
//! Here, a call gets another id if the given one is taken or not valid as a span id.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};

use super::calls::MadeCall;
use crate::{
    agents::model::{Message, Origin, ToolCall},
    config::models::Kind,
};

/// Longest id of a tool call that every provider accepts, characters.
const CALL_ID_CHARS_MAX: usize = 64;
/// Bytes of a digest that distinguishes the addresses of providers.
const ADDRESS_BYTES: usize = 6;

/// A signature with the kind of the provider that can read it.
pub(super) fn mark(kind: Kind, signature: &str) -> String {
    format!("{}!{signature}", kind.as_str())
}

/// The signature, if it is this provider's.
pub(super) fn own(kind: Kind, marked: &str) -> Option<&str> {
    marked.split_once('!').filter(|(name, _)| *name == kind.as_str()).map(|(_, signature)| signature)
}

/// A provider as the origin of ids: its kind and its address.
#[derive(Clone, Debug)]
pub(super) struct Ids {
    kind: Kind,
    provider: String,
}

/// The id of a call in requests to a provider.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WireId {
    pub id: String,
    /// Whether the provider assigned it.
    pub is_own: bool,
}

impl Ids {
    pub(super) fn new(kind: Kind, base_url: &str) -> Self {
        let address = hex::encode(&Sha256::digest(base_url)[..ADDRESS_BYTES]);
        Self { kind, provider: format!("{}:{address}", kind.as_str()) }
    }

    /// The calls with ids that are free in the conversation and valid as span ids.
    pub(super) fn ours(&self, calls: Vec<MadeCall>, earlier: &[Message]) -> Vec<ToolCall> {
        let mut taken: BTreeSet<String> = calls_of(earlier).map(|call| call.id.clone()).collect();
        let ours = |call: MadeCall| {
            let id = free_id(call.id.as_deref().unwrap_or_default(), &taken);
            taken.insert(id.clone());
            ToolCall {
                id,
                name: call.name,
                args: call.args,
                signatures: call.signature.iter().map(|signature| mark(self.kind, signature)).collect(),
                origin: Some(Origin { provider: self.provider.clone(), id: call.id }),
            }
        };
        calls.into_iter().map(ours).collect()
    }

    /// This provider's ids for the calls of a conversation, by ours; `None` for one that goes to Gemini without an id,
    /// as it came.
    pub(super) fn theirs<'a>(&self, messages: &'a [Message]) -> BTreeMap<&'a str, Option<WireId>> {
        let mut theirs = BTreeMap::new();
        let mut taken = BTreeSet::new();
        for message in messages {
            // If calls of one answer share an id, only the first keeps it, because results refer to it.
            let mut here = BTreeSet::new();
            for call in &message.tool_calls {
                let own = call.origin.as_ref().filter(|origin| origin.provider == self.provider);
                match own.map(|origin| origin.id.as_ref()) {
                    Some(Some(id)) if here.insert(id.as_str()) => {
                        taken.insert(id.clone());
                        theirs.insert(call.id.as_str(), Some(WireId { id: id.clone(), is_own: true }));
                    }
                    Some(None) if self.kind == Kind::Gemini => _ = theirs.insert(call.id.as_str(), None),
                    _ if self.kind == Kind::Gemini && is_stand_in(&call.id) => {
                        theirs.insert(call.id.as_str(), None);
                    }
                    _ => {}
                }
            }
        }
        for call in calls_of(messages) {
            theirs.entry(call.id.as_str()).or_insert_with(|| {
                let id = free_id(&self.fitting(&call.id), &taken);
                taken.insert(id.clone());
                Some(WireId { id, is_own: false })
            });
        }
        theirs
    }

    /// The id in characters that every provider accepts. Gemini accepts any.
    fn fitting(&self, id: &str) -> String {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if self.kind == Kind::Gemini {
            id.to_owned()
        } else {
            id.chars().map(|c| if fits(c) { c } else { '_' }).collect()
        }
    }
}

fn calls_of(messages: &[Message]) -> impl Iterator<Item = &ToolCall> {
    messages.iter().flat_map(|message| &message.tool_calls)
}

/// `call#name#0`, which earlier versions stored for calls that Gemini had given no id.
fn is_stand_in(id: &str) -> bool {
    let numbered = id.strip_prefix("call#").and_then(|rest| rest.rsplit_once('#'));
    numbered.is_some_and(|(name, number)| !name.is_empty() && number.parse::<usize>().is_ok())
}

/// The id if it is valid as a span id and free, else a similar one. Some providers count from 0 in every answer.
fn free_id(id: &str, taken: &BTreeSet<String>) -> String {
    let fits = !id.is_empty() && id.chars().count() <= CALL_ID_CHARS_MAX && !id.chars().any(char::is_control);
    let stem = if fits { id } else { "call" };
    if fits && !taken.contains(stem) {
        return stem.to_owned();
    }
    // One number more than there are taken ids suffices.
    let mut free = (1..=taken.len() + 1).map(|n| format!("{stem}_{n}")).filter(|id| !taken.contains(id));
    free.next().unwrap_or_else(|| stem.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn call(id: &str, origin: Option<(&Ids, Option<&str>)>) -> ToolCall {
        let origin = origin.map(|(ids, given)| Origin { provider: ids.provider.clone(), id: given.map(str::to_owned) });
        ToolCall { id: id.to_owned(), name: "get".to_owned(), args: json!({}), signatures: Vec::new(), origin }
    }

    fn sent(ids: &Ids, calls: Vec<Vec<ToolCall>>) -> Vec<String> {
        let order: Vec<String> = calls.iter().flatten().map(|call| call.id.clone()).collect();
        let message = |calls| Message { tool_calls: calls, ..Message::assistant("") };
        let messages: Vec<Message> = calls.into_iter().map(message).collect();
        let theirs = ids.theirs(&messages);
        order.iter().map(|id| theirs[id.as_str()].as_ref().map_or_else(String::new, |wire| wire.id.clone())).collect()
    }

    #[test]
    fn ids_of_calls_are_free_and_fit() {
        let taken: BTreeSet<String> = ["c1", "call", "c1_1"].map(str::to_owned).into();
        for (id, expected) in [("c2", "c2"), ("c1", "c1_2"), ("", "call_1"), ("a\nb", "call_1"), ("f.x:0", "f.x:0")] {
            assert_eq!(free_id(id, &taken), expected, "{id:?}");
        }
        assert_eq!(free_id(&"x".repeat(65), &taken), "call_1");
    }

    #[test]
    fn a_provider_gets_its_own_ids_back_to_the_byte_and_another_one_ids_that_fit() {
        let (here, there) = (Ids::new(Kind::OpenAi, "http://a/"), Ids::new(Kind::OpenAi, "http://b/"));
        let long = "x".repeat(949);
        let calls = || {
            vec![
                vec![
                    call("functions.get:0", Some((&here, Some("functions.get:0")))),
                    call("call_1", Some((&here, Some(&long)))),
                ],
                vec![call("functions.get:0_1", Some((&here, Some("functions.get:0")))), call("functions_get_0", None)],
            ]
        };
        assert_eq!(sent(&here, calls()), ["functions.get:0", &long, "functions.get:0", "functions_get_0"]);
        assert_eq!(sent(&there, calls()), ["functions_get_0", "call_1", "functions_get_0_1", "functions_get_0_2"]);
    }

    #[test]
    fn two_calls_of_one_answer_are_told_apart_also_by_their_results() {
        let ids = Ids::new(Kind::Ollama, "http://a/");
        let twice = vec![vec![call("c", Some((&ids, Some("c")))), call("c_1", Some((&ids, Some("c"))))]];
        assert_eq!(sent(&ids, twice), ["c", "c_1"]);
    }

    #[test]
    fn gemini_gets_no_id_for_a_call_that_had_none() {
        let gemini = Ids::new(Kind::Gemini, "http://g/");
        let calls = || vec![vec![call("call_1", Some((&gemini, None))), call("call#get#0", None), call("a.b", None)]];
        assert_eq!(sent(&gemini, calls()), ["", "", "a.b"]);
        let other = Ids::new(Kind::Anthropic, "http://a/");
        assert_eq!(sent(&other, calls()), ["call_1", "call_get_0", "a_b"]);
    }
}
