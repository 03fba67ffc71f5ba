//! The accept loop.
//!
//! Our own, on hyper, because a server of long streams needs what the plain one lacks: a bound on how slowly a
//! request head may come, a kernel timeout for peers that vanished without a word, and a drain.

use std::{pin::pin, time::Duration};

use axum::{Extension, Router};
use hyper::server::conn::http1::Builder;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    time::Instant,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_layer::Layer as _;

use crate::{
    domain::limits::{ACCEPT_WARNING_MS, HEAD_BYTES_MAX, HEAD_MS_MAX, PEER_SILENCE_MS_MAX},
    runners::intake::Metered,
};

/// Serves until `draining`, then lets requests in flight finish, for `drain_max` at most.
pub async fn run(listener: TcpListener, router: Router, draining: CancellationToken, drain_max: Duration) {
    let connections = TaskTracker::new();
    let mut refusals = Refusals::default();
    let mut builder = Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEAD_MS_MAX))
        .max_buf_size(HEAD_BYTES_MAX);
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of descriptors, most likely: others will close.
                    refusals.tell(&error);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = draining.cancelled() => break,
        };
        tune(&stream);
        let (stream, intake) = Metered::new(stream);
        let service = TowerToHyperService::new(Extension(intake).layer(router.clone()));
        let connection = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
        let draining = draining.clone();
        connections.spawn(async move {
            let mut connection = pin!(connection);
            let mut ended = draining.run_until_cancelled(connection.as_mut()).await;
            if ended.is_none() {
                connection.as_mut().graceful_shutdown();
                ended = Some(connection.await);
            }
            if let Some(Err(error)) = ended {
                tracing::debug!(error = %error, "a connection ended early");
            }
        });
    }
    drop(listener);
    connections.close();
    let drained = tokio::time::timeout(drain_max, connections.wait()).await;
    if drained.is_err() {
        tracing::warn!("closing connections that did not finish in time");
    }
}

/// Connections that could not be accepted, and when the log was last told.
#[derive(Default)]
struct Refusals {
    untold: u64,
    told: Option<Instant>,
}

impl Refusals {
    fn tell(&mut self, error: &std::io::Error) {
        self.untold += 1;
        let every = Duration::from_millis(ACCEPT_WARNING_MS);
        if self.told.is_none_or(|told| told.elapsed() >= every) {
            let tries = std::mem::take(&mut self.untold);
            tracing::warn!(error = error as &dyn std::error::Error, tries, "accept failed");
            self.told = Some(Instant::now());
        }
    }
}

fn tune(stream: &TcpStream) {
    // Failing to tune costs comfort, not correctness.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    let _ = socket2::SockRef::from(stream).set_tcp_user_timeout(Some(Duration::from_millis(PEER_SILENCE_MS_MAX)));
}
