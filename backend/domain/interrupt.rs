//! Interrupts: questions from a run to a person, and their answers.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{
    checkpoint::{CheckpointId, Namespace},
    event::Recorded,
    id::{EventId, SpanId},
    json::Json,
    principal::OwnerId,
};

/// The prefix of the server's own event ids, reserved: no producer's id may begin with it.
pub const OWN_EVENT_IDS: &str = "runreel:";

/// The event key that reserves an interrupt's id in its run: each id is asked once, so an answer belongs to one
/// question.
pub fn asked_key(interrupt_id: &SpanId) -> EventId {
    EventId::trusted(&format!("{OWN_EVENT_IDS}asked:{interrupt_id}"))
}

/// How an interrupt was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    Approve,
    Reject,
    Respond,
    /// By nobody: its time ran out. Only the server says so.
    Expired,
    /// By nobody: the run was cancelled. Only the server says so.
    Cancelled,
}

impl Decision {
    /// Whether a person may give this decision.
    pub fn is_an_answer(self) -> bool {
        matches!(self, Self::Approve | Self::Reject | Self::Respond)
    }
}

/// The payload of `interrupt.resolved`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Answer {
    pub interrupt_id: SpanId,
    pub decision: Decision,
    pub value: Option<Json>,
    /// Who answered; absent if the server did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved_by: Option<OwnerId>,
}

impl Answer {
    /// A person's answer; [`Answer::by`] sets whose.
    pub fn new(interrupt_id: SpanId, decision: Decision, value: Option<Json>) -> Self {
        Self { interrupt_id, decision, value, resolved_by: None }
    }

    #[must_use]
    pub fn by(self, principal: &OwnerId) -> Self {
        Self { resolved_by: Some(principal.clone()), ..self }
    }

    /// Whether a recorded answer has the same decision and value, by any principal.
    pub fn is_told_by(&self, payload: &Json) -> bool {
        payload.member("decision") == Some(self.decision) && payload.raw_member("value") == self.value
    }

    /// The server's answer when no person answered.
    pub fn of_nobody(interrupt_id: SpanId, decision: Decision) -> Self {
        Self::new(interrupt_id, decision, None)
    }

    /// Reads an answer from the event that records it; `None` if the server did not record it.
    pub fn recorded(event: &Recorded) -> Option<Self> {
        let payload = &event.payload;
        let interrupt_id: SpanId = payload.member("interrupt_id")?;
        let resolved_by = payload.member("resolved_by");
        let answer =
            Self { resolved_by, ..Self::new(interrupt_id, payload.member("decision")?, payload.raw_member("value")) };
        let is_own =
            event.span_id.as_ref() == Some(&answer.interrupt_id) && event.event_id.as_ref() == Some(&answer.event_id());
        is_own.then_some(answer)
    }

    /// The id of the event that records the answer. It does not depend on the answer, so there is only one.
    pub fn event_id(&self) -> EventId {
        EventId::trusted(&format!("{OWN_EVENT_IDS}interrupt:{}", self.interrupt_id))
    }

    /// The id of the `run.resumed` that follows it.
    pub fn resumed_event_id(&self) -> EventId {
        EventId::trusted(&format!("{OWN_EVENT_IDS}interrupt:{}:resumed", self.interrupt_id))
    }
}

/// The payload of the `run.resumed` that follows an answer: the checkpoint the run resumes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resumed {
    pub interrupt_id: SpanId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_id: Option<CheckpointId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<Namespace>,
}

/// Whether a producer's `expires_at` has passed. An invalid time never passes; requests with one are refused.
pub fn has_expired(expires_at: Option<&str>, now: DateTime<Utc>) -> bool {
    expires_at.and_then(|text| DateTime::parse_from_rfc3339(text).ok()).is_some_and(|at| at <= now)
}

/// Checks what the server itself reads in the payload of `interrupt.requested`.
pub fn check_request(payload: &Json) -> Result<(), &'static str> {
    const RULE: &str = "expires_at must be a time of RFC 3339, such as 2026-11-21T23:37:27Z";
    let Some(raw) = payload.raw_member("expires_at") else { return Ok(()) };
    let text: String = serde_json::from_str(raw.as_str()).map_err(|_| RULE)?;
    DateTime::parse_from_rfc3339(&text).map(|_| ()).map_err(|_| RULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expiry_is_a_time_or_the_request_is_refused() {
        for good in ["{}", r#"{"expires_at":null}"#, r#"{"expires_at":"2026-11-21T23:37:27+01:00"}"#] {
            assert!(check_request(&Json::parse(good).unwrap()).is_ok(), "{good}");
        }
        for bad in [r#"{"expires_at":5}"#, r#"{"expires_at":"tomorrow"}"#, r#"{"expires_at":["x"]}"#] {
            assert!(check_request(&Json::parse(bad).unwrap()).is_err(), "{bad}");
        }
    }

    #[test]
    fn an_interrupt_expires_at_its_moment_and_not_before() {
        let now = DateTime::UNIX_EPOCH + chrono::TimeDelta::seconds(60);
        assert!(has_expired(Some("1970-01-01T00:01:00Z"), now));
        assert!(!has_expired(Some("1970-01-01T00:01:01Z"), now));
        assert!(!has_expired(Some("never"), now));
        assert!(!has_expired(None, now));
    }
}
