//! How slowly bytes may come.

use std::time::Duration;

/// Counts what came and how long it was waited for. After a grace, the average must not fall below a rate.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    grace: Duration,
    bytes_per_s_min: u64,
    waited: Duration,
    bytes: u64,
}

impl Pace {
    pub fn new(grace_ms: u64, bytes_per_s_min: u64) -> Self {
        Self { grace: Duration::from_millis(grace_ms), bytes_per_s_min, waited: Duration::ZERO, bytes: 0 }
    }

    /// How long the next bytes may take.
    pub fn patience(&self) -> Duration {
        let paid = Duration::from_millis(self.bytes.saturating_mul(1_000) / self.bytes_per_s_min);
        self.grace.saturating_add(paid).saturating_sub(self.waited)
    }

    /// So many bytes came after so long.
    pub fn came(&mut self, waited: Duration, bytes: usize) {
        self.waited += waited;
        self.bytes += bytes as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grace_is_given_once_and_every_byte_buys_time() {
        let mut pace = Pace::new(10_000, 1_024);
        assert_eq!(pace.patience(), Duration::from_secs(10));
        pace.came(Duration::from_secs(9), 1);
        assert_eq!(pace.patience(), Duration::from_secs(1));
        pace.came(Duration::from_millis(500), 2 * 1_024);
        assert_eq!(pace.patience(), Duration::from_millis(2_500));
        pace.came(Duration::from_mins(1), 0);
        assert_eq!(pace.patience(), Duration::ZERO);
        pace.came(Duration::ZERO, 1024 * 1024 * 1024);
        assert!(pace.patience() > Duration::from_hours(24));
    }
}
