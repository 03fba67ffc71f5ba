//! The text of a chat: commands, answers to questions, why a message started no run. All of it pure.

use crate::{
    cli::{exit::CliError, render::clean},
    domain::{interrupt::Decision, json::Json, limits::KEY_CHARS_MAX, session::Reason},
};

/// If the environment has no user name.
const NOBODY: &str = "terminal";

pub(super) const HELP: &str = "\
  /new    start a new session: the agent forgets this conversation
  /help   this
  /quit   leave; so does Ctrl-D
  Ctrl-C  cancel what is under way; twice, or with nothing under way: leave
Anything else is a message. Answer a question from the agent with y, n, or in words.";

/// The meaning of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Nothing,
    New,
    Help,
    Quit,
    Unknown(String),
    Message(String),
}

impl Line {
    pub(super) fn of(line: &str) -> Self {
        let text = line.trim();
        match text {
            "" => Self::Nothing,
            "/new" => Self::New,
            "/help" | "/?" => Self::Help,
            "/quit" | "/exit" => Self::Quit,
            // A path or a sentence about one is a message.
            _ if text.strip_prefix('/').is_some_and(is_word) => Self::Unknown(text.to_owned()),
            _ => Self::Message(text.to_owned()),
        }
    }
}

fn is_word(text: &str) -> bool {
    text.chars().all(char::is_alphanumeric)
}

/// The answer to a question; `None` if the line is empty.
pub(super) fn decision(is_approval: bool, line: &str) -> Option<(Decision, Option<Json>)> {
    let text = line.trim();
    let answer = match text.to_lowercase().as_str() {
        "" => return None,
        "y" | "yes" if is_approval => (Decision::Approve, None),
        "n" | "no" if is_approval => (Decision::Reject, None),
        _ => (Decision::Respond, Some(Json::of(&text))),
    };
    Some(answer)
}

/// Why a message started no run, and what to do about it.
pub(super) fn filtered(reason: Option<Reason>, user: &str, channel: &str) -> String {
    let (user, channel) = (clean(user), clean(channel));
    match reason {
        Some(Reason::NotAllowed) => format!(
            "not_allowed: {user} may not write to {channel}; add the user to allowed_users in [channels.{channel}], or \
             set your id with --user"
        ),
        Some(Reason::NoTrigger) => {
            format!("no_trigger: the agent of {channel} only receives messages that begin with the channel's trigger")
        }
        Some(Reason::Empty) => "empty: the message has no text".to_owned(),
        Some(Reason::Duplicate) => "duplicate: this message was already delivered".to_owned(),
        Some(Reason::SessionReset) => "your next message starts a new session".to_owned(),
        Some(Reason::CodeWanted) => {
            format!("code_wanted: enter the channel's one-time code (runreel channel code {channel} creates one)")
        }
        Some(Reason::CodeWrong) => "code_wrong: that code is not valid; enter the one you were given".to_owned(),
        Some(Reason::CodeBlocked) => "code_blocked: too many wrong codes; try again in 15 minutes".to_owned(),
        Some(Reason::CodeAccepted) => "the code is valid; you can write now".to_owned(),
        None => "queued: the server has the message and will process it as soon as it can".to_owned(),
    }
}

/// The error if the server does not know the channel.
pub(super) fn no_channel(channel: &str) -> CliError {
    let channel = clean(channel);
    CliError::not_found(
        format!("not_found: there is no channel {channel}"),
        format!("add [channels.{channel}] to the server's configuration file (--config)"),
    )
}

/// Whether a message that started no run had its intended effect.
pub(super) fn is_fine(reason: Option<Reason>) -> bool {
    matches!(reason, Some(Reason::SessionReset | Reason::CodeAccepted))
}

/// The default user: an id that a channel accepts.
pub(super) fn default_user(name: Option<&str>) -> String {
    let name = name.map(fitting).unwrap_or_default();
    if name.is_empty() { NOBODY.to_owned() } else { name }
}

/// The default chat of this person on this machine.
pub(super) fn default_chat(name: Option<&str>, host: &str) -> String {
    match (name.map(fitting).filter(|name| !name.is_empty()), fitting(host)) {
        (None, _) => NOBODY.to_owned(),
        (Some(name), host) if host.is_empty() => name,
        (Some(name), host) => fitting(&format!("{name}@{host}")),
    }
}

fn fitting(text: &str) -> String {
    text.trim().chars().filter(|c| !c.is_control()).take(KEY_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_command_only_when_it_looks_like_nothing_else() {
        for (line, expected) in [
            ("  ", Line::Nothing),
            ("/new ", Line::New),
            ("/help", Line::Help),
            ("/quit", Line::Quit),
            ("/nwe", Line::Unknown("/nwe".to_owned())),
            ("/etc/passwd", Line::Message("/etc/passwd".to_owned())),
            ("/tmp is full", Line::Message("/tmp is full".to_owned())),
            (" hello ", Line::Message("hello".to_owned())),
        ] {
            assert_eq!(Line::of(line), expected, "{line:?}");
        }
    }

    #[test]
    fn yes_and_no_decide_an_approval_and_everything_else_is_an_answer() {
        let respond = |text: &str| Some((Decision::Respond, Some(Json::of(&text))));
        assert_eq!(decision(true, " Y \n"), Some((Decision::Approve, None)));
        assert_eq!(decision(true, "no"), Some((Decision::Reject, None)));
        assert_eq!(decision(true, "yes, but quietly"), respond("yes, but quietly"));
        assert_eq!(decision(false, "y"), respond("y"));
        assert_eq!(decision(true, ""), None);
    }

    #[test]
    fn every_reason_is_told_in_words() {
        for reason in Reason::ALL {
            let text = filtered(Some(reason), "ann", "web");
            assert!(text.contains(' ') && !text.contains("queued"), "{text}");
        }
        let text = filtered(Some(Reason::NotAllowed), "ann\u{1b}[2J", "web");
        assert!(text.starts_with("not_allowed: ann may not write to web"), "{text}");
        assert!(is_fine(Some(Reason::SessionReset)) && !is_fine(Some(Reason::NoTrigger)) && !is_fine(None));
    }

    #[test]
    fn who_types_is_named_by_the_machine() {
        assert_eq!(default_user(Some("ann")), "ann");
        assert_eq!(default_user(None), "terminal");
        assert_eq!(default_chat(Some("ann"), "box"), "ann@box");
        assert_eq!(default_chat(Some("ann"), ""), "ann");
        assert_eq!(default_chat(None, "box"), "terminal");
        assert_eq!(default_chat(Some(&"a".repeat(200)), "box").chars().count(), KEY_CHARS_MAX);
    }
}
