//! The composition root: the only place that wires the parts together.

mod parts;

use std::{convert::Infallible, net::SocketAddr, time::Duration};

use tokio::{
    net::TcpListener,
    time::{Instant, timeout_at},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    client::Client,
    clock::{Clock, IdSource},
    config::{Secrets, ServeArgs},
    database::Database,
    domain::limits::{DRAIN_MS_MAX, END_MS_MAX, SETTLE_MS_MAX},
    http::{self, Server, tls::Tls},
    postgres::STOP_MAX,
    supervise::Supervisor,
    timeline::Timeline,
};

/// How long to wait for the health response of a server that already uses the address.
const OTHER_MAX: Duration = Duration::from_secs(1);
/// How often the partitions of the coming months are maintained.
const PARTITIONS_EVERY: Duration = Duration::from_hours(6);
/// How often the server reads the database's clock.
const TIME_EVERY: Duration = Duration::from_mins(1);
/// How often the upkeep of the metrics' histograms runs.
const METRICS_EVERY: Duration = Duration::from_secs(5);

/// A server with its database and its port, which serves once [`App::run`] is called.
pub struct App {
    listener: TcpListener,
    tls: Option<Tls>,
    server: Server,
    database: Database,
    tasks: TaskTracker,
    stop: CancellationToken,
    /// How long the server still accepts connections after a request to stop.
    notice: Duration,
}

impl App {
    /// Starts everything but the accept loop, with the database's clock.
    pub async fn start(args: &ServeArgs, secrets: &Secrets) -> anyhow::Result<Self> {
        let clock = Clock::database();
        Self::start_with(args, secrets, clock.clone(), IdSource::random(clock)).await
    }

    /// Like [`App::start`], with the caller's clock and ids.
    pub async fn start_with(args: &ServeArgs, secrets: &Secrets, clock: Clock, ids: IdSource) -> anyhow::Result<Self> {
        args.check(secrets)?;
        // The port first: a second server on the same port should fail before it touches a database.
        let listener = match TcpListener::bind(args.listen).await {
            Ok(listener) => listener,
            Err(error) => return Err(cannot_listen(args, &error).await),
        };
        let tls = args.tls.files().map(Tls::open).transpose().map_err(|error| anyhow::anyhow!(error))?;
        let database = Database::own(&args.data).await?;
        match parts::build(&database, args, secrets, clock, ids).await {
            Ok(parts::Built { server, tasks, stop }) => {
                let notice = Duration::from_millis(args.bounds.drain_notice_ms);
                Ok(Self { listener, tls, server, database, tasks, stop, notice })
            }
            Err(error) => {
                // A server that fails to start leaves no database running.
                database.detach(STOP_MAX).await?;
                Err(error)
            }
        }
    }

    /// The address on which the server listens.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// The certificate in use, if the server speaks TLS.
    pub fn tls(&self) -> Option<&Tls> {
        self.tls.as_ref()
    }

    /// The running parts, for tests.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The database the server works on.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Serves until `shutdown`, reports for a while that it is not ready, then drains: streams end with a hint to
    /// reconnect, emits in flight finish, the rest is closed. From `shutdown` to the end it takes at most
    /// [`END_MS_MAX`] and half a second.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> anyhow::Result<()> {
        let Self { listener, tls, server, database, tasks, stop, notice } = self;
        let (leaving, draining) = (server.leaving.clone(), server.draining.clone());
        let store = server.timeline.store().clone();
        let asked_at = tasks.spawn({
            let draining = draining.clone();
            async move {
                shutdown.await;
                let asked_at = Instant::now();
                leaving.cancel();
                tokio::time::sleep(notice).await;
                draining.cancel();
                asked_at
            }
        });
        let drain_max = Duration::from_millis(DRAIN_MS_MAX).saturating_sub(notice);
        http::serve::run(listener, tls, http::router(server), draining, drain_max).await;
        stop.cancel();
        tasks.close();
        let asked_at = asked_at.await?;
        let committed = async {
            tasks.wait().await;
            store.close().await;
        };
        if timeout_at(asked_at + Duration::from_millis(SETTLE_MS_MAX), committed).await.is_err() {
            tracing::warn!("shutdown timed out with tasks still running; everything acknowledged is committed");
        }
        database.detach((asked_at + Duration::from_millis(END_MS_MAX)).saturating_duration_since(Instant::now())).await
    }
}

/// Explains why the server cannot listen and what to do; most often one is already running.
async fn cannot_listen(args: &ServeArgs, error: &std::io::Error) -> anyhow::Error {
    let address = args.listen;
    let other = async {
        let client = Client::new(&format!("{}://{address}", args.tls.scheme()), None).ok()?;
        let health = tokio::time::timeout(OTHER_MAX, client.health()).await.ok()?.ok()?;
        Some(health.version.chars().filter(|c| !c.is_control()).take(32).collect::<String>())
    };
    let is_taken = error.kind() == std::io::ErrorKind::AddrInUse;
    match if is_taken { other.await } else { None } {
        Some(version) => anyhow::anyhow!(
            "cannot listen on {address}: a Runreel server (version {version}) does already; use it, or stop it first, or \
             choose another address with --listen and another folder with --data-dir"
        ),
        None => anyhow::anyhow!("cannot listen on {address}: {error}; choose another with --listen"),
    }
}

/// Starts periodic housekeeping. Startup has just read the database's clock and created partitions.
fn look_after(timeline: &Timeline, metrics: &metrics_exporter_prometheus::PrometheusHandle, supervisor: &Supervisor) {
    let soon = (Duration::ZERO, METRICS_EVERY);
    supervisor.every("metrics", soon, metrics.clone(), |metrics, ()| {
        Box::pin(async {
            metrics.run_upkeep();
            Ok::<_, Infallible>(())
        })
    });
    supervisor.every("database clock", (TIME_EVERY, TIME_EVERY), timeline.clone(), |timeline, ()| {
        Box::pin(timeline.store().tell_time(timeline.clock()))
    });
    supervisor.every("partitions", (PARTITIONS_EVERY, PARTITIONS_EVERY), timeline.clone(), |timeline, ()| {
        Box::pin(timeline.store().ensure_partitions(timeline.clock().now()))
    });
}
