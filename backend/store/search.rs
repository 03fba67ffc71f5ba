//! The search index: filled from the log, in the order of its positions. When one owner's many events hold up those of
//! others, that owner is deferred, and its events are indexed a part at a time beside the rest.
//!
//! Invariant: a lane's progress advances in the transaction that stores the words up to it, so nothing is left out or
//! done twice, whichever of several servers does it and whenever it stops. The progress stays locked from before events
//! are read until their words are committed; a deletion waits for it, and then removes what was indexed.

mod documents;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use chrono::{DateTime, Utc};
use futures::TryStreamExt as _;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use self::documents::{News, merge, write};
use super::{Error, Store};
use crate::domain::{
    limits::{
        EVENT_WORDS_MAX, INDEXED_BYTES_MAX, INDEXED_EVENTS_MAX, INDEXED_POSITIONS_MAX, INDEXED_TURN_BYTES_MAX,
        INDEXER_MS_MAX,
    },
    search::{index_payload, index_text},
};

/// How complete a search was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Searched {
    /// Everything that was committed before this time was searched; `None` while the index of an older log is filled.
    pub up_to: Option<DateTime<Utc>>,
}

/// A connection that fills the index.
#[derive(Debug)]
pub struct Indexing {
    connection: PgConnection,
}

/// The result of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Indexed {
    /// The lane's position when the step began.
    pub head: i64,
    /// The position up to which the lane is indexed now.
    pub position: i64,
    pub events: u64,
    pub up_to: Option<DateTime<Utc>>,
}

/// A deferred owner, and the position up to which its events are indexed.
struct Deferred {
    owner_id: String,
    position: i64,
}

/// Which events of a lane are read.
struct Wanted<'a> {
    lane: i16,
    /// Only this owner's.
    owner: Option<&'a str>,
    /// Not those of these owners.
    without: &'a [String],
    after: i64,
    to: i64,
    bytes_max: usize,
}

/// The words that were read.
#[derive(Default)]
struct Read {
    runs: BTreeMap<Uuid, News>,
    /// Size of each owner's payloads, bytes.
    bytes: BTreeMap<String, usize>,
    events: u64,
    reached: i64,
}

/// How far a lane is indexed.
struct Progress {
    position: i64,
    head: i64,
    seen_position: Option<i64>,
    seen_at: Option<DateTime<Utc>>,
    up_to: Option<DateTime<Utc>>,
}

impl Store {
    /// A connection that fills the index, outside the pools that requests wait for.
    pub async fn indexing(&self) -> Result<Indexing, Error> {
        let mut connection = self.dedicated("runreel_writer").await?;
        // What a crash of the database loses is indexed again, since the progress is lost with it.
        sqlx::query_scalar!("select set_config('synchronous_commit', 'off', false)").fetch_one(&mut connection).await?;
        // Postgres merges new words into the index from time to time, which may take longer than a request may.
        let longer =
            sqlx::query_scalar!("select set_config('statement_timeout', $1, false)", INDEXER_MS_MAX.to_string());
        longer.fetch_one(&mut connection).await?;
        sqlx::query!(
            "insert into store.search_progress (lane) select lane from store.lane on conflict (lane) do nothing"
        )
        .execute(&mut connection)
        .await?;
        Ok(Indexing { connection })
    }

    /// Remembers in memory that everything committed by this time is indexed, so that an idle log causes no writes.
    pub fn note_searched(&self, at: DateTime<Utc>) {
        self.searched_until.fetch_max(at.timestamp_micros(), Ordering::Relaxed);
    }

    /// How complete the index is, at least, for a search that follows on this connection.
    pub(super) async fn searched(&self, connection: &mut PgConnection, now: DateTime<Utc>) -> Result<Searched, Error> {
        let noted = DateTime::from_timestamp_micros(self.searched_until.load(Ordering::Relaxed));
        let lanes = sqlx::query!(
            r#"select coalesce(p.position >= l.position, l.position = 0) and d.lane is null as "is_done!",
                      case when d.lane is null then p.up_to else d.up_to end as "up_to?"
               from store.lane l
               left join store.search_progress p using (lane)
               left join store.search_deferred d on d.lane = l.lane and d.owner_id = store.current_owner()"#
        )
        .fetch_all(connection)
        .await?;
        let up_to = lanes.into_iter().map(|lane| if lane.is_done { Some(now) } else { lane.up_to.max(noted) });
        Ok(Searched { up_to: up_to.min().flatten() })
    }
}

impl Indexing {
    pub async fn lanes(&mut self) -> Result<Vec<i16>, Error> {
        let lanes = sqlx::query_scalar!("select lane from store.lane order by lane");
        Ok(lanes.fetch_all(&mut self.connection).await?)
    }

    /// Indexes the next events of a lane, and then some of one deferred owner.
    pub async fn step(&mut self, lane: i16, now: DateTime<Utc>) -> Result<Indexed, Error> {
        let found = sqlx::query!(
            r#"select l.position as head, p.position,
                      exists (select from store.search_deferred d where d.lane = p.lane) as "is_deferred!"
               from store.search_progress p join store.lane l using (lane) where p.lane = $1"#,
            lane
        )
        .fetch_one(&mut self.connection)
        .await?;
        if found.position > found.head {
            self.set_back(lane).await?;
        }
        if found.position >= found.head && !found.is_deferred {
            return Ok(Indexed { head: found.head, position: found.position, events: 0, up_to: Some(now) });
        }
        let mut tx = self.connection.begin().await?;
        let progress = sqlx::query_as!(
            Progress,
            r#"select p.position, l.position as head, p.seen_position, p.seen_at, p.up_to
               from store.search_progress p join store.lane l using (lane) where p.lane = $1 for update of p"#,
            lane
        )
        .fetch_one(&mut *tx)
        .await?;
        let deferred = sqlx::query_as!(
            Deferred,
            r#"select owner_id, position from store.search_deferred where lane = $1 order by turns, position desc"#,
            lane
        )
        .fetch_all(&mut *tx)
        .await?;
        let without: Vec<String> = deferred.iter().map(|deferred| deferred.owner_id.clone()).collect();
        let (after, to, bytes_max) = (progress.position, progress.head, INDEXED_BYTES_MAX);
        let wanted = Wanted { lane, owner: None, without: &without, after, to, bytes_max };
        let found = index(&mut tx, &wanted).await?;
        if found.reached < progress.head {
            defer(&mut tx, &wanted, &found, &progress).await?;
        }
        let up_to = advance(&mut tx, lane, &progress, found.reached, now).await?;
        let mut events = found.events;
        if let Some(next) = deferred.first() {
            // If there was nothing else to index, a deferred owner may have the full budget.
            let bytes_max = if found.events == 0 { INDEXED_BYTES_MAX } else { INDEXED_TURN_BYTES_MAX };
            events += take_turn(&mut tx, lane, next, (found.reached, bytes_max)).await?;
        }
        let left = sqlx::query!(
            "select min(position) as position, min(up_to) as up_to from store.search_deferred where lane = $1",
            lane
        )
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        let position = left.position.map_or(found.reached, |position| position.min(found.reached));
        let up_to = if left.position.is_some() { left.up_to.min(up_to) } else { up_to };
        Ok(Indexed { head: progress.head, position, events, up_to })
    }

    /// The log was set back without the index: limits the progress to the lane's position.
    async fn set_back(&mut self, lane: i16) -> Result<(), Error> {
        sqlx::query!(
            r#"update store.search_deferred d set position = l.position
               from store.lane l where d.lane = $1 and l.lane = d.lane and d.position > l.position"#,
            lane
        )
        .execute(&mut self.connection)
        .await?;
        sqlx::query!(
            r#"update store.search_progress p set position = l.position
               from store.lane l where p.lane = $1 and l.lane = p.lane and p.position > l.position"#,
            lane
        )
        .execute(&mut self.connection)
        .await?;
        Ok(())
    }

    pub async fn close(self) {
        let _ = self.connection.close().await;
    }
}

/// Reads events and stores their words.
async fn index(tx: &mut PgConnection, wanted: &Wanted<'_>) -> Result<Read, Error> {
    let mut found = read(tx, wanted).await?;
    let documents = merge(tx, std::mem::take(&mut found.runs)).await?;
    write(tx, documents).await?;
    Ok(found)
}

/// Defers the owner who had more than half of what was read, if others wait behind.
async fn defer(tx: &mut PgConnection, wanted: &Wanted<'_>, found: &Read, progress: &Progress) -> Result<(), Error> {
    let all: usize = found.bytes.values().sum();
    let Some((owner, _)) = found.bytes.iter().find(|(_, bytes)| **bytes > all / 2) else { return Ok(()) };
    sqlx::query!(
        r#"insert into store.search_deferred (lane, owner_id, position, up_to)
           select $1, $2, $3, $6
           where exists (select from store.run_event
                         where lane = $1 and position > $3 and position <= $4 and owner_id <> $2 and owner_id <> all ($5))
           on conflict do nothing"#,
        wanted.lane,
        owner,
        found.reached,
        wanted.to.min(found.reached + INDEXED_POSITIONS_MAX),
        wanted.without,
        progress.up_to
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Indexes some events of a deferred owner, and ends the deferral if there are no more; returns how many.
async fn take_turn(
    tx: &mut PgConnection,
    lane: i16,
    next: &Deferred,
    (to, bytes_max): (i64, usize),
) -> Result<u64, Error> {
    let (owner, after) = (Some(&*next.owner_id), next.position);
    let wanted = Wanted { lane, owner, without: &[], after, to, bytes_max };
    let found = index(tx, &wanted).await?;
    sqlx::query!(
        r#"with kept as (
               update store.search_deferred set position = $3, turns = turns + 1
               where lane = $1 and owner_id = $2 and $3::bigint < $4
           )
           delete from store.search_deferred where lane = $1 and owner_id = $2 and $3::bigint >= $4"#,
        lane,
        next.owner_id,
        found.reached,
        to
    )
    .execute(tx)
    .await?;
    Ok(found.events)
}

/// Reads the words of the next events, by run, and how far they reach.
async fn read(tx: &mut PgConnection, wanted: &Wanted<'_>) -> Result<Read, Error> {
    let mut found = Read { reached: wanted.to.min(wanted.after + INDEXED_POSITIONS_MAX), ..Read::default() };
    let mut bytes = 0;
    let mut rows = sqlx::query!(
        r#"select run_id, seq, position, owner_id, agent, payload::text as "payload!" from store.run_event
           where lane = $1 and position > $2 and position <= $3 and owner_id <> all ($5) and owner_id = coalesce($6, owner_id)
           order by position limit $4"#,
        wanted.lane,
        wanted.after,
        found.reached,
        INDEXED_EVENTS_MAX,
        wanted.without,
        wanted.owner
    )
    .fetch(tx);
    while let Some(row) = rows.try_next().await? {
        (found.events, bytes) = (found.events + 1, bytes + row.payload.len());
        *found.bytes.entry(row.owner_id.clone()).or_default() += row.payload.len();
        let news =
            found.runs.entry(row.run_id).or_insert_with(|| News { owner_id: row.owner_id, words: BTreeSet::new() });
        index_payload(&mut news.words, &news.owner_id, &row.payload);
        if row.seq == 1 {
            let mut left = EVENT_WORDS_MAX;
            for text in [Some(row.run_id.to_string()), row.agent].into_iter().flatten() {
                index_text(&mut news.words, &news.owner_id, &text, &mut left);
            }
        }
        if bytes >= wanted.bytes_max || found.events >= INDEXED_EVENTS_MAX.unsigned_abs() {
            found.reached = row.position;
            break;
        }
    }
    // Positions missing before the last one were deleted, or belong to other owners.
    Ok(found)
}

/// Stores how far the lane is indexed; returns the time up to which everything is.
async fn advance(
    tx: &mut PgConnection,
    lane: i16,
    progress: &Progress,
    reached: i64,
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>, Error> {
    let is_past = progress.seen_position.is_some_and(|seen| seen <= reached);
    let up_to = if is_past { progress.seen_at } else { progress.up_to };
    // The progress, and the lane's head with it, was read after `now`.
    let seen = if is_past || progress.seen_position.is_none() {
        (Some(progress.head), Some(now))
    } else {
        (progress.seen_position, progress.seen_at)
    };
    let up_to = if reached >= progress.head { Some(now) } else { up_to };
    sqlx::query!(
        r#"update store.search_progress set position = $2, seen_position = $3, seen_at = $4, up_to = $5
           where lane = $1"#,
        lane,
        reached,
        seen.0,
        seen.1,
        up_to
    )
    .execute(tx)
    .await?;
    Ok(up_to)
}
