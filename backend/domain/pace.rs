//! The minimum rate of a transfer.

use std::time::Duration;

/// Tracks how far a transfer is behind a minimum rate, against a grace period. Earlier speed earns no credit.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    grace: Duration,
    bytes_per_s_min: u64,
    behind: Duration,
}

impl Pace {
    pub fn new(grace_ms: u64, bytes_per_s_min: u64) -> Self {
        Self { grace: Duration::from_millis(grace_ms), bytes_per_s_min, behind: Duration::ZERO }
    }

    /// Longest acceptable wait for the next bytes.
    pub fn patience(&self) -> Duration {
        self.grace.saturating_sub(self.behind)
    }

    /// Records that `bytes` were transferred after a wait.
    pub fn passed(&mut self, waited: Duration, bytes: usize) {
        let paid = Duration::from_nanos((bytes as u64).saturating_mul(1_000_000_000) / self.bytes_per_s_min);
        self.behind = self.behind.saturating_add(waited).saturating_sub(paid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_makes_up_for_time_but_is_never_saved() {
        let mut pace = Pace::new(10_000, 1_024);
        assert_eq!(pace.patience(), Duration::from_secs(10));
        pace.passed(Duration::from_secs(9), 0);
        assert_eq!(pace.patience(), Duration::from_secs(1));
        pace.passed(Duration::from_millis(500), 2 * 1_024);
        assert_eq!(pace.patience(), Duration::from_millis(2_500));
        pace.passed(Duration::from_mins(1), 0);
        assert_eq!(pace.patience(), Duration::ZERO);
        pace.passed(Duration::ZERO, 1024 * 1024 * 1024);
        assert_eq!(pace.patience(), Duration::from_secs(10));
    }
}
