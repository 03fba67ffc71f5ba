//! The verification of a run.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::domain::chain::{Fault, FaultKind};

/// What verification found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerificationState {
    /// Every event from `covered_from` on is as it was written.
    Verified,
    /// `faults` names the events that are not.
    Altered,
    /// The log is older than the chain, and nothing can be said.
    Uncovered,
    /// As far as `checked_to` it is as it was written: go on with `after`.
    Partial,
}

/// The verification of a run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Verification {
    pub run_id: uuid::Uuid,
    pub state: VerificationState,
    /// The last seq that was checked: send it back as `after` while `state` is `partial`.
    pub checked_to: i64,
    /// The last seq of the run.
    pub last_seq: i64,
    /// The first of the checked events that has a link; null if there is none.
    pub covered_from: Option<i64>,
    /// The link of the run's last event, SHA-256 in hexadecimal digits; null if it has none.
    pub head: Option<String>,
    /// At most 20.
    pub faults: Vec<NamedFault>,
    /// The newest seal that names the run; null if there is none.
    pub seal: Option<NamedSeal>,
}

/// An event that is not as it was written.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NamedFault {
    pub seq: i64,
    pub kind: FaultKind,
    pub detail: String,
}

/// A seal that names a run.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct NamedSeal {
    pub number: i64,
    pub at: String,
    pub sha256: String,
    /// Where the run stood.
    pub last_seq: i64,
    /// The public key that signed it; null if none did, or the signature is wrong.
    pub key: Option<String>,
}

impl From<&Fault> for NamedFault {
    fn from(fault: &Fault) -> Self {
        Self { seq: fault.seq.get(), kind: fault.kind, detail: fault.kind.detail().to_owned() }
    }
}
