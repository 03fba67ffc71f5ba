//! The accept loop.
//!
//! A custom one on hyper, because a server of long streams needs what the plain one lacks: a bound on how slowly a
//! request head may arrive, a kernel timeout for peers that vanished, and a drain.

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
    domain::limits::{ACCEPT_WARNING_MS, HEAD_BYTES_MAX, HEAD_MS_MAX, PEER_SILENCE_MS_MAX, SEND_UNSENT_BYTES},
    paced::Paced,
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
                    // Most likely out of file descriptors: other connections will close.
                    refusals.tell(&error);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = draining.cancelled() => break,
        };
        tune(&stream);
        let (reads, writes) = stream.into_split();
        let ((reads, intake), (writes, outflow)) = (Metered::new(reads), Paced::new(writes));
        let layered = Extension(outflow).layer(Extension(intake).layer(router.clone()));
        let service = TowerToHyperService::new(layered);
        let connection =
            builder.serve_connection(TokioIo::new(tokio::io::join(reads, writes)), service).with_upgrades();
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

/// Connections that could not be accepted, and when this was last logged.
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
    // A failure here costs comfort, not correctness.
    let _ = stream.set_nodelay(true);
    #[cfg(target_os = "linux")]
    {
        let socket = socket2::SockRef::from(stream);
        let _ = socket.set_tcp_user_timeout(Some(Duration::from_millis(PEER_SILENCE_MS_MAX)));
        // Makes a slow peer's progress visible: the kernel takes more once the peer has taken about half of this.
        let _ = socket.set_tcp_notsent_lowat(SEND_UNSENT_BYTES);
    }
}
