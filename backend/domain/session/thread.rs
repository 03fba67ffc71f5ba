//! Maps a chat to the threads of its sessions, and a thread to its number.
//!
//! The first session of a chat is on the thread `{channel}_{chat}`, later ones on `{channel}_{chat}_s{N}`. A chat id is
//! kept as it is, except where it would be invalid or ambiguous:
//!
//! * a byte that is not allowed in thread ids becomes `+:` and two hexadecimal digits, and so does a `+` before a `:`;
//! * the `_` of an ending like `_s1` becomes `+:5F`, so that no chat looks like a session of another;
//! * an id that would become too long is `+::` and its SHA-256.
//!
//! So two chats of a channel never share a thread. Between channels, the configuration ensures that no name is a prefix
//! of another up to a `_` ([`are_apart`]).

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

use super::inbound::{ChannelName, ChatId};
use crate::domain::{id::ThreadId, limits::CHANNEL_THREAD_BYTES_MAX};

/// The prefix of all threads of one chat; also the thread of its first session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ThreadBase(String);

impl ThreadBase {
    pub fn of(channel: &ChannelName, chat: &ChatId) -> Self {
        let plain = format!("{channel}_{}", encoded(chat.as_str()));
        if plain.len() <= CHANNEL_THREAD_BYTES_MAX {
            return Self(plain);
        }
        Self(format!("{channel}_+::{}", hex::encode(Sha256::digest(chat.as_str()))))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The thread with this number: 0 is the first.
    pub fn thread(&self, number: i64) -> ThreadId {
        match number {
            ..=0 => ThreadId::trusted(&self.0),
            number => ThreadId::trusted(&format!("{}_s{number}", self.0)),
        }
    }

    /// The number of a thread of this chat; `None` for every other thread.
    pub fn number(&self, thread: &str) -> Option<i64> {
        match thread.strip_prefix(&self.0)? {
            "" => Some(0),
            rest => session_number(rest.strip_prefix("_s")?),
        }
    }
}

/// The chat that a thread belongs to, and its number in it; `None` if the thread's id does not contain the chat's id
/// unchanged.
pub fn chat_of(channel: &ChannelName, thread: &ThreadId) -> Option<(ChatId, i64)> {
    let rest = thread.as_str().strip_prefix(channel.as_str())?.strip_prefix('_')?;
    let later = rest.rsplit_once("_s").map(|(chat, _)| chat);
    [Some(rest), later].into_iter().flatten().find_map(|chat| {
        let chat: ChatId = chat.parse().ok()?;
        let number = ThreadBase::of(channel, &chat).number(thread.as_str())?;
        Some((chat, number))
    })
}

/// A number as [`ThreadBase::thread`] writes it: no leading zero, at most 18 digits.
fn session_number(digits: &str) -> Option<i64> {
    let canonical = !digits.starts_with('0') && digits.len() <= 18 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|_| canonical)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._:@+-".contains(&byte)
}

fn encoded(chat: &str) -> String {
    let bytes = chat.as_bytes();
    let ending = chat.rfind("_s").filter(|at| {
        let digits = &chat[at + 2..];
        !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
    });
    let mut out = String::with_capacity(chat.len());
    for (at, byte) in bytes.iter().copied().enumerate() {
        let mistakable = byte == b'+' && bytes.get(at + 1) == Some(&b':') || Some(at) == ending;
        if is_plain(byte) && !mistakable {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "+:{byte:02X}");
        }
    }
    out
}

/// Whether the threads of two channels can never coincide.
pub fn are_apart(one: &ChannelName, other: &ChannelName) -> bool {
    let begins = |long: &ChannelName, short: &ChannelName| {
        long.as_str().strip_prefix(short.as_str()).is_some_and(|rest| rest.starts_with('_'))
    };
    !begins(one, other) && !begins(other, one)
}

/// The smallest value of a chat's counter before a session is created, so that no thread is used again.
///
/// `highest` is the largest number of a thread of the chat that has runs or a state. It may equal the counter only if
/// an earlier session of this chat created it and the chat keeps its thread.
pub fn counter_above(counter: i64, highest: Option<i64>, is_ours: bool) -> i64 {
    match highest {
        Some(highest) if highest > counter || highest == counter && !is_ours => highest.saturating_add(1),
        _ => counter,
    }
}

/// The file name of a thread's log.
///
/// Plain for ids of lower-case letters and digits. Other bytes are written in hexadecimal, so that the name is valid on
/// every system and two threads have different files on case-insensitive ones.
pub fn log_file_name(thread: &ThreadId) -> String {
    let mut name = String::new();
    for byte in thread.as_str().bytes() {
        if byte.is_ascii_lowercase()
            || byte.is_ascii_digit()
            || b"_-@".contains(&byte)
            || byte == b'.' && !name.is_empty()
        {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02x}");
        }
    }
    if name.len() > 200 {
        name = format!("%%{}", hex::encode(Sha256::digest(thread.as_str())));
    }
    name + ".jsonl"
}
