//! Rejected credentials: each is counted, and a few per second are logged, without the credential or its sender.

use std::sync::{Mutex, PoisonError};

use axum::response::Response;
use tokio::time::{Duration, Instant};

use super::problem::Code;
use crate::domain::limits::REFUSED_LINES_PER_S_MAX;

/// Attached to the response of a rejection, for [`Refusals`].
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub(super) code: Code,
    pub(super) detail: String,
}

impl Refused {
    /// Whether a problem of this kind is about the sender of the request.
    pub(super) fn is_by(code: Code) -> bool {
        matches!(code, Code::Unauthorized | Code::Forbidden | Code::HostNotAllowed | Code::TokenInUrl)
    }
}

/// The lines of the current second.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Lines>);

#[derive(Debug, Default)]
struct Lines {
    since: Option<Instant>,
    logged: u32,
    unlogged: u64,
}

impl Refusals {
    /// Counts a response, and logs it if it may.
    pub(super) fn note(&self, response: &Response) {
        let Some(Refused { code, detail }) = response.extensions().get() else { return };
        metrics::counter!("runreel_refused_total", "reason" => code.word()).increment(1);
        if let Some(untold) = self.may_log(Instant::now()) {
            tracing::warn!(reason = code.word(), untold, "a credential was refused: {detail}");
        }
    }

    /// How many were not logged since the last line, if one may be logged now.
    fn may_log(&self, now: Instant) -> Option<u64> {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.since.is_none_or(|since| now.duration_since(since) >= Duration::from_secs(1)) {
            (lines.since, lines.logged) = (Some(now), 0);
        }
        if lines.logged < REFUSED_LINES_PER_S_MAX {
            lines.logged += 1;
            return Some(std::mem::take(&mut lines.unlogged));
        }
        lines.unlogged += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_a_few_lines_a_second_and_the_number_of_the_rest() {
        let (refusals, began) = (Refusals::default(), Instant::now());
        let logged = (0..1_000).filter_map(|_| refusals.may_log(began)).count();
        assert_eq!(logged, REFUSED_LINES_PER_S_MAX as usize);
        let later = began + Duration::from_secs(1);
        assert_eq!(refusals.may_log(later), Some(1_000 - u64::from(REFUSED_LINES_PER_S_MAX)));
        assert_eq!(refusals.may_log(later), Some(0));
    }
}
