//! A position as a 31-bit number, for a protocol whose clients take numbers of that size.
//!
//! Seqs are divided into octaves: the first has 64, each further one twice as many, and each octave has 2^27 numbers.
//! So a seq of octave `k` has `2^(21-k)` numbers, divided by the tag of the live text (5 bits), its progress (the rest,
//! up to 13 bits) and the part of the event (3 bits), in this order. Progress is a floating-point number: in short runs
//! exact for the first 496 characters of a text, in long ones for few. A text is delivered up to the last count that
//! has a number; the rest follows with the next token or the durable event.
//!
//! A number depends only on the position, and the position only on its number: both are the same everywhere.

use super::{Live, OPENED, PROGRESS_END, Position, WHOLE, Which, tag_of};
use crate::domain::{
    history::Tag,
    id::{Malformed, Seq},
    meaning::Kind,
};

/// The parts of an event that have numbers; one in between has the number of the next. They are the first two of a text
/// or of a cut, the text or the end of a cut, the next two, two more of an event or of a replaced text, and the last.
const SUBS: [u8; 8] = [1, 2, 15, 16, 17, 26, 27, WHOLE];
/// The last part but one of an event that is not a text; its number is that of the next one of [`SUBS`].
pub const OWN_MAX: u8 = 18;
/// The index in [`SUBS`] of the first output of a run, which has the number 0.
const FIRST: u32 = 3;
const SUB_BITS: u32 = 3;
const TAG_BITS: u32 = 5;
pub(super) const TAG_MAX: u8 = (1 << TAG_BITS) - 1;
/// Bits of the exponent of a progress.
const EXPONENT_BITS: u32 = 4;
/// Seqs in the first octave, and numbers in each octave, as powers of two.
const FIRST_OCTAVE_BITS: u32 = 6;
const OCTAVE_BITS: u32 = 27;
const OCTAVES: u32 = 16;
/// The numbers of a seq: the first one, and the number of bits that distinguish them.
#[derive(Clone, Copy)]
struct Room {
    first: u32,
    bits: u32,
}

impl Room {
    fn of(seq: Seq) -> Option<Self> {
        let place = u32::try_from(seq.get().checked_sub(1)?).ok()?.checked_add(1 << FIRST_OCTAVE_BITS)?;
        let octave = place.ilog2() - FIRST_OCTAVE_BITS;
        let bits = OCTAVE_BITS - FIRST_OCTAVE_BITS - octave.min(OCTAVES);
        let within = place - (1 << (octave + FIRST_OCTAVE_BITS));
        (octave < OCTAVES).then(|| Self { first: (octave << OCTAVE_BITS) + (within << bits), bits })
    }

    /// A number's seq and room, and its offset in the room.
    fn with(number: u32) -> Option<(Seq, Self, u32)> {
        let octave = number >> OCTAVE_BITS;
        let bits = (OCTAVE_BITS - FIRST_OCTAVE_BITS).checked_sub(octave)?;
        let within = (number & ((1 << OCTAVE_BITS) - 1)) >> bits;
        let seq = Seq::new(i64::from((1u32 << (octave + FIRST_OCTAVE_BITS)) - (1 << FIRST_OCTAVE_BITS) + within + 1))?;
        let place = number & ((1 << bits) - 1);
        Some((seq, Self { first: number - place, bits }, place))
    }

    /// Bits of a progress; 0 if there is no room for a live text.
    fn progress_bits(self) -> u32 {
        self.bits.saturating_sub(SUB_BITS + TAG_BITS)
    }
}

/// A progress as a floating-point number, rounded down: exact below `2^(mantissa + 1)`, then with the same number of
/// steps for each doubling.
fn floating(progress: u32, bits: u32) -> Option<u32> {
    let mantissa = bits.checked_sub(EXPONENT_BITS)?;
    let steps = 1 << mantissa;
    if progress < steps {
        return Some(progress);
    }
    let shift = progress.ilog2() - mantissa;
    let largest = (1 << EXPONENT_BITS) - 2;
    Some(if shift > largest { (1 << bits) - 1 } else { ((shift + 1) << mantissa) + (progress >> shift) - steps })
}

/// The inverse of [`floating`].
fn progress_of(floating: u32, bits: u32) -> Option<u32> {
    let mantissa = bits.checked_sub(EXPONENT_BITS)?;
    let (exponent, rest) = (floating >> mantissa, floating & ((1 << mantissa) - 1));
    Some(if exponent == 0 { rest } else { (rest + (1 << mantissa)) << (exponent - 1) })
}

/// How many of `more` characters a live text may show at this seq: up to a progress that has a number in this octave
/// and in the next one, which a long text may reach.
pub fn deliverable(seq: Seq, live: &Live, more: usize) -> usize {
    let bits = Room::of(seq).map_or(0, |room| room.progress_bits().saturating_sub(1));
    let now = live.progress.max(OPENED);
    let wanted = u32::try_from(more).unwrap_or(u32::MAX).saturating_add(now).min(PROGRESS_END - 1);
    let reached = floating(wanted, bits).and_then(|floating| progress_of(floating, bits)).unwrap_or(0);
    reached.saturating_sub(now) as usize
}

/// Whether a text can become live at this seq.
pub fn has_room(seq: Seq) -> bool {
    Room::of(seq).is_some_and(|room| room.progress_bits() > EXPONENT_BITS)
}

impl Position {
    /// The position as a number; `None` after some four million events. It has at most one live text.
    pub fn number(&self) -> Option<u32> {
        let room = Room::of(self.seq)?;
        let live = self.live.first().filter(|live| live.progress > 0).and_then(|live| {
            let tag = match &live.which {
                Which::Span(span) => tag_of(span),
                Which::Tag(tag) => *tag,
            };
            Some((u32::from(tag), floating(live.progress, room.progress_bits())?))
        });
        let (tag, progress) = live.unwrap_or_default();
        let sub = SUBS.iter().position(|sub| *sub >= self.sub).and_then(|place| u32::try_from(place).ok());
        let within = (((tag << room.progress_bits()) | progress) << SUB_BITS) | sub?;
        (room.first + within).checked_sub(FIRST)
    }

    /// The position with this number. A live text is a message: a stream with numbers shows no other.
    pub fn from_number(number: u64) -> Result<Self, Malformed> {
        const RULE: Malformed = Malformed("this is not the number of anything in a stream of this run");
        let number = u32::try_from(number).ok().and_then(|number| number.checked_add(FIRST)).ok_or(RULE)?;
        let (seq, room, within) = Room::with(number).filter(|_| number >> (OCTAVE_BITS + 4) == 0).ok_or(RULE)?;
        let bits = room.progress_bits();
        let sub = SUBS[(within & ((1 << SUB_BITS) - 1)) as usize];
        let (tag, progress) = (within >> (SUB_BITS + bits), (within >> SUB_BITS) & ((1 << bits) - 1));
        let live = match (u8::try_from(tag).unwrap_or(0), progress_of(progress, bits).unwrap_or(0)) {
            (0, 0) => Vec::new(),
            (0, _) | (_, 0) => return Err(RULE),
            (tag, progress) => {
                vec![Live { which: Which::Tag(tag), kind: Kind::Message, is_agents: true, progress, hash: None }]
            }
        };
        Ok(Self { seq, history: Tag::FIRST, sub, live })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::meaning::Text;

    /// The last seq that has numbers.
    const SEQ_END: i64 = ((1 << OCTAVES) - 1) << FIRST_OCTAVE_BITS;

    fn at(seq: i64, sub: u8, live: Vec<Live>) -> Position {
        Position { seq: Seq::new(seq).unwrap(), history: Tag::FIRST, sub, live }
    }

    fn shown(seq: i64, span: &str, chars: usize) -> Live {
        let mut live = Live::new(&Text::new(span.parse().unwrap(), Kind::Message));
        let chars = deliverable(Seq::new(seq).unwrap(), &live, chars);
        assert!(live.append(&"x".repeat(chars)));
        live
    }

    #[test]
    fn the_first_number_is_0_and_the_last_has_31_bits() {
        assert_eq!(at(1, 16, Vec::new()).number(), Some(0));
        assert_eq!(at(SEQ_END, WHOLE, Vec::new()).number().map(|number| number >> 31), Some(0));
        assert_eq!(at(SEQ_END + 1, WHOLE, Vec::new()).number(), None);
        for none in [1 << 31, u64::from(u32::MAX), u64::MAX] {
            assert!(Position::from_number(none).is_err(), "{none}");
        }
    }

    #[test]
    fn a_run_of_100_000_events_and_10_megabytes_of_text_stays_below_2_to_the_31() {
        let (mut last, mut chars) = (None, 0);
        for seq in 1..=100_000 {
            let live = shown(seq, "m", 105);
            chars += live.chars();
            for position in [at(seq, WHOLE, vec![live]), at(seq, WHOLE, Vec::new())] {
                let number =
                    if position.live.is_empty() { at(seq + 1, 1, Vec::new()).number() } else { position.number() };
                assert!(number > last, "{seq}");
                last = number;
            }
        }
        assert!(chars > 2_000_000, "shown while it is written, of the first 32 000: {chars}");
        assert_eq!(last, Some(1_412_890_621), "the greatest number");
    }

    #[test]
    fn a_short_run_has_a_number_for_every_character_and_a_long_one_for_some() {
        let exact = |seq| (1..10_000).find(|chars| shown(seq, "m", *chars).chars() < *chars).unwrap();
        assert_eq!((exact(1), exact(64), exact(1_000), exact(10_000)), (497, 497, 17, 1));
        for (seq, steps) in [(1, 256), (1_000, 16), (10_000, 2)] {
            let (many, most) = (40_000, shown(seq, "m", 40_000).chars());
            assert!(most <= many && most + many / steps > many, "{seq}: {most}");
        }
    }

    proptest! {
        #[test]
        fn a_position_survives_as_a_number(
            seq in 1i64..SEQ_END, sub in 0usize..8, chars in 0usize..100_000, span in "[a-z]{1,9}",
        ) {
            let span = span.as_str();
            let live = if has_room(Seq::new(seq).unwrap()) { vec![shown(seq, span, chars)] } else { Vec::new() };
            let live: Vec<Live> = live.into_iter().filter(|live| live.progress > 0).collect();
            let position = at(seq, SUBS[sub], live.clone());
            prop_assume!(seq > 1 || sub >= FIRST as usize || !live.is_empty());
            let number = position.number().unwrap();
            prop_assert!(number < 1 << 31);
            let mut back = Position::from_number(number.into()).unwrap();
            prop_assert_eq!((back.seq, back.sub, back.number()), (position.seq, position.sub, Some(number)));
            for (back, live) in back.live.iter_mut().zip(&live) {
                prop_assert!(back.is_of(&span.parse().unwrap(), Kind::Message));
                prop_assert_eq!(back.progress, live.progress);
            }
            // Also in the next octave.
            if let Some(later) = Seq::new(2 * seq).filter(|later| later.get() < SEQ_END && has_room(*later)) {
                let number = at(later.get(), WHOLE, live.clone()).number().unwrap();
                let back = Position::from_number(number.into()).unwrap();
                prop_assert_eq!(back.live.first().map(|live| live.progress), live.first().map(|live| live.progress));
            }
        }
    }
}
