//! The parts of a conversation, and who says them.

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
    /// A text begins. While it is written, its role is `assistant` unless its tokens say otherwise. Nothing of a text that
    /// is not shown is said but its end.
    Opened(&'a Text),
    /// The text goes on.
    Delta(&'a Text, &'a str),
    /// The text is this, and what was sent of it is not how it begins, or of the other kind.
    Replaced(&'a Text, &'a str),
    /// The text is complete. `None`: it was cut off, by the run's end or by an interrupt.
    Closed(&'a Text, Option<&'a Event<'a>>),
    /// A durable event that is not a text.
    Event(&'a Event<'a>),
    /// Everything stored has been said. It comes once.
    CaughtUp,
    /// Events after the position were deleted.
    Gap,
    /// The run has ended, and all of it was said.
    Ended(Status),
    /// The reader has to reconnect after this time, because the server shuts down or the log was set back.
    SentAway { retry_ms: u64 },
}

/// How the parts of a conversation are said in a protocol.
pub trait Dialect: Send {
    /// One event of the protocol.
    type Said: Send;

    /// Appends the protocol's events for a part: for a delta at most one, for a replacement at most 6, for the end of a
    /// text at most 4, for anything else at most 14. What is said of a part may depend on the parts before it.
    fn say(&mut self, part: &Part<'_>, out: &mut Vec<Self::Said>);

    /// Writes an event. `at` is the position after it; `None` where no reader can resume.
    fn write(&mut self, chunk: &mut BytesMut, said: Self::Said, at: Option<&Position>);

    /// Whether a text is shown: by default those of the agent. A person's words that were not streamed never are: they came
    /// from the client.
    fn shows(&self, text: &Text) -> bool {
        text.role == "assistant"
    }

    /// Whether the protocol's stream is over for its client with an event, at least until somebody answers: texts that are
    /// open end before it.
    fn ends_with(&self, event: &Event<'_>) -> bool {
        event.pauses()
    }

    /// All that was said has gone to the connection.
    fn written(&mut self) {}

    /// Whether nothing more is to be said, although the run has not ended.
    fn is_over(&self) -> bool {
        false
    }

    /// The first bytes of the response.
    fn opening(&self) -> Bytes {
        sse::opening()
    }

    /// What keeps an idle connection open.
    fn ping(&self) -> Bytes {
        sse::ping()
    }
}

/// Which texts are shown, and while they are written.
#[derive(Clone, Copy, Debug)]
pub struct Shown {
    /// How many at a time; at most [`LIVE_TEXTS_MAX`](crate::domain::limits::LIVE_TEXTS_MAX), and 1 for positions that
    /// are numbers.
    pub texts_max: usize,
    pub reasoning: bool,
    /// Whether messages without a text that announce calls are shown as texts.
    pub announcements: bool,
}

impl Shown {
    /// Whether positions are numbers.
    pub(super) fn is_numbered(self) -> bool {
        self.texts_max == 1
    }

    /// The last part of an event that a reader has. A number may tell a part of one that is not a text as a later one.
    pub(super) fn seen(self, sub: u8, event: &Event<'_>) -> u8 {
        let is_text = matches!(event.what, What::Text { .. });
        if self.is_numbered() && !is_text { sub.min(number::OWN_MAX) } else { sub }
    }
}
