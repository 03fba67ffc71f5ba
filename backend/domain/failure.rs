//! Errors reported by producers: every form that the contract allows is read into one type.

use std::fmt;

use serde_json::Value;

use super::limits::ERRORS_READ_MAX;

/// An error; unknown parts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// Its `type`: `KeyError`, `httpx.HTTPStatusError`.
    pub kind: String,
    pub message: String,
    pub code: String,
    /// The stack trace, as lines in the format of its language.
    pub stack: String,
    /// Its `cause`, then the `errors` that it groups.
    pub causes: Vec<Failure>,
}

impl Failure {
    /// Reads an error: a string, an object, or any other value as its own message. `None` if it is empty.
    pub fn read(error: &Value) -> Option<Self> {
        read(error, &mut { ERRORS_READ_MAX })
    }

    /// The error of a `….failed` event: the payload's member `error`, else the payload's own members.
    pub fn of_event(payload: &Value) -> Option<Self> {
        match &payload["error"] {
            Value::Null => members(payload, &mut { ERRORS_READ_MAX }),
            error => Self::read(error),
        }
    }

    /// Several lines: the error with its stack, then each of its causes.
    pub fn block(&self) -> String {
        let mut out = self.to_string();
        // Some stacks begin with the error itself.
        let stack = self.stack.strip_prefix(out.as_str()).filter(|rest| rest.is_empty() || rest.starts_with('\n'));
        for line in stack.unwrap_or(&self.stack).trim_start_matches('\n').lines() {
            out.push_str("\n  ");
            out.push_str(line);
        }
        for cause in &self.causes {
            out.push_str("\ncaused by ");
            out.push_str(&cause.block());
        }
        out
    }
}

/// `type: message`, or whichever is present, else the code.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.kind.as_str(), self.message.as_str()) {
            ("", "") => f.write_str(&self.code),
            ("", text) | (text, "") => f.write_str(text),
            (kind, message) => write!(f, "{kind}: {message}"),
        }
    }
}

fn read(error: &Value, left: &mut usize) -> Option<Failure> {
    *left = left.checked_sub(1)?;
    let message = match error {
        Value::Null => return None,
        Value::String(text) => text.trim().to_owned(),
        other => other.to_string(),
    };
    if let Some(failure) = members(error, left) {
        return Some(failure);
    }
    // A whole payload, or a response that wraps an error.
    if let Some(inner) = error.get("error") {
        return read(inner, left);
    }
    let is_empty = matches!(message.as_str(), "" | "{}" | "[]");
    (!is_empty).then(|| Failure { message, ..Failure::default() })
}

/// Reads an error from the members of an object; `None` if none of them describes it.
fn members(error: &Value, left: &mut usize) -> Option<Failure> {
    let text = |name: &str| error[name].as_str().map(str::trim).filter(|text| !text.is_empty());
    let owned = |text: Option<&str>| text.unwrap_or_default().to_owned();
    // A large payload is in an artifact; the event keeps its beginning.
    let preview = error["$artifact"].is_object().then(|| text("preview")).flatten();
    let message = preview.or_else(|| ["message", "detail", "text", "reason"].into_iter().find_map(text));
    let mut failure = Failure {
        kind: owned(text("type")),
        message: owned(message),
        code: owned(text("code")),
        stack: owned(error["stack"].as_str().map(str::trim_end)),
        causes: Vec::new(),
    };
    if failure.to_string().is_empty() {
        return None;
    }
    let group = error["errors"].as_array().into_iter().flatten();
    let causes = [&error["cause"]].into_iter().chain(group).filter(|cause| !cause.is_null());
    failure.causes = causes.take(*left).filter_map(|cause| read(cause, left)).collect();
    Some(failure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn line(error: &Value) -> String {
        Failure::read(error).map(|failure| failure.to_string()).unwrap_or_default()
    }

    #[test]
    fn an_error_in_any_form_is_its_type_and_its_message() {
        for (error, expected) in [
            (json!({"type": "KeyError", "message": "'customer_id'"}), "KeyError: 'customer_id'"),
            (json!({"type": "AssertionError", "message": ""}), "AssertionError"),
            (json!({"type": "AssertionError"}), "AssertionError"),
            (json!({"message": "it broke", "code": "x"}), "it broke"),
            (json!({"type": 7, "message": "it broke"}), "it broke"),
            (json!({"detail": "not found"}), "not found"),
            (json!({"code": "x"}), "x"),
            (json!({"message": {"a": 1}}), r#"{"message":{"a":1}}"#),
            (json!({"$artifact": {"size": 90_000}, "preview": "{\"error\":"}), "{\"error\":"),
            (json!("  it broke\n"), "it broke"),
            (json!({"error": {"type": "overloaded", "message": "try later"}}), "overloaded: try later"),
            (json!({"error": null}), ""),
            (json!(7), "7"),
            (json!(false), "false"),
            (json!([1, 2]), "[1,2]"),
            (json!(null), ""),
            (json!("  "), ""),
            (json!({}), ""),
            (json!([]), ""),
        ] {
            assert_eq!(line(&error), expected, "{error}");
        }
    }

    #[test]
    fn a_failed_event_without_an_error_says_only_what_it_says_of_one() {
        for (payload, expected) in [
            (json!({"name": "plan", "duration_ms": 3}), None),
            (json!({"name": "plan", "error": null}), None),
            (json!({"name": "plan", "error": {}}), None),
            (json!({"name": "plan", "error": {"type": "AssertionError", "message": ""}}), Some("AssertionError")),
            (json!({"name": "plan", "error": "timeout"}), Some("timeout")),
            (json!({"name": "plan", "reason": "timeout"}), Some("timeout")),
            (json!({"type": "KeyError", "message": "'x'"}), Some("KeyError: 'x'")),
            (json!("timeout"), None),
            (json!(null), None),
        ] {
            assert_eq!(
                Failure::of_event(&payload).map(|failure| failure.to_string()).as_deref(),
                expected,
                "{payload}"
            );
        }
    }

    #[test]
    fn a_block_has_the_stack_and_every_cause_with_its_own() {
        let error = json!({"type": "ReportError", "message": "no report", "stack": "  File \"a.py\", line 3\n",
            "cause": {"type": "KeyError", "message": "'id'", "stack": "at b"}, "errors": ["first", null, {"message": "second"}]});
        let block = Failure::read(&error).unwrap().block();
        assert_eq!(
            block,
            "ReportError: no report\n    File \"a.py\", line 3\ncaused by KeyError: 'id'\n  at b\ncaused by first\ncaused by second"
        );
        for (stack, expected) in
            [("E: no", "E: no"), ("E: no\n  at b", "E: no\n    at b"), ("E: not\n  at b", "E: no\n  E: not\n    at b")]
        {
            let error = json!({"type": "E", "message": "no", "stack": stack});
            assert_eq!(Failure::read(&error).unwrap().block(), expected);
        }
    }

    #[test]
    fn no_more_causes_are_read_than_a_person_reads() {
        let mut chain = json!("the first");
        for _ in 0..60 {
            chain = json!({"message": "x", "cause": chain});
        }
        let wide = json!({"message": "x", "errors": vec!["y"; 10_000]});
        let both = json!({"message": "x", "errors": vec![chain.clone(); 100]});
        for error in [chain, wide, both] {
            let lines = Failure::read(&error).unwrap().block().lines().count();
            assert_eq!(lines, ERRORS_READ_MAX);
        }
    }

    proptest! {
        #[test]
        fn an_error_that_is_read_says_something(text in "\\PC{0,4}", name in "type|message|code|stack|cause|errors|name") {
            for error in [json!({&name: text}), json!({&name: {&name: text}}), json!({&name: [text]}), json!(text)] {
                prop_assert!(Failure::read(&error).is_none_or(|failure| !failure.to_string().is_empty()));
            }
        }
    }
}
