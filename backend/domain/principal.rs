//! Principals: who makes a request. The rest of the program knows a key, never a name.

use std::{fmt, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::id::{RunId, ThreadId};

/// `HMAC-SHA256(pepper, length-prefixed iss ‖ sub)` as 64 hexadecimal digits.
///
/// It is the `owner_id` of everything a principal owns. The subject itself is never stored or logged, and its key
/// cannot be computed without the server's pepper.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct OwnerId(Arc<str>);

impl OwnerId {
    /// Derives the key of a verified subject.
    pub fn derive(pepper: &[u8], issuer: &str, subject: &str) -> Self {
        Self::keyed(pepper, &[issuer, subject])
    }

    /// Derives the key of a team. It differs from every subject's, since the number of parts differs.
    pub fn of_team(pepper: &[u8], issuer: &str, team: &str) -> Self {
        Self::keyed(pepper, &[issuer, "team", team])
    }

    fn keyed(pepper: &[u8], parts: &[&str]) -> Self {
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(pepper).expect("HMAC takes a key of any length");
        for part in parts {
            // The length before each part distinguishes ("ab","c") from ("a","bc").
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        Self(Arc::from(hex::encode(mac.finalize().into_bytes())))
    }

    /// A key from the database, which was derived when it was stored.
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
    /// Read runs, events and streams.
    Read,
    /// Create runs and emit events.
    Emit,
    /// Answer interrupts.
    Approve,
    /// Everything, deletion included.
    Admin,
}

/// The part of its owner's data that a credential is valid for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    Everything,
    Run(RunId),
    /// A run and all its descendants, later ones included.
    Tree(RunId),
    /// A thread and all its runs, later ones included.
    Thread(ThreadId),
}

/// The verified sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    pub owner_id: OwnerId,
    pub reach: Reach,
    pub scopes: Vec<Scope>,
}

impl Principal {
    /// A person or service with all rights to its own data.
    pub fn full(owner_id: OwnerId) -> Self {
        Self { owner_id, reach: Reach::Everything, scopes: vec![Scope::Admin] }
    }

    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|held| *held == scope || *held == Scope::Admin)
    }

    /// Whether the credential only permits reading one run, tree or thread.
    pub fn only_reads_a_part(&self) -> bool {
        self.reach != Reach::Everything && self.scopes == [Scope::Read]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuer_and_subject_cannot_be_shifted_into_each_other() {
        assert_ne!(OwnerId::derive(b"p", "ab", "c"), OwnerId::derive(b"p", "a", "bc"));
        assert_ne!(OwnerId::derive(b"p", "a", "b"), OwnerId::derive(b"q", "a", "b"));
        assert_ne!(OwnerId::of_team(b"p", "a", "b"), OwnerId::derive(b"p", "a", "b"));
        assert_ne!(OwnerId::of_team(b"p", "a", "b"), OwnerId::derive(b"p", "a", "teamb"));
        assert_eq!(OwnerId::derive(b"p", "a", "b").as_str().len(), 64);
    }
}
