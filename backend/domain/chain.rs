//! The chain of a run's events: each event has a link, a SHA-256 over the previous link and the whole event. So the
//! last link of a run, its *head*, commits to the whole log up to there.
//!
//! ```text
//! content = SHA-256(0x01 · type · role · agent · span_id · parent_span_id · event_id · at · payload)
//! link    = SHA-256(0x02 · link before · run_id · seq · content)
//! ```
//!
//! A text is its length in bytes (4 bytes, big-endian) and its UTF-8, an absent one is `ff ff ff ff`; `at` is
//! microseconds since the Unix epoch and `seq` a number, 8 bytes each, big-endian; `run_id` is its 16 bytes. The link
//! before the first event is 32 zero bytes. The encoding is unambiguous: each part has a fixed width or states it.
//!
//! The content does not depend on the event's number, so the link can be added wherever the previous link is known
//! ([`store.links` in `migrations/0031_chain.sql`](crate::store)). Neither covers the owner or a place in the database:
//! a copy of a log has the same head. [`Walk`] follows a stored chain, [`seal`] does the same for the heads of many
//! runs.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{
    artifact::Hash,
    event::Recorded,
    id::{EventId, RunId, Seq, SpanId},
    limits::VERIFY_FAULTS_MAX,
    run::Status,
};

pub mod seal;

/// The link before the first event of a run.
const NOTHING: [u8; 32] = [0; 32];
/// The length field of an absent text.
const ABSENT: [u8; 4] = [0xff; 4];

/// What an event adds to the chain of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chained {
    pub content: Hash,
    pub link: Hash,
}

fn add_text(hash: &mut Sha256, text: Option<&str>) {
    let Some(text) = text else { return hash.update(ABSENT) };
    hash.update(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    hash.update(text.as_bytes());
}

fn done(hash: Sha256) -> Hash {
    Hash::new(hash.finalize().into())
}

/// The hash of an event's content, independent of its place in a log.
pub fn content(event: &Recorded) -> Hash {
    let mut hash = Sha256::new_with_prefix([1]);
    add_text(&mut hash, Some(event.event_type.as_str()));
    add_text(&mut hash, Some(event.role.as_str()));
    add_text(&mut hash, event.agent.as_deref());
    add_text(&mut hash, event.span_id.as_ref().map(SpanId::as_str));
    add_text(&mut hash, event.parent_span_id.as_ref().map(SpanId::as_str));
    add_text(&mut hash, event.event_id.as_ref().map(EventId::as_str));
    hash.update(event.at.timestamp_micros().to_be_bytes());
    add_text(&mut hash, Some(event.payload.as_str()));
    done(hash)
}

/// The link of an event with this number and content.
pub fn link(before: Option<Hash>, run: RunId, seq: Seq, content: Hash) -> Hash {
    let mut hash = Sha256::new_with_prefix([2]);
    hash.update(before.as_ref().map_or(&NOTHING[..], Hash::as_bytes));
    hash.update(run.uuid().as_bytes());
    hash.update(seq.get().to_be_bytes());
    hash.update(content.as_bytes());
    done(hash)
}

/// The content hash and link of an event that follows `before`.
pub fn chained(before: Option<Hash>, run: RunId, seq: Seq, event: &Recorded) -> Chained {
    let content = content(event);
    Chained { content, link: link(before, run, seq, content) }
}

/// What is wrong with a stored log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// There is no event with this seq.
    Removed,
    /// The event, or the link of the one before it, is not what was written.
    Altered,
    /// The event has no link although it should: it was added, or written by an older server.
    Unlinked,
    /// The event comes after the end of the run, or after the last one that the run knows of.
    Added,
    /// The head that the run records is not the link of its last event.
    Head,
    /// The status that the run records is not the one its events lead to.
    Status,
    /// The event, or the run, has another owner than it had.
    Owner,
    /// A seal names the run with this seq, and it is not there or has another head.
    Sealed,
    /// The run records something else than this event says of it.
    Record,
    /// The artifact of the event is gone, or recorded as another one than the event says.
    Artifact,
}

impl FaultKind {
    /// A description for people.
    pub fn detail(self) -> &'static str {
        match self {
            Self::Removed => "the event is missing",
            Self::Altered => "the event, or the link of the one before it, was changed",
            Self::Unlinked => "the event has no link: it was added, or written by an older server after the upgrade",
            Self::Added => "the event comes after the end of the run",
            Self::Head => "the head that the run records is not its last event's link",
            Self::Status => "the status that the run records is not the one its events lead to",
            Self::Owner => "it has another owner than it had",
            Self::Record => "the run records something else than this event says of it",
            Self::Artifact => "the artifact of the event is gone, or recorded as another one than the event says",
            Self::Sealed => "a seal names this event of the run, and the log does not have it as it was",
        }
    }
}

/// A fault and the event where it was detected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub seq: Seq,
    pub kind: FaultKind,
}

/// A stored event with its link, if it has one.
#[derive(Clone, Debug)]
pub struct Stored {
    pub event: Recorded,
    pub link: Option<Hash>,
    /// Whether it was stored at a time when events already got links.
    pub is_chained: bool,
}

/// What a run records of its log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub owner_id: String,
    pub last_seq: Seq,
    pub status: Status,
    pub link: Option<Hash>,
}

/// Follows the chain of one run, event by event, in the order of their seqs.
///
/// After a fault it continues from the stored link, so that each event is judged independently.
#[derive(Clone, Debug)]
pub struct Walk {
    run: RunId,
    /// The last seq that was seen.
    pub checked_to: Seq,
    /// The first event with a link.
    pub covered_from: Option<Seq>,
    link: Option<Hash>,
    /// Whether the link before the next event is unknown, because that event is missing.
    is_torn: bool,
    status: Option<Status>,
    faults: Vec<Fault>,
}

impl Walk {
    /// Starts at the first event.
    pub fn new(run: RunId) -> Self {
        Self {
            run,
            checked_to: Seq::ZERO,
            covered_from: None,
            link: None,
            is_torn: false,
            status: None,
            faults: Vec::new(),
        }
    }

    /// Starts at the event after `last`; the link of `last` is trusted as stored.
    pub fn after(run: RunId, last: Seq, link: Option<Hash>) -> Self {
        Self { checked_to: last, link, covered_from: link.map(|_| last), ..Self::new(run) }
    }

    fn fault(&mut self, seq: Seq, kind: FaultKind) {
        if self.faults.len() < VERIFY_FAULTS_MAX {
            self.faults.push(Fault { seq, kind });
        }
    }

    /// Takes the next stored event.
    pub fn take(&mut self, stored: &Stored, owner_id: &str) {
        let (event, wanted) = (&stored.event, self.checked_to.next());
        let seq = event.seq.unwrap_or_default();
        if seq > wanted {
            self.fault(wanted, FaultKind::Removed);
            self.is_torn = true;
        }
        if &*event.owner_id != owner_id {
            self.fault(seq, FaultKind::Owner);
        }
        match stored.link {
            None if stored.is_chained || self.covered_from.is_some() => self.fault(seq, FaultKind::Unlinked),
            None => {}
            Some(link) => {
                let is_first = self.covered_from.is_none();
                self.covered_from.get_or_insert(seq);
                let is_known = is_first || !self.is_torn;
                if is_known && link != chained(self.link, self.run, seq, event).link {
                    self.fault(seq, FaultKind::Altered);
                }
                self.link = Some(link);
                self.is_torn = false;
            }
        }
        if self.status.is_some_and(Status::is_terminal) {
            self.fault(seq, FaultKind::Added);
        }
        self.status = Status::after(&event.event_type).or(self.status);
        self.checked_to = seq;
    }

    /// The faults so far, at most [`VERIFY_FAULTS_MAX`].
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Compares a completed walk with what the run records.
    pub fn finish(&mut self, head: &Head) {
        if head.last_seq > self.checked_to {
            self.fault(self.checked_to.next(), FaultKind::Removed);
        } else if head.last_seq < self.checked_to {
            self.fault(head.last_seq.next(), FaultKind::Added);
        } else if head.link != self.link {
            self.fault(head.last_seq, FaultKind::Head);
        }
        if self.status.is_some_and(|status| status != head.status) {
            self.fault(self.checked_to, FaultKind::Status);
        }
    }

    /// Adds a fault that was found elsewhere.
    pub fn note(&mut self, fault: Fault) {
        self.fault(fault.seq, fault.kind);
    }
}

#[cfg(test)]
mod tests;
