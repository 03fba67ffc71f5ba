//! A job: a run that waits for a process to execute it, and who claims it.

use uuid::Uuid;

use super::{
    id::{EventId, Name},
    interrupt::OWN_EVENT_IDS,
    principal::OwnerId,
};

/// Who claims jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimer {
    /// For display.
    pub name: Name,
    /// What the leases of this claimer have in common; new for every process or connection.
    pub session: Uuid,
    /// Only jobs of this owner; `None` for those of all owners, as only the server's own executor may.
    pub owner: Option<OwnerId>,
    /// How many leases of this session one owner may have.
    pub own_max: i64,
}

/// The code in `error` of a run all of whose holders let the lease lapse.
pub const LEASE_LOST: &str = "lease_lost";

/// The code in `error` of a run that a message started and whose agent no process serves.
pub const AGENT_UNSERVED: &str = "agent_unserved";

/// The id of the `run.failed` that dispatch itself emits: whichever process is first, there is only one.
pub fn failed_event_id(code: &str) -> EventId {
    own(&format!("dispatch:{code}"))
}

/// The id of the `run.started` of a job, whoever emits it.
pub fn started_event_id() -> EventId {
    own("runner:started")
}

/// The id of an event that the server emits for a runner in an assignment: `resumed`, `done`.
pub fn said_event_id(attempt: i32, word: &str) -> EventId {
    own(&format!("runner:{attempt}:{word}"))
}

/// The id of a durable event to which its runner gave none: the `i`th of its message `n`.
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
