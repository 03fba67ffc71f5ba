//! Seals: the heads of all changed runs, bound to the previous seal, so that a whole run cannot vanish unnoticed.
//!
//! ```text
//! seal = SHA-256(0x03 · seal before · number · at · lanes · positions · entries)
//! entry = run_id · last_seq · removed (1 byte) · head · owner
//! ```
//!
//! Numbers, times and texts as in [the chain of a run](super), `lanes` in 4 bytes; 32 zero bytes stand for the seal
//! before the first and for the head of a run without links. Entries are in byte order. The signature is Ed25519 over
//! the ASCII text `runreel seal ` and the seal's 64 hexadecimal digits.

use chrono::{DateTime, Utc};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{NOTHING, add_text, done};
use crate::domain::{
    artifact::Hash,
    id::{RunId, Seq},
};

/// A run's entry in a seal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    pub run_id: RunId,
    pub last_seq: Seq,
    /// Whether the run was removed in this state, by its owner or because of its age.
    pub is_removed: bool,
    /// `None` if it had no links.
    pub head: Option<Hash>,
    pub owner_id: String,
}

/// A seal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seal {
    /// 1, 2, 3 …
    pub number: i64,
    pub at: DateTime<Utc>,
    /// The position up to which each lane is sealed.
    pub positions: Vec<i64>,
    pub sha256: Hash,
    pub signature: Option<Signature>,
}

/// A reference to a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealRef {
    pub number: i64,
    pub sha256: Hash,
}

impl Seal {
    pub fn reference(&self) -> SealRef {
        SealRef { number: self.number, sha256: self.sha256 }
    }

    /// Seals these entries, which must be in order; `before` is the hash of the previous seal.
    pub fn of(
        before: Option<Hash>,
        (number, at): (i64, DateTime<Utc>),
        positions: Vec<i64>,
        entries: &[Entry],
        key: Option<&Key>,
    ) -> Self {
        let mut hash = Sha256::new_with_prefix([3]);
        hash.update(before.as_ref().map_or(&NOTHING[..], Hash::as_bytes));
        hash.update(number.to_be_bytes());
        hash.update(at.timestamp_micros().to_be_bytes());
        hash.update(u32::try_from(positions.len()).unwrap_or(u32::MAX).to_be_bytes());
        for position in &positions {
            hash.update(position.to_be_bytes());
        }
        for entry in entries {
            hash.update(entry.run_id.uuid().as_bytes());
            hash.update(entry.last_seq.get().to_be_bytes());
            hash.update([u8::from(entry.is_removed)]);
            hash.update(entry.head.as_ref().map_or(&NOTHING[..], Hash::as_bytes));
            add_text(&mut hash, Some(&entry.owner_id));
        }
        let sha256 = done(hash);
        Self { number, at, positions, sha256, signature: key.map(|key| key.sign(sha256)) }
    }
}

/// A signature and the public key that checks it, as hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Signature {
    /// Ed25519, 64 digits.
    pub key: String,
    /// 128 digits.
    pub signature: String,
}

fn message(seal: Hash) -> String {
    format!("runreel seal {seal}")
}

impl Signature {
    /// Whether its key signed this seal.
    pub fn is_of(&self, seal: Hash) -> bool {
        let (Ok(key), Ok(signature)) = (hex::decode(&self.key), hex::decode(&self.signature)) else { return false };
        UnparsedPublicKey::new(&ED25519, key).verify(message(seal).as_bytes(), &signature).is_ok()
    }
}

/// The key of a server, which signs its seals.
#[derive(Debug)]
pub struct Key(Ed25519KeyPair);

impl Key {
    /// Reads a PKCS#8 document, with or without the public key; `None` if it is not an Ed25519 key.
    pub fn from_pkcs8(document: &[u8]) -> Option<Self> {
        Ed25519KeyPair::from_pkcs8_maybe_unchecked(document).ok().map(Self)
    }

    /// The public key, 64 hexadecimal digits.
    pub fn public(&self) -> String {
        hex::encode(self.0.public_key())
    }

    fn sign(&self, seal: Hash) -> Signature {
        Signature { key: self.public(), signature: hex::encode(self.0.sign(message(seal).as_bytes())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test key: PKCS#8 around 32 bytes that count up.
    fn key() -> Key {
        let prefix = hex::decode("302e020100300506032b657004220420").unwrap();
        Key::from_pkcs8(&[prefix, (0..32).collect()].concat()).unwrap()
    }

    fn entry(n: u8, owner_id: &str) -> Entry {
        let run_id = format!("0198c0de-0000-7000-8000-0000000000{n:02}").parse().unwrap();
        let head = Some(Hash::new([n; 32]));
        Entry { run_id, last_seq: Seq::new(3).unwrap(), is_removed: false, head, owner_id: owner_id.to_owned() }
    }

    fn seal(before: Option<Hash>, entries: &[Entry]) -> Seal {
        Seal::of(before, (2, DateTime::UNIX_EPOCH), vec![7], entries, Some(&key()))
    }

    #[test]
    fn a_seal_says_every_part_of_its_entries_and_what_came_before() {
        let base = seal(None, &[entry(1, "a"), entry(2, "b")]);
        let other = |change: fn(&mut Entry)| {
            let mut entries = [entry(1, "a"), entry(2, "b")];
            change(&mut entries[1]);
            seal(None, &entries).sha256
        };
        let all = [
            other(|entry| entry.last_seq = entry.last_seq.next()),
            other(|entry| entry.is_removed = true),
            other(|entry| entry.head = None),
            other(|entry| entry.owner_id.push('a')),
            other(|entry| entry.run_id = self::entry(3, "").run_id),
            seal(None, &[entry(1, "a")]).sha256,
            seal(Some(base.sha256), &[entry(1, "a"), entry(2, "b")]).sha256,
            Seal::of(None, (2, DateTime::UNIX_EPOCH), vec![7, 0], &[entry(1, "a"), entry(2, "b")], None).sha256,
        ];
        assert!(all.iter().all(|sha256| *sha256 != base.sha256));
        assert_eq!(seal(None, &[entry(1, "a"), entry(2, "b")]), base);
    }

    #[test]
    fn a_signature_is_of_one_seal_and_one_key() {
        let (one, other) = (seal(None, &[entry(1, "a")]), seal(None, &[entry(2, "a")]));
        let signature = one.signature.unwrap();
        assert!(signature.is_of(one.sha256));
        assert!(!signature.is_of(other.sha256));
        let of_another_key = Signature { key: "00".repeat(32), ..signature.clone() };
        assert!(!of_another_key.is_of(one.sha256));
        assert!(!Signature { signature: "x".to_owned(), ..signature }.is_of(one.sha256));
        assert!(Key::from_pkcs8(b"no key").is_none());
    }
}
