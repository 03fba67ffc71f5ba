//! Builds the parts of a server, in the order in which they depend on each other.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;
use sqlx::postgres::PgConnectOptions;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use crate::{
    agents::{registry::Agents, runtime::Runtime},
    artifacts::{Artifacts, BlobStore, OwnBounds, disk::Disk},
    auth::{Admission, Authenticator, JwtRules, LOCAL_SUBJECT, Mode, Revocations},
    channels::{Channels, log::SessionLog, router::Router, telegram::Telegram},
    clock::{Clock, IdSource, monotonic},
    config::{
        self, ArtifactStore, Auth, File, Secrets, ServeArgs,
        channels::{ChannelConfig, TELEGRAM},
    },
    confine::{self, Confinement},
    database::{self, Database},
    dispatch::{self, Dispatch},
    domain::{
        id::Name,
        limits::{DATABASE_LOOK_MS, OWN_CONNECTIONS_MIN, OWN_CONNECTIONS_PART, RUNTIME_OWN_PLACES, RUNTIME_PLACES},
        price::Prices,
        principal::OwnerId,
        session::inbound::ChannelName,
    },
    http::{self, ConfiguredAgent, Server},
    indexer::Indexer,
    nats::Nats,
    pricing::Pricing,
    retention::Retention,
    runners::Runners,
    saved::{SavedSessions, Talk},
    sealer::Sealer,
    store::{
        self, Store, append::Appenders, queries::Queries, query::SCOPED, replica::Readers, sessions::SessionPolicy,
    },
    supervise::Supervisor,
    telemetry,
    threads::Threads,
    timeline::{
        self, Timeline,
        live::{Live, LiveKey},
    },
};

/// The name under which this process executes runs, as shown to users. No runner can have it.
const RUNTIME: &str = "the server";

/// A server, its tasks and the token that stops them.
pub(super) struct Built {
    pub server: Server,
    pub tasks: TaskTracker,
    pub stop: CancellationToken,
}

/// What the parts are built from.
struct Plan<'a> {
    args: &'a ServeArgs,
    secrets: &'a Secrets,
    file: File,
    clock: Clock,
    ids: IdSource,
    store: Store,
    /// Names this database's part of the artifact store.
    home: Uuid,
    supervisor: Supervisor,
}

/// Builds everything that uses the database.
pub(super) async fn build(
    database: &Database,
    args: &ServeArgs,
    secrets: &Secrets,
    clock: Clock,
    ids: IdSource,
) -> anyhow::Result<Built> {
    let (store, appenders) = open_store(database, args, &clock).await?;
    let pepper = store.init_pepper(secrets.pepper.as_deref(), ids.secret()).await?;
    let (tasks, stop, draining) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
    let supervisor = Supervisor::new(tasks.clone(), stop.clone());
    let (file, home) = (args.file()?, store.artifacts().home().await?);
    let plan = Plan { args, secrets, file, clock, ids, store, home, supervisor: supervisor.clone() };
    let (store, prices) = (&plan.store, Arc::new(Prices::with(plan.file.sections.prices.clone())));
    let appenders = appenders.pricing(Arc::clone(&prices));
    let artifacts = plan.artifacts()?;
    let timeline = plan.timeline(appenders, &artifacts, &pepper, &draining, database.endpoint.is_some()).await?;
    let (lease, poll) = (Duration::from_millis(args.lease_ms), Duration::from_millis(args.poll_ms));
    let dispatch = Dispatch::start(timeline.clone(), dispatch::Settings { lease, poll }, &supervisor);
    let threads = Threads::new(store.clone(), plan.clock.clone(), args.retention.thread_ttl.map(|ttl| ttl.0));
    let threads = threads.keeping(args.retention.checkpoints_keep);
    let authenticator = Authenticator::new(plan.mode()?, &pepper, store.clone(), plan.clock.clone());
    let authenticator = authenticator.admitting(&plan.file.sections.agents);
    let channels = plan.channels(&timeline, &threads, &authenticator, &pepper)?;
    if database.endpoint.is_some() {
        // An embedded database: the previous process, which held runs, messages and replies, is gone.
        channels.reclaim_all().await?;
        store.jobs().reclaim(&Name::trusted(RUNTIME), plan.clock.held()).await?;
    }
    let raised = store.sessions().raise_counters().await?;
    if raised > 0 {
        tracing::warn!(raised, "chat counters raised above threads in use");
    }
    let (revocations, metrics) = (Revocations::default(), telemetry::metrics());
    let runtime = plan.runtime(&dispatch, &threads, authenticator.admission())?;
    let ends = (revocations.clone(), store.clone());
    supervisor.run("revocations", ends, |(revocations, store), stop| revocations.run(store, stop));
    supervisor.run("authenticator", authenticator.clone(), Authenticator::run);
    threads.start(&supervisor);
    let policy = config::retention::policy(args.retention.run_ttl, &plan.file)?;
    let retention = Retention::new(timeline.clone(), threads.clone(), policy);
    retention.start(&supervisor);
    supervisor.run_late("pricing", Pricing::new(store.clone(), prices), Pricing::run);
    supervisor.run("artifacts", artifacts.clone(), Artifacts::run);
    supervisor.run_late("indexer", Indexer { timeline: timeline.clone(), poll }, Indexer::run);
    plan.sealer()?.start(&supervisor);
    channels.start(&supervisor);
    super::look_after(&timeline, &metrics, &supervisor);
    if !runtime.agents.names().is_empty() {
        // Runs are released while in-flight requests still finish, so that the next process claims them sooner.
        supervisor.run("runtime", (runtime, draining.clone()), |(runtime, draining), stop| async move {
            runtime.run(draining).await;
            stop.cancelled().await;
        });
    }
    let runners = Runners::new(dispatch.clone(), args.bounds.principal_runners, tasks.clone(), draining.clone());
    let saved = plan.saved(&artifacts, &authenticator, &draining)?;
    let parts = http::Parts {
        timeline,
        threads,
        retention,
        channels,
        saved,
        runners,
        agents: ConfiguredAgent::all(&plan.file.sections.agents),
        queries: Queries::new(store.clone(), database.reader(SCOPED), plan.readers()?, supervisor),
        authenticator,
        revocations,
        metrics,
        bounds: args.bounds,
        cors_origins: args.cors_origin.clone(),
        stopwatch: monotonic(),
        draining,
    };
    Ok(Built { server: Server::new(parts), tasks, stop })
}

/// Connects to the database and prepares it for use.
async fn open_store(database: &Database, args: &ServeArgs, clock: &Clock) -> anyhow::Result<(Store, Appenders)> {
    let settings = store_settings(database.options.clone(), database.endpoint.is_some(), args);
    let (store, appenders) = connect(settings, Duration::from_millis(args.database_wait_ms)).await?;
    store.tell_time(clock).await?;
    // By this server's clock, which dates its runs, and before the first run.
    store.ensure_partitions(clock.now()).await?;
    if let Err(error) = store.note_recent_pieces().await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "recent events of older servers may be missing in feeds"
        );
    }
    if database.endpoint.is_some() {
        store.enable_reader_login().await?;
    }
    Ok((store, appenders))
}

fn store_settings(options: PgConnectOptions, is_direct: bool, args: &ServeArgs) -> store::Settings {
    store::Settings {
        options,
        is_direct,
        connections_max: args.db_connections,
        own_connections_max: match args.auth.auth {
            // There is only one principal.
            Auth::Off => args.db_connections,
            Auth::Jwt => (args.db_connections / OWN_CONNECTIONS_PART).max(OWN_CONNECTIONS_MIN),
        },
        lanes: args.lanes,
    }
}

/// Connects, retrying for `wait` while the database is unreachable. Other errors are returned at once.
async fn connect(settings: store::Settings, wait: Duration) -> Result<(Store, Appenders), store::Error> {
    let until = tokio::time::Instant::now() + wait;
    loop {
        match Store::connect_to_append(settings.clone()).await {
            Err(error) if error.outage().is_some() && tokio::time::Instant::now() < until => {
                tracing::warn!(error = &error as &dyn std::error::Error, "database not reachable yet");
                tokio::time::sleep(Duration::from_millis(DATABASE_LOOK_MS)).await;
            }
            done => return done,
        }
    }
}

/// The owner of a channel with a webhook.
fn owner_of(config: &ChannelConfig, authenticator: &Authenticator) -> OwnerId {
    match &config.owner_sub {
        Some(sub) if !authenticator.is_off() => authenticator.owner(&config.owner_iss, sub),
        _ => authenticator.owner("", LOCAL_SUBJECT),
    }
}

impl Plan<'_> {
    /// The artifact store, in the part of the folder or bucket that belongs to this database.
    fn artifacts(&self) -> anyhow::Result<Artifacts> {
        let home = self.home;
        let place = match self.args.artifact_store(self.secrets)? {
            ArtifactStore::Folder(dir) => {
                let disk = Disk::open(&dir, home).map_err(|error| {
                    anyhow::anyhow!(
                        "cannot use the artifacts folder {}: {error}; choose another with --artifacts-dir",
                        dir.display()
                    )
                })?;
                if let Err(error) = self.args.data.note_artifacts_dir(&dir) {
                    tracing::warn!(%error, "the artifacts folder is not noted: give its backups --artifacts-dir");
                }
                BlobStore::Disk(disk)
            }
            #[cfg(feature = "s3")]
            ArtifactStore::Bucket(s3) => BlobStore::Remote(
                crate::artifacts::remote::Remote::s3(&s3, home)
                    .map_err(|error| anyhow::anyhow!("cannot use the artifact store: {error}"))?,
            ),
            #[cfg(not(feature = "s3"))]
            ArtifactStore::Bucket(_) => anyhow::bail!(
                "this build contains no S3 client; use --artifacts-dir, or build Runreel with the feature `s3`"
            ),
        };
        let bounds = self.args.bounds;
        let own = OwnBounds { uploads: bounds.principal_uploads, downloads: bounds.principal_downloads };
        Ok(Artifacts::new(self.store.clone(), place, self.clock.clone(), self.ids.clone(), own))
    }

    /// The primary and, if configured, a replica.
    fn readers(&self) -> anyhow::Result<Readers> {
        let url = self.args.replica_url()?;
        let options = url.map(|url| database::parsed(&url).context("--replica-url")).transpose()?;
        let replica = options.map(|options| store_settings(options, false, self.args));
        Ok(Readers::new(self.store.clone(), replica, self.home))
    }

    async fn timeline(
        &self,
        appenders: Appenders,
        artifacts: &Artifacts,
        pepper: &[u8],
        draining: &CancellationToken,
        embedded: bool,
    ) -> anyhow::Result<Timeline> {
        let volume = if embedded { Some(self.args.data.data_dir()?) } else { None };
        let Self { args, store, clock, ids, supervisor, .. } = self;
        let live: Option<(Arc<dyn Live>, LiveKey)> = match args.live()? {
            Some(url) => {
                let subject = format!("runreel.live.{}", self.home.simple());
                let nats = Nats::connect(&url, subject).await.context("--live is not the URL of a NATS server")?;
                Some((Arc::new(nats), LiveKey::of(pepper)))
            }
            None => None,
        };
        let settings = timeline::Settings {
            bus_frames: args.bus_frames,
            poll: Duration::from_millis(args.poll_ms),
            home: self.home,
            marks_dir: args.data.data_dir()?.join("history"),
            new_history: args.new_history,
            volume,
            live,
        };
        let timeline = Timeline::start(
            (store.clone(), appenders),
            artifacts.clone(),
            settings,
            clock.clone(),
            ids.clone(),
            supervisor.clone(),
            draining.clone(),
        );
        Ok(timeline.await?)
    }

    fn sealer(&self) -> anyhow::Result<Sealer> {
        let args = &self.args.seals;
        let every = Duration::from_secs(args.seal_every.0.unsigned_abs());
        let key = args.key()?.map(Arc::new);
        let data_dir = self.args.data.data_dir()?;
        Ok(Sealer { store: self.store.clone(), clock: self.clock.clone(), every, key, data_dir })
    }

    fn mode(&self) -> anyhow::Result<Mode> {
        let (args, secret) = (&self.args.auth, self.secrets.jwt_secret.as_deref());
        Ok(match args.auth {
            Auth::Off => Mode::Off,
            Auth::Jwt => {
                Mode::Jwt(Arc::new(JwtRules::new(secret, args, &monotonic()).map_err(|error| anyhow::anyhow!(error))?))
            }
        })
    }

    /// The channels of the configuration, with Telegram if it is configured.
    fn channels(
        &self,
        timeline: &Timeline,
        threads: &Threads,
        authenticator: &Authenticator,
        pepper: &[u8],
    ) -> anyhow::Result<Channels> {
        let log = SessionLog::new(self.args.data.data_dir()?.join("sessions-log"));
        let router = Router::new(timeline.clone(), threads.clone(), log.clone(), Arc::from(pepper), monotonic());
        let configs = self.file.channels()?;
        for (channel, config) in configs.iter() {
            let agent = &config.agent;
            if !self.file.sections.agents.contains_key(agent.as_str()) {
                tracing::warn!(
                    %channel, %agent,
                    "no agent on this server serves this channel: its messages wait until a runner serves the agent \
                     (runreel runner --agent {agent} …); or configure [agents.{agent}], or name another agent in \
                     [channels.{channel}]"
                );
            }
        }
        let of_telegram = configs.get(&ChannelName::trusted(TELEGRAM));
        let secrets = self.secrets;
        let telegram = match (of_telegram, &secrets.telegram_bot_token, &secrets.telegram_webhook_secret) {
            (Some(config), Some(token), Some(secret)) => {
                let owner = owner_of(config, authenticator);
                let telegram = Telegram::new(&self.args.telegram_api_base, token, secret, owner);
                Some(telegram.map_err(anyhow::Error::msg)?)
            }
            _ => None,
        };
        let (lease, poll) = (Duration::from_millis(self.args.lease_ms), Duration::from_millis(self.args.poll_ms));
        let tasks = self.supervisor.tasks().clone();
        Ok(Channels::new(timeline.clone(), configs, (lease, poll), (log, router), telegram, tasks))
    }

    /// Saved sessions; the folder belongs to the local principal.
    fn saved(
        &self,
        artifacts: &Artifacts,
        authenticator: &Authenticator,
        draining: &CancellationToken,
    ) -> anyhow::Result<SavedSessions> {
        let place = (self.args.sessions_dir()?, authenticator.owner("", LOCAL_SUBJECT));
        let times = (self.clock.clone(), self.ids.clone());
        let channels = self.file.channels()?;
        let talks = channels.iter().map(|(channel, config)| {
            let ChannelConfig { idle_timeout_s, thread_per_session, .. } = **config;
            // A webhook's messages carry no credential, so all its chats belong to one owner.
            let owner = (channel.as_str() == TELEGRAM).then(|| owner_of(config, authenticator));
            Talk { channel: channel.clone(), keeping: SessionPolicy { idle_timeout_s, thread_per_session }, owner }
        });
        let (store, talks) = (self.store.clone(), talks.collect());
        Ok(SavedSessions::new(artifacts.clone(), store, times, place, talks, draining.clone()))
    }

    /// The runtime that executes the runs of the configured agents.
    fn runtime(&self, dispatch: &Dispatch, threads: &Threads, admission: &Admission) -> anyhow::Result<Runtime> {
        let confinement = Confinement::around(self.args.kept(&self.file, self.secrets)?);
        if self.file.starts_programs() && !confine::hold() {
            tracing::warn!(
                "this kernel has no Landlock, so programs started by tools can reach this server's database and \
                 secrets: run agents with such tools in a runner under another user (runreel runner --config)"
            );
        }
        let agents = Agents::new(self.file.clone(), self.args.data.data_dir()?, config::path(), confinement)?;
        Ok(Runtime {
            dispatch: dispatch.clone(),
            threads: threads.clone(),
            agents: Arc::new(agents.admitting(admission.clone())),
            stopwatch: monotonic(),
            name: Name::trusted(RUNTIME),
            places: RUNTIME_PLACES,
            own_places: match self.args.auth.auth {
                Auth::Off => RUNTIME_PLACES,
                Auth::Jwt => RUNTIME_OWN_PLACES,
            },
        })
    }
}
