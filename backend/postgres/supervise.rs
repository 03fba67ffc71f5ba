//! Supervision of the cluster after its start: one task that owns the postmaster and the lock.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tracing::{error, info, warn};

use super::bootstrap::Bootstrap;
use super::error::Error;
use super::lock::Lock;
use super::postmaster::Postmaster;

const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// A postmaster that ran for this long was healthy: the next failure is a new one.
const WELL_AFTER: Duration = Duration::from_mins(1);

/// How long to wait for an immediate stop. It may take 5 s if children do not exit by themselves.
const AT_ONCE: Duration = Duration::from_millis(400);

/// Runs until `stopped` receives the time within which to stop Postgres, or its sender is dropped (then Postgres is
/// left running). The lock is released when this returns: Postgres has then ended, is still running, or was signalled
/// to stop immediately, which the next start waits for.
pub(super) async fn supervise(
    site: Bootstrap,
    mut postmaster: Postmaster,
    _lock: Lock,
    mut stopped: oneshot::Receiver<Duration>,
) -> Result<(), Error> {
    let request = tokio::select! {
        request = &mut stopped => request,
        never = keep_up_despite_panics(&site, &mut postmaster) => match never {},
    };
    match request {
        Ok(max) => tokio::time::timeout(max + AT_ONCE, postmaster.stop(max)).await.unwrap_or_else(|_| {
            warn!("Postgres was stopped immediately but has not exited yet; the next start waits for it");
            Ok(())
        }),
        Err(_dropped) => Ok(()),
    }
}

/// A panic in here must not release the lock, nor leave Postgres without a task that restarts it.
async fn keep_up_despite_panics(site: &Bootstrap, postmaster: &mut Postmaster) -> Infallible {
    loop {
        let Err(_panic) = AssertUnwindSafe(keep_up(site, postmaster)).catch_unwind().await;
        metrics::counter!("runreel_task_panics_total", "task" => "postgres").increment(1);
        error!(
            task = "postgres",
            how = "panicked",
            "a task failed and is restarted; please report the log lines above"
        );
        sleep(PAUSE_MIN).await;
    }
}

/// The first restart is immediate; repeated ones pause with exponential backoff up to [`PAUSE_MAX`].
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
