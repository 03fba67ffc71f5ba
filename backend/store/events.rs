//! Pages of one run's log.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use futures::{Stream, TryStreamExt};
use sqlx::PgConnection;
use uuid::Uuid;

use super::{Error, error::known};
use crate::domain::{
    context::Role,
    event::{EventType, Recorded},
    history::Tag,
    id::{EventId, RunId, Seq, SpanId},
    json::Json,
    principal::OwnerId,
    splice::LogPosition,
};

/// An event and its position.
pub type PositionedEvent = (LogPosition, Recorded);

/// How many events of one interrupt are read. It has one request and one resolution, unless its producer asks again.
pub const INTERRUPT_EVENTS: i64 = 32;
/// Rows of a page's first pass, when their sizes are not known yet: this many of the largest fill the page.
const FIRST_PASS_ROWS: i64 = 16;

/// A page of a run's log, and the run's state, read just before.
#[derive(Debug)]
pub struct RunPage {
    /// At most as many as requested, ending with the one that reaches the byte limit; at least one if there is one.
    pub events: Vec<PositionedEvent>,
    /// Whether no requested events are left.
    pub complete: bool,
    pub last_seq: Seq,
    pub lane: u8,
    /// The last position of the run's lane: everything up to it was committed when the page was read.
    pub lane_position: i64,
    /// The history in which the lane was written at that time.
    pub history: Tag,
}

/// The state of a run and its lane, read before a page.
#[derive(Debug)]
pub(super) struct Head {
    last_seq: Seq,
    lane: u8,
    lane_position: i64,
    history: Tag,
}

impl Head {
    /// `None` if the owner has no such run.
    pub(super) async fn read(
        connection: &mut PgConnection,
        owner: &OwnerId,
        run: RunId,
    ) -> Result<Option<Self>, sqlx::Error> {
        let row = sqlx::query!(
            r#"select r.last_seq, r.lane, l.position, l.history from store.run r join store.lane l using (lane)
               where r.run_id = $1 and r.owner_id = $2"#,
            run.uuid(),
            owner.as_str()
        )
        .fetch_optional(connection)
        .await?;
        Ok(row.map(|row| Self {
            last_seq: Seq::new(row.last_seq).unwrap_or_default(),
            lane: u8::try_from(row.lane).unwrap_or(0),
            lane_position: row.position,
            history: Tag::stored(row.history),
        }))
    }

    /// A page of events read after this head.
    pub(super) fn page(self, filled: Filling) -> RunPage {
        let newest = filled.events.iter().map(|(place, _)| *place).max_by_key(|place| place.seq);
        RunPage {
            last_seq: self.last_seq.max(newest.map_or(Seq::ZERO, |place| place.seq)),
            lane: self.lane,
            lane_position: self.lane_position.max(newest.map_or(0, |place| place.position)),
            history: self.history,
            complete: filled.is_exhausted,
            events: filled.events,
        }
    }
}

/// The columns of an event, in every query that reads events.
#[derive(Debug)]
pub(super) struct Row {
    pub run_id: Uuid,
    pub seq: i64,
    pub lane: i16,
    pub position: i64,
    pub owner_id: String,
    pub event_type: String,
    pub role: String,
    pub agent: Option<String>,
    pub span_id: Option<String>,
    pub parent_span_id: Option<String>,
    pub event_id: Option<String>,
    pub at: DateTime<Utc>,
    pub payload: String,
}

/// A page being filled. It is full when it has the requested number of rows or bytes.
#[derive(Debug)]
pub(super) struct Filling {
    pub events: Vec<PositionedEvent>,
    rows_max: i64,
    bytes_max: usize,
    bytes: usize,
    /// Whether the last pass returned everything there was.
    pub is_exhausted: bool,
}

impl Filling {
    pub(super) fn new(rows_max: i64, bytes_max: usize) -> Self {
        Self { events: Vec::new(), rows_max, bytes_max, bytes: 0, is_exhausted: false }
    }

    pub(super) fn rows_left(&self) -> i64 {
        self.rows_max - self.events.len() as i64
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows_left() <= 0 || self.bytes >= self.bytes_max
    }

    /// Takes rows until the page is full. The connection discards the rest, a row at a time.
    pub(super) async fn take(
        &mut self,
        asked: i64,
        mut rows: impl Stream<Item = Result<Row, sqlx::Error>> + Send + Unpin,
    ) -> Result<(), Error> {
        let mut taken = 0;
        self.is_exhausted = false;
        while self.bytes < self.bytes_max {
            let Some(row) = rows.try_next().await? else {
                self.is_exhausted = taken < asked;
                return Ok(());
            };
            self.bytes += row.payload.len();
            self.events.push(row.try_into()?);
            taken += 1;
        }
        Ok(())
    }

    /// How many rows the next pass requests, from the size of those already read; `None` if none is needed.
    pub(super) fn next_pass(&self) -> Option<i64> {
        let rows = self.events.len();
        let left = self.rows_left();
        // A pass for a small remainder costs more than it yields.
        if self.is_exhausted || left <= 0 || self.bytes > self.bytes_max / 2 {
            return None;
        }
        let mean = (self.bytes / rows.max(1)).max(1);
        let fit = if rows == 0 { FIRST_PASS_ROWS } else { ((self.bytes_max - self.bytes) / mean) as i64 };
        Some(left.min(fit))
    }
}

impl TryFrom<Row> for PositionedEvent {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        let seq = Seq::new(row.seq).unwrap_or_default();
        let place = LogPosition { seq, lane: u8::try_from(row.lane).unwrap_or(0), position: row.position };
        let event = Recorded {
            run_id: RunId::trusted(row.run_id),
            seq: Some(seq),
            event_type: EventType::trusted(&row.event_type),
            role: known(Role::parse(&row.role), &row.role)?,
            agent: row.agent.map(Arc::from),
            owner_id: Arc::from(row.owner_id),
            span_id: row.span_id.as_deref().map(SpanId::trusted),
            parent_span_id: row.parent_span_id.as_deref().map(SpanId::trusted),
            event_id: row.event_id.as_deref().map(EventId::trusted),
            at: row.at,
            payload: Json::trusted(row.payload),
        };
        Ok((place, event))
    }
}

repository! {
    /// The log of one run.
    Events, events
}

impl Events<'_> {
    /// Up to `limit` events of a run after `after`, up to the owner's byte limit; `None` if the owner has no such run.
    pub async fn page(self, owner: &OwnerId, run: RunId, after: Seq, limit: i64) -> Result<Option<RunPage>, Error> {
        self.page_of(owner, run, after, limit, self.page_bytes(owner)).await
    }

    /// The same with a byte limit.
    pub async fn page_of(
        self,
        owner: &OwnerId,
        run: RunId,
        after: Seq,
        limit: i64,
        bytes_max: usize,
    ) -> Result<Option<RunPage>, Error> {
        self.scoped(owner, async |mut connection| {
            // The head first: events committed after it only make the page longer than the head states, never shorter.
            let Some(head) = Head::read(&mut connection, owner, run).await? else { return Ok(None) };
            let mut page = Filling::new(limit, bytes_max);
            while let Some(rows) = page.next_pass() {
                let after = page.events.last().map_or(after, |(place, _)| place.seq);
                let pass = sqlx::query_as!(
                    Row,
                    r#"select run_id, seq, lane, position, owner_id, type as event_type, role, agent, span_id,
                          parent_span_id, event_id, at, payload::text as "payload!"
                   from store.run_event where run_id = $1 and owner_id = $2 and seq > $3 order by seq limit $4"#,
                    run.uuid(),
                    owner.as_str(),
                    after.get(),
                    rows
                );
                page.take(rows, pass.fetch(&mut *connection)).await?;
            }
            let seen = page.events.last().map_or(after, |(place, _)| place.seq).max(after);
            if page.is_exhausted && seen < head.last_seq {
                // The log ends before the head's last seq: the run was deleted between the two reads.
                return Ok(None);
            }
            Ok(Some(head.page(page)))
        })
        .await
    }

    /// The lane and position of an event of a run.
    pub async fn position_of(self, owner: &OwnerId, run: RunId, seq: Seq) -> Result<Option<(u8, i64)>, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query!(
                "select lane, position from store.run_event where run_id = $1 and owner_id = $2 and seq = $3",
                run.uuid(),
                owner.as_str(),
                seq.get()
            )
            .fetch_optional(&mut *connection)
            .await?;
            Ok(row.map(|row| (u8::try_from(row.lane).unwrap_or(0), row.position)))
        })
        .await
    }

    /// The event of a run that has this `event_id`.
    pub async fn by_key(self, owner: &OwnerId, run: RunId, event: &EventId) -> Result<Option<Recorded>, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query_as!(
                Row,
                r#"select run_id, seq, lane, position, owner_id, type as event_type, role, agent, span_id,
                          parent_span_id, event_id, at, payload::text as "payload!"
                   from store.run_event where run_id = $1 and owner_id = $2 and event_id = $3"#,
                run.uuid(),
                owner.as_str(),
                event.as_str()
            )
            .fetch_optional(&mut *connection)
            .await?;
            Ok(row.map(PositionedEvent::try_from).transpose()?.map(|(_, event)| event))
        })
        .await
    }

    /// The first answer to an interrupt of a run whose payload is larger than `bytes_max`.
    pub async fn too_large_answer(self, owner: &OwnerId, run: RunId, bytes_max: usize) -> Result<Option<Seq>, Error> {
        self.scoped(owner, async |mut connection| {
            let seq = sqlx::query_scalar!(
                "select seq from store.run_event
                 where run_id = $1 and owner_id = $2 and type like 'interrupt.%' and type = 'interrupt.resolved'
                   and octet_length(payload::text) > $3
                 order by seq limit 1",
                run.uuid(),
                owner.as_str(),
                bytes_max as i64
            );
            Ok(seq.fetch_optional(&mut *connection).await?.and_then(Seq::new))
        })
        .await
    }

    /// The request and, if there is one, the resolution of an interrupt.
    pub async fn interrupt(self, owner: &OwnerId, run: RunId, interrupt: &str) -> Result<Vec<Recorded>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"select run_id, seq, lane, position, owner_id, type as event_type, role, agent, span_id,
                          parent_span_id, event_id, at, payload::text as "payload!"
                   from store.run_event
                   where run_id = $1 and owner_id = $2 and span_id = $3 and type like 'interrupt.%'
                   order by type desc, seq limit $4"#,
                run.uuid(),
                owner.as_str(),
                interrupt,
                INTERRUPT_EVENTS
            )
            .fetch_all(&mut *connection)
            .await?;
            rows.into_iter().map(|row| Ok(PositionedEvent::try_from(row)?.1)).collect()
        })
        .await
    }
}
