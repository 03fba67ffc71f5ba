//! Translates a durable event to numbered outputs: ends of the texts that it cuts off, then its own text or itself.

use std::sync::Arc;

use super::{
    Conversation,
    event::{Cut, Event},
    part::{Dialect, Part},
    texts,
};
use crate::{
    bus::Frame,
    domain::{
        id::Seq,
        meaning::{Text, What},
    },
    faces::position::{Live, OPENED, WHOLE},
};

/// Number of a durable text among the outputs of its event: its opening has lower numbers, its end higher ones.
const TEXT: u8 = 15;
/// First number of an event's own outputs, after those for the texts that it cuts off.
const OWN: u8 = 16;
/// First numbers of a replacement and of the end after it. No other end of a text has such numbers, so a position from
/// here on means that the text was replaced.
const REPLACED: u8 = 20;
const REPLACED_END: u8 = 26;

impl<D: Dialect> Conversation<D> {
    /// Writes a durable event: collects its outputs with their numbers, and skips those that the reader has.
    pub(super) fn durable(&mut self, frame: &Arc<Frame>) {
        let Some(seq) = frame.place.map(|place| place.seq) else { return };
        let open = frame.span_id.as_ref().filter(|_| !self.at.live.is_empty()).map(|span| self.names.text(span));
        let named = self.names.of(frame);
        let event = Event { frame, what: &named };
        self.held.close(&event);
        let is_seen = seq < self.at.seq || (seq == self.at.seq && self.at.sub == WHOLE);
        let seen = if seq == self.at.seq { self.shown.seen(self.at.sub, &event) } else { 0 };
        let mut numbered: Vec<(u8, D::Said)> = Vec::new();
        // A number within an event has no room for texts that were cut off: a text in it belongs to another event.
        let mut cut = match seen {
            1.. if self.shown.is_numbered() => Cut::None,
            _ => event.cut(self.dialect.ends_with(&event), open),
        };
        if let What::Text { text, content, .. } = event.what {
            let live = if is_seen { None } else { self.take_live(text, seen) };
            if live.as_ref().is_some_and(|(live, _)| live.kind != text.kind) {
                cut = Cut::One(text.span.clone());
            }
            self.say_text(text, content.as_deref(), (live.as_ref(), seen), &event, &mut numbered);
        } else {
            if !is_seen {
                self.cut_off(&cut, &mut numbered);
            }
            self.number(&Part::Event(&event), OWN, &mut numbered);
        }
        if is_seen {
            return;
        }
        if self.is_joining {
            numbered.clear();
        }
        let last = numbered.len().saturating_sub(1);
        for (index, (number, output)) in numbered.into_iter().enumerate().filter(|(_, (number, _))| *number > seen) {
            self.reach((&event, &cut), seq, if index == last { WHOLE } else { number });
            self.dialect.write(&mut self.chunk, output, Some(&self.at));
        }
        self.reach((&event, &cut), seq, WHOLE);
    }

    /// Removes and returns the live text of an event, if nothing of the event was sent: after that the text is not
    /// live, and a number may match another. One of the other kind stays until all is sent: its end has other outputs.
    fn take_live(&mut self, text: &Text, seen: u8) -> Option<(Live, texts::State)> {
        let index = self.at.live.iter_mut().position(|live| live.is_of(&text.span, text.kind))?;
        if self.at.live[index].kind != text.kind && !self.shown.is_numbered() {
            return Some((self.at.live[index].clone(), self.texts.state(index).clone()));
        }
        (seen == 0).then(|| (self.at.live.remove(index), self.texts.remove(index)))
    }

    fn reach(&mut self, (event, cut): (&Event<'_>, &Cut), seq: Seq, sub: u8) {
        (self.at.seq, self.at.history, self.at.sub) = (seq, event.frame.history, sub);
        if sub == WHOLE {
            self.forget_cut(cut);
        }
    }

    /// Removes the texts that an event has cut off.
    fn forget_cut(&mut self, cut: &Cut) {
        for index in (0..self.at.live.len()).rev() {
            if cut.is_of(&mut self.at.live[index]) {
                self.at.live.remove(index);
                self.texts.remove(index);
            }
        }
    }

    /// Translates a part, and numbers its outputs from `first` on.
    fn number(&mut self, part: &Part<'_>, first: u8, numbered: &mut Vec<(u8, D::Said)>) {
        self.dialect.say(part, &mut self.said);
        debug_assert!(self.said.len() < usize::from(OWN), "what is said of a part has fewer numbers than this");
        numbered.extend((first..WHOLE).zip(self.said.drain(..)));
    }

    /// Translates the rest of a durable text: `live` was shown before, and outputs up to the number `seen` were sent.
    fn say_text(
        &mut self,
        text: &Text,
        whole: Option<&str>,
        (live, seen): (Option<&(Live, texts::State)>, u8),
        event: &Event<'_>,
        numbered: &mut Vec<(u8, D::Said)>,
    ) {
        let (opened, rest) = match live {
            None => (0, Some(0)),
            Some((live, _)) => {
                let rest = |whole| live.rest(std::iter::once(whole)).filter(|_| live.kind == text.kind);
                (live.progress, whole.map_or(Some(0), |whole| rest(whole).map(|rest| rest.bytes)))
            }
        };
        // A text that was shown while it was written is closed, even if its event alone would not be shown.
        let is_shown = live.is_some()
            || seen > 0
            || self.dialect.shows(text) && text.role != "user" && (self.shown.announcements || !announces(event));
        if is_shown && live.is_none_or(|(_, state)| !state.has_begun()) {
            let opening = live.map_or_else(|| text.clone(), |(live, _)| live.text(text.span.clone()));
            self.number(&Part::Opened(&opening), 1, numbered);
            numbered.retain(|(number, _)| u32::from(*number) > opened.min(OPENED));
        }
        let (mut end, end_max) = (OWN, usize::from(REPLACED - OWN));
        match (whole, rest.filter(|_| seen < REPLACED)) {
            _ if !is_shown => {}
            (Some(whole), Some(rest)) if rest < whole.len() => {
                self.number(&Part::Delta(text, &whole[rest..]), TEXT, numbered);
            }
            (Some(whole), None) => {
                self.number(&Part::Replaced(text, whole), REPLACED, numbered);
                debug_assert!(numbered.last().is_none_or(|(number, _)| *number < REPLACED_END), "they are apart");
                end = REPLACED_END;
            }
            _ => {}
        }
        let before = numbered.len();
        self.number(&Part::Closed(text, Some(event)), end, numbered);
        debug_assert!(numbered.len() - before <= end_max, "an end has fewer numbers than this");
    }

    /// Ends the live texts that the event leaves incomplete. They stay in the position until the whole event is sent.
    fn cut_off(&mut self, cut: &Cut, numbered: &mut Vec<(u8, D::Said)>) {
        for index in 0..self.at.live.len() {
            let live = &mut self.at.live[index];
            let is_cut = cut.is_of(live);
            let Some(span) = live.span().filter(|_| is_cut).cloned() else { continue };
            let text = live.text(span);
            // It may have begun on an earlier connection.
            self.open(index, &text);
            let next = numbered.last().map_or(1, |(number, _)| number + 1);
            self.number(&Part::Closed(&text, None), next, numbered);
        }
        if self.shown.is_numbered() {
            // Otherwise, numbers would decrease when the text leaves the position.
            self.forget_cut(cut);
        }
    }
}

/// Whether a message only announces calls.
fn announces(event: &Event<'_>) -> bool {
    let What::Text { content, tool_call_ids, .. } = event.what else { return false };
    !tool_call_ids.is_empty() && content.as_ref().is_none_or(String::is_empty)
}
