//! Text for people: nothing in a payload may control their terminal.
//!
//! Names, messages and outputs come from agents and from whatever those read. [`clean`] is applied to every line
//! printed for a person; `--json` output is data and stays as it was received.

use std::{
    fmt::Display,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use chrono::{DateTime, FixedOffset, Local, Utc};

// Not a doc comment: clap would show it as the text of the program.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Colors {
    /// When to use colors; `auto` means on a terminal, unless `NO_COLOR` is set
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value_t = clap::ColorChoice::Auto)]
    pub color: clap::ColorChoice,
}

impl Colors {
    /// Configures the output streams of this process; call it once, before anything is printed.
    pub fn apply(self) {
        match self.color {
            clap::ColorChoice::Auto => anstream::ColorChoice::Auto,
            clap::ColorChoice::Always => anstream::ColorChoice::Always,
            clap::ColorChoice::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

/// Writes text to stdout and flushes; colours stay only where they are shown.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

/// Writes data for a program to stdout, byte for byte. On a terminal it is cleaned: there a person reads it.
pub fn hand_out(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    if stdout.is_terminal() {
        stdout.write_all(clean_lines(&text.replace("\r\n", "\n")).as_bytes())?;
    } else {
        stdout.write_all(text.as_bytes())?;
    }
    stdout.flush()
}

/// Writes a line to stderr. A failure cannot be reported.
pub fn say(line: impl Display) {
    let _ = writeln!(anstream::stderr().lock(), "{line}");
}

/// Columns of the terminal on stdout, if it is one.
pub fn terminal_width() -> Option<usize> {
    comfy_table::Table::new().width().map(usize::from)
}

/// One line without anything that a terminal acts on.
///
/// Colour sequences are removed, line ends and tabs become spaces, every other control character becomes a visible one,
/// and so do the invisible characters that reorder text.
pub fn clean(text: &str) -> String {
    clean_with(text, |c| if matches!(c, '\n' | '\t' | '\r' | '\u{2028}' | '\u{2029}') { Some(' ') } else { None })
}

/// Like [`clean`], but line ends and tabs stay.
pub fn clean_lines(text: &str) -> String {
    clean_with(text, |c| if matches!(c, '\n' | '\t') { Some(c) } else { None })
}

fn clean_with(text: &str, keep: fn(char) -> Option<char>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = after_control_sequence(rest) {
            rest = after;
            continue;
        }
        rest = &rest[c.len_utf8()..];
        if let Some(kept) = keep(c) {
            out.push(kept);
            continue;
        }
        out.push(match c {
            // The symbols for the control characters are in the same order.
            '\0'..='\x1f' => char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER),
            '\x7f' => '\u{2421}',
            '\u{80}'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}' => char::REPLACEMENT_CHARACTER,
            c => c,
        });
    }
    out
}

/// What follows a complete `ESC [ … letter`. Only that form is removed: others can contain text, which stays.
fn after_control_sequence(text: &str) -> Option<&str> {
    let body = text.strip_prefix("\x1b[")?;
    let end = body.find(|c: char| !('\x20'..='\x3f').contains(&c))?;
    let last = body[end..].chars().next()?;
    ('\x40'..='\x7e').contains(&last).then(|| &body[end + 1..])
}

/// At most this many characters, with a mark where text was cut.
pub fn clip(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) if chars_max == 0 => String::new(),
        Some(_) => text.chars().take(chars_max - 1).chain(['…']).collect(),
    }
}

/// A duration in its two largest units.
pub fn duration(length: Duration) -> String {
    let whole_s = length.as_secs();
    match whole_s {
        0 => format!("{} ms", length.as_millis()),
        1..=59 => format!("{:.1} s", length.as_secs_f64()),
        60..=3_599 => format!("{} m {:02} s", whole_s / 60, whole_s % 60),
        3_600..=86_399 => format!("{} h {:02} m", whole_s / 3_600, whole_s / 60 % 60),
        _ => format!("{} d {:02} h", whole_s / 86_400, whole_s / 3_600 % 24),
    }
}

/// A duration from a payload; an invalid one is zero.
pub fn from_ms(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms.max(0.0) / 1_000.0).unwrap_or_default()
}

/// From one RFC 3339 time to another, zero if it goes backwards; `None` if one of them is not a time.
pub fn between(from: &str, to: &str) -> Option<Duration> {
    let at = |text| DateTime::parse_from_rfc3339(text).ok();
    Some((at(to)? - at(from)?).to_std().unwrap_or_default())
}

/// The offset of this machine's clock at a time.
pub fn local_offset(at: DateTime<Utc>) -> FixedOffset {
    *at.with_timezone(&Local).offset()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sequences_lose_their_power_and_text_stays_readable() {
        for (dirty, expected) in [
            ("plain é 漢 😀", "plain é 漢 😀"),
            ("\x1b[1;31mred\x1b[0m", "red"),
            ("a\x1b[?25l\x1b[2Jb", "ab"),
            ("\x1b]0;owned\x07", "␛]0;owned␇"),
            ("\x1b]8;;http://evil\x1b\\x", "␛]8;;http://evil␛\\x"),
            ("\x1b[31", "␛[31"),
            ("\x1b[3\x1b[4mx", "␛[3x"),
            ("a\r\n\tb\x7f\0", "a   b␡␀"),
            ("\u{9b}31m\u{202e}evil\u{2066}", "\u{fffd}31m\u{fffd}evil\u{fffd}"),
        ] {
            assert_eq!(clean(dirty), expected, "{dirty:?}");
        }
        assert_eq!(clean_lines("a\n\tb\r\x1b[1mc"), "a\n\tb␍c");
    }

    proptest! {
        #[test]
        fn no_control_character_survives(text in "[\\x00-\\x1f\\x7f-\\u{9f}\\[\\]a-zé0-9;?]{0,40}|\\PC{0,20}") {
            prop_assert!(!clean(&text).chars().any(char::is_control));
            prop_assert!(!clean_lines(&text).chars().any(|c| c.is_control() && c != '\n' && c != '\t'));
        }

        #[test]
        fn a_clip_is_never_longer_than_asked(text in "\\PC{0,12}", chars_max in 0usize..14) {
            let clipped = clip(&text, chars_max);
            prop_assert!(clipped.chars().count() <= chars_max);
            prop_assert_eq!(clipped == text, text.chars().count() <= chars_max);
        }
    }

    #[test]
    fn durations_are_told_in_the_units_that_matter() {
        for (ms, expected) in [
            (-1.0, "0 ms"),
            (f64::NAN, "0 ms"),
            (f64::INFINITY, "0 ms"),
            (340.4, "340 ms"),
            (1_240.0, "1.2 s"),
            (64_000.0, "1 m 04 s"),
            (7_500_000.0, "2 h 05 m"),
            (180_000_000.0, "2 d 02 h"),
        ] {
            assert_eq!(duration(from_ms(ms)), expected);
        }
        assert_eq!(between("2025-01-01T00:00:00Z", "2025-01-01T01:00:01.5+01:00"), Some(Duration::from_millis(1_500)));
        assert_eq!(between("", "2025-01-01T00:00:01Z"), None);
    }
}
