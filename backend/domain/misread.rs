//! Rewrites parser messages about a value for the person who wrote it, and suggests the word that was meant.

/// Shortest prefix that identifies a word.
const BEGINNING_CHARS_MIN: usize = 3;

/// The known word closest to a mistyped one, if it is near enough or starts with it.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let chars = word.chars().count();
    let distance = |known: &str| {
        let known = known.to_lowercase();
        if chars >= BEGINNING_CHARS_MIN && known.starts_with(&word) { 1 } else { strsim::osa_distance(&word, &known) }
    };
    let near = known.into_iter().map(|known| (distance(known), known)).min()?;
    (near.0 <= (chars / 3).max(1)).then_some(near.1)
}

/// `; did you mean …?`, or empty.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
}

/// The member that a deserializer's message reports as missing.
pub fn missing(message: &str) -> Option<&str> {
    message.strip_prefix("missing field `")?.split('`').next()
}

/// A deserializer's message without Rust types. The value itself, which may be a secret, is not repeated.
pub fn in_words(message: &str) -> String {
    if let Some(name) = missing(message) {
        return format!("{name} is missing");
    }
    for (begins, what) in [("unknown field `", "the member"), ("unknown variant `", "the value")] {
        let Some((word, rest)) = message.strip_prefix(begins).and_then(|rest| rest.split_once('`')) else { continue };
        // Every second part of the list is between backticks.
        let known: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
        return match nearest(word, known.iter().copied()) {
            Some(meant) => format!("{what} {word} is unknown; did you mean {meant}?"),
            None if known.is_empty() => format!("{what} {word} is unknown"),
            None => format!("{what} {word} is unknown; known are {}", known.join(", ")),
        };
    }
    match message.strip_prefix("invalid type: ").and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((found, expected)) => format!("must be {}, not {}", kind(expected), kind(found)),
        None => message.to_owned(),
    }
}

/// The type in a deserializer's message in plain words, without the value that may follow.
fn kind(described: &str) -> &str {
    let word = described.split([' ', '`']).next().unwrap_or_default();
    match word {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" | "integer" => "a whole number",
        "f32" | "f64" | "floating" => "a number",
        "string" => "a text",
        "boolean" => "true or false",
        "sequence" => "a list",
        "map" | "struct" => "an object",
        "null" => "null",
        _ => match described {
            "a string" | "a borrowed string" => "a text",
            "a boolean" => "true or false",
            "a sequence" => "a list",
            "a map" => "an object",
            described => described,
        },
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Agent {
        #[serde(rename = "model")]
        _model: String,
        #[serde(default, rename = "max_steps")]
        _max_steps: u32,
        #[serde(default, rename = "tools")]
        _tools: Vec<String>,
    }

    fn words(json: &str) -> String {
        let message = serde_json::from_str::<Agent>(json).unwrap_err().to_string();
        in_words(message.split(" at line ").next().unwrap())
    }

    #[test]
    fn what_a_parser_says_becomes_words_for_people() {
        assert_eq!(words(r#"{"modle": "x"}"#), "the member modle is unknown; did you mean model?");
        assert_eq!(words(r#"{"color": "x"}"#), "the member color is unknown; known are model, max_steps, tools");
        assert_eq!(words("{}"), "model is missing");
        assert_eq!(words(r#"{"model": "x", "max_steps": "s3cret"}"#), "must be a whole number, not a text");
        assert_eq!(words(r#"{"model": 3}"#), "must be a text, not a whole number");
        assert_eq!(words(r#"{"model": "x", "tools": {}}"#), "must be a list, not an object");
        assert_eq!(
            in_words("unknown variant `king`, expected `agent` or `worker`"),
            "the value king is unknown; known are agent, worker"
        );
        assert_eq!(in_words("a rule of our own"), "a rule of our own");
    }

    #[test]
    fn a_word_is_near_when_a_third_of_it_is_mistyped_at_most() {
        let agents = ["assistant", "coder"];
        assert_eq!(nearest("asistant", agents), Some("assistant"));
        assert_eq!(nearest("Coder", agents), Some("coder"));
        assert_eq!(nearest("cod", agents), Some("coder"));
        assert_eq!(nearest("reviewer", agents), None);
        assert_eq!(nearest("x", []), None);
        assert_eq!(did_you_mean("codre", agents), "; did you mean coder?");
    }
}
