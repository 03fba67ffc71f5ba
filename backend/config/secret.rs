//! [`Secret`]: a text that is never displayed, and [`SecretSource`]: where it is read from.

use std::{fmt, path::PathBuf};

use super::{Error, error, read_secret, variable};

/// Characters of a secret that may be shown, so that people can recognize it.
const SHOWN_CHARS_MAX: usize = 11;
/// Shortest secret that is masked in a text, characters; a shorter one may be an ordinary word.
const MASKED_CHARS_MIN: usize = 6;

/// A key. `Debug` does not show it, and it cannot be serialised.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The secret itself, only for the request that carries it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Masks every occurrence of the secret in the text, unless the secret is very short.
    pub fn masked_in(&self, text: &str) -> String {
        let least = self.0.char_indices().nth(SHOWN_CHARS_MAX + 1).map_or(self.0.len(), |(at, _)| at);
        let is_short = self.0.chars().nth(MASKED_CHARS_MIN - 1).is_none();
        let (Some(beginning), false) = (self.0.get(..least), is_short) else { return text.to_owned() };
        let (mut masked, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find(beginning) {
            masked.push_str(&rest[..at]);
            masked.push_str("***");
            // Also masks a truncated secret: skips every character that matches from here on.
            let same = rest[at..].chars().zip(self.0.chars()).take_while(|(a, b)| a == b);
            rest = &rest[at + same.map(|(c, _)| c.len_utf8()).sum::<usize>()..];
        }
        masked + rest
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

/// Where a secret is read from, each time it is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// An environment variable; if it is not set, the file named by `<NAME>_FILE`.
    Env(String),
    File(PathBuf),
}

impl SecretSource {
    /// The file it is read from, if any.
    pub(super) fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Env(name) => variable(&format!("{name}_FILE")).map(PathBuf::from),
            Self::File(path) => Some(path.clone()),
        }
    }

    /// Reads the secret; the error names the source.
    pub fn read(&self) -> Result<Secret, Error> {
        let text = match self {
            Self::Env(name) => match variable(name) {
                Some(value) => Some(value),
                None => super::secret_from_file(name)?,
            },
            Self::File(path) => Some(read_secret(path)?),
        };
        let text = text.map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        text.map(Secret).ok_or_else(|| error(format!("{self} is not set or empty")))
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "the variable {name}"),
            Self::File(path) => write!(f, "the file {}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_does_not_show_itself() {
        let secret = Secret::new("sk-123");
        assert_eq!(format!("{secret:?} {:?}", Some(&secret)), "Secret(***) Some(Secret(***))");
        assert_eq!(secret.masked_in("wrong key sk-123"), "wrong key ***");
        let long = Secret::new("sk-ant-0123456789-ü-abc");
        let text = "half of sk-ant-0123456789-ü and sk-ant-0123456789-ü-abcdef, but not sk-ant-01";
        assert_eq!(long.masked_in(text), "half of *** and ***def, but not sk-ant-01");
        for short in ["", "x", "html", "text/"] {
            assert_eq!(Secret::new(short).masked_in("text/html as it is"), "text/html as it is");
        }
    }
}
