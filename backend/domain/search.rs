//! Search queries, and the spelling of words in the index.

use std::{collections::BTreeSet, str::FromStr};

use super::{
    id::{Malformed, Title},
    limits::{EVENT_WORDS_MAX, NAME_CHARS_MAX, PREFIX_CHARS_MIN, SEARCH_WORDS_MAX},
    principal::OwnerId,
    words::{self, Part},
};

const NO_WORD: Malformed = Malformed("there is no word to search for: at least one letter or digit is needed");
const TOO_MANY: Malformed = Malformed("at most 16 words can be searched for at a time");
const SHORT: Malformed = Malformed("the beginning of a word before * needs at least 3 characters");

/// A word, or the prefix of one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Term {
    word: String,
    /// Its spelling in the index of earlier releases, if different.
    before: Option<String>,
    is_beginning: bool,
}

/// Words that must all be found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search(Vec<Term>);

impl FromStr for Search {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let text = Title::from_str(text)?;
        let mut terms = BTreeSet::new();
        for chunk in text.as_str().split_whitespace() {
            let mut found = Vec::new();
            words::words(chunk, |word| found.push(word.to_owned()));
            let mut before = Vec::new();
            words::words_before(chunk, |word| before.push(word.to_owned()));
            if before.len() != found.len() {
                before.clear();
            }
            let unspaced = |word: &str| word.chars().all(words::is_unspaced);
            // In a script without spaces, the last character is a word only for searches of that single character.
            if found.len() > 1 && found.last().is_some_and(|word| word.chars().count() == 1 && unspaced(word)) {
                found.pop();
            }
            let last = found.len();
            for (nth, word) in found.into_iter().enumerate() {
                let chars = word.chars().count();
                let is_alone = chars == 1 && unspaced(&word);
                let is_beginning = is_alone || chunk.ends_with('*') && nth + 1 == last;
                if is_beginning && chars < PREFIX_CHARS_MIN && !unspaced(&word) {
                    return Err(SHORT);
                }
                let before = before.get(nth).filter(|before| **before != word).cloned();
                terms.insert(Term { word, before, is_beginning });
            }
        }
        match terms.len() {
            0 => Err(NO_WORD),
            count if count > SEARCH_WORDS_MAX => Err(TOO_MANY),
            _ => Ok(Self(terms.into_iter().collect())),
        }
    }
}

impl Search {
    /// One query of the index per word.
    pub fn queries(&self, owner: &OwnerId) -> Vec<String> {
        let query_of = |word: &str, term: &Term| query(&lexeme(owner.as_str(), ':', word), term.is_beginning);
        let either = |term: &Term| match &term.before {
            Some(before) => format!("{} | {}", query_of(&term.word, term), query_of(before, term)),
            None => query_of(&term.word, term),
        };
        self.0.iter().map(either).collect()
    }

    /// Whether all words are in these texts.
    pub fn is_in<'a>(&self, texts: impl Iterator<Item = &'a str>) -> bool {
        let mut missing: Vec<&Term> = self.0.iter().collect();
        for text in texts {
            words::words(text, |word| missing.retain(|term| !term.is(word)));
            if missing.is_empty() {
                return true;
            }
        }
        false
    }

    /// Whether any of the words is in a text.
    pub fn touches(&self, text: &str) -> bool {
        let mut is_there = false;
        words::words(text, |word| is_there |= self.0.iter().any(|term| term.is(word)));
        is_there
    }
}

impl Term {
    fn is(&self, word: &str) -> bool {
        if self.is_beginning { word.starts_with(&self.word) } else { word == self.word }
    }
}

/// The query for runs that name a model.
pub fn model_query(owner: &OwnerId, model: &str) -> String {
    query(&lexeme(owner.as_str(), '=', model), false)
}

/// A word as stored in the index. The prefix from its owner's key keeps one owner's search from scanning the entries of
/// others; the row decides who owns it.
fn lexeme(owner: &str, kind: char, word: &str) -> String {
    format!("{}{kind}{word}", owner.get(..8).unwrap_or(owner))
}

/// A Postgres text search query for one lexeme.
fn query(lexeme: &str, is_beginning: bool) -> String {
    let quoted = lexeme.replace('\\', "\\\\").replace('\'', "''");
    format!("'{quoted}'{}", if is_beginning { ":*" } else { "" })
}

/// Adds the words of an event's payload to those of its run, and the models that it names.
pub fn index_payload(lexemes: &mut BTreeSet<String>, owner: &str, payload: &str) {
    let mut left = EVENT_WORDS_MAX;
    words::texts(payload, |part| match part {
        Part::Text(text) => index_text(lexemes, owner, &text, &mut left),
        Part::Number(number) => index_text(lexemes, owner, number, &mut left),
        Part::Model(model) => {
            if model.chars().count() <= NAME_CHARS_MAX && !model.chars().any(char::is_control) {
                lexemes.insert(lexeme(owner, '=', &model));
            }
        }
    });
}

/// Adds the words of a text, at most `left` of them.
pub fn index_text(lexemes: &mut BTreeSet<String>, owner: &str, text: &str, left: &mut usize) {
    words::words(text, |word| {
        if *left > 0 && lexemes.insert(lexeme(owner, ':', word)) {
            *left -= 1;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> OwnerId {
        OwnerId::trusted("0123456789")
    }

    fn queries(text: &str) -> Result<Vec<String>, &'static str> {
        text.parse::<Search>().map(|search| search.queries(&owner())).map_err(|error| error.0)
    }

    #[test]
    fn a_query_is_divided_as_events_are() {
        assert_eq!(queries("Time-out  time").unwrap(), ["'01234567:out'", "'01234567:time'"]);
        assert_eq!(queries("get_weat*").unwrap(), ["'01234567:get'", "'01234567:weat':*"]);
        assert_eq!(queries("東京都").unwrap(), ["'01234567:京都'", "'01234567:東京'"]);
        assert_eq!(queries("東").unwrap(), ["'01234567:東':*"]);
        assert_eq!(queries("Straße").unwrap(), ["'01234567:strasse' | '01234567:straße'"]);
    }

    #[test]
    fn a_query_without_words_or_with_too_many_is_refused() {
        for (text, reason) in [("", NO_WORD.0), ("*", NO_WORD.0), ("%'\\", NO_WORD.0), ("ab*", SHORT.0)] {
            assert_eq!(queries(text), Err(reason), "{text}");
        }
        let many = (0..17).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ");
        assert_eq!(queries(&many), Err(TOO_MANY.0));
        assert!(queries(&"x".repeat(512)).is_ok());
        assert!(queries(&"x".repeat(513)).is_err() && queries("a\0b").is_err());
    }

    #[test]
    fn the_quotes_of_a_model_stay_in_its_lexeme() {
        assert_eq!(model_query(&owner(), r"it's\a"), r"'01234567=it''s\\a'");
    }

    #[test]
    fn what_is_copied_out_of_an_event_finds_it() {
        let payload = r#"{"model":"m-1","name":"get_weather","args":{"city":"東京都"},"code":429}"#;
        let mut lexemes = BTreeSet::new();
        index_payload(&mut lexemes, owner().as_str(), payload);
        for text in ["get_weather", "429 weather", "東京", "都", "京", "WEATH*", "m-1"] {
            let search: Search = text.parse().unwrap();
            for query in search.queries(&owner()) {
                let wanted = query.trim_end_matches(":*").trim_matches('\'');
                let is_there = |lexeme: &String| {
                    if query.ends_with('*') { lexeme.starts_with(wanted) } else { lexeme == wanted }
                };
                assert!(lexemes.iter().any(is_there), "{text}: {query} in {lexemes:?}");
            }
        }
        assert!(lexemes.contains("01234567=m-1") && !lexemes.contains("01234567:city"), "{lexemes:?}");
        assert!("429 paris".parse::<Search>().unwrap().is_in(["code 429", "in Paris"].into_iter()));
        assert!(!"429 rome".parse::<Search>().unwrap().is_in(["code 429", "in Paris"].into_iter()));
    }
}
