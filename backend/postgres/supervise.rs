//! The life of the cluster after its start: one task that owns the postmaster and the lock.

use std::convert::Infallible;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::bootstrap::Bootstrap;
use super::error::Error;
use super::lock::Lock;
use super::postmaster::Postmaster;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A postmaster that lived so long was well: the next failure is a new one.
const WELL_AFTER: Duration = Duration::from_mins(1);

/// How long a Postgres that is ended at once is waited for. It may take 5 s for children that do not end by themselves.
const AT_ONCE: Duration = Duration::from_millis(400);

/// Runs until `stopped` says within what time to stop Postgres, or its sender is dropped (then Postgres is left running).
/// The lock is given up when this returns: Postgres has ended, goes on, or was told to end at once, which the next start
/// waits for.
pub(super) async fn supervise(
    site: Bootstrap,
    mut postmaster: Postmaster,
    _lock: Lock,
    mut stopped: oneshot::Receiver<Duration>,
) -> Result<(), Error> {
    let told = tokio::select! {
        told = &mut stopped => told,
        never = keep_up(&site, &mut postmaster) => match never {},
    };
    match told {
        Ok(max) => tokio::time::timeout(max + AT_ONCE, postmaster.stop(max)).await.unwrap_or_else(|_| {
            warn!("Postgres was stopped immediately but has not exited yet; the next start waits for it");
            Ok(())
        }),
        Err(_dropped) => Ok(()),
    }
}

/// The first restart is immediate; repeated ones pause, longer and longer, up to [`PAUSE_MAX`].
async fn keep_up(site: &Bootstrap, postmaster: &mut Postmaster) -> Infallible {
    let mut pause = Duration::ZERO;
    loop {
        let since = Instant::now();
        postmaster.ended().await;
        if since.elapsed() > WELL_AFTER {
            pause = Duration::ZERO;
        }
        warn!(pid = postmaster.pid.as_raw_nonzero(), "Postgres exited unexpectedly; restarting it");
        *postmaster = loop {
            sleep(pause).await;
            pause = (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
            match site.bring_up().await {
                Ok(again) => break again,
                Err(error) => {
                    error!(%error, pause_ms = pause.as_millis(), "cannot restart Postgres");
                }
            }
        };
        info!(pid = postmaster.pid.as_raw_nonzero(), "Postgres is running again");
    }
}
