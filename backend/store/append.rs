//! The write: one statement that takes positions, moves run heads and inserts events, or does nothing at all.
//!
//! An [`Appender`] is one connection that writes one lane. It remembers the lane's position as it left it. The statement
//! applies only while the lane still stands there, so another process that wrote in between costs a [`Outcome::Moved`]
//! and never a wrong number. After that the appender works under the lane's row lock, which always succeeds.

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::{
    Error, Store,
    pieces::{Owners, Pieces},
};
use crate::domain::{event::Recorded, id::RunId, run::Head};

/// The head of a run as the statement must leave it.
#[derive(Clone, Debug)]
pub struct HeadWrite {
    pub run_id: RunId,
    pub head: Head,
    /// Set when this batch creates the run.
    pub birth: Option<Box<Birth>>,
    /// Index of the run's last event in the batch.
    pub last_index: usize,
}

/// What a run is born with and never changes.
#[derive(Clone, Debug)]
pub struct Birth {
    pub spec: crate::domain::run::Spec,
    pub depth: i16,
    pub request_hash: [u8; 32],
}

/// The request hash of a run that was imported: it was created by no request, so no repeated one is the same, and what
/// the clock does by itself it does to no such run.
pub const IMPORTED: [u8; 32] = [0; 32];

/// Everything one commit writes.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    pub events: Vec<Recorded>,
    pub heads: Vec<HeadWrite>,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Committed; the first event has this position, the others follow without a gap.
    Committed { first_position: i64 },
    /// Another writer moved the lane. Nothing was written; heads must be read again.
    Moved,
}

/// Where a lane stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx::FromRow)]
struct Mark {
    position: i64,
    epoch: i64,
}

/// One connection that writes one lane.
#[derive(Debug)]
pub struct Appender {
    connection: PgConnection,
    lane: i16,
    mark: Mark,
    pieces: Pieces,
    /// Whether a transaction of [`Appender::lock`] is open.
    locked: bool,
}

impl Store {
    /// Opens the writing connection of a lane.
    pub async fn appender(&self, lane: u8) -> Result<Appender, Error> {
        let mut connection = self.dedicated("runreel_writer").await?;
        let lane = i16::from(lane);
        let mark = read_mark(&mut connection, lane).await?;
        Ok(Appender { connection, lane, mark, pieces: Pieces::new(), locked: false })
    }
}

impl Appender {
    pub fn position(&self) -> i64 {
        self.mark.position
    }

    /// The connection, for the reads that a batch needs before it can be numbered.
    pub fn reads(&mut self) -> &mut PgConnection {
        &mut self.connection
    }

    /// Writes a batch in one round trip, if the lane still stands where this appender left it.
    ///
    /// After an error the connection is of no more use: open another and [`Appender::resolve`].
    pub async fn append(&mut self, batch: &Batch) -> Result<Outcome, Error> {
        let first_position = self.mark.position + 1;
        let births = batch.heads.iter().any(|head| head.birth.is_some());
        let written = if births && !self.locked {
            // New heads go in before their events, so the two statements share a transaction.
            let moved = self.lock().await?;
            let written = !moved && self.write(batch).await?;
            if written {
                self.commit().await?;
            } else {
                self.rollback().await?;
            }
            written
        } else {
            self.write(batch).await?
        };
        Ok(if written { Outcome::Committed { first_position } } else { Outcome::Moved })
    }

    /// Opens a transaction that holds the lane, so that whatever is read next stays true until it is committed.
    ///
    /// Says whether somebody else has moved the lane since this appender left it.
    pub async fn lock(&mut self) -> Result<bool, Error> {
        sqlx::raw_sql("begin").execute(&mut self.connection).await?;
        self.locked = true;
        let before = self.mark;
        let mark = "select position, epoch from store.lane where lane = $1 for update";
        self.mark = sqlx::query_as(mark).bind(self.lane).fetch_one(&mut self.connection).await?;
        Ok(self.mark != before)
    }

    /// Ends the transaction of [`Appender::lock`], keeping what was appended.
    pub async fn commit(&mut self) -> Result<(), Error> {
        sqlx::raw_sql("commit").execute(&mut self.connection).await?;
        self.locked = false;
        Ok(())
    }

    /// Ends the transaction of [`Appender::lock`] and forgets it.
    pub async fn rollback(&mut self) -> Result<(), Error> {
        sqlx::raw_sql("rollback").execute(&mut self.connection).await?;
        self.locked = false;
        self.pieces = Pieces::new();
        self.mark = read_mark(&mut self.connection, self.lane).await?;
        Ok(())
    }

    async fn write(&mut self, batch: &Batch) -> Result<bool, Error> {
        insert_runs(&mut self.connection, self.lane, &batch.heads).await?;
        let owners = self.pieces.of(&batch.events);
        let mark = append_rows(&mut self.connection, self.lane, self.mark, batch, &owners).await?;
        if let Some(mark) = mark {
            self.mark = mark;
            self.pieces.note(owners, mark.position);
        }
        Ok(mark.is_some())
    }

    /// Learns, on a new connection, whether a batch was committed before the old one was lost.
    ///
    /// Raising the epoch first makes it impossible that the lost statement is still carried out afterwards.
    pub async fn resolve(&mut self, first_position: i64, batch: &Batch) -> Result<bool, Error> {
        self.mark = sqlx::query_as!(
            Mark,
            "update store.lane set epoch = epoch + 1 where lane = $1 returning position, epoch",
            self.lane
        )
        .fetch_one(&mut self.connection)
        .await?;
        let last_position = first_position + batch.events.len() as i64 - 1;
        if self.mark.position < last_position {
            return Ok(false);
        }
        let rows = sqlx::query!(
            r#"select run_id, seq, at, type as "event_type", payload::text as "payload!" from store.run_event
               where lane = $1 and position between $2 and $3 order by position"#,
            self.lane,
            first_position,
            last_position
        )
        .fetch_all(&mut self.connection)
        .await?;
        let ours = |(row, event): (_, &Recorded)| {
            let row: &(Uuid, i64, DateTime<Utc>, String, String) = row;
            row.0 == event.run_id.uuid()
                && Some(row.1) == event.seq.map(crate::domain::id::Seq::get)
                && row.2 == event.at
                && row.3 == event.event_type.as_str()
                && row.4 == event.payload.as_str()
        };
        let rows: Vec<_> = rows.into_iter().map(|r| (r.run_id, r.seq, r.at, r.event_type, r.payload)).collect();
        Ok(rows.len() == batch.events.len() && rows.iter().zip(&batch.events).all(ours))
    }

    /// Says good-bye to the database.
    pub async fn close(self) {
        // A connection that is already gone has nothing left to say.
        let _ = self.connection.close().await;
    }
}

async fn read_mark(connection: &mut PgConnection, lane: i16) -> Result<Mark, Error> {
    let mark = sqlx::query_as!(Mark, "select position, epoch from store.lane where lane = $1", lane);
    Ok(mark.fetch_one(connection).await?)
}

/// The columns of a batch, as arrays.
#[derive(Default)]
struct Columns<'a> {
    run_id: Vec<Uuid>,
    seq: Vec<i64>,
    owner_id: Vec<&'a str>,
    event_type: Vec<&'a str>,
    role: Vec<&'a str>,
    agent: Vec<Option<&'a str>>,
    span_id: Vec<Option<&'a str>>,
    parent_span_id: Vec<Option<&'a str>>,
    event_id: Vec<Option<&'a str>>,
    at: Vec<DateTime<Utc>>,
    payload: Vec<&'a str>,
}

impl<'a> Columns<'a> {
    fn of(events: &'a [Recorded]) -> Self {
        let mut columns = Self::default();
        for event in events {
            columns.run_id.push(event.run_id.uuid());
            columns.seq.push(event.seq.expect("only durable events are appended").get());
            columns.owner_id.push(&event.owner_id);
            columns.event_type.push(event.event_type.as_str());
            columns.role.push(event.role.as_str());
            columns.agent.push(event.agent.as_deref());
            columns.span_id.push(event.span_id.as_ref().map(super::super::domain::id::SpanId::as_str));
            columns.parent_span_id.push(event.parent_span_id.as_ref().map(super::super::domain::id::SpanId::as_str));
            columns.event_id.push(event.event_id.as_ref().map(super::super::domain::id::EventId::as_str));
            columns.at.push(event.at);
            columns.payload.push(event.payload.as_str());
        }
        columns
    }
}

/// The heads a batch moves, as arrays.
#[derive(Default)]
struct Heads<'a> {
    run_id: Vec<Uuid>,
    status: Vec<&'a str>,
    last_seq: Vec<i64>,
    last_index: Vec<i64>,
    output: Vec<Option<&'a str>>,
    error: Vec<Option<&'a str>>,
    started_at: Vec<Option<DateTime<Utc>>>,
    ended_at: Vec<Option<DateTime<Utc>>>,
    last_event_at: Vec<DateTime<Utc>>,
}

impl<'a> Heads<'a> {
    fn of(writes: impl Iterator<Item = &'a HeadWrite>) -> Self {
        let mut heads = Self::default();
        for write in writes {
            heads.run_id.push(write.run_id.uuid());
            heads.status.push(write.head.status.as_str());
            heads.last_seq.push(write.head.last_seq.get());
            heads.last_index.push(write.last_index as i64);
            heads.output.push(write.head.output.as_ref().map(super::super::domain::json::Json::as_str));
            heads.error.push(write.head.error.as_ref().map(super::super::domain::json::Json::as_str));
            heads.started_at.push(write.head.started_at);
            heads.ended_at.push(write.head.ended_at);
            heads.last_event_at.push(write.head.last_event_at);
        }
        heads
    }
}

/// Runs the statement; `None` when the lane does not stand at `mark` any more.
async fn append_rows(
    connection: &mut PgConnection,
    lane: i16,
    mark: Mark,
    batch: &Batch,
    owners: &Owners,
) -> Result<Option<Mark>, Error> {
    let events = Columns::of(&batch.events);
    let heads = Heads::of(batch.heads.iter());
    let row = sqlx::query_file!(
        "backend/store/sql/append_events.sql",
        lane,
        mark.position,
        mark.epoch,
        batch.events.len() as i64,
        &events.run_id,
        &events.seq,
        &events.owner_id as &[&str],
        &events.event_type as &[&str],
        &events.role as &[&str],
        &events.agent as &[Option<&str>],
        &events.span_id as &[Option<&str>],
        &events.parent_span_id as &[Option<&str>],
        &events.event_id as &[Option<&str>],
        &events.at,
        &events.payload as &[&str],
        &heads.run_id,
        &heads.status as &[&str],
        &heads.last_seq,
        &heads.last_index,
        &heads.output as &[Option<&str>],
        &heads.error as &[Option<&str>],
        &heads.started_at as &[Option<DateTime<Utc>>],
        &heads.ended_at as &[Option<DateTime<Utc>>],
        &heads.last_event_at,
        &owners.owner_id.iter().map(AsRef::as_ref).collect::<Vec<&str>>() as &[&str],
        &owners.noted as &[Option<i64>],
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Mark { position: row.position, epoch: mark.epoch }))
}

async fn insert_runs(connection: &mut PgConnection, lane: i16, heads: &[HeadWrite]) -> Result<(), Error> {
    for write in heads {
        let Some(birth) = &write.birth else { continue };
        let (spec, context) = (&birth.spec, &birth.spec.context);
        let tags: Vec<String> = spec.tags.iter().map(|tag| tag.as_str().to_owned()).collect();
        sqlx::query_file!(
            "backend/store/sql/insert_run.sql",
            context.run_id.uuid(),
            lane,
            context.owner_id.as_str(),
            context.root_run_id.uuid(),
            context.parent_run_id.map(RunId::uuid),
            birth.depth,
            context.thread_id.as_ref().map(super::super::domain::id::ThreadId::as_str),
            context.session_id.as_ref().map(super::super::domain::id::Name::as_str),
            context.agent.as_ref().map(super::super::domain::id::Name::as_str),
            context.role.as_str(),
            context.origin.as_ref().map(|origin| origin.channel.as_str()),
            context.origin.as_ref().map(|origin| origin.chat.as_str()),
            context.trace_id.as_deref(),
            spec.title.as_ref().map(super::super::domain::id::Title::as_str),
            spec.input.as_ref().map(super::super::domain::json::Json::as_str),
            spec.metadata.as_str(),
            &tags,
            spec.lease_ms,
            birth.request_hash.as_slice(),
            write.head.created_at,
        )
        .execute(&mut *connection)
        .await?;
        if spec.is_job() {
            // In the same transaction: no crash comes between a run and its job.
            super::jobs::enqueue(&mut *connection, &context.owner_id, context.run_id).await?;
        }
    }
    Ok(())
}
