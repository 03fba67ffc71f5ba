//! The words of full-text search, in events and in queries.
//!
//! Invariant: events and queries are divided by the same function, so any text copied from a run finds it. Memory and
//! stack are bounded for any nesting depth, word length or broken escape.

use std::borrow::Cow;

use unicode_normalization::{UnicodeNormalization as _, char::is_combining_mark};

use super::limits::WORD_CHARS_MAX;

/// A value that [`texts`] finds in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A string value.
    Text(Cow<'a, str>),
    /// A number.
    Number(&'a str),
    /// The member `model` of the outermost object.
    Model(Cow<'a, str>),
}

/// Finds the values of JSON at any depth, in order; member names are skipped. Invalid JSON yields whatever looks like a
/// value.
pub fn texts<'a>(json: &'a str, mut each: impl FnMut(Part<'a>)) {
    let bytes = json.as_bytes();
    let (mut at, mut depth, mut is_model) = (0, 0u32, false);
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let end = string_end(bytes, at);
                let text = unescaped(&json[at + 1..end]);
                at = (end + 1).min(bytes.len());
                if next_is_colon(bytes, at) {
                    is_model = depth == 1 && text == "model";
                    continue;
                }
                if std::mem::take(&mut is_model) {
                    each(Part::Model(text.clone()));
                }
                each(Part::Text(text));
                continue;
            }
            b'{' | b'[' => (depth, is_model) = (depth.saturating_add(1), false),
            b'}' | b']' => depth = depth.saturating_sub(1),
            b'-' | b'0'..=b'9' => {
                let is_part = |byte: &u8| matches!(byte, b'0'..=b'9' | b'.' | b'-' | b'+' | b'e' | b'E');
                let length = bytes[at..].iter().take_while(|byte| is_part(byte)).count();
                each(Part::Number(&json[at..at + length]));
                is_model = false;
                at += length;
                continue;
            }
            _ => {}
        }
        at += 1;
    }
}

/// The position of a string's closing quote, or the end of the text.
fn string_end(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'"' => return at,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn next_is_colon(bytes: &[u8], at: usize) -> bool {
    bytes[at..].iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b':')
}

/// The text of a string; left as written if an escape is invalid.
fn unescaped(inner: &str) -> Cow<'_, str> {
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    serde_json::from_str(&format!("\"{inner}\"")).map_or(Cow::Borrowed(inner), Cow::Owned)
}

/// Whether a character belongs to a script without spaces between words.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x31F0..=0x31FF | 0x3400..=0x4DBF
        | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0xFF66..=0xFF9F | 0x20000..=0x323AF)
}

/// The spelling of words in the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spelling {
    /// Canonically or compatibly equivalent texts (UAX 15), and texts that differ only in case, are the same. Case
    /// folding is full and independent of language: `ß` is `ss`, `ς` is `σ`, and the Turkish `İ` and `ı` are `i`.
    Folded,
    /// As in earlier releases: each character in lower case, without combining accents.
    Lowered,
}

impl Spelling {
    fn spell(self, word: &mut String, c: char) {
        match (self, c) {
            (Self::Folded, 'İ' | 'ı') => word.push('i'),
            (Self::Folded, c) => {
                word.extend(c.to_lowercase().flat_map(char::to_uppercase).flat_map(char::to_lowercase));
            }
            (Self::Lowered, c) => word.extend(c.to_lowercase()),
        }
    }

    /// Whether a character is ignored: neither part of a word nor a separator.
    fn is_passed_over(self, c: char) -> bool {
        match self {
            Self::Folded => {
                matches!(
                    c,
                    '\u{AD}' | '\u{34F}' | '\u{200C}' | '\u{200D}' | '\u{2060}' | '\u{FE00}'..='\u{FE0F}' | '\u{FEFF}'
                )
            }
            Self::Lowered => matches!(c, '\u{300}'..='\u{36F}'),
        }
    }
}

/// Divides a text at spaces and punctuation into words, folded (see [`Spelling::Folded`]) and cut after
/// [`WORD_CHARS_MAX`] characters. In a script without spaces, each pair of neighbours is a word, and so is the last
/// character alone.
pub fn words(text: &str, mut each: impl FnMut(&str)) {
    if text.is_ascii() {
        return divide(text.chars(), Spelling::Folded, each);
    }
    // `stream_safe` splits long runs of combining marks, which would otherwise be buffered for ordering.
    divide(text.stream_safe().nfkc(), Spelling::Folded, |word| {
        if word.is_ascii() {
            each(word);
        } else {
            each(&word.nfc().collect::<String>());
        }
    });
}

/// As [`words`], in the spelling of earlier releases.
pub(super) fn words_before(text: &str, each: impl FnMut(&str)) {
    divide(text.chars(), Spelling::Lowered, each);
}

fn divide(text: impl Iterator<Item = char>, spelling: Spelling, mut each: impl FnMut(&str)) {
    let (mut word, mut chars) = (String::new(), 0);
    // The previous character, if its script has no spaces.
    let mut last: Option<char> = None;
    for c in text {
        if spelling.is_passed_over(c) {
            continue;
        }
        if is_unspaced(c) {
            end(&mut word, &mut chars, &mut each);
            if let Some(before) = last {
                word.extend([before, c]);
                end(&mut word, &mut chars, &mut each);
            }
            last = Some(c);
            continue;
        }
        let is_mark = spelling == Spelling::Folded && is_combining_mark(c);
        if is_mark && word.is_empty() {
            continue;
        }
        if let Some(alone) = last.take() {
            word.push(alone);
            end(&mut word, &mut chars, &mut each);
        }
        if !c.is_alphanumeric() && !is_mark {
            end(&mut word, &mut chars, &mut each);
        } else if chars < WORD_CHARS_MAX {
            spelling.spell(&mut word, c);
            chars += 1;
        }
    }
    word.extend(last);
    end(&mut word, &mut chars, &mut each);
}

fn end(word: &mut String, chars: &mut usize, each: &mut impl FnMut(&str)) {
    if !word.is_empty() {
        each(word);
        word.clear();
    }
    *chars = 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Vec<String> {
        let mut found = Vec::new();
        words(text, |word| found.push(word.to_owned()));
        found
    }

    fn parts(json: &str) -> Vec<String> {
        let mut found = Vec::new();
        texts(json, |part| {
            found.push(match part {
                Part::Text(text) => text.into_owned(),
                Part::Number(number) => format!("#{number}"),
                Part::Model(model) => format!("model {model}"),
            });
        });
        found
    }

    #[test]
    fn words_are_what_is_between_spaces_and_punctuation() {
        assert_eq!(of("get_weather(\"Paris\"): 429, Straße!"), ["get", "weather", "paris", "429", "strasse"]);
        assert_eq!(of("caf\u{65}\u{301} ÉTÉ"), ["café", "été"]);
        assert_eq!(of(" \t..- \u{301}"), Vec::<String>::new());
    }

    #[test]
    fn texts_that_look_the_same_have_the_same_words() {
        for (one, other) in [
            ("r\u{e9}sum\u{e9}", "re\u{301}sume\u{301}"),
            ("\u{1e69}", "s\u{307}\u{323}"),
            ("\u{212b}ngstr\u{f6}m", "\u{c5}ngstro\u{308}m"),
            ("\u{fb01}le", "file"),
            ("\u{ff21}\u{ff22} \u{2460}", "ab 1"),
            ("\u{ac00}\u{b098}", "\u{1100}\u{1161}\u{1102}\u{1161}"),
            ("\u{ff76}\u{ff9e}\u{ff71}", "\u{30ac}\u{30a2}"),
            ("STRASSE", "stra\u{df}e"),
            ("STRA\u{1e9e}E", "stra\u{df}e"),
            ("\u{39f}\u{394}\u{39f}\u{3a3}", "\u{3bf}\u{3b4}\u{3bf}\u{3c2}"),
            ("\u{130}STANBUL I\u{131}", "istanbul \u{131}i"),
            ("co\u{ad}operate", "cooperate"),
            ("\u{1f84}", "\u{1f0c}\u{399}"),
        ] {
            assert_eq!(of(one), of(other), "{one} and {other}");
        }
        assert_ne!(of("resume"), of("r\u{e9}sum\u{e9}"));
        assert_eq!(
            of("\u{939}\u{93f}\u{928}\u{94d}\u{926}\u{940} x"),
            ["\u{939}\u{93f}\u{928}\u{94d}\u{926}\u{940}", "x"]
        );
        assert_eq!(of(&format!("a{}b", "\u{301}".repeat(100_000))).len(), 1);
    }

    #[test]
    fn a_script_without_spaces_is_divided_into_pairs() {
        assert_eq!(of("東京都 rain"), ["東京", "京都", "都", "rain"]);
        assert_eq!(of("a東b"), ["a", "東", "b"]);
    }

    #[test]
    fn a_huge_word_is_cut() {
        assert_eq!(of(&"x".repeat(1_000_000)), ["x".repeat(WORD_CHARS_MAX)]);
    }

    #[test]
    fn values_are_found_and_names_of_members_are_not() {
        let json =
            r#"{"model":"gpt-5","name":"a \"b\"\n","n":[-1.5e3,true,null,{"model":"inner","x":"\ud83d\ude00"}]}"#;
        assert_eq!(parts(json), ["model gpt-5", "gpt-5", "a \"b\"\n", "#-1.5e3", "inner", "😀"]);
        assert_eq!(parts(r#""model""#), ["model"]);
        assert_eq!(parts(r#"{"model":["a"]}"#), ["a"]);
        assert_eq!(parts(r#"{"model":1,"a":"b"}"#), ["#1", "b"]);
    }

    #[test]
    fn what_is_broken_does_no_harm() {
        assert_eq!(parts(r#"{"a":"\ud800 rest"}"#), ["\\ud800 rest"]);
        assert_eq!(parts("\"open"), ["open"]);
        assert_eq!(parts("\"a\\"), ["a\\"]);
        let deep = "[".repeat(1_000_000) + "\"in\"";
        assert_eq!(parts(&deep), ["in"]);
    }

    proptest! {
        #[test]
        fn nothing_that_is_written_breaks_it(text in any::<String>()) {
            parts(&text);
            let json = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(parts(&json), vec![text.clone()]);
            let other: String = text.nfd().collect();
            prop_assert_eq!(of(&text), of(&other));
            let once = of(&text);
            for word in &once {
                prop_assert!(!word.is_empty() && word.chars().count() <= 9 * WORD_CHARS_MAX);
                prop_assert!(!word.contains(char::is_whitespace) && !word.contains('\''));
            }
        }
    }
}
