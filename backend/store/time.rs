//! The database's time.

use tokio::time::Instant;

use super::{Error, Store};
use crate::clock::Clock;

/// How far this machine's wall clock is from the database's, seconds; positive if it is ahead.
const SKEW: &str = "runreel_clock_skew_seconds";
/// Difference from which on the server warns, seconds.
const SKEW_WARNED_S: f64 = 1.0;

impl Store {
    /// Passes the database's time to a clock, and reports the skew of the machine's own clock to metrics and log.
    ///
    /// The age of an answer is unknown; half of the round trip is the best estimate.
    pub async fn tell_time(&self, clock: &Clock) -> Result<(), Error> {
        let (asked, now) = self
            .maintenance(async |mut connection| {
                let asked = Instant::now();
                let now =
                    sqlx::query_scalar!(r#"select clock_timestamp() as "now!""#).fetch_one(&mut *connection).await?;
                Ok((asked, now))
            })
            .await?;
        let now = now + asked.elapsed() / 2;
        clock.follow(now);
        let ahead_s = (Clock::System.now() - now).as_seconds_f64();
        metrics::gauge!(SKEW).set(ahead_s);
        if ahead_s.abs() > SKEW_WARNED_S {
            tracing::warn!(
                ahead_s,
                "the clock of this machine differs from the database's; leases and deadlines use the database's clock, \
                 but correct this one (NTP): tokens and signatures of others use the true time"
            );
        }
        Ok(())
    }
}
