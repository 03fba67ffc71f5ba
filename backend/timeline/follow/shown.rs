//! Which of the bus's messages a reader is sent.

use std::sync::Arc;

use super::{Follower, Phase, Scope, StreamItem};
use crate::{
    bus::{Frame, Stall},
    domain::{context::RunContext, splice::ReadPosition},
    store::feed,
};

impl Follower {
    /// A reader that has caught up is notified that a run has stalled, unless it has a later event of it.
    pub(super) fn hear_stall(&self, stall: Arc<Stall>) -> Vec<StreamItem> {
        let is_past = matches!(self.position(), ReadPosition::Run(seq) if *seq > stall.last_seq);
        let is_due = self.todo == Phase::Live && !is_past && self.wants(&stall.context) && self.shows(&stall.context);
        if is_due { vec![StreamItem::Stalled(stall)] } else { Vec::new() }
    }

    /// A run whose parent belongs to the tree also belongs to it.
    pub(super) fn grow(&mut self, context: &RunContext) {
        if !matches!(self.scope, Scope::Feed(feed::Scope::Tree(_))) || self.members.contains(&context.run_id) {
            return;
        }
        if context.parent_run_id.is_some_and(|parent| self.members.contains(&parent)) {
            self.members.insert(context.run_id);
            self.live.insert(context.run_id);
        }
    }

    pub(super) fn wants(&self, context: &RunContext) -> bool {
        match &self.scope {
            Scope::Run(own) => own.run_id == context.run_id,
            Scope::Feed(feed::Scope::Everything) => true,
            Scope::Feed(feed::Scope::Thread(thread)) => context.thread_id.as_ref() == Some(thread),
            Scope::Feed(feed::Scope::Tree(_)) => self.members.contains(&context.run_id),
        }
    }

    /// Whether the reader is sent the run's events, or only advances past them.
    pub(super) fn shows(&self, context: &RunContext) -> bool {
        match self.scope {
            Scope::Run(_) | Scope::Feed(feed::Scope::Tree(_)) => true,
            Scope::Feed(feed::Scope::Everything | feed::Scope::Thread(_)) => self.options.admits(context.role),
        }
    }

    pub(super) fn is_sent(&self, frame: &Frame) -> bool {
        self.options.filter.admits(&frame.event_type)
            && (frame.place.is_some() || self.options.tokens)
            && self.shows(&frame.context)
    }
}
