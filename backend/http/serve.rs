//! The accept loop.
//!
//! A custom one on hyper, because a server of long streams needs what the plain one lacks: a bound on how slowly a
//! request head may arrive, a kernel timeout for peers that vanished, and a drain.

use std::{pin::pin, time::Duration};

use axum::{Extension, Router, middleware::AddExtension};
use hyper::server::conn::{http1, http2};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, Join},
    net::{TcpListener, TcpStream},
    time::{Instant, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower_layer::Layer as _;

use super::tls::{self, Tls};
use crate::{
    domain::limits::{
        ACCEPT_WARNING_MS, CONNECTION_REQUESTS_MAX, HEAD_BYTES_MAX, HEAD_MS_MAX, PEER_SILENCE_MS_MAX, PING_MS,
        SEND_UNSENT_BYTES,
    },
    paced::{Outflow, Paced},
    runners::intake::{Intake, Metered},
};

/// Serves until `draining`, then lets requests in flight finish, for `drain_max` at most.
pub async fn run(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    draining: CancellationToken,
    drain_max: Duration,
) {
    let connections = TaskTracker::new();
    let mut refusals = Refusals::default();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Most likely out of file descriptors: other connections will close.
                    refusals.log(&error);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
            () = draining.cancelled() => break,
        };
        tune(&stream);
        let (tls, router, draining) = (tls.clone(), router.clone(), draining.clone());
        connections.spawn(async move {
            if let Err(error) = serve(stream, tls, router, draining).await {
                tracing::debug!(error = %error, "a connection ended early");
            }
        });
    }
    drop(listener);
    connections.close();
    let drained = timeout(drain_max, connections.wait()).await;
    if drained.is_err() {
        tracing::warn!("closing connections that did not finish in time");
    }
}

async fn serve(
    stream: TcpStream,
    tls: Option<Tls>,
    router: Router,
    draining: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let Some(tls) = tls else {
        let (reads, writes) = stream.into_split();
        return Ok(http1(reads, writes, router, draining).await?);
    };
    let shaking = timeout(Duration::from_millis(HEAD_MS_MAX), tls.accept(stream));
    let Some(shaken) = draining.run_until_cancelled(shaking).await else { return Ok(()) };
    let stream = shaken??;
    let is_http2 = tls::is_http2(&stream);
    let (reads, writes) = tokio::io::split(stream);
    if is_http2 {
        Ok(http2(reads, writes, router, draining).await?)
    } else {
        Ok(http1(reads, writes, router, draining).await?)
    }
}

type Io<R, W> = TokioIo<Join<Metered<R>, Paced<W>>>;
type Service = TowerToHyperService<AddExtension<AddExtension<Router, Intake>, Outflow>>;

/// Both directions with their bounds, which handlers can access.
fn bounded<R, W>(reads: R, writes: W, router: Router) -> (Io<R, W>, Service)
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let ((reads, intake), (writes, outflow)) = (Metered::new(reads), Paced::new(writes));
    let layered = Extension(outflow).layer(Extension(intake).layer(router));
    (TokioIo::new(tokio::io::join(reads, writes)), TowerToHyperService::new(layered))
}

async fn http1<R, W>(reads: R, writes: W, router: Router, draining: CancellationToken) -> hyper::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (io, service) = bounded(reads, writes, router);
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(HEAD_MS_MAX))
        .max_buf_size(HEAD_BYTES_MAX as usize);
    let mut connection = pin!(builder.serve_connection(io, service).with_upgrades());
    if let Some(ended) = draining.run_until_cancelled(connection.as_mut()).await {
        return ended;
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

async fn http2<R, W>(reads: R, writes: W, router: Router, draining: CancellationToken) -> hyper::Result<()>
where
    R: AsyncRead + Unpin + Send + 'static,
    W: AsyncWrite + Unpin + Send + 'static,
{
    let (io, service) = bounded(reads, writes, router);
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(CONNECTION_REQUESTS_MAX)
        .max_header_list_size(HEAD_BYTES_MAX)
        // Without a request nothing else would notice a peer that has vanished.
        .keep_alive_interval(Some(Duration::from_millis(PING_MS)))
        .keep_alive_timeout(Duration::from_millis(PEER_SILENCE_MS_MAX));
    let mut connection = pin!(builder.serve_connection(io, service));
    if let Some(ended) = draining.run_until_cancelled(connection.as_mut()).await {
        return ended;
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// Connections that could not be accepted, and when this was last logged.
#[derive(Default)]
struct Refusals {
    unlogged: u64,
    logged_at: Option<Instant>,
}

impl Refusals {
    fn log(&mut self, error: &std::io::Error) {
        self.unlogged += 1;
        let every = Duration::from_millis(ACCEPT_WARNING_MS);
        if self.logged_at.is_none_or(|logged_at| logged_at.elapsed() >= every) {
            let tries = std::mem::take(&mut self.unlogged);
            tracing::warn!(error = error as &dyn std::error::Error, tries, "accept failed");
            self.logged_at = Some(Instant::now());
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
