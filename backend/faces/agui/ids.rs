//! The ids of a run's messages and calls as its clients know them.

use super::recent::Recent;
use crate::{
    domain::{
        id::{RunId, SpanId},
        json::JsonSlice,
        meaning::What,
    },
    faces::conversation::Event,
};

#[derive(Debug)]
pub(super) struct Ids {
    run: RunId,
    /// The run's input is a whole `RunAgentInput`: its agent's ids are those of the client's conversation.
    is_agents: bool,
    /// Complete texts.
    texts: Recent,
    /// The messages of calls that a message announced and that were not made yet.
    announced: Recent<SpanId>,
}

impl Ids {
    pub(super) fn new(run: RunId) -> Self {
        Self { run, is_agents: false, texts: Recent::default(), announced: Recent::default() }
    }

    /// An id of the run as its client knows it: its agent's own, or the run's id stands before it.
    pub(super) fn of(&self, id: &str) -> String {
        if self.is_agents { id.to_owned() } else { format!("{}/{id}", self.run) }
    }

    /// The message that a call belongs to, as the call is made.
    pub(super) fn parent_of(&mut self, call: &str, parent: Option<&SpanId>) -> Option<String> {
        let announced = self.announced.remove(call);
        let parent = announced.as_ref().or(parent)?;
        (self.is_agents || self.texts.contains(parent.as_str())).then(|| self.of(parent.as_str()))
    }

    /// Learns from an event.
    pub(super) fn keep(&mut self, event: &Event<'_>) {
        match event.what {
            What::RunCreated => {
                let payload = event.payload().members();
                let Some(input) = payload.slice("input").map(JsonSlice::members) else { return };
                // A pointer to a large input has its ids beside it.
                let has_messages = input.slice("messages").or_else(|| input.slice("$artifact")).is_some();
                self.is_agents = has_messages && input.slice("runId").is_some();
            }
            What::Text { text, tool_call_ids, .. } => {
                self.texts.insert(text.span.as_str(), ());
                for call in tool_call_ids {
                    self.announced.insert(call, text.span.clone());
                }
            }
            _ => {}
        }
    }
}
