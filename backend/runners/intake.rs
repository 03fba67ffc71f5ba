//! Counts what arrives on runners' sockets from the first byte, before it is a message.
//!
//! Every connection of the server is wrapped in a [`Metered`]; only a runner's socket is counted, from
//! [`Intake::begin`] on. Invariant kept here: no principal's runners hold more memory than the principal's share,
//! within one read of each socket. Bytes reserve their room as they arrive; above a certain size, the room of the largest
//! message is reserved at once, so that a started message can be finished. Without room, reading stops.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll, ready},
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    io::{AsyncRead, ReadBuf},
    sync::AcquireError,
    time::Instant,
};

use crate::{
    domain::{
        limits::{BODY_BYTES_PER_S_MIN, BODY_GRACE_MS, RUNNER_LARGE_BYTES, RUNNER_MESSAGE_BYTES_MAX},
        principal::OwnerId,
    },
    paced::Progress,
    quota::{Quota, Share},
};

/// Bytes of a client's control frame before its content: two bytes and a mask (RFC 6455, 5.2).
const CONTROL_HEAD_BYTES: usize = 6;

/// The byte count of one connection. Cheap to clone; clones share it.
#[derive(Clone, Default)]
pub struct Intake(Arc<OnceLock<Mutex<Meter>>>);

impl Intake {
    /// Starts counting.
    pub(super) fn begin(&self, quota: Quota, owner: OwnerId) {
        let meter = Meter {
            quota,
            owner,
            arrived: 0,
            share: None,
            pending: None,
            progress: progress(),
            active_at: Instant::now(),
        };
        let _ = self.0.set(Mutex::new(meter));
    }

    /// When something last arrived; the current time while reading is stopped for lack of room.
    pub(super) fn active_at(&self) -> Option<Instant> {
        let meter = self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        Some(if meter.pending.is_some() { Instant::now() } else { meter.active_at })
    }

    /// Discounts a ping or pong of this length, which is part of no message.
    pub(super) fn control(&self, length: usize) {
        let Some(meter) = self.0.get() else { return };
        let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
        meter.arrived = meter.arrived.saturating_sub(length + CONTROL_HEAD_BYTES);
        let arrived = meter.arrived;
        if let Some(share) = meter.share.as_mut().filter(|_| arrived <= RUNNER_LARGE_BYTES) {
            share.shrink(arrived);
        }
    }

    /// A message of this length is complete: its share now belongs to the caller.
    pub(super) fn message(&self, length: usize) -> Option<Share> {
        let mut meter = self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        meter.arrived = 0;
        let mut share = meter.share.take();
        if let Some(share) = &mut share {
            share.shrink(length);
        }
        // A shortfall is acquired before the next message is read, and counts for that one.
        if meter.pending.take().is_some() {
            meter.owe(length.saturating_sub(share.as_ref().map_or(0, Share::amount)));
        }
        share
    }
}

struct Meter {
    quota: Quota,
    owner: OwnerId,
    /// Bytes since the last complete message.
    arrived: usize,
    share: Option<Share>,
    pending: Option<BoxFuture<'static, Result<Share, AcquireError>>>,
    /// The speed at which a started message arrives.
    progress: Progress,
    active_at: Instant,
}

impl Meter {
    /// Waits for the pending share; until then nothing is read.
    fn poll_paid(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pending) = &mut self.pending {
            let paid = ready!(pending.poll_unpin(cx));
            (self.pending, self.active_at) = (None, Instant::now());
            self.hold(paid.ok());
        }
        Poll::Ready(())
    }

    fn came(&mut self, bytes: usize) {
        self.arrived += bytes;
        self.active_at = Instant::now();
        let wanted = if self.arrived > RUNNER_LARGE_BYTES { RUNNER_MESSAGE_BYTES_MAX } else { self.arrived };
        let missing = wanted.saturating_sub(self.share.as_ref().map_or(0, Share::amount));
        let amount = u32::try_from(missing).unwrap_or(u32::MAX);
        match self.quota.try_take(&self.owner, amount) {
            Ok(share) => self.hold(Some(share)),
            Err(_) => self.owe(missing),
        }
    }

    fn owe(&mut self, missing: usize) {
        let (quota, owner) = (self.quota.clone(), self.owner.clone());
        let amount = u32::try_from(missing).unwrap_or(u32::MAX);
        self.pending = Some(async move { quota.take(&owner, amount).await }.boxed());
    }

    fn hold(&mut self, share: Option<Share>) {
        match (&mut self.share, share) {
            (Some(own), Some(share)) => own.join(share),
            (None, share) => self.share = share,
            (Some(_), None) => {}
        }
    }
}

fn progress() -> Progress {
    Progress::new(BODY_GRACE_MS, BODY_BYTES_PER_S_MIN)
}

/// The reading half of a connection, counted once it is a runner's.
pub struct Metered<S> {
    stream: S,
    intake: Intake,
}

impl<S> Metered<S> {
    pub fn new(stream: S) -> (Self, Intake) {
        let intake = Intake::default();
        (Self { stream, intake: intake.clone() }, intake)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, intake } = self.get_mut();
        let Some(meter) = intake.0.get() else { return Pin::new(stream).poll_read(cx, buf) };
        let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
        if meter.arrived == 0 || meter.pending.is_some() {
            // No message has begun, or the server itself has stopped reading: the rate is measured anew.
            meter.progress = progress();
        }
        ready!(meter.poll_paid(cx));
        let before = buf.filled().len();
        let read = Pin::new(stream).poll_read(cx, buf).map_ok(|()| buf.filled().len() - before);
        let read = if meter.arrived == 0 { read } else { meter.progress.judge(cx, read) };
        meter.came(ready!(read)?);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const LARGEST: usize = RUNNER_MESSAGE_BYTES_MAX;
    const PATIENCE: Duration = Duration::from_secs(15);

    fn socket(quota: &Quota) -> (Metered<tokio::io::DuplexStream>, Intake, tokio::io::DuplexStream) {
        let (near, far) = tokio::io::duplex(2 * LARGEST);
        let (near, intake) = Metered::new(near);
        intake.begin(quota.clone(), OwnerId::trusted("a"));
        (near, intake, far)
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_has_begun_can_be_finished_and_the_next_waits() {
        let quota = Quota::new(3 * LARGEST, LARGEST);
        let ((mut first, intake, mut to_first), (mut second, of_second, mut to_second)) =
            (socket(&quota), socket(&quota));
        let mut read = vec![0; RUNNER_LARGE_BYTES + 1];
        to_first.write_all(&read).await.unwrap();
        to_second.write_all(&read).await.unwrap();
        first.read_exact(&mut read).await.unwrap();
        assert!(quota.try_take(&OwnerId::trusted("a"), 1).is_err(), "the room of the largest is taken");
        second.read_exact(&mut read).await.unwrap();
        to_second.write_all(b"more").await.unwrap();
        assert!(second.read(&mut read).now_or_never().is_none(), "what it has read already is owed");
        let share = intake.message(100).unwrap();
        assert_eq!(share.amount(), 100);
        assert!(second.read(&mut read).now_or_never().is_none());
        let long_ago = |intake: &Intake| intake.active_at().unwrap().elapsed() >= PATIENCE;
        tokio::time::advance(PATIENCE).await;
        assert!(long_ago(&intake) && !long_ago(&of_second), "nothing is read from the second: it is not silent");
        drop(share);
        assert_eq!(second.read(&mut read).await.unwrap(), 4);
        assert!(!long_ago(&of_second));
    }

    #[tokio::test]
    async fn what_only_keeps_a_connection_alive_takes_no_room() {
        let quota = Quota::new(LARGEST, LARGEST);
        let (mut near, intake, mut far) = socket(&quota);
        let mut read = [0; 100 + CONTROL_HEAD_BYTES];
        for _ in 0..2 * RUNNER_LARGE_BYTES / read.len() {
            far.write_all(&read).await.unwrap();
            near.read_exact(&mut read).await.unwrap();
            intake.control(100);
        }
        assert!(quota.try_take(&OwnerId::trusted("a"), u32::try_from(LARGEST).unwrap()).is_ok());
    }

    #[tokio::test]
    async fn a_small_message_that_found_no_room_is_paid_for_before_the_next() {
        let quota = Quota::new(1_000, 1_000);
        let (mut near, intake, mut far) = socket(&quota);
        let all = quota.try_take(&OwnerId::trusted("a"), 1_000).unwrap();
        let mut read = [0; 100];
        far.write_all(&read).await.unwrap();
        assert_eq!(near.read(&mut read).await.unwrap(), 100);
        assert!(intake.message(100).is_none());
        far.write_all(&read).await.unwrap();
        assert!(near.read(&mut read).now_or_never().is_none());
        drop(all);
        assert_eq!(near.read(&mut read).await.unwrap(), 100);
        assert_eq!(intake.message(100).unwrap().amount(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_has_begun_must_go_on_and_silence_between_messages_may_last() {
        let quota = Quota::new(LARGEST, LARGEST);
        let (mut near, intake, mut far) = socket(&quota);
        let mut read = [0; 100 + CONTROL_HEAD_BYTES];
        // Whole messages and controls, with long silences.
        for round in 0..10 {
            far.write_all(&read).await.unwrap();
            near.read_exact(&mut read).await.unwrap();
            if round % 2 == 0 {
                drop(intake.message(100));
            } else {
                intake.control(100);
            }
            let silence = tokio::time::timeout(Duration::from_mins(10), near.read(&mut read)).await;
            assert!(silence.is_err(), "{silence:?}");
        }
        // A byte per second is below the minimum rate.
        let began = Instant::now();
        let dribble = async {
            loop {
                far.write_all(b"x").await.unwrap();
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let reading = async {
            loop {
                if let Err(error) = near.read(&mut read).await {
                    return error;
                }
            }
        };
        let error = tokio::select! { error = reading => error, () = dribble => unreachable!() };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(began.elapsed() < Duration::from_millis(2 * BODY_GRACE_MS), "{:?}", began.elapsed());
    }
}
