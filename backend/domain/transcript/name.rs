//! Names of saved sessions: valid file names on every system, and distinct from the folder's own files.

use std::{borrow::Cow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::domain::{id::Malformed, limits::SAVED_NAME_CHARS_MAX};

/// Names of the folder's own files, in this version or another.
const OWN: [&str; 2] = ["index", "metadata"];
/// Windows device names, reserved in any case and with any extension.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];
const PORTS: [&str; 2] = ["com", "lpt"];

/// A saved session's name: its file name without `.json`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct SavedName(Arc<str>);

impl FromStr for SavedName {
    type Err = Malformed;

    /// Checks a name; an error is the rule that it broke.
    fn from_str(text: &str) -> Result<Self, Malformed> {
        broken_rule(text).map_or_else(|| Ok(Self(Arc::from(text))), |rule| Err(Malformed(rule)))
    }
}

impl fmt::Display for SavedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SavedName {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl SavedName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Refuses names that only sessions of older versions may have: programs would take the file name for an option.
    pub fn check_new(&self) -> Result<(), Malformed> {
        if self.as_str().starts_with('-') { Err(Malformed("a name must not begin with a hyphen")) } else { Ok(()) }
    }

    /// The name of its file.
    pub fn file_name(&self) -> String {
        format!("{}.json", self.as_str())
    }

    /// The name of the session in this file, if valid.
    pub fn of_file(file_name: &str) -> Option<Self> {
        file_name.strip_suffix(".json")?.parse().ok()
    }

    /// Whether the two names differ only in case, and so are one file on some systems.
    pub fn is_nearly(&self, other: &Self) -> bool {
        self != other && self.as_str().eq_ignore_ascii_case(other.as_str())
    }
}

/// The first rule that a name breaks.
fn broken_rule(text: &str) -> Option<&'static str> {
    let lower = text.to_ascii_lowercase();
    let is_own = OWN.iter().any(|own| lower == *own || lower.strip_suffix(".json") == Some(own));
    let rules = [
        (text.is_empty(), "a name must not be empty"),
        (
            !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)),
            "a name may only have the characters A-Z a-z 0-9 . _ -",
        ),
        (text.len() > SAVED_NAME_CHARS_MAX, "a name has at most 64 characters"),
        (text.contains(".."), "a name must not contain two dots in a row"),
        (text.starts_with('.'), "a name must not begin with a dot"),
        (text.ends_with('.'), "a name must not end with a dot"),
        (is_own, "index and metadata are reserved names, in upper or lower case: the folder has files of these names"),
        (
            is_device(&lower),
            "con, prn, aux, nul, com0 to com9 and lpt0 to lpt9 are reserved on some systems, in upper or lower case and \
             with any extension",
        ),
    ];
    rules.into_iter().find_map(|(is_broken, rule)| is_broken.then_some(rule))
}

fn is_device(lower: &str) -> bool {
    let stem = lower.split('.').next().unwrap_or_default();
    let port = |port: &str| stem.strip_prefix(port).is_some_and(|n| n.len() == 1 && n.as_bytes()[0].is_ascii_digit());
    DEVICES.contains(&stem) || PORTS.iter().any(|name| port(name))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(text: &str) -> Result<SavedName, Malformed> {
        text.parse()
    }

    #[test]
    fn a_name_is_a_file_on_every_system() {
        for good in
            ["a", "A.b_c-d", "2026-06-01", "console", "com", "com10", "lpt", "nulx", "x.con", "indexes", "-", "_"]
        {
            assert_eq!(named(good).unwrap().file_name(), format!("{good}.json"));
        }
        assert!(named(&"x".repeat(64)).is_ok());
    }

    #[test]
    fn what_looks_like_an_option_is_found_and_is_no_new_name() {
        for old in ["-", "-rf", "--help", "-a.b"] {
            let name = named(old).unwrap();
            assert!(name.check_new().is_err(), "{old}");
            assert_eq!(SavedName::of_file(&name.file_name()), Some(name));
        }
        assert!(["a-", "_-", "0-1"].iter().all(|good| named(good).unwrap().check_new().is_ok()));
    }

    #[test]
    fn each_refusal_names_the_rule_that_was_broken() {
        for (bad, word) in [
            ("", "empty"),
            ("a b", "only have the characters"),
            ("a/b", "only have the characters"),
            ("a\\b", "only have the characters"),
            ("a\0", "only have the characters"),
            ("é", "only have the characters"),
            (&"x".repeat(65), "at most 64"),
            ("a..b", "two dots"),
            ("..", "two dots"),
            (".a", "begin"),
            (".", "begin"),
            ("a.", "end"),
            ("Index", "index and metadata"),
            ("METADATA", "index and metadata"),
            ("index.json", "index and metadata"),
            ("CON", "some systems"),
            ("nul.txt", "some systems"),
            ("Com1", "some systems"),
            ("lpt9.a.b", "some systems"),
            ("com0", "some systems"),
        ] {
            let rule = named(bad).unwrap_err().to_string();
            assert!(rule.contains(word), "{bad:?}: {rule}");
        }
    }

    proptest! {
        #[test]
        fn what_is_a_name_stays_in_its_folder_and_is_found_again(text in "\\PC{0,70}|[A-Za-z0-9._-]{0,70}") {
            if let Ok(name) = named(&text) {
                let file = name.file_name();
                let path = std::path::Path::new(&file);
                prop_assert_eq!(path.file_name().and_then(|file| file.to_str()), Some(file.as_str()));
                prop_assert_eq!(path.components().count(), 1);
                prop_assert!(!file.starts_with('.') && !file.eq_ignore_ascii_case("index.json"));
                prop_assert_eq!(SavedName::of_file(&file), Some(name));
            }
        }
    }
}
