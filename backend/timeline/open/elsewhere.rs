//! Copies of open texts that other processes have saved, for readers of this one.
//!
//! A copy follows what is saved: additions reach readers as ordinary deltas. It ends with the durable event that ends
//! the text, or when the text is no longer saved.

use std::{borrow::Cow, collections::HashSet, sync::Arc};

use uuid::Uuid;

use super::{ASSISTANT, OpenTexts, Origin, Piece};
use crate::{
    domain::{
        context::RunContext,
        event::{NewEvent, Recorded},
        id::{RunId, SpanId},
        json::Json,
        limits::OPEN_CLOSED_MAX,
        open::Closes,
        principal::OwnerId,
    },
    store::open_texts::{SavedText, TextKey},
    timeline::live::LiveText,
};

/// How much of a text is copied.
#[derive(Debug)]
pub(super) struct Copied {
    pub(super) text_id: Uuid,
    /// The last piece of which something is copied, and how many bytes of it.
    piece: i32,
    bytes: usize,
}

impl Origin {
    /// Ids of one process's texts increase.
    pub(super) fn text_id(&self) -> Uuid {
        match self {
            Self::Here(saving) => saving.text_id(),
            Self::Elsewhere(copied) => copied.text_id,
        }
    }
}

/// What was closed during a read of saved texts, whose result may still have it.
#[derive(Debug, Default)]
pub(super) struct Closings {
    spans: HashSet<(RunId, Option<SpanId>)>,
    is_all: bool,
}

/// What was added to a copy: a delta, and the number of characters before it.
#[derive(Debug)]
pub(in crate::timeline) struct Added {
    pub context: Arc<RunContext>,
    pub delta: Recorded,
    pub offset: usize,
    /// Whether it was written before the copy began.
    pub is_earlier: bool,
}

impl Closings {
    pub(super) fn note(&mut self, run: RunId, closes: Closes<'_>) {
        match closes {
            Closes::Nothing => return,
            Closes::Run => self.spans.insert((run, None)),
            Closes::Span(span_id) => self.spans.insert((run, Some(span_id.clone()))),
        };
        self.is_all |= self.spans.len() > OPEN_CLOSED_MAX;
    }

    pub(super) fn note_all(&mut self) {
        self.is_all = true;
    }

    fn has(&self, run: RunId, span_id: &SpanId) -> bool {
        self.is_all || self.spans.contains(&(run, None)) || self.spans.contains(&(run, Some(span_id.clone())))
    }
}

impl OpenTexts {
    /// To be called before saved texts of these runs (`None`: all runs of the owner) are read. Returns the last piece
    /// of each of their texts known here.
    pub(in crate::timeline) fn begin_reading(
        &mut self,
        asked: &[(OwnerId, Option<RunId>)],
    ) -> Vec<(RunId, SpanId, i32)> {
        self.closings = Some(Closings::default());
        let mut known = Vec::new();
        for run in self.runs_of(asked) {
            let spans = self.runs.peek(&run).into_iter().flat_map(|open| &open.spans);
            known.extend(spans.map(|(span_id, span)| match &span.origin {
                Origin::Here(_) => (run, span_id.clone(), i32::MAX),
                Origin::Elsewhere(copied) => (run, span_id.clone(), copied.piece),
            }));
        }
        known
    }

    /// To be called when they could not be read.
    pub(in crate::timeline) fn give_up_reading(&mut self) {
        self.closings = None;
    }

    /// Brings the copies up to date with what was read; if the read was complete, drops those that are no longer saved.
    pub(in crate::timeline) fn copy(
        &mut self,
        asked: &[(OwnerId, Option<RunId>)],
        read: Vec<(Arc<RunContext>, SavedText)>,
        is_complete: bool,
    ) -> Vec<Added> {
        let closed = self.closings.take().unwrap_or_default();
        let (mut added, mut saved) = (Vec::new(), HashSet::new());
        for (context, text) in read {
            let (run, span_id) = (context.run_id, &text.key.span_id);
            if !closed.has(run, span_id) && !self.is_own(text.key.text_id) {
                self.follow(&context, &text, &mut added);
            }
            saved.insert((run, text.key.span_id));
        }
        if is_complete {
            for run in self.runs_of(asked) {
                self.drop_copies(run, |span_id| !saved.contains(&(run, span_id.clone())));
            }
        }
        added
    }

    /// Adds to copies what their processes have sent. What does not continue a copy is dropped and comes by the table.
    pub(in crate::timeline) fn go_on(&mut self, texts: Vec<LiveText>) -> Vec<Added> {
        let mut added = Vec::new();
        for LiveText { run_id, span_id, text_id, at, first_piece, left_out, mut pieces } in texts {
            let Some(open) = self.runs.peek(&run_id) else { continue };
            let Some(span) = open.spans.get(&span_id) else { continue };
            let Origin::Elsewhere(copied) = &span.origin else { continue };
            let sent = first_piece..first_piece + pieces.len();
            let piece = usize::try_from(copied.piece).unwrap_or(usize::MAX);
            if copied.text_id != text_id || !sent.contains(&piece) || piece == first_piece && copied.bytes < left_out {
                continue;
            }
            // The copy has the bytes left out of the first piece; pieces before its last one are not needed.
            if let (true, Some(first)) = (piece == first_piece, pieces.first_mut()) {
                first.insert_str(0, &span.text.piece(piece, left_out).unwrap_or_default());
            }
            let context = Arc::clone(&open.context);
            let text = SavedText {
                key: TextKey { owner_id: context.owner_id.clone(), run_id, span_id, text_id },
                event_type: span.event_type.clone(),
                parent_span_id: span.parent_span_id.clone(),
                at,
                pieces: sent
                    .map(|at| i32::try_from(at).unwrap_or(i32::MAX))
                    .zip(pieces.into_iter().map(Some))
                    .collect(),
            };
            self.follow(&context, &text, &mut added);
        }
        added
    }

    /// Drops the copies of runs without readers here.
    pub(in crate::timeline) fn drop_unheard(&mut self, is_heard: impl Fn(&RunContext) -> bool) {
        let unheard = self.runs.iter().filter(|(_, open)| !is_heard(&open.context)).map(|(run, _)| *run);
        for run in unheard.collect::<Vec<_>>() {
            self.drop_copies(run, |_| true);
        }
    }

    fn drop_copies(&mut self, run: RunId, is_dropped: impl Fn(&SpanId) -> bool) {
        let Some(open) = self.runs.peek_mut(&run) else { return };
        open.spans.retain(|span_id, span| matches!(span.origin, Origin::Here(_)) || !is_dropped(span_id));
        if open.spans.is_empty() {
            self.forget(run);
        }
    }

    fn runs_of(&self, asked: &[(OwnerId, Option<RunId>)]) -> Vec<RunId> {
        let runs = asked.iter().flat_map(|(owner, run)| {
            let all = if run.is_none() { self.owners.get(owner) } else { None };
            run.iter().copied().chain(all.into_iter().flatten().map(|(run, ())| *run))
        });
        runs.collect()
    }

    /// Adds what was saved since to a copy, or begins one.
    fn follow(&mut self, context: &Arc<RunContext>, text: &SavedText, added: &mut Vec<Added>) {
        let (run, span_id, text_id) = (context.run_id, &text.key.span_id, text.key.text_id);
        let (mut piece, mut bytes) = match self.span(run, span_id).map(|span| &span.origin) {
            // This process's own text will take over the span.
            Some(Origin::Here(saving)) if saving.is_first() => return,
            Some(Origin::Elsewhere(copied)) if copied.text_id == text_id => (copied.piece, copied.bytes),
            // The span has another text now.
            Some(_) => {
                self.drop_span(run, span_id);
                (0, 0)
            }
            None => (0, 0),
        };
        let (from, is_earlier) = (piece, piece == 0 && bytes == 0);
        for (at, whole) in text.pieces.iter().filter(|(at, _)| *at >= from) {
            if *at == piece + 1 {
                (piece, bytes) = (*at, 0);
            }
            if *at == piece && whole.as_ref().is_some_and(|whole| whole.len() < bytes) {
                // This save is older than what was already received.
                return;
            }
            let is_begun = self.span(run, span_id).is_some();
            let new = whole.as_ref().filter(|_| *at == piece && is_begun == (piece > 0 || bytes > 0));
            // A part is missing; the copy begins again at the next read.
            let Some(new) = new.and_then(|whole| whole.get(bytes..)) else {
                self.drop_copies(run, |dropped| dropped == span_id);
                return;
            };
            if new.is_empty() {
                continue;
            }
            let Some(share) = self.room(context, span_id, new.len()) else { return };
            if is_begun && self.span(run, span_id).is_none() {
                // Making room dropped this copy.
                return;
            }
            bytes += new.len();
            let part = Piece {
                event_type: &text.event_type,
                parent_span_id: text.parent_span_id.as_ref(),
                role: Cow::Borrowed(ASSISTANT),
                at: text.at,
                text: new,
            };
            let offset = self.keep(context, span_id, &part, share, Origin::Elsewhere(Copied { text_id, piece, bytes }));
            if let Some(Origin::Elsewhere(copied)) = self.span_mut(run, span_id).map(|span| &mut span.origin) {
                (copied.piece, copied.bytes) = (piece, bytes);
            }
            added.push(Added { context: Arc::clone(context), delta: delta(context, text, new), offset, is_earlier });
        }
    }
}

fn delta(context: &RunContext, text: &SavedText, new: &str) -> Recorded {
    let event = NewEvent {
        span_id: Some(text.key.span_id.clone()),
        parent_span_id: text.parent_span_id.clone(),
        ..NewEvent::new(text.event_type.clone(), Json::of(&serde_json::json!({ "text": new })))
    };
    Recorded::stamp(context, event, None, text.at)
}
