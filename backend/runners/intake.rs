//! What arrives on runners' sockets counts from its first byte, before it is a message.
//!
//! Every connection of the server is wrapped in a [`Metered`]; only one that became a runner's socket is counted, from
//! [`Intake::begin`] on. Invariant kept here: no principal's runners have more in memory than the principal's share,
//! give or take one read of each socket. What arrives takes its room as it comes; from a certain size on, the room of the
//! largest message at once, so that what has begun can be finished. Where there is no room, nothing more is read.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    task::{Context, Poll, ready},
};

use futures::{FutureExt as _, future::BoxFuture};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::AcquireError,
};

use crate::{
    domain::{
        limits::{RUNNER_LARGE_BYTES, RUNNER_MESSAGE_BYTES_MAX},
        principal::OwnerId,
    },
    quota::{Quota, Share},
};

/// What a client's frame of control has before its content: two bytes and a mask (RFC 6455, 5.2).
const CONTROL_HEAD_BYTES: usize = 6;

/// The count of one connection. Cheap to clone; clones share.
#[derive(Clone, Default)]
pub struct Intake(Arc<OnceLock<Mutex<Meter>>>);

impl Intake {
    /// Counts from now on.
    pub(super) fn begin(&self, quota: Quota, owner: OwnerId) {
        let meter = Meter { quota, owner, arrived: 0, share: None, owed: None };
        let _ = self.0.set(Mutex::new(meter));
    }

    /// A ping or pong with so much in it has come, which is part of no message.
    pub(super) fn control(&self, length: usize) {
        let Some(meter) = self.0.get() else { return };
        let mut meter = meter.lock().unwrap_or_else(PoisonError::into_inner);
        meter.arrived = meter.arrived.saturating_sub(length + CONTROL_HEAD_BYTES);
        let arrived = meter.arrived;
        if let Some(share) = meter.share.as_mut().filter(|_| arrived <= RUNNER_LARGE_BYTES) {
            share.shrink(arrived);
        }
    }

    /// A message of this length is whole: its room is now whoever's the message is.
    pub(super) fn message(&self, length: usize) -> Option<Share> {
        let mut meter = self.0.get()?.lock().unwrap_or_else(PoisonError::into_inner);
        meter.arrived = 0;
        let mut share = meter.share.take();
        if let Some(share) = &mut share {
            share.shrink(length);
        }
        // What it lacks is paid before the next one is read, and counts for that.
        if meter.owed.take().is_some() {
            meter.owe(length.saturating_sub(share.as_ref().map_or(0, Share::amount)));
        }
        share
    }
}

struct Meter {
    quota: Quota,
    owner: OwnerId,
    /// Since the last whole message, bytes.
    arrived: usize,
    share: Option<Share>,
    owed: Option<BoxFuture<'static, Result<Share, AcquireError>>>,
}

impl Meter {
    /// Pays what is owed; until then nothing is read.
    fn poll_paid(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(owed) = &mut self.owed {
            let paid = ready!(owed.poll_unpin(cx));
            self.owed = None;
            self.hold(paid.ok());
        }
        Poll::Ready(())
    }

    fn came(&mut self, bytes: usize) {
        self.arrived += bytes;
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
        self.owed = Some(async move { quota.take(&owner, amount).await }.boxed());
    }

    fn hold(&mut self, share: Option<Share>) {
        match (&mut self.share, share) {
            (Some(own), Some(share)) => own.join(share),
            (None, share) => self.share = share,
            (Some(_), None) => {}
        }
    }
}

/// A connection whose reads are counted once it is a runner's.
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
        ready!(meter.poll_paid(cx));
        let before = buf.filled().len();
        ready!(Pin::new(stream).poll_read(cx, buf))?;
        meter.came(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    const LARGEST: usize = RUNNER_MESSAGE_BYTES_MAX;

    fn socket(quota: &Quota) -> (Metered<tokio::io::DuplexStream>, Intake, tokio::io::DuplexStream) {
        let (near, far) = tokio::io::duplex(2 * LARGEST);
        let (near, intake) = Metered::new(near);
        intake.begin(quota.clone(), OwnerId::trusted("a"));
        (near, intake, far)
    }

    #[tokio::test]
    async fn a_message_that_has_begun_can_be_finished_and_the_next_waits() {
        let quota = Quota::new(3 * LARGEST, LARGEST);
        let ((mut first, intake, mut to_first), (mut second, _other, mut to_second)) = (socket(&quota), socket(&quota));
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
        drop(share);
        assert_eq!(second.read(&mut read).await.unwrap(), 4);
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
}
