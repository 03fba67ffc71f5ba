//! Words: what full-text search finds, in an event and in what somebody looks for.
//!
//! Invariant: an event and a query are divided by the same function, so whatever is copied out of a run finds it. No
//! depth of nesting, length of a word or broken escape makes a difference to how much memory or stack is used.

use std::borrow::Cow;

use super::limits::WORD_CHARS_MAX;

/// What [`texts`] finds in JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// A string that is a value.
    Text(Cow<'a, str>),
    /// A number.
    Number(&'a str),
    /// The member `model` of the outermost object.
    Model(Cow<'a, str>),
}

/// Finds the values of JSON, at any depth and in their order; names of members are passed over. What is not JSON yields
/// whatever looks like it.
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

/// The place of a string's closing quote, or the end of the text.
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

/// The text of a string. If an escape means nothing, the text stays as it is written.
fn unescaped(inner: &str) -> Cow<'_, str> {
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    serde_json::from_str(&format!("\"{inner}\"")).map_or(Cow::Borrowed(inner), Cow::Owned)
}

/// A character of a script that puts no spaces between words.
pub(super) fn is_unspaced(c: char) -> bool {
    matches!(u32::from(c),
        0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF | 0x3040..=0x30FF | 0x31F0..=0x31FF | 0x3400..=0x4DBF
        | 0x4E00..=0x9FFF | 0xAC00..=0xD7AF | 0xF900..=0xFAFF | 0xFF66..=0xFF9F | 0x20000..=0x323AF)
}

/// An accent that is a character of its own. It is left out, and does not divide a word.
fn is_accent(c: char) -> bool {
    matches!(c, '\u{300}'..='\u{36F}')
}

/// Divides a text into words: what is left between spaces and punctuation, in lower case, cut after
/// [`WORD_CHARS_MAX`] characters. Of a script without spaces, each pair of neighbours is a word, and so is the last
/// character alone.
pub fn words(text: &str, mut each: impl FnMut(&str)) {
    let (mut word, mut chars) = (String::new(), 0);
    // The last character of an unspaced script.
    let mut last: Option<char> = None;
    for c in text.chars() {
        if is_accent(c) {
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
        if let Some(alone) = last.take() {
            word.push(alone);
            end(&mut word, &mut chars, &mut each);
        }
        if !c.is_alphanumeric() {
            end(&mut word, &mut chars, &mut each);
        } else if chars < WORD_CHARS_MAX {
            word.extend(c.to_lowercase());
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
        assert_eq!(of("get_weather(\"Paris\"): 429, Straße!"), ["get", "weather", "paris", "429", "straße"]);
        assert_eq!(of("caf\u{65}\u{301} ÉTÉ"), ["cafe", "été"]);
        assert_eq!(of(" \t..- "), Vec::<String>::new());
        assert_eq!(of("İ ẞ"), ["i\u{307}", "ß"]);
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
            let once = of(&text);
            for word in &once {
                prop_assert!(!word.is_empty() && word.chars().count() <= 3 * WORD_CHARS_MAX);
                prop_assert!(!word.contains(char::is_whitespace) && !word.contains('\''));
            }
        }
    }
}
