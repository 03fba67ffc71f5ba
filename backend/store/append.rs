//! Appends events: one statement assigns positions, creates runs, advances run heads and inserts events, or does
//! nothing.
//!
//! An [`Appender`] is one connection that writes one lane. Each statement is its own transaction, so no lock is held
//! between two messages to the database, and a server that stops at any point blocks no other. The statement assigns
//! positions and seqs, so servers that write the same lane do not make each other fail. It does nothing if the lane's
//! epoch is not the one this appender knows ([`Appended::Fenced`]), and is rolled back if a run is not as its writer
//! assumed ([`Error::Conflict`]).

mod columns;
mod resolve;
mod stuck;

use std::{collections::HashMap, sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};
use tokio::time::Instant;

use self::columns::{Chain, Events, Heads, Rare, noted};
use super::{Error, Store, pieces::Pieces};
use crate::domain::{
    artifact::Hash,
    chain::Chained,
    event::Recorded,
    history::Tag,
    id::{ExternalId, RunId, Seq},
    limits::PLANS_MS_MAX,
    price::Prices,
    principal::OwnerId,
    run::{Head, Status},
};

/// The head of a run as the statement must leave it.
#[derive(Clone, Debug)]
pub struct HeadWrite {
    pub run_id: RunId,
    pub owner_id: OwnerId,
    /// The status the writer based its decision on: if the run has another one, the statement is rolled back.
    pub status_before: Status,
    /// The seq after which the batch's events of this run were numbered.
    pub seq_before: Seq,
    /// Set if the events must get exactly these seqs.
    pub is_exact: bool,
    /// The link before the batch's events of this run, from which theirs were computed.
    pub link_before: Option<Hash>,
    pub head: Head,
    /// Set if this batch creates the run.
    pub birth: Option<Box<NewRunRow>>,
    /// Index of the run's last event in the batch.
    pub last_index: usize,
}

/// The immutable columns of a new run.
#[derive(Clone, Debug)]
pub struct NewRunRow {
    pub spec: crate::domain::run::Spec,
    pub depth: i16,
    pub request_hash: [u8; 32],
    /// When it was imported; `None` if a request created it.
    pub imported_at: Option<DateTime<Utc>>,
}

/// An additional id of a run.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct AliasWrite {
    pub owner_id: OwnerId,
    pub alias: ExternalId,
    pub run_id: RunId,
    /// The id stands for the run's events after this one.
    pub after: Seq,
    /// The index of that event among the run's events in this batch, from 1, if it is one of them.
    pub nth: Option<i64>,
}

/// The request hash of an imported run: no request created it, so none can repeat its creation, and its interrupts are
/// not expired.
pub const IMPORTED: [u8; 32] = [0; 32];

/// Everything one commit writes.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub events: Vec<Recorded>,
    /// The content hash and link of each event.
    pub chain: Vec<Chained>,
    pub heads: Vec<HeadWrite>,
    pub aliases: Vec<AliasWrite>,
    /// When it was planned; becomes the creation time of threads that its runs are the first to name.
    pub now: DateTime<Utc>,
}

impl Batch {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.aliases.is_empty()
    }
}

/// Where a committed batch is in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The position of the first event; the others follow without a gap.
    pub first_position: i64,
    /// Runs to which another writer appended first.
    pub shifts: Vec<Shift>,
}

/// How a batch's events of a run moved because another writer appended first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shift {
    pub run_id: RunId,
    /// By how many seqs they moved.
    pub by: i64,
    /// The link of the last of them.
    pub link: Hash,
}

/// The outcome of an append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Appended {
    Committed(Committed),
    /// The lane's epoch was raised, or the lane is behind what was published. Nothing was written.
    Fenced,
}

/// The state of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneState {
    pub position: i64,
    pub history: Tag,
    /// The database is not the one the current history was written in; see [`super::history::LogState`].
    pub is_elsewhere: bool,
    epoch: i64,
}

/// The result of an append statement.
struct Written {
    /// The position before the batch's first event.
    before: i64,
    /// The existing runs, with the seq before the batch, and the links of its events if they had to be recomputed.
    moved: Vec<(RunId, i64, Option<Vec<u8>>)>,
}

/// Parameters that only [`Appender::append_all`] needs.
struct Rest {
    rare: Rare,
    owners: Option<String>,
    now: DateTime<Utc>,
}

/// One connection that writes one lane.
#[derive(Debug)]
pub struct Appender {
    store: Store,
    connection: PgConnection,
    lane: i16,
    mark: LaneState,
    pieces: Pieces,
    prices: Arc<Prices>,
    /// When the connection was opened or last discarded its plans.
    planned_at: Instant,
}

/// The right to append to the log of a database. [`Store::connect_to_append`] makes the only one in a process; it
/// cannot be cloned.
#[derive(Debug)]
pub struct Appenders(pub(super) Store, pub(super) Arc<Prices>);

impl Appenders {
    /// Sets the prices by which the costs of model calls are computed.
    #[must_use]
    pub fn pricing(self, prices: Arc<Prices>) -> Self {
        Self(self.0, prices)
    }

    /// Opens the writing connection of a lane.
    pub async fn open(&self, lane: u8) -> Result<Appender, Error> {
        let mut connection = self.0.dedicated("runreel_writer").await?;
        let lane = i16::from(lane);
        let mark = read_mark(&mut connection, lane).await?;
        let prices = Arc::clone(&self.1);
        Ok(Appender {
            store: self.0.clone(),
            connection,
            lane,
            mark,
            pieces: Pieces::new(),
            prices,
            planned_at: Instant::now(),
        })
    }
}

/// An append statement: the parameters that both have, then its own. `$5` identifies the run of each event.
macro_rules! append {
    (
        $file:literal, $appender:expr, $least:expr, $run:expr,
        ($events:expr, $heads:expr, $chain:expr), $($own:expr),+
    ) => {
        sqlx::query_file!(
            $file,
            $appender.lane,
            $appender.mark.epoch,
            $least,
            $events.run_id.len() as i64,
            &$run,
            &$events.nth,
            &$events.owner_id as &[&str],
            &$events.event_type as &[&str],
            &$events.role as &[&str],
            &$events.agent as &[Option<&str>],
            &$events.span_id as &[Option<&str>],
            &$events.parent_span_id as &[Option<&str>],
            &$events.event_id as &[Option<&str>],
            &$events.at,
            &$events.payload as &[&str],
            &$heads.run_id,
            &$heads.status_before as &[&str],
            &$heads.status as &[&str],
            &$heads.seq_before,
            &$heads.events,
            &$heads.last_index,
            &$heads.output as &[Option<&str>],
            &$heads.error as &[Option<&str>],
            &$heads.started_at as &[Option<DateTime<Utc>>],
            &$heads.ended_at as &[Option<DateTime<Utc>>],
            &$heads.last_event_at,
            &$heads.owner_id as &[&str],
            &$heads.is_exact,
            &$chain.link_before as &[Option<&[u8]>],
            &$chain.first,
            &$chain.links,
            &$chain.contents,
            $($own),+
        )
    };
}

impl Appender {
    /// The lane's state when this appender last read or wrote it.
    pub fn mark(&self) -> LaneState {
        self.mark
    }

    /// Reads the lane's state.
    pub async fn look(&mut self) -> Result<LaneState, Error> {
        self.mark = read_mark(&mut self.connection, self.lane).await?;
        Ok(self.mark)
    }

    /// The connection, for the reads that a batch needs before it can be numbered.
    pub fn reads(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// [`Appender::append`] without ending stuck writers.
    async fn write(&mut self, batch: &Batch, least: i64) -> Result<Appended, Error> {
        self.forget_old_plans().await?;
        let (events, heads, chain) = (Events::of(batch), Heads::of(&batch.heads), Chain::of(batch));
        let (rare, owners) = (Rare::of(batch, &self.prices), self.pieces.of(&batch.events));
        let mut written = None;
        if rare.is_none() {
            written = self.append_to_runs((&events, &heads, &chain), least, owners.noted_until()).await?;
        }
        if written.is_none() {
            let rest = Rest { rare, owners: noted(&owners), now: batch.now };
            written = self.append_all((&events, &heads, &chain), rest, least).await?;
        }
        let Some(Written { before, moved }) = written else { return Ok(Appended::Fenced) };
        self.mark.position = before + batch.events.len() as i64;
        self.pieces.note(owners, self.mark.position);
        let believed: HashMap<RunId, i64> =
            batch.heads.iter().map(|head| (head.run_id, head.seq_before.get())).collect();
        let shift = |(run_id, stood, links): (_, i64, Option<Vec<u8>>)| {
            let link = Hash::from_bytes(links?.last_chunk::<32>()?)?;
            Some(Shift { run_id, by: stood - believed.get(&run_id).copied().unwrap_or(stood), link })
        };
        let shifts = moved.into_iter().filter_map(shift).collect();
        Ok(Appended::Committed(Committed { first_position: before + 1, shifts }))
    }

    /// Makes Postgres plan again, for the current size of the tables. The statements stay prepared.
    async fn forget_old_plans(&mut self) -> Result<(), Error> {
        if self.planned_at.elapsed() >= Duration::from_millis(PLANS_MS_MAX) {
            sqlx::query!("discard plans").execute(&mut self.connection).await?;
            self.planned_at = Instant::now();
        }
        Ok(())
    }

    /// The statement for existing runs, for positions up to `noted_until`; `None` if it did nothing.
    async fn append_to_runs(
        &mut self,
        (events, heads, chain): (&Events<'_>, &Heads<'_>, &Chain<'_>),
        least: i64,
        noted_until: i64,
    ) -> Result<Option<Written>, sqlx::Error> {
        let query =
            append!("store/sql/append_to_runs.sql", self, least, events.head, (events, heads, chain), noted_until);
        let row = query.fetch_optional(&mut self.connection).await?;
        Ok(row.map(|row| {
            let seqs = heads.run_id.iter().copied().map(RunId::trusted).zip(row.seqs.unwrap_or_default());
            let links = row.links.unwrap_or_default().into_iter().chain(std::iter::repeat(None));
            Written {
                before: row.before,
                moved: seqs.zip(links).map(|((run, seq), links)| (run, seq, links)).collect(),
            }
        }))
    }

    /// The statement for any batch; `None` if the lane's epoch or position does not match.
    async fn append_all(
        &mut self,
        (events, heads, chain): (&Events<'_>, &Heads<'_>, &Chain<'_>),
        Rest { rare, owners, now }: Rest,
        least: i64,
    ) -> Result<Option<Written>, sqlx::Error> {
        let Rare { births, aliases, calls } = rare;
        let query = append!(
            "store/sql/append_events.sql",
            self,
            least,
            events.run_id,
            (events, heads, chain),
            births.as_deref(),
            now,
            aliases.as_deref(),
            owners.as_deref(),
            calls.as_deref()
        );
        let rows = query.fetch_all(&mut self.connection).await?;
        let before = rows.first().map(|row| row.before);
        let moved = rows.into_iter().filter_map(|row| Some((RunId::trusted(row.run_id?), row.seq_before?, row.links)));
        Ok(before.map(|before| Written { before, moved: moved.collect() }))
    }

    /// Closes the connection.
    pub async fn close(self) {
        // A connection that is already lost needs no closing.
        let _ = self.connection.close().await;
    }
}

async fn read_mark(connection: &mut PgConnection, lane: i16) -> Result<LaneState, Error> {
    let row = sqlx::query!(
        r#"select position, epoch, history, store.is_elsewhere() as "is_elsewhere!" from store.lane where lane = $1"#,
        lane
    )
    .fetch_one(connection)
    .await?;
    let history = Tag::stored(row.history);
    Ok(LaneState { position: row.position, epoch: row.epoch, history, is_elsewhere: row.is_elsewhere })
}
