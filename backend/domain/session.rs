//! The rules of a conversation: who may speak, what starts a session, how a message is presented to an agent.
//!
//! A *chat* is the place in a channel that messages come from. A *session* is a period of conversation in it. A
//! *thread* is the agent's memory. Every rule of the router is a function of this file or of [`thread`]; the router
//! calls them in turn and applies the results.

pub mod inbound;
pub mod thread;

use std::fmt::Write as _;

use chrono::{DateTime, TimeDelta, Timelike as _, Utc};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::Sha256;

use self::inbound::{ChannelName, ChatId, Image, Inbound, UserId};
use super::limits::SESSION_LINE_BYTES_MAX;

/// Why a message starts no run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The user is not on the channel's list.
    NotAllowed,
    /// It was said in a group and not to the agent.
    NoTrigger,
    /// Neither text nor image.
    Empty,
    /// It ended the session.
    SessionReset,
    /// It was delivered before.
    Duplicate,
    /// The user has to give a one-time code first; the message waits for it.
    CodeWanted,
    /// That was no code that is good.
    CodeWrong,
    /// Too many wrong codes; the user has to wait.
    CodeBlocked,
    /// It was a good code; the message that waited for it goes its way.
    CodeAccepted,
}

impl Reason {
    pub const ALL: [Self; 9] = [
        Self::NotAllowed,
        Self::NoTrigger,
        Self::Empty,
        Self::SessionReset,
        Self::Duplicate,
        Self::CodeWanted,
        Self::CodeWrong,
        Self::CodeBlocked,
        Self::CodeAccepted,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotAllowed => "not_allowed",
            Self::NoTrigger => "no_trigger",
            Self::Empty => "empty",
            Self::SessionReset => "session_reset",
            Self::Duplicate => "duplicate",
            Self::CodeWanted => "code_wanted",
            Self::CodeWrong => "code_wrong",
            Self::CodeBlocked => "code_blocked",
            Self::CodeAccepted => "code_accepted",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == text)
    }

    /// The reply to the user where a channel can send one; `None` for no reply.
    pub fn reply(self) -> Option<&'static str> {
        match self {
            Self::SessionReset => Some("A new session begins with your next message."),
            Self::CodeWanted => Some("Please send the one-time code you were given."),
            Self::CodeWrong => Some("That code isn't valid. Please send the one-time code you were given."),
            Self::CodeBlocked => Some("Too many wrong codes. Please try again later."),
            Self::CodeAccepted => Some("Thank you. You can write to me now."),
            Self::NotAllowed | Self::NoTrigger | Self::Empty | Self::Duplicate => None,
        }
    }
}

/// Whether the list admits the user; an empty one admits everyone.
pub fn is_allowed(allowed: &[UserId], user: &UserId) -> bool {
    allowed.is_empty() || allowed.contains(user)
}

/// An id that is safe to log: stable per user, and meaningless without the key.
pub fn hashed(key: &[u8], channel: &ChannelName, id: &str) -> String {
    hex::encode(&keyed_hash(key, &["channel-id", channel.as_str(), id])[..8])
}

/// HMAC-SHA256 of length-prefixed parts.
pub fn keyed_hash(key: &[u8], parts: &[&str]) -> [u8; 32] {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("HMAC takes a key of any length");
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

/// Whether the message asks for a new session: by its flag, or because its whole text is `/new`.
///
/// In groups the command may be addressed (`/new@bot`, or after the trigger). One addressed to another bot is ignored.
pub fn is_reset(inbound: &Inbound, trigger: Option<&str>, bot: Option<&str>) -> bool {
    let text = inbound.text.as_deref().unwrap_or_default();
    let rest = trigger.filter(|_| !inbound.is_private).and_then(|trigger| strip_trigger(text, trigger));
    inbound.reset_session || is_new_command(text, bot) || rest.is_some_and(|rest| is_new_command(rest, bot))
}

fn is_new_command(text: &str, bot: Option<&str>) -> bool {
    let text = text.trim();
    let (command, name) = text.split_once('@').map_or((text, None), |(command, name)| (command, Some(name)));
    command.eq_ignore_ascii_case("/new")
        && name.is_none_or(|name| bot.is_some_and(|bot| bot.trim_start_matches('@').eq_ignore_ascii_case(name)))
}

/// The message's text without the trigger if it is addressed to the agent; otherwise `None`.
///
/// In a private chat every message is. In a group it must start with the trigger or address the agent otherwise (a
/// reply to it, a mention). A channel without a trigger accepts every message.
pub fn heard<'a>(inbound: &'a Inbound, trigger: Option<&str>) -> Option<&'a str> {
    let text = inbound.text.as_deref().unwrap_or_default();
    let Some(trigger) = trigger.filter(|_| !inbound.is_private) else { return Some(text) };
    match strip_trigger(text, trigger) {
        Some(rest) => Some(rest),
        None => inbound.addressed.then_some(text),
    }
}

/// Case folding of a character: via upper case, so that a final sigma is a sigma and ß is ss.
fn folded(c: char) -> impl Iterator<Item = char> {
    c.to_uppercase().flat_map(char::to_lowercase)
}

/// The text after the trigger, if it starts with it, ignoring case.
pub fn strip_trigger<'a>(text: &'a str, trigger: &str) -> Option<&'a str> {
    let mut wanted = trigger.chars().flat_map(folded).peekable();
    for (at, c) in text.trim_start().char_indices() {
        if wanted.peek().is_none() {
            return Some(text.trim_start()[at..].trim_start());
        }
        for lower in folded(c) {
            if wanted.next() != Some(lower) {
                return None;
            }
        }
    }
    wanted.peek().is_none().then_some("")
}

/// Whether a message has neither text nor image.
pub fn is_empty(text: &str, has_image: bool) -> bool {
    text.trim().is_empty() && !has_image
}

/// Whether a session's idle timeout has passed. A clock that went back ends no session.
pub fn is_idle(last_activity: DateTime<Utc>, now: DateTime<Utc>, idle_timeout_s: i64) -> bool {
    now - last_activity >= TimeDelta::seconds(idle_timeout_s)
}

/// The text as the agent reads it: `[2026-11-22T05:13:58Z] [ann]: hello`. The time keeps its original precision.
///
/// Brackets and control characters in a name could imitate other parts, so they are replaced.
pub fn formatted(inbound: &Inbound, text: &str) -> String {
    let name = inbound.username.as_ref().map_or(inbound.user_id.as_str(), |name| name.as_str());
    let mut line = format!("[{}", inbound.at.format("%Y-%m-%dT%H:%M:%S"));
    if (1..=9).contains(&inbound.at_digits) {
        let nanos = format!("{:09}", inbound.at.nanosecond() % 1_000_000_000);
        let _ = write!(line, ".{}", &nanos[..usize::from(inbound.at_digits)]);
    }
    line.push_str("Z] [");
    line.extend(name.chars().map(|c| match c {
        '[' => '(',
        ']' => ')',
        c if c.is_control() => ' ',
        c => c,
    }));
    let _ = write!(line, "]: {text}");
    line.truncate(line.trim_end().len());
    line
}

/// The location of a message's image.
#[derive(Clone, Debug, PartialEq)]
pub enum ImagePlace {
    /// Inside the message, as a data URI.
    Inline,
    /// In an artifact: its description for an event, and its URL.
    Artifact { reference: Value, url: String },
}

/// The agent's input: one user message with its text and images. Images without an entry in `places` are inline.
pub fn agent_input(formatted: &str, inbound: &Inbound, places: &[ImagePlace]) -> Value {
    let mut content = vec![json!({ "type": "text", "text": formatted })];
    for (n, image) in inbound.images().enumerate() {
        let media_type = image.media_type.as_str();
        content.push(match places.get(n).unwrap_or(&ImagePlace::Inline) {
            ImagePlace::Inline => {
                let url = format!("data:{media_type};base64,{}", image.base64);
                json!({ "type": "image", "media_type": media_type, "url": url })
            }
            ImagePlace::Artifact { reference, url } => {
                json!({ "type": "image", "media_type": media_type, "artifact": reference, "url": url })
            }
        });
    }
    json!({ "messages": [{ "role": "user", "content": content }] })
}

/// The answer of an ended run: the text of its output, else that of its last message, else its output as JSON.
pub fn answer(output: Option<&Value>, last_message: Option<&Value>) -> Option<String> {
    let output = output.filter(|output| !output.is_null());
    output.and_then(said).or_else(|| last_message.and_then(said)).or_else(|| output.map(Value::to_string))
}

/// The text of an output or a message, if any.
pub fn said(value: &Value) -> Option<String> {
    text_of(value).filter(|text| !text.is_empty())
}

/// The text in a value of one of the shapes that agents answer in.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(parts) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            (!texts.is_empty()).then(|| texts.concat())
        }
        Value::Object(members) => {
            let plain = ["text", "response", "answer", "content", "message", "output"];
            let named = plain.iter().find_map(|name| members.get(*name).and_then(text_of));
            named.or_else(|| {
                let messages = members.get("messages")?.as_array()?;
                let role = |message: &Value| message.get("role").and_then(Value::as_str).map(str::to_owned);
                let last = messages.iter().rev().find(|message| role(message).as_deref() != Some("user"))?;
                text_of(last)
            })
        }
        _ => None,
    }
}

/// One line of a session's log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogLine {
    /// `user` or `assistant`.
    pub role: String,
    /// The text; with images, a list of parts: the text, and a description of each image without its bytes.
    pub content: Value,
    /// RFC 3339, UTC, microseconds.
    pub ts: String,
    pub channel: String,
    /// The author, or the addressee of an answer.
    pub user_id: String,
}

impl LogLine {
    /// The line for a user's message.
    pub fn of_user(channel: &ChannelName, inbound: &Inbound, text: &str) -> Self {
        let shown = |image: &Image| json!({ "type": "image", "media_type": image.media_type.as_str(), "size": image.size(), "sha256": image.sha256() });
        let images: Vec<Value> = inbound.images().map(shown).collect();
        let content = if images.is_empty() {
            Value::from(text)
        } else {
            std::iter::once(json!({ "type": "text", "text": text })).chain(images).collect()
        };
        Self::new("user", content, inbound.at, channel, &inbound.user_id)
    }

    /// The line for an agent's answer.
    pub fn of_agent(channel: &ChannelName, user: &UserId, text: &str, at: DateTime<Utc>) -> Self {
        Self::new("assistant", Value::from(text), at, channel, user)
    }

    fn new(role: &str, content: Value, at: DateTime<Utc>, channel: &ChannelName, user: &UserId) -> Self {
        let ts = super::event::timestamp(at);
        Self { role: role.to_owned(), content, ts, channel: channel.to_string(), user_id: user.to_string() }
    }

    /// The line with its line feed; a content over the bound is cut.
    pub fn to_line(&self) -> String {
        let whole = serde_json::to_string(self).unwrap_or_default() + "\n";
        if whole.len() <= SESSION_LINE_BYTES_MAX {
            return whole;
        }
        // A byte of text takes at most six bytes of JSON.
        let text = match &self.content {
            Value::String(text) => text.clone(),
            other => text_of(other).unwrap_or_default(),
        };
        let mut end = (SESSION_LINE_BYTES_MAX / 6 - 1_024).min(text.len());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let cut = Self { content: Value::from(format!("{} …", &text[..end])), ..self.clone() };
        serde_json::to_string(&cut).unwrap_or_default() + "\n"
    }
}

/// The chat that a message came from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chat {
    pub channel: ChannelName,
    pub chat_id: ChatId,
}

#[cfg(test)]
mod tests;
