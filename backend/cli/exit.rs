//! How a command ends: exit codes, and errors for people.

use std::{fmt::Write as _, io, process::ExitCode};

use crate::{
    cli::render::{clean, clean_lines, say},
    client::{self, Kind},
};

/// The run failed or was cancelled (where that was asked for), or something else went wrong.
pub const FAILED: u8 = 1;
/// The arguments were wrong. clap uses the same number.
pub const USAGE: u8 = 2;
/// No server answered.
pub const UNREACHABLE: u8 = 3;
/// It does not exist, or belongs to another owner.
pub const NOT_FOUND: u8 = 4;
/// The server does not accept this token.
pub const REFUSED: u8 = 5;
/// Ctrl-C: 128 + SIGINT.
pub const INTERRUPTED: u8 = 130;
/// Asked to end: 128 + SIGTERM.
pub const TERMINATED: u8 = 143;

/// An error with an exit code of its own.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct CliError {
    pub code: u8,
    pub what: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl CliError {
    pub fn usage(what: impl Into<String>) -> Self {
        Self { code: USAGE, what: what.into(), hint: None }
    }

    pub fn not_found(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code: NOT_FOUND, what: what.into(), hint: Some(hint.into()) }
    }

    pub fn failed(what: impl Into<String>) -> Self {
        Self { code: FAILED, what: what.into(), hint: None }
    }

    #[must_use]
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// Reports an error to a person on stderr, and returns the exit code that tells a script the same.
pub fn report(error: &anyhow::Error) -> ExitCode {
    let code = code_of(error);
    // A reader that closed the pipe (`| head`) has what it wanted.
    if code != 0 {
        say(explain(error).trim_end());
    }
    ExitCode::from(code)
}

/// The exit code of an error.
pub fn code_of(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if let Some(complaint) = cause.downcast_ref::<CliError>() {
            return complaint.code;
        }
        if let Some(error) = cause.downcast_ref::<client::Error>() {
            return match error.kind {
                Kind::Unreachable => UNREACHABLE,
                Kind::NotFound => NOT_FOUND,
                Kind::Refused => REFUSED,
                Kind::Unusable => USAGE,
                Kind::Busy | Kind::Invalid | Kind::Unexpected => FAILED,
            };
        }
        if cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return 0;
        }
    }
    FAILED
}

/// The lines for stderr: what, why, and what to do. Texts of a server are as untrusted as its events.
fn explain(error: &anyhow::Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    // This program's own errors may have several lines.
    let text = |cause: &(dyn std::error::Error + 'static)| match cause.downcast_ref::<CliError>() {
        Some(own) => clean_lines(&own.what),
        None => clean(&cause.to_string()),
    };
    for cause in error.chain().map(text) {
        // Many errors repeat their cause.
        if !causes.iter().any(|known| known.contains(&cause)) {
            causes.push(cause);
        }
    }
    let mut text = format!("error: {}", causes.join(": "));
    let mut hint = error.chain().find_map(|cause| cause.downcast_ref::<CliError>()).and_then(|c| c.hint.clone());
    if let Some(refusal) = error.chain().find_map(|cause| cause.downcast_ref::<client::Error>()) {
        let facts = [("", refusal.code.as_deref()), ("field ", refusal.field.as_deref())];
        let facts: Vec<String> =
            facts.into_iter().filter_map(|(name, fact)| fact.map(|fact| format!("{name}{}", clean(fact)))).collect();
        if !facts.is_empty() {
            _ = write!(text, " ({})", facts.join(", "));
        }
        let token_hint = (refusal.kind == Kind::Refused)
            .then(|| "set RUNREEL_TOKEN, or RUNREEL_TOKEN_FILE to a file that contains a token".to_owned());
        // Omits the server's hint on how to send a token, which this program does itself.
        let server_hint =
            refusal.hint.as_deref().map(clean).filter(|_| refusal.code.as_deref() != Some("unauthorized"));
        hint = hint.or(server_hint).or(token_hint);
    }
    if let Some(hint) = hint {
        _ = write!(text, "\nhint: {hint}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(kind: Kind) -> client::Error {
        let (code, field) = (Some("invalid_cursor".into()), Some("after\u{1b}[2J".into()));
        client::Error { kind, status: None, code, detail: "no".into(), hint: None, field, retry_after: None }
    }

    #[test]
    fn a_cause_that_is_repeated_is_told_once() {
        let cause = io::Error::other("no such file");
        let error = anyhow::Error::new(cause).context("cannot open a: no such file").context("cannot start");
        assert_eq!(explain(&error), "error: cannot start: cannot open a: no such file");
    }

    #[test]
    fn who_has_no_token_is_told_where_this_program_finds_one() {
        let hint = Some("send the header: Authorization: Bearer <token>".into());
        let error = client::Error { code: Some("unauthorized".into()), hint, field: None, ..refusal(Kind::Refused) };
        assert!(explain(&error.into()).contains("hint: set RUNREEL_TOKEN"));
    }

    #[test]
    fn each_kind_of_trouble_has_its_code_under_any_context() {
        use anyhow::Context as _;
        for (kind, code) in [
            (Kind::Unreachable, 3),
            (Kind::NotFound, 4),
            (Kind::Refused, 5),
            (Kind::Invalid, 1),
            (Kind::Busy, 1),
            (Kind::Unusable, 2),
        ] {
            let error = Err::<(), _>(refusal(kind)).context("reading the run").unwrap_err();
            assert_eq!(code_of(&error), code, "{kind:?}");
        }
        assert_eq!(code_of(&CliError::usage("x").into()), 2);
        assert_eq!(code_of(&io::Error::from(io::ErrorKind::BrokenPipe).into()), 0);
        assert_eq!(code_of(&anyhow::anyhow!("x")), 1);
    }

    #[test]
    fn an_error_says_what_why_and_what_to_do_without_control_characters() {
        let text = explain(&refusal(Kind::Refused).into());
        assert_eq!(
            text,
            "error: no (invalid_cursor, field after)\nhint: set RUNREEL_TOKEN, or RUNREEL_TOKEN_FILE to a file that contains a token"
        );
        let text = explain(&CliError::not_found("no runs yet", "create one").into());
        assert_eq!(text, "error: no runs yet\nhint: create one");
    }
}
