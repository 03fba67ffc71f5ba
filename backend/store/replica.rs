//! A read replica: pages of a run's log, exports and queries are read there while it has what the primary had when they
//! began.
//!
//! It is behind by an unknown time, and nobody may be shown less than they have seen: in the answer to an emit, in a stream,
//! from another server. So each of these reads asks the primary how far the log is, a row or two by their keys, and the
//! replica whether it is as far, in the same history. If not, or if it does not answer, the primary is read instead.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use sqlx::postgres::PgConnectOptions;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use super::{Error, Settings, Store, access::Access};
use crate::domain::{
    id::RunId,
    limits::{REPLICA_ASK_MS_MAX, REPLICA_LOOK_MS, REPLICA_REST_MS, REPLICA_WAIT_MS_MAX},
    principal::OwnerId,
};

const READS: &str = "runreel_replica_reads_total";

/// Where large reads go.
#[derive(Clone, Debug)]
pub struct Readers {
    primary: Store,
    replica: Option<Arc<Replica>>,
}

#[derive(Debug)]
struct Replica {
    store: Store,
    options: PgConnectOptions,
    /// The database of which it must be a replica.
    home: Uuid,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// It may be used once it was looked at.
    Unknown,
    Used,
    /// It failed, and is not asked before this moment.
    Rests(Instant),
}

/// How far a lane is.
#[derive(Clone, Copy, Debug)]
struct Place {
    lane: i16,
    position: i64,
    history: i64,
}

impl Readers {
    /// `replica` is how to connect to it, if there is one; `home` is the name of the primary's database.
    pub fn new(primary: Store, replica: Option<Settings>, home: Uuid) -> Self {
        let replica = replica.map(|settings| {
            metrics::describe_counter!(READS, "Reads that could go to the replica, by where they went");
            let options = settings.options.clone();
            let store = Store::open(Access::new(&options), &settings);
            Arc::new(Replica { store, options, home, state: Mutex::new(State::Unknown) })
        });
        Self { primary, replica }
    }

    /// Where to read the log of a run.
    pub async fn of_run(&self, owner: &OwnerId, run: RunId) -> Store {
        let Some(replica) = &self.replica else { return self.primary.clone() };
        let has = match self.place_of(owner, run).await {
            Ok(Some(place)) => replica.has(&[place]).await == Some(true),
            _ => false,
        };
        count(has);
        if has { replica.store.clone() } else { self.primary.clone() }
    }

    /// How to connect for a query of the whole log; `None`: to the primary.
    pub(super) async fn of_query(&self) -> Option<&PgConnectOptions> {
        let replica = self.replica.as_ref()?;
        let is_there = async {
            let places = self.places().await.ok()?;
            // Somebody waits for it who is in no hurry, and it is seldom far behind.
            let until = Instant::now() + Duration::from_millis(REPLICA_WAIT_MS_MAX);
            while !replica.has(&places).await? {
                if Instant::now() > until {
                    return None;
                }
                sleep(Duration::from_millis(REPLICA_LOOK_MS)).await;
            }
            Some(&replica.options)
        };
        let found = is_there.await;
        count(found.is_some());
        found
    }

    /// How far the lane of a run is up to the run's last event.
    async fn place_of(&self, owner: &OwnerId, run: RunId) -> Result<Option<Place>, Error> {
        self.primary
            .scoped(owner, async |mut connection| {
                let place = sqlx::query_as!(
                    Place,
                    r#"select r.lane, r.last_position as position, l.history
                       from store.run r join store.lane l using (lane) where r.run_id = $1 and r.owner_id = $2"#,
                    run.uuid(),
                    owner.as_str()
                );
                Ok(place.fetch_optional(&mut *connection).await?)
            })
            .await
    }

    async fn places(&self) -> Result<Vec<Place>, Error> {
        self.primary
            .maintenance(async |mut connection| {
                let places = sqlx::query_as!(Place, "select lane, position, history from store.lane");
                Ok(places.fetch_all(&mut *connection).await?)
            })
            .await
    }
}

impl Replica {
    /// Whether it is this far; `None` if it cannot be used.
    async fn has(&self, places: &[Place]) -> Option<bool> {
        let state = *self.state();
        if matches!(state, State::Rests(until) if Instant::now() < until) {
            return None;
        }
        let ask = async {
            if !matches!(state, State::Used) {
                self.check().await?;
            }
            self.is_as_far(places).await
        };
        let asked = timeout(Duration::from_millis(REPLICA_ASK_MS_MAX), ask).await;
        let (next, has) = match asked.unwrap_or_else(|_| Err(Error::timeout())) {
            Ok(has) => (State::Used, Some(has)),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the replica is not used for a while");
                (State::Rests(Instant::now() + Duration::from_millis(REPLICA_REST_MS)), None)
            }
        };
        *self.state() = next;
        has
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses what is no replica of this database, or is behind a pooler that mixes sessions.
    async fn check(&self) -> Result<(), Error> {
        Access::new(&self.options).check_sessions().await?;
        if self.store.artifacts().home().await? == self.home {
            return Ok(());
        }
        Err(Error::Incompatible("the database of --replica-url is not a replica of this one".to_owned()))
    }

    async fn is_as_far(&self, places: &[Place]) -> Result<bool, Error> {
        let column = |value: fn(&Place) -> i64| places.iter().map(value).collect::<Vec<_>>();
        let lanes: Vec<i16> = places.iter().map(|place| place.lane).collect();
        self.store
            .maintenance(async |mut connection| {
                let has = sqlx::query_scalar!(
                    r#"select count(*) = cardinality($1::smallint[]) as "has!"
                       from unnest($1::smallint[], $2::bigint[], $3::bigint[]) as w (lane, position, history)
                       join store.lane l on l.lane = w.lane and l.position >= w.position and l.history = w.history"#,
                    &lanes,
                    &column(|place| place.position),
                    &column(|place| place.history)
                );
                Ok(has.fetch_one(&mut *connection).await?)
            })
            .await
    }
}

fn count(is_replica: bool) {
    metrics::counter!(READS, "from" => if is_replica { "replica" } else { "primary" }).increment(1);
}
