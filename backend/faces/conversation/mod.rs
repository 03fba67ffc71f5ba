//! Translates a run's stream to the parts of a conversation, once for all protocols of chat clients.
//!
//! The log has a message whole, in its durable event, and the stream also has its tokens. A chat client wants each
//! character once, in order, as early as possible. [`Conversation`] guarantees this for all such protocols, and a
//! [`Dialect`] writes each [`Part`] in one of them.
//!
//! - A text is shown while it is written ([`texts`]) if there is room when it begins or is caught up with. Its durable
//!   event then adds only the missing rest. Other texts are shown whole with their durable event.
//! - Tokens that do not continue what was sent are not shown. A durable text that does not begin with what was sent is
//!   [`Part::Replaced`].
//! - A text so far of another process is shown with the first token that continues it. If that process was killed, the
//!   text begins again; as no chat client can take back a text, it is then shown when it is complete.
//! - [`names`] distinguishes ids that a producer uses again.
//! - Every output has a [`Position`], and a stream that begins at one sends exactly what follows it. The outputs of an
//!   event depend only on the event, on the position, and on earlier events.
//!
//! Start reading at [`Conversation`], which numbers the dialect's outputs; `domain/meaning` reads what the events of
//! the log mean.

mod durable;
mod event;
mod names;
mod part;
mod so_far;
mod texts;

use std::{sync::Arc, vec};

use bytes::{Bytes, BytesMut};

pub use self::{
    event::Event,
    part::{Dialect, Part, Shown},
};
use self::{
    names::Names,
    so_far::{CatchingUp, HeldTexts},
};
use super::{
    Encoder,
    position::{Live, Position, number},
};
use crate::{
    bus::Frame,
    domain::{
        id::Seq,
        limits::STREAM_CHUNK_BYTES,
        meaning::{Kind, Text, What},
    },
    timeline::{follow::StreamItem, open::OpenText},
};

/// A larger chunk takes the buffer with it; after a smaller one, the rest of the buffer is reused.
const CHUNK_ROOM_BYTES: usize = 4 * STREAM_CHUNK_BYTES;

/// Approximate output for an item, in bytes.
const SAID_BYTES: usize = 256;

/// Translates a run's stream, from a position on.
pub struct Conversation<D: Dialect> {
    dialect: D,
    shown: Shown,
    retry_ms: u64,
    names: Names,
    waiting: vec::IntoIter<StreamItem>,
    /// The text so far that is being sent.
    catching_up: Option<CatchingUp>,
    held: HeldTexts,
    /// The token that follows the text being caught up with.
    next_token: Option<Arc<Frame>>,
    /// Where the reader is.
    at: Position,
    texts: texts::Texts,
    /// The dialect's last outputs, until they are written.
    said: Vec<D::Said>,
    /// Whether stored events are only read for the state, and not sent, until all of them are read.
    is_joining: bool,
    chunk: BytesMut,
}

impl<D: Dialect> Conversation<D> {
    /// Sends what follows a position. The follower may begin at the position's [`cursor`](Position::cursor) or anywhere
    /// before it: the dialect gets the events in between, and they are not sent again.
    pub fn new(dialect: D, at: Position, shown: Shown, retry_ms: u64) -> Self {
        Self {
            texts: texts::Texts::new(at.live.len()),
            dialect,
            shown,
            retry_ms,
            names: Names::default(),
            waiting: Vec::new().into_iter(),
            catching_up: None,
            held: HeldTexts::default(),
            next_token: None,
            at,
            said: Vec::new(),
            is_joining: false,
            chunk: BytesMut::new(),
        }
    }

    /// Joins in the middle: sends nothing before [`Part::CaughtUp`], when the dialect sends the state it has collected.
    #[must_use]
    pub fn joining(self) -> Self {
        Self { is_joining: true, ..self }
    }

    fn hear(&mut self, item: &StreamItem) {
        match item {
            StreamItem::Frame(frame) if frame.place.is_some() => self.durable(frame),
            StreamItem::Frame(frame) => self.token(frame),
            StreamItem::Snapshot(open) => {
                if !self.held.hold(open) {
                    self.catch_up(open);
                }
            }
            StreamItem::CaughtUp { .. } => {
                self.is_joining = false;
                self.note(&Part::CaughtUp);
            }
            // No protocol of chat clients can express it.
            StreamItem::Stalled(_) => {}
            StreamItem::Gap { .. } => self.note(&Part::Gap),
            StreamItem::End { status, .. } => self.note(&Part::Ended(*status)),
            StreamItem::Reset | StreamItem::Draining => self.note(&Part::SentAway { retry_ms: self.retry_ms }),
        }
    }

    /// Writes a part that is not an event: the last of its outputs has the current position.
    fn note(&mut self, part: &Part<'_>) {
        self.dialect.say(part, &mut self.said);
        let last = self.said.len().saturating_sub(1);
        let at = (self.at.seq > Seq::ZERO).then_some(&self.at);
        for (index, output) in self.said.drain(..).enumerate() {
            self.dialect.write(&mut self.chunk, output, at.filter(|_| index == last));
        }
    }

    fn token(&mut self, frame: &Arc<Frame>) {
        let What::Token { text, offset, .. } = frame.meaning() else { return };
        if frame.is_earlier {
            self.held.keep(frame, &text.span);
            return;
        }
        let earlier = self.held.take_tokens(&text.span);
        if let Some((end, frames)) = earlier {
            // As with a text so far: one that begins again is sent with its durable event.
            if end != *offset {
                return;
            }
            for frame in frames {
                self.show(&frame);
            }
        }
        if let Some(held) = self.held.release(&text.span) {
            // One that this token does not continue is sent with its durable event.
            let Some(mut open) = held.open().filter(|open| open.chars == *offset) else { return };
            // Another process's text has no role; its tokens have it.
            open.role.clone_from(&text.role);
            self.catch_up(&open);
            if self.catching_up.is_some() {
                self.next_token = Some(Arc::clone(frame));
                return;
            }
        }
        self.show(frame);
    }

    fn show(&mut self, frame: &Arc<Frame>) {
        let What::Token { text, offset, piece } = frame.meaning() else { return };
        let text = Text { span: self.names.text(&text.span), ..text.clone() };
        let Some((index, text)) = self.live(text, *offset == 0 && !piece.is_empty()) else { return };
        if !self.texts.is_whole(index) {
            return;
        }
        if *offset != self.at.live[index].chars() + self.texts.held_chars(index) {
            // Tokens are missing, or the server has started over: the rest is sent with the durable event.
            self.texts.give_up(index);
            return;
        }
        self.open(index, &text);
        self.append(index, &text, piece);
    }

    /// Starts to send the rest of a span's text so far, in pieces on demand.
    fn catch_up(&mut self, open: &OpenText) {
        let Some(kind) = Kind::of(&open.event_type) else { return };
        let text = Text { role: open.role.clone(), ..Text::new(self.names.text(&open.span_id), kind) };
        let Some((index, text)) = self.live(text, open.chars > 0) else { return };
        let Some(rest) = self.at.live[index].rest(open.pieces()).filter(|_| self.texts.is_whole(index)) else {
            self.texts.give_up(index);
            return;
        };
        self.open(index, &text);
        self.texts.drop_held(index);
        self.catching_up = Some(CatchingUp::new(text, open, rest.bytes));
    }

    /// Sends the next piece of the text being caught up with; false if there is no such text.
    fn next_piece(&mut self) -> bool {
        let Some(catching_up) = &mut self.catching_up else { return false };
        let Some((text, piece)) = catching_up.next() else {
            self.catching_up = None;
            return true;
        };
        let text = text.clone();
        if let Some((index, text)) = self.live(text, false) {
            self.append(index, &text, &piece);
        }
        true
    }

    /// The index of a live text, with the kind that it began with. A text becomes live if it may begin and there is
    /// room.
    fn live(&mut self, text: Text, may_begin: bool) -> Option<(usize, Text)> {
        if let Some(index) = self.at.live.iter_mut().position(|live| live.is_of(&text.span, text.kind)) {
            return Some((index, Text { kind: self.at.live[index].kind, ..text }));
        }
        if !may_begin || self.is_joining {
            return None;
        }
        let has_room = self.at.live.len() < self.shown.texts_max && self.at.is_apart(&text.span);
        let has_number = !self.shown.is_numbered() || number::has_room(self.at.seq);
        let is_shown = text.kind == Kind::Message || self.shown.reasoning;
        if !has_room || !has_number || !is_shown || !self.dialect.shows(&text) {
            return None;
        }
        self.at.live.push(Live::new(&text));
        self.texts.push();
        Some((self.at.live.len() - 1, text))
    }

    /// Sends the opening of a live text, or what is missing of it.
    fn open(&mut self, index: usize, text: &Text) {
        if !self.texts.begin(index) {
            return;
        }
        self.dialect.say(&Part::Opened(text), &mut self.said);
        for (number, output) in (1..).zip(std::mem::take(&mut self.said)) {
            if number > self.at.live[index].progress {
                self.at.live[index].progress = number;
                self.dialect.write(&mut self.chunk, output, Some(&self.at));
            }
        }
    }

    fn append(&mut self, index: usize, text: &Text, piece: &str) {
        if piece.is_empty() || !self.texts.is_whole(index) {
            return;
        }
        let at = self.shown.is_numbered().then(|| (self.at.seq, &self.at.live[index]));
        let piece = self.texts.fitting(index, piece, at);
        if piece.is_empty() {
            return;
        }
        if !self.at.live[index].append(&piece) {
            self.texts.give_up(index);
            return;
        }
        self.dialect.say(&Part::Delta(text, &piece), &mut self.said);
        for output in self.said.drain(..) {
            self.dialect.write(&mut self.chunk, output, Some(&self.at));
        }
    }
}

impl<D: Dialect> Encoder for Conversation<D> {
    fn opening(&self) -> Bytes {
        self.dialect.opening()
    }

    fn ping(&self) -> Bytes {
        self.dialect.ping()
    }

    fn take(&mut self, items: Vec<StreamItem>) {
        debug_assert!(self.waiting.len() == 0 && self.catching_up.is_none(), "nothing is passed over");
        self.chunk.reserve((items.len() * SAID_BYTES).min(STREAM_CHUNK_BYTES));
        self.waiting = items.into_iter();
    }

    fn chunk(&mut self) -> Option<Bytes> {
        while self.chunk.len() < STREAM_CHUNK_BYTES && !self.dialect.is_over() {
            if self.next_piece() {
                continue;
            }
            if let Some(frame) = self.next_token.take() {
                self.token(&frame);
                continue;
            }
            let Some(item) = self.waiting.next() else { break };
            self.hear(&item);
        }
        if self.chunk.is_empty() {
            self.dialect.written();
            return None;
        }
        let is_large = self.chunk.len() > CHUNK_ROOM_BYTES;
        let chunk = if is_large { std::mem::take(&mut self.chunk) } else { self.chunk.split() };
        Some(chunk.freeze())
    }

    fn is_over(&self) -> bool {
        self.dialect.is_over()
    }
}

#[cfg(test)]
mod tests;
