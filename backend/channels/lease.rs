//! Work under a lease, which is short, so that a dead process's work is soon taken over, and renewed, so that a live
//! process keeps its own.

use std::time::Duration;

use tokio::time::Instant;

use crate::store;

/// Runs `work` and renews its lease every third of its length. Returns `None`, with the work dropped, if the renewal
/// reports that another worker holds the lease, or if it did not succeed before the lease lapses. The lapse is measured
/// with this process's monotonic clock, so differences between wall clocks do not matter.
pub(super) async fn keep<T, R>(length: Duration, work: impl Future<Output = T>, renew: impl Fn() -> R) -> Option<T>
where
    R: Future<Output = Result<bool, store::Error>>,
{
    let safe = length.mul_f64(0.9);
    let lost = async {
        let mut until = Instant::now() + safe;
        loop {
            tokio::time::sleep_until(until.min(Instant::now() + length / 3)).await;
            let asked = Instant::now();
            match tokio::time::timeout_at(until, renew()).await {
                Ok(Ok(true)) => until = asked + safe,
                Ok(Ok(false)) | Err(_) => return,
                // No time is left for another try, so the lease counts as lost.
                Ok(Err(_)) if asked >= until => return,
                Ok(Err(error)) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "delivery lease not renewed");
                }
            }
        }
    };
    tokio::select! {
        biased;
        done = work => Some(done),
        () = lost => None,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn work_whose_lease_cannot_be_renewed_is_left_before_the_lease_lapses() {
        let began = Instant::now();
        let renew = || std::future::ready(Err(store::Error::timeout()));
        assert_eq!(keep(LEASE, std::future::pending::<()>(), renew).await, None);
        let silent = || std::future::pending();
        assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
        let began = Instant::now();
        assert_eq!(keep(LEASE, std::future::pending::<()>(), silent).await, None);
        assert!(began.elapsed() < LEASE, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_renewed_in_time_as_long_as_the_work_takes() {
        let renewed = Cell::new(0);
        let renew = || {
            renewed.set(renewed.get() + 1);
            // A renewal that fails once is retried.
            std::future::ready(if renewed.get() == 2 { Err(store::Error::timeout()) } else { Ok(true) })
        };
        let work = async {
            tokio::time::sleep(LEASE * 2 + Duration::from_secs(1)).await;
            "done"
        };
        assert_eq!(keep(LEASE, work, renew).await, Some("done"));
        assert_eq!(renewed.get(), 6);
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_is_somebody_elses_is_left() {
        let began = tokio::time::Instant::now();
        let renew = || std::future::ready(Ok(began.elapsed() < LEASE));
        assert_eq!(keep(LEASE, std::future::pending::<()>(), renew).await, None);
        assert_eq!(began.elapsed().as_secs(), 30);
    }
}
