//! A read replica: pages of a run's log, exports and queries are read there if it has what the primary had when they
//! began.
//!
//! Its lag is unknown, and no client may be shown less than it has seen: in the answer to an emit, in a stream, from
//! another server. So each page is compared with the run's position at the primary, one row by its key, and a query
//! waits until the replica has replayed what the primary has written. What the replica lacks, refuses or answers late
//! is read from the primary.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use sqlx::{Connection as _, postgres::PgConnectOptions};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::{Error, Settings, Store, access::Access, events::RunPage};
use crate::domain::{
    history::Tag,
    id::{RunId, Seq},
    limits::{REPLICA_CHECK_MS_MAX, REPLICA_LOOK_MS, REPLICA_READ_MS_MAX, REPLICA_REST_MS, REPLICA_WAIT_MS_MAX},
    principal::OwnerId,
};

const READS: &str = "runreel_replica_reads_total";

/// Routes large reads to the replica or the primary.
#[derive(Clone, Debug)]
pub struct Readers {
    primary: Store,
    replica: Option<Arc<Replica>>,
}

/// The wanted events of a run, and optionally a byte limit other than the default.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    After {
        seq: Seq,
        rows: i64,
        bytes: Option<usize>,
    },
    /// Those before `seq`, or the newest.
    Before {
        seq: Option<Seq>,
        rows: i64,
        bytes: usize,
    },
    These {
        seqs: &'a [i64],
        bytes: usize,
    },
}

impl Wanted<'_> {
    async fn read(self, store: &Store, owner: &OwnerId, run: RunId) -> Result<Option<RunPage>, Error> {
        let events = store.events();
        match self {
            Self::After { seq, rows, bytes: None } => events.page(owner, run, seq, rows).await,
            Self::After { seq, rows, bytes: Some(bytes) } => events.page_of(owner, run, seq, rows, bytes).await,
            Self::Before { seq, rows, bytes } => events.page_before(owner, run, seq, rows, bytes).await,
            Self::These { seqs, bytes } => events.at_seqs(owner, run, seqs, bytes).await,
        }
    }
}

#[derive(Debug)]
struct Replica {
    store: Store,
    options: PgConnectOptions,
    /// Identifies the database of which it must be a replica.
    home: Uuid,
    state: Mutex<State>,
    /// Held during a check; meanwhile all others read the primary.
    checks: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// It may be used after a check.
    Unknown,
    Used,
    /// It failed, and is not used until then.
    Rests(Instant),
}

impl Readers {
    /// `replica` is how to connect to it, if there is one; `home` identifies the primary's database.
    pub fn new(primary: Store, replica: Option<Settings>, home: Uuid) -> Self {
        let replica = replica.map(|settings| {
            metrics::describe_counter!(READS, "Reads that could go to the replica, by where they went");
            let options = settings.options.clone();
            let store = Store::open(Access::new(&options), &settings, primary.throttle().clone());
            let (state, checks) = (Mutex::new(State::Unknown), tokio::sync::Mutex::default());
            Arc::new(Replica { store, options, home, state, checks })
        });
        Self { primary, replica }
    }

    /// A page of a run; `None` if the owner has no such run.
    pub async fn page(&self, owner: &OwnerId, run: RunId, wanted: Wanted<'_>) -> Result<Option<RunPage>, Error> {
        if let Some(replica) = &self.replica {
            let page = Box::pin(replica.page(&self.primary, owner, run, wanted)).await?;
            count(page.is_some());
            if page.is_some() {
                return Ok(page);
            }
        }
        wanted.read(&self.primary, owner, run).await
    }

    /// The replica, for a query over everything; `None` for the primary.
    pub(super) async fn of_query(&self) -> Option<(&PgConnectOptions, &Store)> {
        let replica = self.replica.as_ref()?;
        let has = replica.has_all_of(&self.primary).await;
        count(has);
        has.then_some((&replica.options, &replica.store))
    }

    /// Reports that a read at the replica has failed.
    pub(super) fn give_up(&self, error: &(dyn std::error::Error + 'static)) {
        if let Some(replica) = &self.replica {
            replica.rest(error);
        }
    }
}

impl Replica {
    /// The replica's page; `None` if it is behind the primary or cannot be read.
    async fn page(
        &self,
        primary: &Store,
        owner: &OwnerId,
        run: RunId,
        wanted: Wanted<'_>,
    ) -> Result<Option<RunPage>, Error> {
        if !self.is_usable().await {
            return Ok(None);
        }
        let Some((position, history)) = place_of(primary, owner, run).await? else { return Ok(None) };
        match timeout(Duration::from_millis(REPLICA_READ_MS_MAX), wanted.read(&self.store, owner, run)).await {
            Ok(Ok(page)) => Ok(page.filter(|page| page.history == history && page.lane_position >= position)),
            Ok(Err(error)) => {
                self.rest(&error);
                Ok(None)
            }
            Err(late) => {
                self.rest(&late);
                Ok(None)
            }
        }
    }

    /// Whether it has all that the primary has now, or will soon: it is seldom far behind.
    async fn has_all_of(&self, primary: &Store) -> bool {
        if !self.is_usable().await {
            return false;
        }
        let written = primary.maintenance(async |mut connection| {
            let lsn = sqlx::query_scalar!(r#"select pg_current_wal_insert_lsn()::text as "lsn!""#);
            Ok(lsn.fetch_one(&mut *connection).await?)
        });
        let has = async {
            let lsn = Box::pin(written).await?;
            while !Box::pin(self.has_replayed(&lsn)).await? {
                sleep(Duration::from_millis(REPLICA_LOOK_MS)).await;
            }
            Ok::<_, Error>(())
        };
        match timeout(Duration::from_millis(REPLICA_WAIT_MS_MAX), has).await {
            Ok(Ok(())) => true,
            Ok(Err(error)) => {
                self.rest(&error);
                false
            }
            // It may only lag, so it stays in use.
            Err(_) => false,
        }
    }

    /// Whether it is a standby of the same database and has replayed up to `lsn`.
    async fn has_replayed(&self, lsn: &str) -> Result<bool, Error> {
        self.store
            .maintenance(async |mut connection| {
                let has = sqlx::query_scalar!(
                    r#"select coalesce(pg_last_wal_replay_lsn() >= $1::text::pg_lsn, false) and home = $2 as "has!"
                       from store.artifact_home"#,
                    lsn,
                    self.home
                );
                Ok(has.fetch_one(&mut *connection).await?)
            })
            .await
    }

    /// Checks it before it is used, one check at a time and with a short timeout.
    async fn is_usable(&self) -> bool {
        let state = *self.state();
        match state {
            State::Used => return true,
            State::Rests(until) if Instant::now() < until => return false,
            State::Unknown | State::Rests(_) => {}
        }
        let Ok(_check) = self.checks.try_lock() else { return false };
        let checked = timeout(Duration::from_millis(REPLICA_CHECK_MS_MAX), self.check()).await;
        match checked.unwrap_or_else(|_| Err(Error::timeout())) {
            Ok(()) => {
                let mut now = self.state();
                if *now == state {
                    *now = State::Used;
                }
                true
            }
            Err(error) => {
                self.rest(&error);
                false
            }
        }
    }

    /// Rejects a database that is not a replica of this one, or is behind a pooler that mixes sessions.
    async fn check(&self) -> Result<(), Error> {
        Access::new(&self.options).open_checked().await?.close().await?;
        if self.store.artifacts().home().await? == self.home {
            return Ok(());
        }
        Err(Error::Incompatible("the database of --replica-url is not a replica of this one".to_owned()))
    }

    fn rest(&self, error: &(dyn std::error::Error + 'static)) {
        tracing::warn!(error, "the replica is not used for a while");
        *self.state() = State::Rests(Instant::now() + Duration::from_millis(REPLICA_REST_MS));
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The position of a run's last event, and the history of its lane.
async fn place_of(primary: &Store, owner: &OwnerId, run: RunId) -> Result<Option<(i64, Tag)>, Error> {
    primary
        .scoped(owner, async |mut connection| {
            let place = sqlx::query!(
                r#"select r.last_position, l.history
                   from store.run r join store.lane l using (lane) where r.run_id = $1 and r.owner_id = $2"#,
                run.uuid(),
                owner.as_str()
            );
            let place = place.fetch_optional(&mut *connection).await?;
            Ok(place.map(|place| (place.last_position, Tag::stored(place.history))))
        })
        .await
}

fn count(is_replica: bool) {
    metrics::counter!(READS, "from" => if is_replica { "replica" } else { "primary" }).increment(1);
}
