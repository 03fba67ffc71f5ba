//! The texts of all messages that are still being written.
//!
//! This fold, the text so far of each open span, makes tokens safe to join late. [`OpenTexts::add`] numbers each delta
//! with the count of characters before it; its cost depends neither on the length of a text nor on how many there are.
//!
//! A reader that joins gets handles ([`OpenText`]) and reads the texts later, piece by piece. A text only grows, so the
//! part that existed when a handle was made does not change. A text counts until nothing holds it any more, so slow
//! readers hold no more than their principal may have. Over a bound, whole runs drop their texts: the least recently
//! active run, of the principal or of all.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use lru::LruCache;

use crate::{
    domain::{
        context::RunContext,
        event::EventType,
        id::{RunId, SpanId},
        limits::{OPEN_OWN_BYTES_MAX, OPEN_PIECE_BYTES, OPEN_SPAN_BYTES, OPEN_TOTAL_BYTES_MAX},
        open::{Closes, Lengths, Overflow},
        principal::OwnerId,
    },
    quota::{Full, Quota, Share},
};

/// The text so far of one open span, for a reader that joins now.
#[derive(Clone, Debug)]
pub struct OpenText {
    pub context: Arc<RunContext>,
    pub event_type: EventType,
    pub span_id: SpanId,
    /// Characters of the text: the offset of the next delta.
    pub chars: usize,
    bytes: usize,
    text: Arc<Text>,
}

/// All open texts of the process.
#[derive(Debug)]
pub(super) struct OpenTexts {
    quota: Quota,
    /// The least recently active run is evicted first.
    runs: LruCache<RunId, OpenRun>,
    /// The same runs by principal, in the same order.
    owners: HashMap<OwnerId, LruCache<RunId, ()>>,
}

#[derive(Debug)]
struct OpenRun {
    context: Arc<RunContext>,
    lengths: Lengths,
    spans: BTreeMap<SpanId, OpenSpan>,
}

#[derive(Debug)]
struct OpenSpan {
    event_type: EventType,
    text: Arc<Text>,
    bytes: usize,
    chars: usize,
}

/// A text that only grows, and its share of the quota.
#[derive(Debug)]
struct Text(Mutex<(Vec<String>, Share)>);

impl Default for OpenTexts {
    fn default() -> Self {
        Self::new(OPEN_TOTAL_BYTES_MAX, OPEN_OWN_BYTES_MAX)
    }
}

impl OpenTexts {
    fn new(total_bytes_max: usize, own_bytes_max: usize) -> Self {
        Self { quota: Quota::new(total_bytes_max, own_bytes_max), runs: LruCache::unbounded(), owners: HashMap::new() }
    }

    /// The lengths of a run's open texts, and the bytes of this span's; `None` if the span is not open.
    pub(super) fn lengths(&self, run: RunId, span_id: &SpanId) -> (Lengths, Option<usize>) {
        self.runs.peek(&run).map_or_else(Default::default, |open| (open.lengths, open.bytes_of(span_id)))
    }

    /// Adds a delta and returns its offset: the number of characters of that span before it.
    pub(super) fn add(
        &mut self,
        context: &Arc<RunContext>,
        event_type: &EventType,
        span_id: &SpanId,
        text: &str,
    ) -> Result<usize, Overflow> {
        let run = context.run_id;
        let (mut lengths, so_far) = self.lengths(run, span_id);
        lengths.add(so_far, text.len())?;
        self.touch(context);
        loop {
            let open = self.runs.peek(&run);
            let is_new = open.is_none_or(|open| !open.spans.contains_key(span_id));
            let weight = text.len() + if is_new { OPEN_SPAN_BYTES + span_id.as_str().len() } else { 0 };
            let taken = self.quota.try_take(&context.owner_id, u32::try_from(weight).unwrap_or(u32::MAX));
            let forgotten = match taken {
                Ok(share) => return Ok(self.keep(context, event_type, span_id, text, share)),
                Err(Full::Own) => self.forget_quietest_of(&context.owner_id),
                Err(Full::All) => self.forget_quietest(),
            };
            if !forgotten {
                // Slow readers hold the whole quota: nothing is kept, and the next delta also starts at 0.
                return Ok(0);
            }
        }
    }

    fn touch(&mut self, context: &RunContext) {
        self.runs.promote(&context.run_id);
        if let Some(runs) = self.owners.get_mut(&context.owner_id) {
            runs.promote(&context.run_id);
        }
    }

    fn keep(
        &mut self,
        context: &Arc<RunContext>,
        event_type: &EventType,
        span_id: &SpanId,
        text: &str,
        share: Share,
    ) -> usize {
        let open = self.runs.get_or_insert_mut(context.run_id, || OpenRun {
            context: Arc::clone(context),
            lengths: Lengths::default(),
            spans: BTreeMap::new(),
        });
        let chars = text.chars().count();
        let offset = if let Some(span) = open.spans.get_mut(span_id) {
            span.text.push(text, Some(share));
            span.bytes += text.len();
            span.chars += chars;
            span.chars - chars
        } else {
            let kept = Text(Mutex::new((Vec::new(), share)));
            kept.push(text, None);
            let span = OpenSpan { event_type: event_type.clone(), text: Arc::new(kept), bytes: text.len(), chars };
            open.spans.insert(span_id.clone(), span);
            open.lengths.spans += 1;
            0
        };
        open.lengths.bytes += text.len();
        let runs = self.owners.entry(context.owner_id.clone()).or_insert_with(LruCache::unbounded);
        runs.put(context.run_id, ());
        offset
    }

    /// Drops what a durable event closes.
    pub(super) fn close(&mut self, run: RunId, event_type: &EventType, span_id: Option<&SpanId>) {
        match Closes::of(event_type, span_id) {
            Closes::Nothing => {}
            Closes::Run => _ = self.forget(run),
            Closes::Span(span_id) => {
                let Some(open) = self.runs.peek_mut(&run) else { return };
                if let Some(span) = open.spans.remove(span_id) {
                    open.lengths.close(span.bytes);
                }
                if open.spans.is_empty() {
                    self.forget(run);
                }
            }
        }
    }

    fn forget(&mut self, run: RunId) -> bool {
        let Some(open) = self.runs.pop(&run) else { return false };
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

    /// Drops all texts.
    pub(super) fn clear(&mut self) {
        self.runs.clear();
        self.owners.clear();
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
    fn bytes_of(&self, span_id: &SpanId) -> Option<usize> {
        self.spans.get(span_id).map(|span| span.bytes)
    }

    fn texts(&self) -> impl Iterator<Item = OpenText> {
        self.spans.iter().map(|(span_id, span)| OpenText {
            context: Arc::clone(&self.context),
            event_type: span.event_type.clone(),
            span_id: span_id.clone(),
            chars: span.chars,
            bytes: span.bytes,
            text: Arc::clone(&span.text),
        })
    }
}

impl OpenText {
    /// The text in pieces of at most [`OPEN_PIECE_BYTES`], read lazily.
    pub fn pieces(&self) -> impl Iterator<Item = String> + Send + use<> {
        let (text, mut left) = (Arc::clone(&self.text), self.bytes);
        (0..).map_while(move |index| {
            let piece = text.piece(index, left)?;
            left -= piece.len();
            Some(piece)
        })
    }
}

impl Text {
    fn push(&self, mut text: &str, more: Option<Share>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (pieces, share) = &mut *kept;
        if let Some(more) = more {
            share.join(more);
        }
        while !text.is_empty() {
            let room = pieces.last().map_or(0, |last| OPEN_PIECE_BYTES - last.len());
            let (fits, rest) = text.split_at(text.floor_char_boundary(room));
            match pieces.last_mut() {
                Some(last) if !fits.is_empty() => last.push_str(fits),
                _ => pieces.push(String::new()),
            }
            text = rest;
        }
    }

    /// A piece, cut to the `left` bytes that remain of the text from there on.
    fn piece(&self, index: usize, left: usize) -> Option<String> {
        if left == 0 {
            return None;
        }
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.0.get(index).map(|piece| piece[..piece.len().min(left)].to_owned())
    }
}

#[cfg(test)]
mod tests;
