//! The parts of a conversation, and the trait that writes them in a protocol.

use bytes::{Bytes, BytesMut};

use super::Event;
use crate::{
    domain::{
        meaning::{Text, What},
        run::Status,
    },
    faces::{
        position::{Position, number},
        sse,
    },
};

/// One part of a conversation.
#[derive(Debug)]
pub enum Part<'a> {
    /// A text begins. While it is written, its role is `assistant` unless its tokens have another. A text that is not
    /// shown has only its [`Part::Closed`].
    Opened(&'a Text),
    /// The text continues.
    Delta(&'a Text, &'a str),
    /// The whole text: what was sent is not its beginning, or was of the other kind.
    Replaced(&'a Text, &'a str),
    /// The text is complete. `None`: it was cut off, by the end of its span or of the run, or by an interrupt.
    Closed(&'a Text, Option<&'a Event<'a>>),
    /// A durable event that is not a text.
    Event(&'a Event<'a>),
    /// Everything stored has been sent. Occurs once.
    CaughtUp,
    /// Events after the position were deleted.
    Gap,
    /// The run has ended, and all of it was sent.
    Ended(Status),
    /// The reader has to reconnect after this time, because the server shuts down or the log was set back.
    SentAway { retry_ms: u64 },
}

/// Writes the parts of a conversation in a protocol.
pub trait Dialect: Send {
    /// One event of the protocol.
    type Said: Send;

    /// Appends the protocol's events for a part: for a delta at most one, for a replacement at most 6, for the end of a
    /// text at most 4, for anything else at most 14. They may depend on earlier parts.
    fn say(&mut self, part: &Part<'_>, out: &mut Vec<Self::Said>);

    /// Writes an event. `at` is the position after it; `None` where no reader can resume.
    fn write(&mut self, chunk: &mut BytesMut, output: Self::Said, at: Option<&Position>);

    /// Whether a text is shown; by default the agent's. A person's never is unless it was streamed: the client has it.
    fn shows(&self, text: &Text) -> bool {
        text.role == "assistant"
    }

    /// Whether an event ends the protocol's stream, at least until an interrupt is answered: open texts end before it.
    fn ends_with(&self, event: &Event<'_>) -> bool {
        event.pauses()
    }

    /// Everything so far was passed to the connection.
    fn written(&mut self) {}

    /// Whether the stream is over although the run has not ended.
    fn is_over(&self) -> bool {
        false
    }

    /// The first bytes of the response.
    fn opening(&self) -> Bytes {
        sse::opening()
    }

    /// Keep-alive bytes for an idle connection.
    fn ping(&self) -> Bytes {
        sse::ping()
    }
}

/// Which texts are shown, and how many while they are written.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// How many at a time; at most [`LIVE_TEXTS_MAX`](crate::domain::limits::LIVE_TEXTS_MAX), and 1 for positions that
    /// are numbers.
    pub texts_max: usize,
    pub reasoning: bool,
    /// Whether messages that only announce calls are shown as texts.
    pub announcements: bool,
}

impl Shown {
    /// Whether positions are numbers.
    pub(super) fn is_numbered(self) -> bool {
        self.texts_max == 1
    }

    /// The last output of an event that a reader has. A number rounds it up; this is undone unless it is a text.
    pub(super) fn seen(self, sub: u8, event: &Event<'_>) -> u8 {
        let is_text = matches!(event.what, What::Text { .. });
        if self.is_numbered() && !is_text { sub.min(number::OWN_MAX) } else { sub }
    }
}
