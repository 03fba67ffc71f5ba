//! Postgres. The only SQL in the program.
//!
//! Invariants: statements are static text with bound values; every read names the owner it reads for, and row-level
//! security checks it again; no connection is held across anything but its own statement or short transaction; events
//! are inserted and never changed.
//!
//! How to add a query: in the file of its noun as `sqlx::query!`, in lower case, after [`Store::scoped`] if it is for
//! an owner, with `Ok(None)` for absence; then `just sqlx`. Each noun has a repository. Start reading at [`append`].

#[macro_use]
mod repository;

mod access;
pub mod append;
pub mod artifacts;
pub mod backup;
mod browse;
pub mod chain;
pub mod checkpoints;
pub mod codes;
pub mod content;
pub mod copy;
mod deliveries;
pub mod durability;
mod error;
pub mod events;
pub mod expiry;
pub mod external_ids;
pub mod feed;
pub mod heads;
pub mod history;
pub mod inbox;
pub mod interrupts;
pub mod jobs;
pub mod listen;
pub mod messages;
mod migrate;
pub mod model_calls;
pub mod months;
pub mod open_texts;
pub mod outbox;
pub mod page;
pub mod pepper;
mod pieces;
pub mod prune;
pub mod queries;
pub mod query;
pub mod queue;
pub mod replica;
pub mod retention;
mod run_aliases;
pub mod runs;
pub mod seals;
pub mod search;
pub mod sessions;
mod shares;
mod stalls;
pub mod threads;
mod time;
pub mod tokens;
mod transaction;
pub mod trees;
pub mod verified;

use std::{
    future::Future,
    num::NonZeroUsize,
    ops::Deref,
    sync::{Arc, Mutex},
    time::Duration,
};

use lru::LruCache;
use sqlx::{
    Connection, PgConnection, PgPool, Postgres,
    migrate::Migrator,
    pool::PoolConnection,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use tokio_util::task::TaskTracker;

pub use self::error::{Error, Fate, Outage};
use self::{
    access::Access,
    append::Appenders,
    durability::Durability,
    migrate::migrate,
    shares::wait_for_share,
    transaction::{PooledConnection, Tx},
};
use crate::{
    domain::{
        limits::{
            CONNECTION_MS_MAX, PROBE_MS_MAX, READ_STATEMENT_MS_MAX, READ_WAIT_MS_MAX, REMOVALS_MAX, REMOVALS_OWN_MAX,
        },
        principal::OwnerId,
    },
    quota::Quota,
    throttle::Throttle,
};

/// Connections for the program's own upkeep.
const UPKEEP_CONNECTIONS: u32 = 3;
/// How long an idle connection is kept.
const IDLE: Duration = Duration::from_mins(1);
const OWNER_IDLE: Duration = Duration::from_secs(2);
/// Number of tokens whose owners are cached.
const TOKENS_SEEN_MAX: NonZeroUsize = NonZeroUsize::new(10_000).unwrap();

/// The schema, compiled in.
pub static MIGRATOR: Migrator = sqlx::migrate!("../migrations");

/// A handle on the database: one pointer, because it is cloned for every request.
#[derive(Clone, Debug)]
pub struct Store(Arc<Database>);

/// The contents of a [`Store`].
#[derive(Debug)]
pub struct Database {
    /// Readers, as `runreel_app`. A connection keeps the owner it served last: [`Store::lend`] sets the owner each
    /// time, and so do the statements of [`checkpoints`] themselves.
    pool: PgPool,
    /// Each principal's share of `pool`; unauthenticated requests together count as one principal.
    readers: Quota,
    throttle: Throttle,
    nobody: OwnerId,
    /// Owners of recently valid tokens, by the hashes of their secrets. Only decides whose share a look-up uses.
    tokens_seen: Mutex<LruCache<[u8; 32], OwnerId>>,
    /// Heartbeats of producers, which must not take all upkeep connections.
    heartbeats: Quota,
    /// Claims of content, which may wait for a removal and must not take all upkeep connections either.
    claims: Quota,
    /// Deletions of runs, each with a connection of its own.
    removals: Quota,
    /// When this process last saw the search index complete, microseconds since the Unix epoch.
    searched_until: std::sync::atomic::AtomicI64,
    /// Connections being returned to their pool.
    returns: TaskTracker,
    /// Connections as `runreel_writer` for what serves all owners at once: the relay, leases, the readiness probe.
    upkeep: PgPool,
    /// A connection as the owner of the tables, for startup and new months.
    owner: PgPool,
    /// Opens connections as the owner of the tables.
    access: Access,
}

impl Deref for Store {
    type Target = Database;

    fn deref(&self) -> &Database {
        &self.0
    }
}

/// How to reach the database.
#[derive(Clone, Debug)]
pub struct Settings {
    pub options: PgConnectOptions,
    /// Connections for reading; each writer lane, the notifier and the listener also have one of their own.
    pub connections_max: u32,
    /// How many of them one principal may hold at a time.
    pub own_connections_max: u32,
    /// Whether these connect to Postgres itself, certainly not to a pooler.
    pub is_direct: bool,
    /// Writer lanes of a database without runs. Which lane a run is in follows from its id and the number of lanes, so
    /// the number is fixed once there are runs.
    pub lanes: u8,
}

impl Settings {
    /// For a command, which works sequentially.
    pub fn few(options: PgConnectOptions) -> Self {
        Self { options, connections_max: 2, own_connections_max: 2, is_direct: false, lanes: 1 }
    }
}

impl Store {
    /// [`Store::connect`] for the server, which also appends to the log.
    pub async fn connect_to_append(settings: Settings) -> Result<(Self, Appenders), Error> {
        let store = Self::connect(settings).await?;
        Ok((store.clone(), Appenders(store, Arc::default())))
    }

    /// Connects, migrates the schema and opens the pool of readers.
    pub async fn connect(settings: Settings) -> Result<Self, Error> {
        let access = Access::new(&settings.options);
        let open = async { if settings.is_direct { Ok(access.open().await?) } else { access.open_checked().await } };
        let mut owner = bounded(READ_WAIT_MS_MAX, open).await?;
        let durability = Durability::of(&mut owner).await?;
        durability.check()?;
        // Also set explicitly: a setting that is changed under a running server must not weaken its connections.
        let access = access.with([("synchronous_commit", durability.commit_level())]);
        migrate(&mut owner).await?;
        sqlx::query!(
            r#"insert into store.lane (lane)
               select lane::smallint from generate_series(0, $1::int - 1) as lane
               where not exists (select from store.run)
               on conflict do nothing"#,
            i32::from(settings.lanes)
        )
        .execute(&mut owner)
        .await?;
        owner.close().await?;
        Ok(Self::open(access, &settings, Throttle::default()))
    }

    /// The pools of a checked and migrated database. Opens no connection yet.
    fn open(access: Access, settings: &Settings, throttle: Throttle) -> Self {
        // The readers' connections are not tested before use, which would cost every request a round trip: a lost one
        // is noticed when it is used.
        let pool = |access: Access, connections_max, asked, idle| {
            let pool = PgPoolOptions::new()
                .max_connections(connections_max)
                .acquire_timeout(Duration::from_millis(READ_WAIT_MS_MAX))
                .idle_timeout(idle)
                .max_lifetime(Duration::from_millis(CONNECTION_MS_MAX))
                .test_before_acquire(asked);
            access.pool(pool)
        };
        // A statement that takes too long must be reported as such, so it ends before its request does.
        let readers = access.as_role("runreel_app").with([("statement_timeout", READ_STATEMENT_MS_MAX.to_string())]);
        let (all, own) = (settings.connections_max, settings.own_connections_max);
        Self(Arc::new(Database {
            pool: pool(readers, all, false, IDLE),
            readers: Quota::new(all as usize, own as usize),
            throttle,
            nobody: OwnerId::trusted(""),
            tokens_seen: Mutex::new(LruCache::new(TOKENS_SEEN_MAX)),
            heartbeats: Quota::new(1, 1),
            claims: Quota::new(2, 1),
            removals: Quota::new(REMOVALS_MAX, REMOVALS_OWN_MAX),
            searched_until: i64::MIN.into(),
            returns: TaskTracker::new(),
            upkeep: pool(access.as_role("runreel_writer"), UPKEEP_CONNECTIONS, true, IDLE),
            // Creating a partition waits for the table's readers and blocks everything behind it, so use a short lock
            // timeout.
            owner: pool(access.with([("lock_timeout", "1000")]), 1, true, OWNER_IDLE),
            access,
        }))
    }

    /// Works on a connection that sees only `owner`'s rows, with statements of which at most one writes.
    async fn scoped<T>(
        &self,
        owner: &OwnerId,
        work: impl AsyncFnOnce(PooledConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        bounded(READ_WAIT_MS_MAX, async { work(self.lend(owner, owner.as_str()).await?).await }).await
    }

    /// Works in a transaction that sees only `owner`'s rows. The work commits it.
    async fn transaction<T>(
        &self,
        owner: &OwnerId,
        work: impl AsyncFnOnce(Tx) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.scoped(owner, async |connection| work(Tx::begin(connection).await?).await).await
    }

    /// Works on an upkeep connection, which sees all owners.
    async fn maintenance<T>(
        &self,
        work: impl AsyncFnOnce(PoolConnection<Postgres>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        bounded(READ_WAIT_MS_MAX, async { work(self.upkeep.acquire().await?).await }).await
    }

    /// Works on a connection that sees no owner's rows, with one statement, on the share of `payer`.
    async fn unscoped<T>(
        &self,
        payer: &OwnerId,
        work: impl AsyncFnOnce(PooledConnection) -> Result<T, Error>,
    ) -> Result<T, Error> {
        bounded(READ_WAIT_MS_MAX, async { work(self.lend(payer, self.nobody.as_str()).await?).await }).await
    }

    /// Executes one statement that names its owner itself, in one round trip; retries it if its connection turns out to
    /// be lost, so the statement must be safe to execute twice.
    async fn by_itself<T, F>(
        &self,
        payer: &OwnerId,
        statement: impl Fn(PooledConnection) -> F + Send + Sync,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        let lend = || async {
            let share = self.share(payer).await?;
            statement(PooledConnection::new(self.pool.acquire().await?, Some(share), self.returns.clone())).await
        };
        self.again_on_a_lost_connection(lend).await
    }

    /// One of the readers' connections, for an owner.
    async fn lend(&self, payer: &OwnerId, owner: &str) -> Result<PooledConnection, Error> {
        let share = self.share(payer).await?;
        let take = || async {
            let mut connection = self.pool.acquire().await?;
            // Valid until the connection is lent again and the owner is set again, however this use ends.
            sqlx::query_scalar!("select set_config('runreel.owner', $1, false)", owner)
                .fetch_one(&mut *connection)
                .await?;
            Ok(connection)
        };
        Ok(PooledConnection::new(self.again_on_a_lost_connection(take).await?, Some(share), self.returns.clone()))
    }

    /// A transaction on an upkeep connection, which sees all owners.
    async fn upkeep_transaction(&self) -> Result<Tx, Error> {
        Tx::begin(PooledConnection::new(self.upkeep.acquire().await?, None, self.returns.clone())).await
    }

    /// Executes one statement on the readers' pool, and again if its connection turns out to have been lost while idle.
    /// Only for statements that may be executed twice.
    async fn again_on_a_lost_connection<T, F>(&self, statement: impl Fn() -> F + Send + Sync) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>> + Send,
    {
        // On the heap: it holds a whole statement, and nearly every request goes through here.
        let work = Box::pin(async {
            for _ in 0..self.pool.options().get_max_connections() {
                match statement().await {
                    Err(error) if error.is_lost_connection() => {}
                    other => return other,
                }
            }
            statement().await
        });
        bounded(READ_WAIT_MS_MAX, work).await
    }

    /// Writes as an appender of the lane would, and changes nothing; `thoroughly` also allocates room for new rows.
    pub async fn try_lane(&self, lane: u8, thoroughly: bool) -> Result<(), Error> {
        bounded(PROBE_MS_MAX, async {
            let mut connection = self.upkeep.acquire().await?;
            if thoroughly {
                // More than one page, so that the table has to grow.
                sqlx::query!(
                    "insert into store.probe (filler) select repeat(n::text, 7000) from generate_series(1, 8) as n"
                )
                .execute(&mut *connection)
                .await?;
                sqlx::query!("delete from store.probe").execute(&mut *connection).await?;
            }
            // Without the privilege to insert events this is a division by zero.
            sqlx::query!("select 1 / has_table_privilege('store.run_event', 'insert')::int as permitted")
                .fetch_one(&mut *connection)
                .await?;
            sqlx::query!("update store.lane set position = position where lane = $1", i16::from(lane))
                .execute(&mut *connection)
                .await?;
            Ok(())
        })
        .await
    }

    /// A connection in the given role, outside the pools.
    ///
    /// Its statements are large and always the same: planning for the values of each would take longer than executing
    /// it.
    async fn dedicated(&self, role: &'static str) -> Result<PgConnection, Error> {
        let access = self.access.as_role(role).with([("plan_cache_mode", "force_generic_plan")]);
        bounded(READ_WAIT_MS_MAX, async { Ok(access.open().await?) }).await
    }

    /// Connections of the pool: (open, idle).
    pub fn pool_size(&self) -> (u32, usize) {
        (self.pool.size(), self.pool.num_idle())
    }

    /// Closes the pools; open reads finish first.
    pub async fn close(&self) {
        self.pool.close().await;
        self.upkeep.close().await;
        self.owner.close().await;
    }
}

/// Bounds a use of the database; a timeout counts as unavailable.
async fn bounded<T>(wait_ms: u64, work: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(Duration::from_millis(wait_ms), work).await.unwrap_or_else(|_| Err(Error::timeout()))
}
