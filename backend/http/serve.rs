//! The accept loop.
//!
//! Our own, on hyper-util, because a server of long streams needs what the plain one lacks: a bound on how slowly a
//! request head may come, a kernel timeout for peers that vanished without a word, and a drain.

use std::time::Duration;

use axum::Router;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto::Builder, graceful::GracefulShutdown},
    service::TowerToHyperService,
};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::domain::limits::DRAIN_MS_MAX;

/// How long a request head may take to arrive.
const HEAD_MAX: Duration = Duration::from_secs(10);
/// How long sent data may stay unacknowledged before the peer counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Serves until `draining`, then lets requests in flight finish, for a bounded time.
pub async fn run(listener: TcpListener, router: Router, draining: CancellationToken) {
    let graceful = GracefulShutdown::new();
    // Only this: an HTTP/2 preface is waited for without a bound.
    let mut builder = Builder::new(TokioExecutor::new()).http1_only();
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEAD_MAX).max_buf_size(64 * 1024);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: others will close.
                    tracing::warn!(error = &error as &dyn std::error::Error, "a connection could not be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = draining.cancelled() => break,
        };
        tune(&stream);
        let service = TowerToHyperService::new(router.clone());
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
        let watched = graceful.watch(connection);
        #[expect(clippy::disallowed_methods, reason = "connections are tracked by GracefulShutdown")]
        tokio::spawn(async move {
            if let Err(error) = watched.await {
                tracing::debug!(error = %error, "a connection ended early");
            }
        });
    }
    drop(listener);
    let drained = tokio::time::timeout(Duration::from_millis(DRAIN_MS_MAX), graceful.shutdown()).await;
    if drained.is_err() {
        tracing::warn!("some connections did not finish in time and are cut");
    }
}

fn tune(stream: &TcpStream) {
    // Failing to tune costs comfort, not correctness.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(SILENCE_MAX));
}
