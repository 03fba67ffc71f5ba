//! Pages of one run's log.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Error, Store, bounded};
use crate::domain::{
    context::Role,
    event::{EventType, Recorded},
    history::Tag,
    id::{EventId, RunId, Seq, SpanId},
    json::Json,
    limits::READ_WAIT_MS_MAX,
    principal::OwnerId,
    splice::Place,
};

/// An event and where it stands.
pub type Placed = (Place, Recorded);

/// A page of a run's log, and what was true in the same snapshot.
#[derive(Debug)]
pub struct RunPage {
    pub events: Vec<Placed>,
    pub last_seq: Seq,
    pub lane: u8,
    /// The last position of the run's lane: everything up to here was committed when the page was read.
    pub lane_position: i64,
    /// The history the lane was written in then.
    pub history: Tag,
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

impl From<Row> for Placed {
    fn from(row: Row) -> Self {
        let seq = Seq::new(row.seq).unwrap_or_default();
        let place = Place { seq, lane: u8::try_from(row.lane).unwrap_or(0), position: row.position };
        let event = Recorded {
            run_id: RunId::trusted(row.run_id),
            seq: Some(seq),
            event_type: EventType::trusted(&row.event_type),
            role: Role::parse(&row.role).unwrap_or(Role::Agent),
            agent: row.agent.map(Arc::from),
            owner_id: Arc::from(row.owner_id),
            span_id: row.span_id.as_deref().map(SpanId::trusted),
            parent_span_id: row.parent_span_id.as_deref().map(SpanId::trusted),
            event_id: row.event_id.as_deref().map(EventId::trusted),
            at: row.at,
            payload: Json::trusted(row.payload),
        };
        (place, event)
    }
}

impl Store {
    /// Up to `limit` events of a run after `after`; `None` when the owner has no such run.
    pub async fn run_page(
        &self,
        owner: &OwnerId,
        run: RunId,
        after: Seq,
        limit: i64,
    ) -> Result<Option<RunPage>, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut tx = self.owned(owner).await?;
            // The head first: events committed after it only make the page longer than the head says, never shorter.
            let head = sqlx::query!(
                r#"select r.last_seq, r.lane, l.position, l.history from store.run r join store.lane l using (lane)
                   where r.run_id = $1 and r.owner_id = $2"#,
                run.uuid(),
                owner.as_str()
            )
            .fetch_optional(&mut *tx)
            .await?;
            let Some(head) = head else { return Ok(None) };
            let rows = sqlx::query_as!(
                Row,
                r#"select run_id, seq, lane, position, owner_id, type as event_type, role, agent, span_id,
                          parent_span_id, event_id, at, payload::text as "payload!"
                   from store.run_event where run_id = $1 and owner_id = $2 and seq > $3 order by seq limit $4"#,
                run.uuid(),
                owner.as_str(),
                after.get(),
                limit
            )
            .fetch_all(&mut *tx)
            .await?;
            tx.commit().await?;
            let seen = rows.last().map_or(0, |row| row.seq);
            if (rows.len() as i64) < limit && seen.max(after.get()) < head.last_seq {
                // The log ends before its head said: the run was deleted between the two reads.
                return Ok(None);
            }
            Ok(Some(RunPage {
                last_seq: Seq::new(head.last_seq.max(seen)).unwrap_or_default(),
                lane: u8::try_from(head.lane).unwrap_or(0),
                history: Tag::stored(head.history),
                lane_position: head.position.max(rows.last().map_or(0, |row| row.position)),
                events: rows.into_iter().map(Placed::from).collect(),
            }))
        })
        .await
    }

    /// Where an event of a run stands: its lane and its position.
    pub async fn place_of(&self, owner: &OwnerId, run: RunId, seq: Seq) -> Result<Option<(u8, i64)>, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut tx = self.owned(owner).await?;
            let row = sqlx::query!(
                "select lane, position from store.run_event where run_id = $1 and owner_id = $2 and seq = $3",
                run.uuid(),
                owner.as_str(),
                seq.get()
            )
            .fetch_optional(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(row.map(|row| (u8::try_from(row.lane).unwrap_or(0), row.position)))
        })
        .await
    }

    /// The event of a run that has this `event_id`.
    pub async fn event_of(&self, owner: &OwnerId, run: RunId, event: &EventId) -> Result<Option<Recorded>, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut tx = self.owned(owner).await?;
            let row = sqlx::query_as!(
                Row,
                r#"select run_id, seq, lane, position, owner_id, type as event_type, role, agent, span_id,
                          parent_span_id, event_id, at, payload::text as "payload!"
                   from store.run_event where run_id = $1 and owner_id = $2 and event_id = $3"#,
                run.uuid(),
                owner.as_str(),
                event.as_str()
            )
            .fetch_optional(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(row.map(|row| Placed::from(row).1))
        })
        .await
    }

    /// The request and, if there is one, the resolution of an interrupt.
    pub async fn interrupt(&self, owner: &OwnerId, run: RunId, interrupt: &str) -> Result<Vec<Recorded>, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut tx = self.owned(owner).await?;
            let rows = sqlx::query_as!(
                Row,
                r#"select run_id, seq, lane, position, owner_id, type as event_type, role, agent, span_id,
                          parent_span_id, event_id, at, payload::text as "payload!"
                   from store.run_event
                   where run_id = $1 and owner_id = $2 and span_id = $3 and type like 'interrupt.%' order by seq"#,
                run.uuid(),
                owner.as_str(),
                interrupt
            )
            .fetch_all(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(rows.into_iter().map(|row| Placed::from(row).1).collect())
        })
        .await
    }
}
