//! Checks a tool call's arguments against the tool's JSON Schema, compiled once.
//!
//! Schemas also come from tool servers, so nothing here trusts them: an external `$ref` is not fetched, and a pattern
//! that would search forever is aborted.

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

use super::tools::ToolError;

/// Maximum errors named in one refusal.
const ERRORS_NAMED: usize = 3;
/// Longest refusal, characters.
const REFUSAL_CHARS_MAX: usize = 1_000;
/// Backtracking steps that one pattern may take.
const PATTERN_STEPS_MAX: usize = 100_000;
/// Size of one compiled pattern, bytes.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// A compiled schema, or why it does not compile; then the arguments are left to the called tool to check.
pub(super) struct Schema(Result<Validator, String>);

impl Schema {
    pub(super) fn new(schema: &Value) -> Self {
        let patterns = PatternOptions::fancy_regex().backtrack_limit(PATTERN_STEPS_MAX).size_limit(PATTERN_BYTES_MAX);
        let built = jsonschema::options().offline().with_pattern_options(patterns).build(schema);
        Self(built.map_err(|error| clipped(&error.to_string())))
    }

    /// Why the schema does not compile.
    pub(super) fn invalid(&self) -> Option<&str> {
        self.0.as_ref().err().map(String::as_str)
    }

    /// Checks the arguments; the error names the first mismatches and repeats no values.
    pub(super) fn check(&self, args: &Value) -> Result<(), ToolError> {
        let Ok(validator) = &self.0 else { return Ok(()) };
        let describe = |error: jsonschema::ValidationError<'_>| {
            let place = error.instance_path().to_string().replace('/', ".");
            format!("arguments{place}: {}", error.masked())
        };
        let errors: Vec<String> = validator.iter_errors(args).take(ERRORS_NAMED).map(describe).collect();
        if errors.is_empty() { Ok(()) } else { Err(ToolError::Arguments(clipped(&errors.join("; ")))) }
    }
}

fn clipped(text: &str) -> String {
    text.chars().take(REFUSAL_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_that_do_not_fit_are_refused_by_name() {
        let schema = Schema::new(&json!({
            "type": "object", "required": ["paths"], "additionalProperties": false,
            "properties": {
                "paths": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
                "top": {"type": "integer", "minimum": 1, "maximum": 50},
                "order": {"enum": ["lines", "bytes"]},
                "word": {"$ref": "#/$defs/word"},
            },
            "$defs": {"word": {"type": "string", "pattern": "^[a-z]+$"}},
        }));
        assert_eq!(schema.check(&json!({"paths": ["a"], "top": 3, "order": "bytes", "word": "x"})), Ok(()));
        for (args, expected) in [
            (json!([]), "arguments: value is not of type \"object\""),
            (json!({}), "arguments: \"paths\" is a required property"),
            (json!({"paths": "a"}), "arguments.paths: value is not of type \"array\""),
            (json!({"paths": ["a", 1]}), "arguments.paths.1: value is not of type \"string\""),
            (json!({"paths": ["a", "b", "c"]}), "arguments.paths: value has more than 2 items"),
            (json!({"paths": [], "top": 0}), "arguments.top: value is less than the minimum of 1"),
            (json!({"paths": [], "top": 1.5}), "arguments.top: value is not of type \"integer\""),
            (json!({"paths": [], "word": "A"}), "arguments.word: value does not match \"^[a-z]+$\""),
        ] {
            assert_eq!(schema.check(&args), Err(ToolError::Arguments(expected.to_owned())), "{args}");
        }
        for args in [json!({"paths": [], "order": "age"}), json!({"paths": [], "extra": 1})] {
            assert!(matches!(schema.check(&args), Err(ToolError::Arguments(_))), "{args}");
        }
    }

    #[test]
    fn a_schema_that_points_elsewhere_is_not_fetched() {
        for pointer in ["http://127.0.0.1:1/schema.json", "file:///etc/passwd"] {
            let schema = Schema::new(&json!({"properties": {"x": {"$ref": pointer}}}));
            assert!(schema.invalid().is_some(), "{pointer}");
            assert_eq!(schema.check(&json!({})), Ok(()));
        }
    }

    #[test]
    fn a_pattern_that_would_search_for_ever_gives_up() {
        let schema = Schema::new(&json!({"properties": {"x": {"pattern": "^(?=(a+)+$)(a|aa)+$(?!x)"}}}));
        let checked = schema.check(&json!({"x": format!("{}b", "a".repeat(40_000))}));
        assert!(checked.is_err());
    }
}
