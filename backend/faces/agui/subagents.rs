//! Subagents that producers report in `agui.*` events: each begins once and ends before the run does.

use serde_json::Value;

use super::recent::Recent;
use crate::domain::limits::{AGUI_SUBAGENT_BYTES_MAX, AGUI_SUBAGENTS_MAX};

/// The subagents of an AG-UI run.
#[derive(Debug, Default)]
pub(super) struct Subagents {
    /// The open ones by id, each with its start event.
    open: Vec<(String, Value)>,
    /// All that have begun.
    known: Recent,
}

impl Subagents {
    /// Applies an event; returns whether it may be sent now. Subagents beyond the bound are not shown.
    pub(super) fn take(&mut self, word: &str, event: &Value) -> bool {
        let Some(id) = event["subagentRunId"].as_str() else { return false };
        if word != "subagent_started" {
            let open = self.open.iter().position(|(open, _)| open == id);
            return open.map(|at| self.open.remove(at)).is_some();
        }
        let has_room = self.open.len() < AGUI_SUBAGENTS_MAX && event.to_string().len() <= AGUI_SUBAGENT_BYTES_MAX;
        let parent = event["parentSubagentRunId"].as_str();
        let is_shown = has_room && parent.is_none_or(|parent| self.known.get(parent).is_some());
        if !is_shown || !self.known.insert(id, ()) {
            return false;
        }
        self.open.push((id.to_owned(), event.clone()));
        true
    }

    /// Begins another AG-UI run, in which only the open ones are known.
    pub(super) fn begin_again(&mut self) {
        self.known = Recent::default();
        for (id, _) in &self.open {
            self.known.insert(id, ());
        }
    }

    /// The start events of the open ones, for a client that knows none of them: without parents not sent before them.
    pub(super) fn begun(&self) -> impl Iterator<Item = Value> {
        self.open.iter().enumerate().map(|(at, (_, event))| {
            let mut event = event.clone();
            let is_announced = |parent: &Value| self.open[..at].iter().any(|(id, _)| parent == id);
            if let Some(members) = event.as_object_mut() {
                members.retain(|name, value| name != "parentSubagentRunId" || is_announced(value));
            }
            event
        })
    }

    /// The ids of the open ones.
    pub(super) fn open(&self) -> impl Iterator<Item = &str> {
        self.open.iter().map(|(id, _)| id.as_str())
    }
}
