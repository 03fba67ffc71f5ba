//! Pages of many runs' logs at once, in the order of their lanes' positions.
//!
//! Invariant: the cost of a page depends only on the owner's own events, however many events of other owners lie
//! between. An owner's events are found through the pieces of the log that are noted as having some (`pieces`), those
//! of a thread or a tree through the keys of its runs.

use uuid::Uuid;

use super::{
    Error,
    events::{Filling, PositionedEvent, Row},
    pieces::PIECE_POSITIONS,
};
use crate::domain::{
    cursor::FeedCursor,
    history::Tag,
    id::{RunId, ThreadId},
    principal::OwnerId,
};

/// Positions that a page of a thread or a tree covers, from the first event found.
const FEED_PIECE_MAX: i64 = 50_000;
/// Noted pieces of the log that one statement reads: about as many positions. A piece may have become empty.
const OWN_PIECES_MAX: i64 = FEED_PIECE_MAX / PIECE_POSITIONS;

/// Which runs of an owner a feed shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    Everything,
    Thread(ThreadId),
    /// A run and all its descendants.
    Tree(RunId),
}

/// A page of a feed.
#[derive(Debug)]
pub struct FeedPage {
    pub events: Vec<PositionedEvent>,
    /// Everything up to here was read.
    pub tail: FeedCursor,
    pub complete: bool,
}

/// The last events of an owner in some pieces.
struct Part {
    /// The position of the first.
    first: Option<i64>,
    found: i64,
    /// The first of these pieces; `None` if there are no earlier ones.
    end: Option<i64>,
}

repository! {
    /// The log across runs: of an owner, a thread or a tree.
    Feeds, feeds
}

impl Feeds<'_> {
    /// The current positions of all lanes.
    pub async fn tail(self, owner: &OwnerId) -> Result<FeedCursor, Error> {
        self.unscoped(owner, async |mut connection| {
            let rows = sqlx::query!("select position, history from store.lane order by lane")
                .fetch_all(&mut *connection)
                .await?;
            let history = rows.first().map_or(Tag::FIRST, |row| Tag::stored(row.history));
            Ok(FeedCursor::of(rows.into_iter().map(|row| row.position).collect()).of_history(history))
        })
        .await
    }

    /// Up to `limit` events of an owner's feed after `after`, one lane at a time.
    pub async fn page(self, owner: &OwnerId, scope: &Scope, after: &FeedCursor, limit: i64) -> Result<FeedPage, Error> {
        let tail = self.tail(owner).await?;
        let mut page = FeedPage { events: Vec::new(), tail: after.clone().of_history(tail.history()), complete: true };
        let mut filling = Filling::new(limit, self.page_bytes(owner));
        for (lane, position) in tail.lanes() {
            if filling.is_full() {
                page.complete = false;
                break;
            }
            let (mut from, mut to) = (after.at(lane), position);
            if from >= to {
                continue;
            }
            let runs = self.scope_runs(owner, scope).await?;
            if let Some(runs) = &runs {
                let first = self.first_of_runs(owner, runs, lane, from).await?;
                from = first.map_or(to, |first| first - 1).clamp(from, to);
                to = to.min(from.saturating_add(FEED_PIECE_MAX));
            }
            match runs {
                _ if from == to => filling.is_exhausted = true,
                None => to = self.owner_range(owner, lane, from, to, &mut filling).await?,
                Some(runs) => self.runs_range(owner, &runs, lane, from, to, &mut filling).await?,
            }
            let last = filling.events.last().filter(|_| !filling.is_exhausted);
            let reached = last.map_or(to, |(place, _)| place.position);
            page.tail.advance(lane, reached);
            page.complete &= reached == position;
        }
        page.events = filling.events;
        Ok(page)
    }

    /// Reads an owner's events in a range of positions; returns how far it read.
    async fn owner_range(
        self,
        owner: &OwnerId,
        lane: u8,
        from: i64,
        to: i64,
        page: &mut Filling,
    ) -> Result<i64, Error> {
        self.scoped(owner, async |mut connection| {
            let last = sqlx::query_scalar!(
                r#"select max(piece) as "piece!" from (
                       select piece from store.owner_piece
                       where owner_id = $1 and lane = $2 and piece between $3::bigint / 512 and $4::bigint / 512
                       order by piece limit $5) as next
                   having count(*) = $5"#,
                owner.as_str(),
                i16::from(lane),
                from,
                to,
                OWN_PIECES_MAX
            )
            .fetch_optional(&mut *connection)
            .await?;
            let to = last.map_or(to, |piece| to.min((piece + 1) * PIECE_POSITIONS - 1));
            let limit = page.rows_left();
            let rows = sqlx::query_as!(
                Row,
                r#"select e.run_id as "run_id!", e.seq as "seq!", e.lane as "lane!", e.position as "position!",
                          e.owner_id as "owner_id!", e.type as "event_type!", e.role as "role!", e.agent, e.span_id,
                          e.parent_span_id, e.event_id, e.at as "at!", e.payload::text as "payload!"
                   from store.owner_piece p
                   cross join lateral (
                       select * from store.run_event e
                       where e.lane = $2 and e.owner_id = $1
                         and e.position > greatest($3, p.piece * 512 - 1)
                         and e.position <= least($4, p.piece * 512 + 511)
                       order by e.position limit $5
                   ) e
                   where p.owner_id = $1 and p.lane = $2 and p.piece between $3 / 512 and $4 / 512
                   order by p.piece, e.position limit $5"#,
                owner.as_str(),
                i16::from(lane),
                from,
                to,
                limit
            );
            page.take(limit, rows.fetch(&mut *connection)).await?;
            Ok(to)
        })
        .await
    }

    /// The runs of a feed; `None` for all of the owner's.
    async fn scope_runs(self, owner: &OwnerId, scope: &Scope) -> Result<Option<Vec<Uuid>>, Error> {
        Ok(match scope {
            Scope::Everything => None,
            Scope::Tree(root) => Some(self.tree(owner, *root).await?.into_iter().map(|(run, _)| run.uuid()).collect()),
            Scope::Thread(thread) => Some(self.thread_runs(owner, thread).await?),
        })
    }

    /// The first position after `from` at which one of these runs has an event.
    async fn first_of_runs(self, owner: &OwnerId, runs: &[Uuid], lane: u8, from: i64) -> Result<Option<i64>, Error> {
        self.scoped(owner, async |mut connection| {
            let first = sqlx::query_scalar!(
                r#"select min(e.position) from store.run r
                   cross join lateral (
                       select position from store.run_event e
                       where e.run_id = r.run_id and e.owner_id = $1 and e.seq > (select store.seq_at(r.run_id, $4))
                       order by e.seq limit 1
                   ) e
                   where r.run_id = any ($2) and r.owner_id = $1 and r.lane = $3 and r.last_position > $4"#,
                owner.as_str(),
                runs,
                i16::from(lane),
                from
            )
            .fetch_one(&mut *connection)
            .await?;
            Ok(first)
        })
        .await
    }

    /// A run and its descendants, with whether each has ended; empty if the owner has no such run.
    pub async fn tree(self, owner: &OwnerId, root: RunId) -> Result<Vec<(RunId, bool)>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query!(
                r#"with recursive tree as (
                       select run_id, status from store.run where run_id = $2 and owner_id = $1
                       union
                       select r.run_id, r.status
                       from store.run r join tree t on r.parent_run_id = t.run_id where r.owner_id = $1
                   )
                   select run_id as "run_id!", store.has_ended(status) as "ended!" from tree"#,
                owner.as_str(),
                root.uuid()
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.into_iter().map(|row| (RunId::trusted(row.run_id), row.ended)).collect())
        })
        .await
    }

    /// The cursor just before the last `count` events of a feed, in each lane.
    pub async fn before_tail(self, owner: &OwnerId, scope: &Scope, count: i64) -> Result<FeedCursor, Error> {
        let tail = self.tail(owner).await?;
        let runs = self.scope_runs(owner, scope).await?;
        let mut cursor = FeedCursor::start().of_history(tail.history());
        for (lane, position) in tail.lanes() {
            let first = match &runs {
                None => self.last_of_owner(owner, lane, position, count).await?,
                Some(runs) => self.last_of_runs(owner, runs, lane, position, count).await?,
            };
            cursor.advance(lane, first.map_or(position, |first| first - 1));
        }
        Ok(cursor)
    }

    /// The position at which the last `count` events of an owner in a lane begin.
    async fn last_of_owner(self, owner: &OwnerId, lane: u8, to: i64, count: i64) -> Result<Option<i64>, Error> {
        let (mut first, mut to, mut count) = (None, to, count);
        loop {
            let part = self.last_of_owner_in_part(owner, lane, to, count).await?;
            first = part.first.or(first);
            count -= part.found;
            match part.end {
                Some(piece) if count > 0 => to = piece * PIECE_POSITIONS - 1,
                _ => return Ok(first),
            }
        }
    }

    /// The same in the last pieces up to a position, as many as one statement reads.
    async fn last_of_owner_in_part(self, owner: &OwnerId, lane: u8, to: i64, count: i64) -> Result<Part, Error> {
        self.scoped(owner, async |mut connection| {
            let part = sqlx::query_as!(
                Part,
                r#"with pieces as materialized (
                       select piece from store.owner_piece where owner_id = $1 and lane = $2 and piece <= $3::bigint / 512
                       order by piece desc limit $5
                   )
                   select min(position) as first, count(*) as "found!",
                          (select min(piece) from pieces having count(*) = $5) as end
                   from (
                       select e.position from pieces p
                       cross join lateral (
                           select position from store.run_event e
                           where e.lane = $2 and e.owner_id = $1
                             and e.position >= p.piece * 512 and e.position <= least($3, p.piece * 512 + 511)
                           order by e.position desc limit $4
                       ) e
                       order by p.piece desc, e.position desc limit $4) as last"#,
                owner.as_str(),
                i16::from(lane),
                to,
                count,
                OWN_PIECES_MAX
            )
            .fetch_one(&mut *connection)
            .await?;
            Ok(part)
        })
        .await
    }

    /// The same for some runs. The last events are in the runs that had one most recently, so it reads no others.
    async fn last_of_runs(
        self,
        owner: &OwnerId,
        runs: &[Uuid],
        lane: u8,
        to: i64,
        count: i64,
    ) -> Result<Option<i64>, Error> {
        self.scoped(owner, async |mut connection| {
            let first = sqlx::query_scalar!(
                r#"select min(position) from (
                       select e.position from (
                           select run_id from store.run
                           where run_id = any ($2) and owner_id = $1 and lane = $3
                           order by last_position desc limit $5
                       ) r
                       cross join lateral (
                           select position from store.run_event e
                           where e.run_id = r.run_id and e.owner_id = $1 and e.position <= $4
                           order by e.seq desc limit $5
                       ) e
                       order by e.position desc limit $5) as last"#,
                owner.as_str(),
                runs,
                i16::from(lane),
                to,
                count
            )
            .fetch_one(&mut *connection)
            .await?;
            Ok(first)
        })
        .await
    }

    async fn thread_runs(self, owner: &OwnerId, thread: &ThreadId) -> Result<Vec<Uuid>, Error> {
        self.scoped(owner, async |mut connection| {
            let runs = sqlx::query_scalar!(
                "select run_id from store.run where owner_id = $1 and thread_id = $2",
                owner.as_str(),
                thread.as_str()
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(runs)
        })
        .await
    }

    /// The position up to which retention has removed events of this owner, per lane.
    pub async fn removed(self, owner: &OwnerId) -> Result<FeedCursor, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query!("select lane, position from store.removed where owner_id = $1", owner.as_str())
                .fetch_all(&mut *connection)
                .await?;
            let mut removed = FeedCursor::start();
            for row in rows {
                removed.advance(u8::try_from(row.lane).unwrap_or(0), row.position);
            }
            Ok(removed)
        })
        .await
    }

    /// The events of some runs of one lane in a range of positions.
    ///
    /// Within a run positions grow with seqs, so each run's start is found by bisection over its primary key, and the
    /// work depends on what is returned rather than on how long the runs are. The inner `select` makes Postgres bisect
    /// once per run: under row-level security it would otherwise do so for every row.
    async fn runs_range(
        self,
        owner: &OwnerId,
        runs: &[Uuid],
        lane: u8,
        from: i64,
        to: i64,
        page: &mut Filling,
    ) -> Result<(), Error> {
        self.scoped(owner, async |mut connection| {
            let limit = page.rows_left();
            let rows = sqlx::query_as!(
                Row,
                r#"select e.run_id as "run_id!", e.seq as "seq!", e.lane as "lane!", e.position as "position!",
                          e.owner_id as "owner_id!", e.type as "event_type!", e.role as "role!", e.agent, e.span_id,
                          e.parent_span_id, e.event_id, e.at as "at!", e.payload::text as "payload!"
                   from store.run r
                   cross join lateral (
                       select * from store.run_event e
                       where e.run_id = r.run_id and e.owner_id = $1 and e.seq > (select store.seq_at(r.run_id, $4))
                         and e.position > $4 and e.position <= $5
                       order by e.seq limit $6
                   ) e
                   where r.run_id = any ($2) and r.owner_id = $1 and r.lane = $3 and r.last_position > $4
                   order by e.position limit $6"#,
                owner.as_str(),
                runs,
                i16::from(lane),
                from,
                to,
                limit
            );
            page.take(limit, rows.fetch(&mut *connection)).await?;
            Ok(())
        })
        .await
    }
}
