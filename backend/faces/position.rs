//! Where a reader of a conversation is: a run's cursor, refined to a single output of its protocol.
//!
//! A run's cursor is the seq of an event. A protocol for conversations sends several outputs for an event, and tokens,
//! which have no seq. Its position is
//!
//! - `seq`, the last event of which something was delivered;
//! - `sub`, how much of it: the parts of an event have fixed numbers from 1, and the last one is [`WHOLE`];
//! - for each text that is shown while it is written ([`Live`]): its `progress`, which is the number of delivered parts
//!   of its opening, or [`OPENED`] plus the number of delivered characters.
//!
//! `sub` and `progress` depend only on the event and the position itself. A reader that was cut off anywhere therefore
//! gets exactly the rest, from any server, even if a text has been completed meanwhile.
//!
//! A position has two forms. As text it is the run's cursor, followed by the rest where there is any:
//! `42.9f86d081~31~s1.model,m,139,811c9dc5`. As a number it has 31 bits ([`number`]), and numbers increase strictly
//! along a stream that shows at most one text at a time.

pub mod number;

use std::{fmt, str::FromStr};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::domain::{
    cursor::RunCursor,
    history::Tag,
    id::{Malformed, Seq, SpanId},
    limits::{LIVE_TEXTS_MAX, POSITION_BYTES_MAX},
    meaning::{Kind, Text},
};

/// The `sub` of an event that was delivered whole.
pub const WHOLE: u8 = 31;
/// The progress of a text whose opening was delivered, with none of its characters.
pub const OPENED: u32 = 16;
/// Exclusive bound of progress: characters from here on are sent with the durable event.
pub const PROGRESS_END: u32 = 1 << 20;
/// The hash of an empty text.
const EMPTY_HASH: u32 = 0x811c_9dc5;

/// Identifies a live text; a number has only a tag of its span.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Which {
    Span(SpanId),
    Tag(u8),
}

/// How far a text has been delivered while it is being written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    which: Which,
    pub kind: Kind,
    /// Whether its role is the agent's.
    pub is_agents: bool,
    pub progress: u32,
    /// Hash of the delivered characters; `None` if the position was a number.
    hash: Option<u32>,
}

/// The position after the last delivered output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Position {
    pub seq: Seq,
    pub history: Tag,
    pub sub: u8,
    pub live: Vec<Live>,
}

impl Live {
    /// A text of which nothing was delivered yet.
    pub fn new(text: &Text) -> Self {
        let is_agents = !matches!(&*text.role, "user" | "system" | "developer" | "tool");
        let which = Which::Span(text.span.clone());
        Self { which, kind: text.kind, is_agents, progress: 0, hash: Some(EMPTY_HASH) }
    }

    /// The text of this span, as it began.
    pub fn text(&self, span: SpanId) -> Text {
        let role = if self.is_agents { "assistant" } else { "user" };
        Text { role: role.into(), ..Text::new(span, self.kind) }
    }

    /// The text's span; `None` if the position was a number and no event of the text has been read yet.
    pub fn span(&self) -> Option<&SpanId> {
        match &self.which {
            Which::Span(span) => Some(span),
            Which::Tag(_) => None,
        }
    }

    /// Whether this is the text of a span that has an event of this kind; if so, records the span. A span has one text,
    /// even if its events are of two kinds.
    pub fn is_of(&mut self, span: &SpanId, kind: Kind) -> bool {
        let same = match &self.which {
            Which::Span(own) => own == span,
            Which::Tag(tag) => *tag == tag_of(span) && self.kind == kind,
        };
        if same && matches!(self.which, Which::Tag(_)) {
            self.which = Which::Span(span.clone());
        }
        same
    }

    /// Characters delivered.
    pub fn chars(&self) -> usize {
        self.progress.saturating_sub(OPENED) as usize
    }

    /// Records appended text; false and no change if it would be too long for a position.
    pub fn append(&mut self, text: &str) -> bool {
        let Ok(more) = u32::try_from(text.chars().count()) else { return false };
        let progress = self.progress.max(OPENED).saturating_add(more);
        if progress >= PROGRESS_END {
            return false;
        }
        self.progress = progress;
        self.hash = self.hash.map(|hash| hashed(hash, text));
        true
    }

    /// Where a text given in pieces continues after the delivered characters; `None` if it does not begin with them.
    pub fn rest(&self, pieces: impl Iterator<Item = impl AsRef<str>>) -> Option<Rest> {
        let (mut left, mut hash, mut bytes) = (self.chars(), EMPTY_HASH, 0);
        for piece in pieces {
            let piece = piece.as_ref();
            if left == 0 {
                break;
            }
            let cut = piece.char_indices().nth(left).map_or(piece.len(), |(at, _)| at);
            hash = hashed(hash, &piece[..cut]);
            left -= piece[..cut].chars().count();
            bytes += cut;
        }
        (left == 0 && self.hash.is_none_or(|own| own == hash)).then_some(Rest { bytes })
    }
}

/// Where the rest of a text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rest {
    pub bytes: usize,
}

/// FNV-1a, 32 bits: detects a text that was replaced; it protects nothing.
fn hashed(hash: u32, text: &str) -> u32 {
    text.bytes().fold(hash, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

/// A span's tag, 1 to [`number::TAG_MAX`].
fn tag_of(span: &SpanId) -> u8 {
    u8::try_from(hashed(EMPTY_HASH, span.as_str()) % u32::from(number::TAG_MAX) + 1).unwrap_or(1)
}

impl Position {
    /// After a whole event, without live texts.
    pub fn after(cursor: RunCursor) -> Self {
        Self { seq: cursor.seq, history: cursor.history, sub: WHOLE, live: Vec::new() }
    }

    /// The cursor of the last event that was delivered whole: where the run's stream has to begin.
    pub fn cursor(&self) -> RunCursor {
        let seq = if self.sub == WHOLE { self.seq } else { self.seq.back(1) };
        RunCursor { seq, history: self.history }
    }

    /// Whether another text can become live without being mistaken for one of these in a number.
    pub fn is_apart(&self, span: &SpanId) -> bool {
        self.live.iter().all(|live| match &live.which {
            Which::Span(own) => own != span,
            Which::Tag(tag) => *tag != tag_of(span),
        })
    }
}

/// Characters of a span that a position percent-encodes.
const SPAN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'.').remove(b'_').remove(b'-').remove(b':');

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.seq, self.history)?;
        if self.sub == WHOLE && self.live.is_empty() {
            return Ok(());
        }
        write!(f, "~{}", self.sub)?;
        for live in &self.live {
            let Which::Span(span) = &live.which else { continue };
            let kind = match (live.kind, live.is_agents) {
                (Kind::Message, true) => 'm',
                (Kind::Message, false) => 'o',
                (Kind::Reasoning, _) => 'r',
            };
            let span = utf8_percent_encode(span.as_str(), SPAN);
            write!(f, "~{span},{kind},{},{:08x}", live.progress, live.hash.unwrap_or(EMPTY_HASH))?;
        }
        Ok(())
    }
}

const RULE: Malformed =
    Malformed("this position was not issued by this server; send the last id of the stream unchanged");

impl FromStr for Position {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        if text.len() > POSITION_BYTES_MAX {
            return Err(RULE);
        }
        let mut words = text.split('~');
        let cursor: RunCursor = words.next().unwrap_or_default().parse()?;
        let mut position = Self::after(cursor);
        if let Some(sub) = words.next() {
            position.sub = u8::try_from(number(sub, u32::from(WHOLE) + 1)?).map_err(|_| RULE)?;
        }
        for word in words {
            position.live.push(live(word)?);
        }
        let partial = position.sub != WHOLE && cursor.seq == Seq::ZERO;
        if partial || position.live.len() > LIVE_TEXTS_MAX || position.to_string() != text {
            return Err(RULE);
        }
        Ok(position)
    }
}

fn live(word: &str) -> Result<Live, Malformed> {
    let parts: Vec<&str> = word.split(',').collect();
    let [span, kind, progress, hash] = parts[..] else { return Err(RULE) };
    let span = percent_decode_str(span).decode_utf8().map_err(|_| RULE)?;
    let (kind, is_agents) = match kind {
        "m" => (Kind::Message, true),
        "o" => (Kind::Message, false),
        "r" => (Kind::Reasoning, true),
        _ => return Err(RULE),
    };
    let hash = u32::from_str_radix(hash, 16).map_err(|_| RULE)?;
    let progress = number(progress, PROGRESS_END)?;
    Ok(Live { which: Which::Span(span.parse()?), kind, is_agents, progress, hash: Some(hash) })
}

fn number(text: &str, end: u32) -> Result<u32, Malformed> {
    text.parse().ok().filter(|number| (1..end).contains(number)).ok_or(RULE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seq: i64, sub: u8, live: Vec<Live>) -> Position {
        Position { seq: Seq::new(seq).unwrap(), history: Tag::FIRST, sub, live }
    }

    #[test]
    fn a_position_after_a_whole_event_is_the_runs_cursor() {
        assert_eq!(at(42, WHOLE, Vec::new()).to_string(), "42");
        assert_eq!("7.0000beef".parse::<Position>().unwrap().to_string(), "7.0000beef");
        assert_eq!("7~3".parse::<Position>().unwrap().cursor().seq, Seq::new(6).unwrap());
    }

    #[test]
    fn positions_have_one_spelling_and_a_bound() {
        for bad in ["", "~", "7~", "7~0", "7~32", "7~31", "7~03", "0~1", "7~31~m", "7~31~m,x,1,00000000", "7~31~,m,1,0"]
        {
            assert!(bad.parse::<Position>().is_err(), "{bad:?}");
        }
        let many = format!("7~31{}", "~m,m,17,00000001".repeat(LIVE_TEXTS_MAX + 1));
        assert!(many.parse::<Position>().is_err());
    }

    #[test]
    fn a_position_says_whose_text_is_being_shown() {
        let roles = ["assistant", "narrator", "user", "system", "developer", "tool"];
        let read = roles.map(|role| {
            let text = Text { role: role.into(), ..Text::new("m".parse().unwrap(), Kind::Message) };
            let position: Position = at(7, WHOLE, vec![began(&text)]).to_string().parse().unwrap();
            position.live[0].text(text.span).role
        });
        assert_eq!(read, ["assistant", "assistant", "user", "user", "user", "user"]);
    }

    /// A text with only its opening delivered.
    fn began(text: &Text) -> Live {
        let mut live = Live::new(text);
        assert!(live.append(""));
        live
    }

    proptest! {
        #[test]
        fn a_position_survives_as_text(
            seq in 1i64..1 << 40, sub in 1u8..=WHOLE, text in "\\PC{0,40}", span in "[^\\x00-\\x1f\\x7f]{1,40}",
        ) {
            let Ok(span) = span.parse::<SpanId>() else { return Ok(()) };
            let mut live = Live::new(&Text::new(span.clone(), Kind::Message));
            prop_assert!(live.append(&text));
            let position = at(seq, sub, vec![live]);
            prop_assert_eq!(&position.to_string().parse::<Position>().unwrap(), &position);
        }

        #[test]
        fn the_rest_of_a_text_is_found_in_any_pieces(text in "\\PC{0,30}", cut in 0usize..30, piece in 1usize..5) {
            let chars: Vec<char> = text.chars().collect();
            let cut = cut.min(chars.len());
            let (before, after): (String, String) = (chars[..cut].iter().collect(), chars[cut..].iter().collect());
            let mut live = Live::new(&Text::new("m".parse().unwrap(), Kind::Message));
            live.append(&before);
            let pieces = chars.chunks(piece).map(|piece| piece.iter().collect::<String>());
            prop_assert_eq!(live.rest(pieces).map(|rest| text[rest.bytes..].to_owned()), Some(after));
            let other = chars.iter().map(|_| "\u{e000}".to_owned());
            prop_assert_eq!(live.rest(other).is_some(), cut == 0);
        }
    }
}
