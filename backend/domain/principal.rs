//! Who makes a request, as far as the rest of the program may know: a key, never a name.

use std::{fmt, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::id::RunId;

/// `HMAC-SHA256(pepper, length-prefixed iss ‖ sub)` as 64 hexadecimal digits.
///
/// It is the `owner_id` of everything a principal owns. The subject itself is never stored or logged; without the
/// server's pepper the key of a known subject cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// Derives the key of a verified subject.
    pub fn derive(pepper: &[u8], issuer: &str, subject: &str) -> Self {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(pepper).expect("HMAC takes a key of any length");
        for part in [issuer, subject] {
            // The length before each part keeps ("ab","c") and ("a","bc") apart.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        Self(Arc::from(hex::encode(mac.finalize().into_bytes())))
    }

    /// Reads back a key that was derived when it was stored.
    pub fn trusted(text: &str) -> Self {
        Self(Arc::from(text))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What a credential allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Runs, events, streams of the owner.
    Read,
    /// Create runs and emit events.
    Emit,
    /// Answer interrupts.
    Approve,
    /// Everything, deletion included.
    Admin,
}

/// The verified sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub owner_id: OwnerId,
    /// If present, the credential is valid for this run (and its stream) alone.
    pub run_id: Option<RunId>,
    pub scopes: Vec<Scope>,
}

impl Principal {
    /// A person or service that may do everything with what it owns.
    pub fn full(owner_id: OwnerId) -> Self {
        Self { owner_id, run_id: None, scopes: vec![Scope::Admin] }
    }

    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|held| *held == scope || *held == Scope::Admin)
    }

    /// Whether the credential may address this run at all; the store also checks the owner.
    pub fn reaches(&self, run: RunId) -> bool {
        self.run_id.is_none_or(|only| only == run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_and_subject_cannot_be_shifted_into_each_other() {
        assert_ne!(OwnerId::derive(b"p", "ab", "c"), OwnerId::derive(b"p", "a", "bc"));
        assert_ne!(OwnerId::derive(b"p", "a", "b"), OwnerId::derive(b"q", "a", "b"));
        assert_eq!(OwnerId::derive(b"p", "a", "b").as_str().len(), 64);
    }
}
