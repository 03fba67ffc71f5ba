//! Splits a reply into messages that Telegram accepts.

use crate::domain::limits::{REPLY_PARTS_MAX, TELEGRAM_UNITS_MAX};

/// The end of a reply that exceeds the maximum number of parts.
const LEFT_OUT: &str = "… (the rest is left out)";

/// Splits a text into messages of at most 4 096 UTF-16 units each, at the end of a line or a word if there is one in
/// the second half of a part. Blank parts are omitted.
pub fn split(text: &str) -> Vec<String> {
    let (mut parts, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (part, after) = rest.split_at(cut(rest, TELEGRAM_UNITS_MAX));
        rest = after;
        if !part.trim().is_empty() {
            parts.push(part.trim_end().to_owned());
        }
    }
    if parts.len() > REPLY_PARTS_MAX {
        parts.truncate(REPLY_PARTS_MAX);
        if let Some(last) = parts.last_mut() {
            let room = TELEGRAM_UNITS_MAX - LEFT_OUT.encode_utf16().count();
            last.truncate(fitting(last, room));
            last.push_str(LEFT_OUT);
        }
    }
    parts
}

/// The length in bytes of the longest prefix of at most `units_max` units.
fn fitting(text: &str, units_max: usize) -> usize {
    let mut units = 0;
    for (at, c) in text.char_indices() {
        units += c.len_utf16();
        if units > units_max {
            return at;
        }
    }
    text.len()
}

/// The length of the next part, bytes.
fn cut(text: &str, units_max: usize) -> usize {
    let end = fitting(text, units_max);
    if end == text.len() {
        return end;
    }
    let piece = &text[..end];
    let late = |at: &usize| *at > end / 2;
    let line = piece.rfind('\n').map(|at| at + 1).filter(late);
    let word = || piece.rfind(char::is_whitespace).map(|at| at + piece[at..].chars().next().map_or(1, char::len_utf8));
    line.or_else(|| word().filter(late)).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_short_text_is_one_message_and_an_empty_one_none() {
        assert_eq!(split("hello\n"), ["hello"]);
        assert!(split("").is_empty() && split(" \n ").is_empty());
    }

    #[test]
    fn a_long_text_is_cut_at_lines_then_words() {
        let line = format!("{}\n", "x".repeat(999));
        let parts = split(&line.repeat(10));
        assert_eq!(parts.iter().map(String::len).collect::<Vec<_>>(), [3_999, 3_999, 1_999]);
        let parts = split(&"word ".repeat(1_000));
        assert!(parts.iter().all(|part| part.ends_with("word") && part.starts_with("word")));
    }

    #[test]
    fn what_is_too_long_even_in_pieces_says_so() {
        let parts = split(&"😀".repeat(100_000));
        assert_eq!(parts.len(), REPLY_PARTS_MAX);
        assert!(parts.iter().all(|part| part.encode_utf16().count() <= TELEGRAM_UNITS_MAX));
        assert!(parts.last().unwrap().ends_with(LEFT_OUT));
    }

    proptest! {
        #[test]
        fn no_letter_is_lost_and_no_piece_too_long(text in "[a-zß😀 \n\u{2028}é]{0,9000}") {
            let parts = split(&text);
            prop_assert!(parts.iter().all(|part| part.encode_utf16().count() <= TELEGRAM_UNITS_MAX));
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            prop_assert_eq!(letters(&parts.concat()), letters(&text));
        }
    }
}
