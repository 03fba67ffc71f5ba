//! The ids of a run's messages and calls as its clients know them.

use super::{recent::Recent, texts::role};
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
    /// Messages by their spans: the name of the newest, if it is the agent's and complete. Only such a message has calls.
    texts: Recent<Option<SpanId>>,
    /// The messages of calls that a message announced and that were not made yet, by the calls' own ids.
    announced: Recent<SpanId>,
    /// The names of messages that the client has as no agent's.
    others: Recent,
}

impl Ids {
    pub(super) fn new(run: RunId) -> Self {
        Self {
            run,
            is_agents: false,
            texts: Recent::default(),
            announced: Recent::default(),
            others: Recent::default(),
        }
    }

    /// An id of the run as its client knows it: its agent's own, or the run's id stands before it.
    pub(super) fn of(&self, id: &str) -> String {
        if self.is_agents { id.to_owned() } else { format!("{}/{id}", self.run) }
    }

    /// The message that a call belongs to, as the call is made.
    pub(super) fn parent_of(&mut self, started: &Event<'_>) -> Option<String> {
        let What::ToolStarted { tool_call_id, .. } = started.frame.meaning() else { return None };
        if let Some(announced) = self.announced.remove(tool_call_id) {
            return Some(self.of(announced.as_str()));
        }
        let parent = started.frame.parent_span_id.as_ref()?;
        let known = self.texts.get(parent.as_str()).map(Option::as_ref);
        let known = known.unwrap_or(self.is_agents.then_some(parent));
        known.filter(|name| self.others.get(name.as_str()).is_none()).map(|name| self.of(name.as_str()))
    }

    /// Learns that a message is none that has calls: a result, or a text that is not the agent's.
    pub(super) fn note_other(&mut self, name: &str) {
        self.others.insert(name, ());
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
                let is_agents = role(text) == "assistant";
                if let Some(span) = &event.frame.span_id {
                    self.texts.put(span.as_str(), is_agents.then(|| text.span.clone()));
                }
                for call in tool_call_ids.iter().filter(|_| is_agents) {
                    self.announced.put(call, text.span.clone());
                }
            }
            _ => {}
        }
    }
}
