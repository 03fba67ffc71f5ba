//! Text for people: nothing in a payload may control their terminal, or make a line look like another one.

/// One line without anything that a terminal interprets.
///
/// CSI sequences such as colours are removed, line breaks and tabs become spaces, other control characters and
/// invisible characters that reorder text become visible ones.
pub fn clean(text: &str) -> String {
    clean_with(text, |c| if matches!(c, '\n' | '\t' | '\r' | '\u{2028}' | '\u{2029}') { Some(' ') } else { None })
}

/// Like [`clean`], but line breaks and tabs stay.
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
            // The Unicode symbols for control characters are in the same order.
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

/// The text after a complete `ESC [ … letter`. Only that form is removed: others can contain text, which stays.
fn after_control_sequence(text: &str) -> Option<&str> {
    let body = text.strip_prefix("\x1b[")?;
    let end = body.find(|c: char| !('\x20'..='\x3f').contains(&c))?;
    let last = body[end..].chars().next()?;
    ('\x40'..='\x7e').contains(&last).then(|| &body[end + 1..])
}

/// At most `chars_max` characters, with an ellipsis if the text was cut.
pub fn clip(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) if chars_max == 0 => String::new(),
        Some(_) => text.chars().take(chars_max - 1).chain(['…']).collect(),
    }
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
}
