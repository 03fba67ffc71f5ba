//! The composition root: the only place where the parts meet.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::net::TcpListener;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    auth::{Authenticator, JwtRules, Mode, Revocations},
    clock::{Clock, IdSource},
    config::{Auth, Secrets, ServeArgs},
    database::Database,
    http::{self, Server},
    store::{self, Store},
    telemetry,
    threads::Threads,
    timeline::{self, Timeline},
};

/// How often the partitions of the coming months are looked after.
const PARTITIONS_EVERY: Duration = Duration::from_hours(6);
/// How often the metrics' histograms are tidied.
const METRICS_EVERY: Duration = Duration::from_secs(5);

/// A server that has its database and its port, and serves once [`App::run`] is called.
pub struct App {
    listener: TcpListener,
    server: Server,
    database: Database,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl App {
    /// Starts everything but the accept loop, with the machine's clock.
    pub async fn start(args: &ServeArgs, secrets: &Secrets) -> anyhow::Result<Self> {
        let clock = Clock::System;
        Self::start_with(args, secrets, clock.clone(), IdSource::random(clock)).await
    }

    /// As [`App::start`], with a clock and ids of the caller's.
    pub async fn start_with(args: &ServeArgs, secrets: &Secrets, clock: Clock, ids: IdSource) -> anyhow::Result<Self> {
        args.check(secrets)?;
        // The port first: a second server on it should say so before it touches a database.
        let listener = TcpListener::bind(args.listen).await.map_err(|error| {
            anyhow::anyhow!("cannot listen on {}: {error}; choose another with --listen", args.listen)
        })?;
        let database = Database::own(&args.data).await?;
        let started = Self::start_on(&database, args, secrets, clock, ids).await;
        match started {
            Ok((server, tasks, stop)) => Ok(Self { listener, server, database, tasks, stop }),
            Err(error) => {
                // A server that does not come up leaves no database running.
                database.leave().await?;
                Err(error)
            }
        }
    }

    /// Everything that stands on the database.
    async fn start_on(
        database: &Database,
        args: &ServeArgs,
        secrets: &Secrets,
        clock: Clock,
        ids: IdSource,
    ) -> anyhow::Result<(Server, TaskTracker, CancellationToken)> {
        let store = Store::connect(store::Settings {
            options: database.options.clone(),
            connections_max: args.db_connections,
            lanes: args.lanes,
        })
        .await?;
        if database.endpoint.is_some() {
            store::query::let_reader_log_in(&database.options).await?;
        }
        let pepper = store.settle_pepper(secrets.pepper.as_deref(), ids.secret()).await?;
        let (tasks, stop, draining) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let settings = timeline::Settings { bus_frames: args.bus_frames, poll: Duration::from_millis(args.poll_ms) };
        let timeline =
            Timeline::start(store.clone(), settings, clock.clone(), ids, &tasks, draining.clone(), stop.clone())
                .await?;
        let mode = match (args.auth.auth, &secrets.jwt_secret) {
            (Auth::Jwt, Some(secret)) => {
                let (issuer, audience) = (args.auth.jwt_issuer.clone(), args.auth.jwt_audience.clone());
                Mode::Jwt(Arc::new(JwtRules::hs256(secret, issuer, audience)))
            }
            _ => Mode::Off,
        };
        let threads = Threads::new(store.clone(), clock.clone(), args.thread_ttl.map(|ttl| ttl.0));
        let authenticator = Authenticator::new(mode, &pepper, store.clone(), clock);
        let revocations = Revocations::default();
        let metrics = telemetry::metrics();
        tasks.spawn(revocations.clone().run(store.clone(), stop.clone()));
        tasks.spawn(threads.clone().run(stop.clone()));
        tasks.spawn(look_after(timeline.clone(), metrics.clone(), stop.clone()));
        let server = Server::new(timeline, threads, authenticator, revocations, metrics, draining);
        Ok((server, tasks, stop))
    }

    /// Where the server listens.
    pub fn address(&self) -> anyhow::Result<SocketAddr> {
        Ok(self.listener.local_addr()?)
    }

    /// The running parts, for tests.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The database the server works on.
    pub fn database(&self) -> &Database {
        &self.database
    }

    /// Serves until `shutdown`, then drains: streams are told to come back, emits in flight finish, the rest is closed.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> anyhow::Result<()> {
        let Self { listener, server, database, tasks, stop } = self;
        let draining = server.draining.clone();
        let store = server.timeline.store().clone();
        tasks.spawn({
            let draining = draining.clone();
            async move {
                shutdown.await;
                draining.cancel();
            }
        });
        http::serve::run(listener, http::router(server), draining).await;
        stop.cancel();
        tasks.close();
        tasks.wait().await;
        store.close().await;
        database.leave().await
    }
}

/// Housekeeping that nobody waits for.
async fn look_after(
    timeline: Timeline,
    metrics: metrics_exporter_prometheus::PrometheusHandle,
    stop: CancellationToken,
) {
    let work = async {
        let mut partitions = tokio::time::interval(PARTITIONS_EVERY);
        let mut tidy = tokio::time::interval(METRICS_EVERY);
        loop {
            tokio::select! {
                _ = tidy.tick() => metrics.run_upkeep(),
                _ = partitions.tick() => {
                    let now = timeline.clock().now();
                    if let Err(error) = timeline.store().ensure_partitions(now).await {
                        tracing::warn!(error = &error as &dyn std::error::Error, "partitions were not looked after");
                    }
                }
            }
        }
    };
    stop.run_until_cancelled(work).await;
}
