//! Open texts sent to other processes on a message bus, which is faster than the table they are saved in.
//!
//! A message has what was added since the last save, so it continues what the receiver read from the table, and until
//! the next save messages repeat each other. Any of them may be lost, late or duplicated. Only the table and the log
//! begin or end a text: a message only adds to an existing copy.
//!
//! The bus need not be trusted: a message is authenticated with a key that only the servers of one database have.

use std::fmt::Debug;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use uuid::Uuid;

use crate::domain::{
    id::{RunId, SpanId},
    limits::LIVE_MESSAGE_BYTES_MAX,
};

/// A message bus between the servers of one database, which delivers at most once.
pub trait Live: Debug + Send + Sync {
    /// Sends to all of them, perhaps also to this one, without waiting for an unreachable bus.
    fn send(&self, message: Bytes) -> BoxFuture<'_, ()>;

    /// The next message. Only one task waits for it.
    fn next(&self) -> BoxFuture<'_, Bytes>;
}

/// What was added to one text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LiveText {
    pub run_id: RunId,
    pub span_id: SpanId,
    pub text_id: Uuid,
    pub at: DateTime<Utc>,
    /// The index of the first of these pieces, and how many bytes of it are saved and left out.
    pub first_piece: usize,
    pub left_out: usize,
    pub pieces: Vec<String>,
}

/// The key that authenticates messages.
#[derive(Clone)]
pub struct LiveKey(Hmac<Sha256>);

impl Debug for LiveKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LiveKey(…)")
    }
}

/// Bytes of a message before its content: HMAC-SHA256 of the content.
const TAG_BYTES: usize = 32;

impl LiveKey {
    /// The key of all servers that share this pepper.
    pub fn of(pepper: &[u8]) -> Self {
        let mut key = Hmac::<Sha256>::new_from_slice(pepper).expect("HMAC takes keys of any length");
        key.update(b"runreel live texts");
        let key = key.finalize().into_bytes();
        Self(Hmac::new_from_slice(&key).expect("HMAC takes keys of any length"))
    }

    /// The messages for these texts, each within its bound; a text that is too large for one is left out.
    pub(super) fn seal_all(&self, texts: Vec<LiveText>) -> Vec<Bytes> {
        let (mut parts, mut messages) = (vec![texts], Vec::new());
        while let Some(mut part) = parts.pop() {
            match self.seal(&part) {
                Some(message) if message.len() <= LIVE_MESSAGE_BYTES_MAX => messages.push(message),
                _ if part.len() > 1 => {
                    let rest = part.split_off(part.len() / 2);
                    parts.extend([rest, part]);
                }
                _ => {}
            }
        }
        messages
    }

    fn seal(&self, texts: &[LiveText]) -> Option<Bytes> {
        let mut message = vec![0; TAG_BYTES];
        serde_json::to_writer(&mut message, texts).ok()?;
        let (tag, content) = message.split_at_mut(TAG_BYTES);
        tag.copy_from_slice(&self.0.clone().chain_update(content).finalize().into_bytes());
        Some(message.into())
    }

    /// The texts of a message; `None` if it was not sealed with this key.
    pub(super) fn open(&self, message: &[u8]) -> Option<Vec<LiveText>> {
        let (tag, content) = message.split_at_checked(TAG_BYTES)?;
        self.0.clone().chain_update(content).verify_slice(tag).ok()?;
        serde_json::from_slice(content).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: Vec<String>) -> LiveText {
        LiveText {
            run_id: "0198c0de-0000-7000-8000-000000000001".parse().unwrap(),
            span_id: "m".parse().unwrap(),
            text_id: Uuid::from_u128(7),
            at: DateTime::UNIX_EPOCH,
            first_piece: 3,
            left_out: 2,
            pieces,
        }
    }

    #[test]
    fn what_is_too_much_for_a_message_is_in_several() {
        let key = LiveKey::of(b"pepper");
        // JSON encodes each of these characters in six bytes.
        let texts: Vec<_> = (0..100).map(|_| text(vec!["\u{1}".repeat(4_000)])).collect();
        let too_large = text(vec!["\u{1}".repeat(LIVE_MESSAGE_BYTES_MAX / 4)]);
        let messages = key.seal_all([texts.clone(), vec![too_large]].concat());
        assert!(messages.len() > 2 && messages.iter().all(|message| message.len() <= LIVE_MESSAGE_BYTES_MAX));
        let opened: Vec<_> = messages.iter().flat_map(|message| key.open(message).unwrap()).collect();
        assert_eq!(opened, texts);
    }

    #[test]
    fn a_message_is_read_as_it_was_sealed_and_not_if_anything_of_it_or_its_key_differs() {
        let key = LiveKey::of(b"the pepper of these servers");
        let text = text(vec!["Hello, ".to_owned(), "wörld".to_owned()]);
        let message = key.seal(std::slice::from_ref(&text)).unwrap();
        assert_eq!(key.open(&message), Some(vec![text]));
        assert_eq!(LiveKey::of(b"another pepper").open(&message), None);
        for at in 0..message.len() {
            let mut changed = message.to_vec();
            changed[at] ^= 1;
            assert_eq!(key.open(&changed), None, "byte {at}");
            assert_eq!(key.open(&message[..at]), None, "the first {at} bytes");
        }
    }
}
