//! The stored log with its links: of one run, for its owner, and of all runs, for the operator.

use std::collections::HashMap;

use futures::TryStreamExt as _;
use sqlx::PgConnection;
use uuid::Uuid;

use super::{
    Error,
    error::known,
    events::{PositionedEvent, Row},
};
use crate::domain::{
    artifact::Hash,
    chain::{Fault, FaultKind, Head, Stored, seal::Signature},
    event::timestamp,
    id::{RunId, Seq},
    limits::{EVENT_PAGE_BYTES_MAX, REPLAY_ROWS},
    principal::OwnerId,
    run::Status,
    splice::LogPosition,
};

/// Events of a run, and the run's head when they were read.
#[derive(Debug)]
pub struct ChainPage {
    pub head: Head,
    pub events: Vec<Stored>,
    /// Size of the payloads, bytes.
    pub bytes: usize,
    /// Whether no events follow.
    pub complete: bool,
}

/// An event of any run, and its run's head.
#[derive(Debug)]
pub struct AnyStored {
    pub place: LogPosition,
    pub stored: Stored,
    /// `None` if the run is gone.
    pub head: Option<Head>,
}

/// The newest seal that names a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastSeal {
    pub number: i64,
    pub at: String,
    pub sha256: Hash,
    pub last_seq: Seq,
    pub signature: Option<Signature>,
}

/// The position of a lane, and how many of its events were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneCount {
    pub position: i64,
    pub removed: i64,
}

repository! {
    /// The chains of runs.
    Chains, chains
}

impl Chains<'_> {
    /// The next events of a run after a seq; `None` if the owner has no such run.
    pub async fn page(self, owner: &OwnerId, run: RunId, after: Seq) -> Result<Option<ChainPage>, Error> {
        let bytes_max = self.page_bytes(owner);
        self.scoped(owner, async |mut connection| {
            // In one snapshot, so that a run that continues does not look edited.
            let mut rows = sqlx::query!(
                r#"select r.owner_id as run_owner_id, r.last_seq, r.status, r.link as head, l.unlinked_to,
                          e.run_id as "run_id?", e.seq as "seq?", e.lane as "lane?", e.position as "position?",
                          e.owner_id as "owner_id?", e.type as "event_type?", e.role as "role?", e.agent, e.span_id,
                          e.parent_span_id, e.event_id, e.at as "at?", e.payload::text as payload, e.link
                   from store.run r
                   join store.lane l using (lane)
                   left join lateral (
                       select * from store.run_event v where v.run_id = r.run_id and v.owner_id = r.owner_id and v.seq > $3
                       order by v.seq limit $4) e on true
                   where r.run_id = $1 and r.owner_id = $2
                   order by e.seq"#,
                run.uuid(),
                owner.as_str(),
                after.get(),
                REPLAY_ROWS
            )
            .fetch(&mut *connection);
            let mut page: Option<ChainPage> = None;
            while let Some(row) = rows.try_next().await? {
                let page = match &mut page {
                    Some(page) => page,
                    None => page.insert(ChainPage {
                        head: Head {
                            owner_id: row.run_owner_id,
                            last_seq: Seq::new(row.last_seq).unwrap_or_default(),
                            status: known(Status::parse(&row.status), &row.status)?,
                            link: row.head.as_deref().and_then(Hash::from_bytes),
                        },
                        events: Vec::new(),
                        bytes: 0,
                        complete: false,
                    }),
                };
                // Null if there is no event.
                let (Some(run_id), Some(seq), Some(payload)) = (row.run_id, row.seq, row.payload) else { break };
                page.bytes += payload.len();
                let event = Row {
                    run_id,
                    seq,
                    lane: row.lane.unwrap_or_default(),
                    position: row.position.unwrap_or_default(),
                    owner_id: row.owner_id.unwrap_or_default(),
                    event_type: row.event_type.unwrap_or_default(),
                    role: row.role.unwrap_or_default(),
                    agent: row.agent,
                    span_id: row.span_id,
                    parent_span_id: row.parent_span_id,
                    event_id: row.event_id,
                    at: row.at.unwrap_or_default(),
                    payload,
                };
                page.events.push(stored(event, row.link.as_deref(), row.unlinked_to)?.1);
                if page.bytes >= bytes_max {
                    break;
                }
            }
            // A full page is followed by another, possibly empty one.
            let is_last = |page: &ChainPage| (page.events.len() as i64) < REPLAY_ROWS && page.bytes < bytes_max;
            Ok(page.map(|page| ChainPage { complete: is_last(&page), ..page }))
        })
        .await
    }

    /// The link of an event of a run, which may have none; `None` if there is no such event.
    pub async fn link_at(self, owner: &OwnerId, run: RunId, seq: Seq) -> Result<Option<Option<Hash>>, Error> {
        self.scoped(owner, async |mut connection| {
            let link = sqlx::query_scalar!(
                "select link from store.run_event where run_id = $1 and owner_id = $2 and seq = $3",
                run.uuid(),
                owner.as_str(),
                seq.get()
            );
            let link = link.fetch_optional(&mut *connection).await?;
            Ok(link.map(|link| link.as_deref().and_then(Hash::from_bytes)))
        })
        .await
    }

    /// The newest seal that names a run, and the first sealed event that is missing from the log or changed.
    pub async fn sealed(self, owner: &OwnerId, run: RunId) -> Result<(Option<LastSeal>, Option<Fault>), Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query!(
                r#"select s.number, s.at, s.sha256, s.key, s.signature, n.last_seq,
                          (select min(o.last_seq) from store.sealed_run o
                           left join lateral (select v.seq, v.link from store.run_event v
                                              where v.run_id = o.run_id and v.seq = o.last_seq limit 1) e on true
                           where o.run_id = $1 and o.owner_id = $2 and not o.is_removed
                             and case when e.seq is null or e.link is distinct from o.link
                                      then not store.was_removed_since(o.number, $1, o.last_seq) end) as faulty
                   from store.sealed_run n
                   cross join lateral (select * from store.seal l where l.number = n.number limit 1) s
                   where n.run_id = $1 and n.owner_id = $2 and not n.is_removed
                   order by n.number desc limit 1"#,
                run.uuid(),
                owner.as_str()
            )
            .fetch_optional(&mut *connection)
            .await?;
            let Some(row) = row else { return Ok((None, None)) };
            let fault = row.faulty.and_then(Seq::new).map(|seq| Fault { seq, kind: FaultKind::Sealed });
            let seal = LastSeal {
                number: row.number,
                at: timestamp(row.at),
                sha256: Hash::from_bytes(&row.sha256).unwrap_or(Hash::new([0; 32])),
                last_seq: Seq::new(row.last_seq).unwrap_or_default(),
                signature: row.key.zip(row.signature).map(|(key, signature)| Signature { key, signature }),
            };
            Ok((Some(seal), fault))
        })
        .await
    }

    /// Where the rows of a run and of its artifacts disagree with its events, at most 20 places. Checks the artifacts
    /// of events after one seq up to another.
    pub async fn row_faults(self, owner: &OwnerId, run: RunId, (after, to): (Seq, Seq)) -> Result<Vec<Fault>, Error> {
        self.scoped(owner, async |mut connection| faults_of(&mut connection, owner.as_str(), run, (after, to)).await)
            .await
    }

    /// The same, not on behalf of the owner.
    pub async fn any_row_faults(self, owner: &str, run: RunId, to: Seq) -> Result<Vec<Fault>, Error> {
        self.maintenance(async |mut connection| faults_of(&mut connection, owner, run, (Seq::ZERO, to)).await).await
    }

    /// Up to `limit` events of all runs after a run and seq, ordered by run, each with its run's head unless the run is
    /// gone; and the size of their payloads in bytes.
    pub async fn all_after(self, (run, seq): (Uuid, i64), limit: i64) -> Result<(Vec<AnyStored>, usize), Error> {
        self.maintenance(async |mut connection| {
            let mut rows = sqlx::query!(
                r#"select e.run_id, e.seq, e.lane, e.position, e.owner_id, e.type as event_type, e.role, e.agent, e.span_id,
                          e.parent_span_id, e.event_id, e.at, e.payload::text as "payload!", e.link, l.unlinked_to,
                          r.owner_id as "run_owner_id?", r.last_seq as "last_seq?", r.status as "status?", r.link as head
                   from (select * from store.run_event where run_id >= $1 and (run_id, seq) > ($1, $2)
                         order by run_id, seq limit $3) e
                   join store.lane l using (lane)
                   left join lateral (select * from store.run o where o.run_id = e.run_id limit 1) r on true
                   order by e.run_id, e.seq"#,
                run,
                seq,
                limit
            )
            .fetch(&mut *connection);
            let (mut events, mut bytes) = (Vec::new(), 0);
            while bytes < EVENT_PAGE_BYTES_MAX
                && let Some(row) = rows.try_next().await?
            {
                bytes += row.payload.len();
                let head = match (row.run_owner_id, row.last_seq, row.status) {
                    (Some(owner_id), Some(last_seq), Some(status)) => Some(Head {
                        owner_id,
                        last_seq: Seq::new(last_seq).unwrap_or_default(),
                        status: known(Status::parse(&status), &status)?,
                        link: row.head.as_deref().and_then(Hash::from_bytes),
                    }),
                    _ => None,
                };
                let (link, unlinked_to) = (row.link, row.unlinked_to);
                let row = Row {
                    run_id: row.run_id,
                    seq: row.seq,
                    lane: row.lane,
                    position: row.position,
                    owner_id: row.owner_id,
                    event_type: row.event_type,
                    role: row.role,
                    agent: row.agent,
                    span_id: row.span_id,
                    parent_span_id: row.parent_span_id,
                    event_id: row.event_id,
                    at: row.at,
                    payload: row.payload,
                };
                let (place, stored) = stored(row, link.as_deref(), unlinked_to)?;
                events.push(AnyStored { place, stored, head });
            }
            Ok((events, bytes))
        })
        .await
    }

    /// Runs without events, from the next page of runs after one, and where to continue; `None` at the end.
    pub async fn empty_runs(self, after: Uuid) -> Result<(Vec<RunId>, Option<Uuid>), Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query!(
                r#"select r.run_id, (select e.seq from store.run_event e where e.run_id = r.run_id limit 1) as seq
                   from store.run r where r.run_id > $1 order by r.run_id limit $2"#,
                after,
                REPLAY_ROWS
            )
            .fetch_all(&mut *connection)
            .await?;
            let next = rows.last().map(|row| row.run_id);
            let empty = rows.into_iter().filter(|row| row.seq.is_none()).map(|row| RunId::trusted(row.run_id));
            Ok((empty.collect(), next))
        })
        .await
    }

    /// Whether a run was removed by its owner or by its age, and nothing of it is left.
    pub async fn was_removed(self, run: RunId) -> Result<bool, Error> {
        self.maintenance(async |mut connection| {
            let gone = sqlx::query_scalar!(
                r#"select exists (select from store.removed_run where run_id = $1)
                          and not exists (select from store.run where run_id = $1)
                          and not exists (select from store.run_event where run_id = $1) as "gone!""#,
                run.uuid()
            );
            Ok(gone.fetch_one(&mut *connection).await?)
        })
        .await
    }

    /// The position of each lane, and how many of its events were removed.
    pub async fn lanes(self) -> Result<HashMap<u8, LaneCount>, Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query!(
                r#"select l.lane, l.position, coalesce((select sum(events) from store.removed g where g.lane = l.lane), 0)::bigint
                          as "removed!"
                   from store.lane l"#
            )
            .fetch_all(&mut *connection)
            .await?;
            let lanes = rows.into_iter().map(|row| {
                let count = LaneCount { position: row.position, removed: row.removed };
                (u8::try_from(row.lane).unwrap_or(0), count)
            });
            Ok(lanes.collect())
        })
        .await
    }
}

async fn faults_of(
    connection: &mut PgConnection,
    owner: &str,
    run: RunId,
    (after, to): (Seq, Seq),
) -> Result<Vec<Fault>, Error> {
    let rows = sqlx::query!(
        r#"select seq as "seq!", kind as "kind!" from store.row_faults($1, $2, $3, $4)"#,
        run.uuid(),
        owner,
        after.get(),
        to.get()
    );
    let fault = |seq, kind: &str| Fault {
        seq: Seq::new(seq).unwrap_or_default(),
        kind: if kind == "artifact" { FaultKind::Artifact } else { FaultKind::Record },
    };
    Ok(rows.fetch_all(connection).await?.into_iter().map(|row| fault(row.seq, &row.kind)).collect())
}

fn stored(row: Row, link: Option<&[u8]>, unlinked_to: i64) -> Result<(LogPosition, Stored), Error> {
    let is_chained = row.position > unlinked_to;
    let (place, event) = PositionedEvent::try_from(row)?;
    Ok((place, Stored { event, link: link.and_then(Hash::from_bytes), is_chained }))
}
