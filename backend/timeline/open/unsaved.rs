//! What other processes do not yet have of this process's open texts.
//!
//! Adding to a text only marks it; at intervals one task takes marked texts, of each principal in turn and up to a
//! bound, and saves them. Only pieces that changed are saved: the last saved one, which may still grow, and those after
//! it. With a message bus, another task sends the same pieces meanwhile ([`crate::timeline::live`]).

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use uuid::Uuid;

use super::{OpenTexts, Origin, Text};
use crate::{
    domain::{
        context::RunContext,
        id::{RunId, SpanId},
        limits::{LIVE_SEND_BYTES_MAX, OPEN_SAVE_BYTES_MAX, OPEN_SAVE_TEXTS_MAX},
        principal::OwnerId,
    },
    store::open_texts::{Saved, TextKey, TextWrite},
    timeline::live::LiveText,
};

/// How far a text is saved.
#[derive(Debug)]
pub(super) struct Saving {
    text_id: Uuid,
    /// The first piece that may grow after it was saved, and how many bytes of it are saved.
    next_piece: usize,
    saved_bytes: usize,
    in_table: InTable,
    /// Whether it is marked to be saved.
    is_waiting: bool,
    /// Whether it is marked to be sent.
    is_unsent: bool,
}

/// How much of a text is in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InTable {
    Nothing,
    /// It has yet to take over its span, unless a save whose answer was lost did so.
    Perhaps,
    /// Everything before `next_piece`.
    UpToNext,
}

/// Marked texts, of each principal in turn.
#[derive(Debug, Default)]
pub(super) struct Marked {
    texts: HashMap<OwnerId, VecDeque<(RunId, SpanId)>>,
    turns: VecDeque<OwnerId>,
}

/// The marked texts, and the keys of those that are over but may be in the table.
#[derive(Debug, Default)]
pub(super) struct Queue {
    marked: Marked,
    over: Vec<TextKey>,
    /// Texts to be sent; `None` without a message bus.
    unsent: Option<Marked>,
}

/// What is to be saved now.
#[derive(Debug, Default)]
pub(in crate::timeline) struct Unsaved {
    pub texts: Vec<TextWrite>,
    pub over: Vec<TextKey>,
}

impl Saving {
    pub(super) fn of(text_id: Uuid) -> Self {
        Self { text_id, next_piece: 0, saved_bytes: 0, in_table: InTable::Nothing, is_waiting: false, is_unsent: false }
    }

    pub(super) fn text_id(&self) -> Uuid {
        self.text_id
    }

    /// Whether it has yet to take over its span.
    pub(super) fn is_first(&self) -> bool {
        self.in_table != InTable::UpToNext
    }
}

impl Marked {
    fn push(&mut self, owner: &OwnerId, run: RunId, span_id: &SpanId) {
        let texts = self.texts.entry(owner.clone()).or_insert_with(|| {
            self.turns.push_back(owner.clone());
            VecDeque::new()
        });
        texts.push_back((run, span_id.clone()));
    }

    fn pop(&mut self) -> Option<(RunId, SpanId)> {
        let owner = self.turns.pop_front()?;
        let texts = self.texts.get_mut(&owner)?;
        let next = texts.pop_front();
        if texts.is_empty() {
            self.texts.remove(&owner);
        } else {
            self.turns.push_back(owner);
        }
        next
    }

    fn is_empty(&self) -> bool {
        self.turns.is_empty()
    }
}

impl Queue {
    /// Notes that a text of this process is no longer open.
    pub(super) fn note_over(&mut self, context: &RunContext, span_id: &SpanId, origin: &Origin) {
        if let Origin::Here(saving) = origin
            && saving.in_table != InTable::Nothing
        {
            self.over.push(key(context, span_id, saving.text_id));
        }
    }
}

impl Unsaved {
    /// The runs concerned.
    pub(in crate::timeline) fn runs(&self) -> Vec<RunId> {
        let keys = self.texts.iter().map(|text| &text.key).chain(&self.over);
        let runs: HashSet<RunId> = keys.map(|key| key.run_id).collect();
        runs.into_iter().collect()
    }

    pub(in crate::timeline) fn is_empty(&self) -> bool {
        self.texts.is_empty() && self.over.is_empty()
    }
}

impl OpenTexts {
    /// From now on, texts are also marked to be sent.
    pub(in crate::timeline) fn send_too(&mut self) {
        self.unsaved.unsent.get_or_insert_default();
    }

    pub(super) fn wait_to_be_saved(&mut self, context: &RunContext, span_id: &SpanId) {
        let (owner, run) = (&context.owner_id, context.run_id);
        let Some(span) = self.runs.peek_mut(&run).and_then(|open| open.spans.get_mut(span_id)) else { return };
        let Origin::Here(saving) = &mut span.origin else { return };
        if !std::mem::replace(&mut saving.is_waiting, true) {
            self.unsaved.marked.push(owner, run, span_id);
        }
        if let Some(unsent) = &mut self.unsaved.unsent
            && !std::mem::replace(&mut saving.is_unsent, true)
        {
            unsent.push(owner, run, span_id);
        }
    }

    /// Whether something is to be sent.
    pub(in crate::timeline) fn has_unsent(&self) -> bool {
        self.unsaved.unsent.as_ref().is_some_and(|unsent| !unsent.is_empty())
    }

    /// Takes what is to be sent, up to a bound: what was added to each text since its last save.
    pub(in crate::timeline) fn take_unsent(&mut self) -> Vec<LiveText> {
        let (mut texts, mut bytes) = (Vec::new(), 0);
        for _ in 0..OPEN_SAVE_TEXTS_MAX {
            if bytes >= LIVE_SEND_BYTES_MAX {
                break;
            }
            let Some((run_id, span_id)) = self.unsaved.unsent.as_mut().and_then(Marked::pop) else { break };
            let Some(open) = self.runs.peek_mut(&run_id) else { continue };
            let Some(span) = open.spans.get_mut(&span_id) else { continue };
            let Origin::Here(saving) = &mut span.origin else { continue };
            saving.is_unsent = false;
            if saving.is_first() {
                // No other process knows it before it is saved.
                continue;
            }
            let (text_id, first_piece, left_out) = (saving.text_id, saving.next_piece, saving.saved_bytes);
            let mut pieces = span.text.pieces_from(first_piece, LIVE_SEND_BYTES_MAX - bytes);
            if let Some(first) = pieces.first_mut() {
                first.drain(..left_out.min(first.len()));
            }
            if pieces.iter().all(String::is_empty) {
                // It was saved since it was marked.
                continue;
            }
            bytes += pieces.iter().map(String::len).sum::<usize>();
            texts.push(LiveText { run_id, span_id, text_id, at: span.at, first_piece, left_out, pieces });
        }
        texts
    }

    /// Notes that closed copies are over, because the processes that wrote them may be gone.
    pub(super) fn note_copies_over(&mut self, run: RunId, is_closed: impl Fn(&SpanId) -> bool) {
        let Some(open) = self.runs.peek(&run) else { return };
        for (span_id, span) in open.spans.iter().filter(|(span_id, _)| is_closed(span_id)) {
            if let Origin::Elsewhere(copied) = &span.origin {
                self.unsaved.over.push(key(&open.context, span_id, copied.text_id));
            }
        }
    }

    /// Whether something is to be saved.
    pub(in crate::timeline) fn has_unsaved(&self) -> bool {
        !self.unsaved.marked.is_empty() || !self.unsaved.over.is_empty()
    }

    /// Takes what is to be saved, up to a bound; `position` returns how far the lane of a run is published.
    pub(in crate::timeline) fn take_unsaved(&mut self, position: impl Fn(RunId) -> i64) -> Unsaved {
        let (mut texts, mut bytes) = (Vec::new(), 0);
        while texts.len() < OPEN_SAVE_TEXTS_MAX && bytes < OPEN_SAVE_BYTES_MAX {
            let Some((run_id, span_id)) = self.unsaved.marked.pop() else { break };
            // It may be over already.
            let Some(open) = self.runs.peek_mut(&run_id) else { continue };
            let Some(span) = open.spans.get_mut(&span_id) else { continue };
            let Origin::Here(saving) = &mut span.origin else { continue };
            if !std::mem::replace(&mut saving.is_waiting, false) {
                continue;
            }
            if saving.in_table == InTable::Nothing {
                saving.in_table = InTable::Perhaps;
            }
            let pieces = span.text.pieces_from(saving.next_piece, OPEN_SAVE_BYTES_MAX - bytes);
            bytes += pieces.iter().map(String::len).sum::<usize>();
            texts.push(TextWrite {
                key: key(&open.context, &span_id, saving.text_id),
                is_first: saving.is_first(),
                event_type: span.event_type.clone(),
                parent_span_id: span.parent_span_id.clone(),
                position: position(run_id),
                at: span.at,
                first_piece: saving.next_piece,
                pieces,
            });
        }
        let mut over = std::mem::take(&mut self.unsaved.over);
        self.unsaved.over = over.split_off(over.len().min(OPEN_SAVE_TEXTS_MAX));
        // A text that takes over its span also replaces the rows of the one before.
        let begin: HashSet<_> = texts.iter().filter(|text| text.is_first).map(|text| place(&text.key)).collect();
        over.retain(|key| !begin.contains(&place(key)));
        Unsaved { texts, over }
    }

    /// Records the outcomes of a save.
    pub(in crate::timeline) fn note_saved(&mut self, texts: &[TextWrite], outcomes: &[Saved]) {
        for (text, outcome) in texts.iter().zip(outcomes) {
            let TextKey { owner_id, run_id, span_id, .. } = &text.key;
            let Some((span, saving)) = self.saving(&text.key) else { continue };
            let is_all = match outcome {
                Saved::Done => {
                    let last = (text.first_piece + text.pieces.len()).saturating_sub(1);
                    (saving.in_table, saving.next_piece) = (InTable::UpToNext, last);
                    saving.saved_bytes = text.pieces.last().map_or(0, String::len);
                    span.piece_count() <= saving.next_piece + 1
                }
                Saved::Missing => {
                    (saving.in_table, saving.next_piece, saving.saved_bytes) = (InTable::Perhaps, 0, 0);
                    false
                }
                Saved::Superseded => {
                    self.drop_span(*run_id, span_id);
                    continue;
                }
            };
            if !is_all && !std::mem::replace(&mut saving.is_waiting, true) {
                self.unsaved.marked.push(owner_id, *run_id, span_id);
            }
        }
    }

    /// Marks again what could not be saved.
    pub(in crate::timeline) fn take_back(&mut self, unsaved: Unsaved) {
        self.unsaved.over.extend(unsaved.over);
        for TextWrite { key, .. } in unsaved.texts {
            let Some((_, saving)) = self.saving(&key) else { continue };
            if !std::mem::replace(&mut saving.is_waiting, true) {
                self.unsaved.marked.push(&key.owner_id, key.run_id, &key.span_id);
            }
        }
    }

    /// A text of this process, if it is still open.
    fn saving(&mut self, key: &TextKey) -> Option<(Arc<Text>, &mut Saving)> {
        let span = self.span_mut(key.run_id, &key.span_id)?;
        match &mut span.origin {
            Origin::Here(saving) if saving.text_id == key.text_id => Some((Arc::clone(&span.text), saving)),
            _ => None,
        }
    }
}

fn key(context: &RunContext, span_id: &SpanId, text_id: Uuid) -> TextKey {
    TextKey { owner_id: context.owner_id.clone(), run_id: context.run_id, span_id: span_id.clone(), text_id }
}

fn place(key: &TextKey) -> (OwnerId, RunId, SpanId) {
    (key.owner_id.clone(), key.run_id, key.span_id.clone())
}
