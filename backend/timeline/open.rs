//! The texts of all messages that are still being written.
//!
//! The kept text of each open span lets readers join late and miss no token. [`OpenTexts::add`] numbers each delta
//! with the count of characters before it; its cost depends neither on the length nor on the number of texts.
//!
//! A text belongs to the process that receives its deltas, which saves it for the others ([`unsaved`]); a process with
//! readers of the run has a copy ([`elsewhere`]), to which everything below applies as well.
//!
//! A reader that joins gets handles ([`OpenText`]) and reads the texts later, piece by piece. A text only grows, so the
//! part that existed when a handle was made does not change. A text counts against the quota until nothing holds it any
//! more, so slow readers hold no more than their principal may. Over a bound, the texts of whole runs are dropped: of
//! the least recently active run, of the principal or of all.

mod elsewhere;
mod handle;
mod text;
mod unsaved;

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use lru::LruCache;
use uuid::Uuid;

pub use self::handle::{HeldText, OpenText};
pub(super) use self::unsaved::Unsaved;
use self::{
    elsewhere::{Closings, Copied},
    text::Text,
    unsaved::{Queue, Saving},
};
use crate::{
    domain::{
        context::RunContext,
        event::{EventType, Recorded},
        id::{RunId, SpanId},
        limits::{OPEN_OWN_BYTES_MAX, OPEN_SPAN_BYTES, OPEN_TOTAL_BYTES_MAX},
        open::{Closes, Lengths, Overflow},
        principal::OwnerId,
    },
    quota::{Full, Quota, Share},
};

/// The role of a text whose first delta names none.
const ASSISTANT: &str = "assistant";

/// A longer role is ignored.
const ROLE_BYTES_MAX: usize = 32;

/// All open texts of the process.
#[derive(Debug)]
pub(super) struct OpenTexts {
    quota: Quota,
    /// The least recently active run is evicted first.
    runs: LruCache<RunId, OpenRun>,
    /// The same runs by principal, in the same order.
    owners: HashMap<OwnerId, LruCache<RunId, ()>>,
    unsaved: Queue,
    /// What was closed since the current read of saved texts began; `None` without one.
    closings: Option<Closings>,
    /// The range of this process's text ids: its start, and the id of the newest text.
    text_ids: (u128, u128),
}

#[derive(Debug)]
struct OpenRun {
    context: Arc<RunContext>,
    /// Of this process's own texts.
    lengths: Lengths,
    spans: BTreeMap<SpanId, OpenSpan>,
}

#[derive(Debug)]
struct OpenSpan {
    event_type: EventType,
    parent_span_id: Option<SpanId>,
    role: Cow<'static, str>,
    /// When the last delta was emitted.
    at: DateTime<Utc>,
    text: Arc<Text>,
    bytes: usize,
    chars: usize,
    origin: Origin,
}

/// Which process a text belongs to.
#[derive(Debug)]
enum Origin {
    /// This process receives its deltas.
    Here(Saving),
    /// Another one does, and this is a copy.
    Elsewhere(Copied),
}

/// An addition to a text.
struct Piece<'a> {
    event_type: &'a EventType,
    parent_span_id: Option<&'a SpanId>,
    /// Used if the piece begins the text.
    role: Cow<'static, str>,
    at: DateTime<Utc>,
    text: &'a str,
}

impl OpenTexts {
    /// No texts; those of this process get ids from `first_id` on.
    pub(super) fn new(first_id: Uuid) -> Self {
        Self::bounded(first_id, OPEN_TOTAL_BYTES_MAX, OPEN_OWN_BYTES_MAX)
    }

    fn bounded(first_id: Uuid, total_bytes_max: usize, own_bytes_max: usize) -> Self {
        Self {
            quota: Quota::new(total_bytes_max, own_bytes_max),
            runs: LruCache::unbounded(),
            owners: HashMap::new(),
            unsaved: Queue::default(),
            closings: None,
            text_ids: (first_id.as_u128(), first_id.as_u128()),
        }
    }

    /// The lengths of this process's own open texts of a run, and the bytes of this span's; `None` if there is none.
    pub(super) fn lengths(&self, run: RunId, span_id: &SpanId) -> (Lengths, Option<usize>) {
        self.runs.peek(&run).map_or_else(Default::default, |open| (open.lengths, open.own_bytes_of(span_id)))
    }

    /// Adds a delta and returns its offset: the number of characters of that span before it.
    pub(super) fn add(
        &mut self,
        context: &Arc<RunContext>,
        event: &Recorded,
        span_id: &SpanId,
        text: &str,
    ) -> Result<usize, Overflow> {
        let run = context.run_id;
        let (mut lengths, so_far) = self.lengths(run, span_id);
        lengths.add(so_far, text.len())?;
        if so_far.is_none() {
            // Replaces the copy of another process's text, which may be incomplete.
            self.drop_span(run, span_id);
        }
        let Some(share) = self.room(context, span_id, text.len()) else {
            // Slow readers hold the whole quota: nothing is kept, and the next delta also starts at 0.
            return Ok(0);
        };
        let (event_type, parent_span_id) = (&event.event_type, event.parent_span_id.as_ref());
        let role = if so_far.is_none() { event.payload.member("role") } else { None };
        let role = role.filter(|role: &String| role.len() <= ROLE_BYTES_MAX);
        let role = role.map_or(Cow::Borrowed(ASSISTANT), Cow::Owned);
        let piece = Piece { event_type, parent_span_id, role, at: event.at, text };
        self.text_ids.1 = self.text_ids.1.wrapping_add(1);
        let own = Origin::Here(Saving::of(Uuid::from_u128(self.text_ids.1)));
        let offset = self.keep(context, span_id, &piece, share, own);
        self.wait_to_be_saved(context, span_id);
        Ok(offset)
    }

    /// Makes room for this many bytes more of a span, and marks its run as active.
    fn room(&mut self, context: &RunContext, span_id: &SpanId, bytes: usize) -> Option<Share> {
        let (run, owner) = (context.run_id, &context.owner_id);
        self.runs.promote(&run);
        if let Some(runs) = self.owners.get_mut(owner) {
            runs.promote(&run);
        }
        loop {
            let is_new = self.span(run, span_id).is_none();
            let weight = bytes + if is_new { OPEN_SPAN_BYTES + span_id.as_str().len() } else { 0 };
            let forgotten = match self.quota.try_take(owner, u32::try_from(weight).unwrap_or(u32::MAX)) {
                Ok(share) => return Some(share),
                Err(Full::Own) => self.forget_quietest_of(owner),
                Err(Full::All) => self.forget_quietest(),
            };
            if !forgotten {
                return None;
            }
        }
    }

    /// Adds a piece to a span, which begins with `origin` if it is new; returns the number of characters before it.
    fn keep(
        &mut self,
        context: &Arc<RunContext>,
        span_id: &SpanId,
        piece: &Piece<'_>,
        share: Share,
        origin: Origin,
    ) -> usize {
        let open = self.runs.get_or_insert_mut(context.run_id, || OpenRun {
            context: Arc::clone(context),
            lengths: Lengths::default(),
            spans: BTreeMap::new(),
        });
        let chars = piece.text.chars().count();
        if let Some(span) = open.spans.get_mut(span_id) {
            span.text.push(piece.text, Some(share));
            (span.bytes, span.chars, span.at) = (span.bytes + piece.text.len(), span.chars + chars, piece.at);
        } else {
            open.lengths.spans += usize::from(matches!(origin, Origin::Here(_)));
            let text = Text::new(share);
            text.push(piece.text, None);
            let span = OpenSpan {
                event_type: piece.event_type.clone(),
                parent_span_id: piece.parent_span_id.cloned(),
                role: piece.role.clone(),
                at: piece.at,
                text: Arc::new(text),
                bytes: piece.text.len(),
                chars,
                origin,
            };
            open.spans.insert(span_id.clone(), span);
        }
        let span = &open.spans[span_id];
        if matches!(span.origin, Origin::Here(_)) {
            open.lengths.bytes += piece.text.len();
        }
        let runs = self.owners.entry(context.owner_id.clone()).or_insert_with(LruCache::unbounded);
        runs.put(context.run_id, ());
        span.chars - chars
    }

    /// Whether a text began in this process; if it is not open, it is over.
    fn is_own(&self, text_id: Uuid) -> bool {
        let (first, last) = self.text_ids;
        text_id.as_u128().wrapping_sub(first) <= last.wrapping_sub(first)
    }

    fn span(&self, run: RunId, span_id: &SpanId) -> Option<&OpenSpan> {
        self.runs.peek(&run)?.spans.get(span_id)
    }

    fn span_mut(&mut self, run: RunId, span_id: &SpanId) -> Option<&mut OpenSpan> {
        self.runs.peek_mut(&run)?.spans.get_mut(span_id)
    }

    /// Drops what a durable event closes.
    pub(super) fn close(&mut self, run: RunId, event_type: &EventType, span_id: Option<&SpanId>) {
        let closes = Closes::of(event_type, span_id);
        if let Some(closings) = &mut self.closings {
            closings.note(run, closes);
        }
        match closes {
            Closes::Nothing => {}
            Closes::Run => {
                self.note_copies_over(run, |_| true);
                self.forget(run);
            }
            Closes::Span(span_id) => {
                self.note_copies_over(run, |copied| copied == span_id);
                self.drop_span(run, span_id);
            }
        }
    }

    fn drop_span(&mut self, run: RunId, span_id: &SpanId) {
        let Some(open) = self.runs.peek_mut(&run) else { return };
        if let Some(span) = open.spans.remove(span_id) {
            if matches!(span.origin, Origin::Here(_)) {
                open.lengths.close(span.bytes);
            }
            self.unsaved.note_over(&open.context, span_id, &span.origin);
        }
        if open.spans.is_empty() {
            self.forget(run);
        }
    }

    fn forget(&mut self, run: RunId) -> bool {
        let Some(open) = self.runs.pop(&run) else { return false };
        for (span_id, span) in &open.spans {
            self.unsaved.note_over(&open.context, span_id, &span.origin);
        }
        let owner = &open.context.owner_id;
        if let Some(runs) = self.owners.get_mut(owner) {
            runs.pop(&run);
            if runs.is_empty() {
                self.owners.remove(owner);
            }
        }
        true
    }

    fn forget_quietest_of(&mut self, owner: &OwnerId) -> bool {
        let quietest = self.owners.get(owner).and_then(LruCache::peek_lru).map(|(run, ())| *run);
        quietest.is_some_and(|run| self.forget(run))
    }

    fn forget_quietest(&mut self) -> bool {
        let quietest = self.runs.peek_lru().map(|(run, _)| *run);
        quietest.is_some_and(|run| self.forget(run))
    }

    /// Drops the texts of a run whose writer has stopped.
    pub(super) fn end(&mut self, run: RunId) {
        if let Some(closings) = &mut self.closings {
            closings.note(run, Closes::Run);
        }
        self.forget(run);
    }

    /// Drops all texts.
    pub(super) fn clear(&mut self) {
        if let Some(closings) = &mut self.closings {
            closings.note_all();
        }
        while self.forget_quietest() {}
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The open texts of those runs of a principal that `wanted` admits.
    pub(super) fn of(&self, owner: &OwnerId, wanted: impl Fn(&RunContext) -> bool) -> Vec<OpenText> {
        let runs = self.owners.get(owner).into_iter().flatten();
        let open = runs.filter_map(|(run, ())| self.runs.peek(run)).filter(|open| wanted(&open.context));
        open.flat_map(OpenRun::texts).collect()
    }
}

impl OpenRun {
    fn own_bytes_of(&self, span_id: &SpanId) -> Option<usize> {
        let span = self.spans.get(span_id)?;
        matches!(span.origin, Origin::Here(_)).then_some(span.bytes)
    }

    /// The texts of one process are in the order in which they began.
    fn texts(&self) -> impl Iterator<Item = OpenText> {
        let mut spans: Vec<(&SpanId, &OpenSpan)> = self.spans.iter().collect();
        spans.sort_by_key(|(_, span)| span.origin.text_id());
        spans.into_iter().map(|(span_id, span)| OpenText {
            context: Arc::clone(&self.context),
            event_type: span.event_type.clone(),
            span_id: span_id.clone(),
            role: span.role.clone(),
            chars: span.chars,
            is_copy: matches!(span.origin, Origin::Elsewhere(_)),
            bytes: span.bytes,
            text: Arc::clone(&span.text),
        })
    }
}

#[cfg(test)]
mod tests;
