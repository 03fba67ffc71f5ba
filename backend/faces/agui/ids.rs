//! The client's ids of a run's messages and calls.

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
    /// Whether the run's input is a whole `RunAgentInput`: its agent then shares the ids of the client's conversation.
    is_agents: bool,
    /// By span, the name of its newest complete message, `None` if it is not the agent's. Only the agent's have calls.
    texts: Recent<Option<SpanId>>,
    /// By call id, the message that announced a call not made yet.
    announced: Recent<SpanId>,
    /// Names of messages that are not the agent's for the client.
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

    /// The client's id for an id of the run: the agent's own, or prefixed with the run's id.
    pub(super) fn of(&self, id: &str) -> String {
        if self.is_agents { id.to_owned() } else { format!("{}/{id}", self.run) }
    }

    /// The message that a started call belongs to.
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

    /// Records a message that has no calls: a result, or a text that is not the agent's.
    pub(super) fn note_other(&mut self, name: &str) {
        self.others.insert(name, ());
    }

    /// Records the ids of an event.
    pub(super) fn keep(&mut self, event: &Event<'_>) {
        match event.what {
            What::RunCreated => {
                let payload = event.payload().members();
                let Some(input) = payload.slice("input").map(JsonSlice::members) else { return };
                // The artifact pointer that replaces a large input has its ids beside it.
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
