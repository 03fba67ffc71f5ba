//! Jobs: runs that wait for a process to execute them, and their claimers.

use uuid::Uuid;

use super::{
    id::{EventId, Name},
    interrupt::OWN_EVENT_IDS,
    principal::OwnerId,
};

/// A process or connection that claims jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimer {
    /// For display.
    pub name: Name,
    /// Shared by the leases of this claimer; new for every process or connection.
    pub session: Uuid,
    /// Only jobs of this owner; `None` for all owners, which only the server's own executor may claim.
    pub owner: Option<OwnerId>,
    /// Most leases of this session for one owner.
    pub own_max: i64,
}

/// The code in `error` of a run whose lease lapsed too often.
pub const LEASE_LOST: &str = "lease_lost";

/// The code in `error` of a run started by a message, if no process serves its agent.
pub const AGENT_UNSERVED: &str = "agent_unserved";

/// The id of the `run.failed` that dispatch emits; fixed, so that concurrent processes record only one.
pub fn failed_event_id(code: &str) -> EventId {
    own(&format!("dispatch:{code}"))
}

/// The id of the `run.started` of a job; independent of the emitter.
pub fn started_event_id() -> EventId {
    own("runner:started")
}

/// The id of an event that the server emits for a runner in an assignment: `resumed`, `done`.
pub fn said_event_id(attempt: i32, word: &str) -> EventId {
    own(&format!("runner:{attempt}:{word}"))
}

/// The id of a durable event whose runner gave none: the `i`th of its message `n`.
pub fn runner_event_id(attempt: i32, n: u64, i: usize) -> EventId {
    own(&format!("runner:{attempt}:{n}:{i}"))
}

fn own(rest: &str) -> EventId {
    EventId::trusted(&format!("{OWN_EVENT_IDS}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_id_of_a_job_is_one_and_is_the_servers_own() {
        let ids = [
            failed_event_id(LEASE_LOST),
            failed_event_id(AGENT_UNSERVED),
            started_event_id(),
            said_event_id(i32::MAX, "resumed"),
            runner_event_id(3, u64::MAX, 4_999),
        ];
        for id in ids {
            assert!(id.as_str().parse::<EventId>().is_ok() && id.as_str().starts_with(OWN_EVENT_IDS), "{id}");
        }
    }
}
