//! Cuts off peers that receive too slowly, or send too slowly what they have begun, so that they cannot hold memory.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::AsyncWrite,
    sync::Notify,
    time::{Instant, Sleep},
};

use crate::domain::{
    limits::{SEND_BYTES_PER_S_MIN, SEND_GRACE_MS},
    pace::Pace,
};

/// The pace of one direction of a connection. Only time in which a read or write waits for the peer counts.
pub struct Progress {
    pace: Pace,
    /// Start of the current wait, and its timeout.
    waiting: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl Progress {
    pub fn new(grace_ms: u64, bytes_per_s_min: u64) -> Self {
        Self { pace: Pace::new(grace_ms, bytes_per_s_min), waiting: None }
    }

    /// Returns the result of polling a read or write, or [`io::ErrorKind::TimedOut`] once the peer is too slow.
    pub fn judge(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match polled {
            Poll::Ready(passed) => {
                let waited = self.waiting.take().map_or(Duration::ZERO, |(since, _)| since.elapsed());
                self.pace.passed(waited, passed.as_ref().copied().unwrap_or(0));
                Poll::Ready(passed)
            }
            Poll::Pending => {
                let patience = self.pace.patience();
                let (_, until) =
                    self.waiting.get_or_insert_with(|| (Instant::now(), Box::pin(tokio::time::sleep(patience))));
                until.as_mut().poll(cx).map(|()| Err(io::Error::new(io::ErrorKind::TimedOut, "the peer is too slow")))
            }
        }
    }
}

/// Whether written data waits for the connection's peer. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct Outflow(Arc<Flow>);

#[derive(Debug, Default)]
struct Flow {
    is_blocked: AtomicBool,
    unblocked: Notify,
}

impl Outflow {
    /// Waits until the peer has received enough for the connection to accept more.
    pub async fn clear(&self) {
        loop {
            let unblocked = self.0.unblocked.notified();
            if !self.0.is_blocked.load(Ordering::Acquire) {
                return;
            }
            unblocked.await;
        }
    }

    fn note(&self, is_blocked: bool) {
        if self.0.is_blocked.swap(is_blocked, Ordering::AcqRel) && !is_blocked {
            self.0.unblocked.notify_waiters();
        }
    }
}

/// The writing half of a connection; writes fail when the peer receives too slowly.
pub struct Paced<S> {
    stream: S,
    sent: Progress,
    outflow: Outflow,
}

impl<S> Paced<S> {
    pub fn new(stream: S) -> (Self, Outflow) {
        let (sent, outflow) = (Progress::new(SEND_GRACE_MS, SEND_BYTES_PER_S_MIN), Outflow::default());
        (Self { stream, sent, outflow: outflow.clone() }, outflow)
    }

    fn judge(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        self.outflow.note(written.is_pending());
        self.sent.judge(cx, written)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Paced<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.judge(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bytes);
        this.judge(cx, written)
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
    use futures::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// Writes `bytes` to a peer that reads `read` bytes once per `every`; returns the result and the time it took.
    async fn send(bytes: usize, read: usize, every: Duration) -> (io::Result<()>, Duration) {
        let (near, mut far) = tokio::io::duplex(1_024);
        let reading = tokio::spawn(async move {
            let mut taken = vec![0; read];
            while far.read(&mut taken).await.is_ok_and(|taken| taken > 0) {
                tokio::time::sleep(every).await;
            }
        });
        let ((mut near, _outflow), began) = (Paced::new(near), Instant::now());
        let sent = near.write_all(&vec![0; bytes]).await;
        let lasted = began.elapsed();
        reading.abort();
        (sent, lasted)
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_too_little_is_cut_off_and_one_that_is_merely_slow_is_not() {
        let grace = Duration::from_millis(SEND_GRACE_MS);
        let (sent, lasted) = send(1_000_000, 1, Duration::from_secs(1)).await;
        assert_eq!(sent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(lasted >= grace && lasted < 2 * grace, "{lasted:?}");
        let (sent, lasted) = send(1_000_000, 1_024, Duration::from_millis(900)).await;
        assert!(sent.is_ok() && lasted > 10 * grace, "{lasted:?}");
        // Earlier speed earns no credit.
        let (near, mut far) = tokio::io::duplex(1_024 * 1_024);
        let ((mut near, outflow), mut taken) = (Paced::new(near), vec![0; 1_024 * 1_024]);
        for _ in 0..1_000 {
            near.write_all(&taken).await.unwrap();
            far.read_exact(&mut taken).await.unwrap();
        }
        near.write_all(&taken).await.unwrap();
        assert!(outflow.clear().now_or_never().is_some());
        let began = Instant::now();
        near.write_all(&taken).await.unwrap_err();
        assert_eq!(began.elapsed(), grace);
        assert!(outflow.clear().now_or_never().is_none(), "it still waits for the peer");
        far.read_exact(&mut taken).await.unwrap();
        near.write_all(b"x").await.unwrap();
        assert!(outflow.clear().now_or_never().is_some());
    }
}
