//! Trees of runs that may be due for removal: found among all owners, and removed as their owner.

use chrono::{DateTime, Utc};
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::{Error, Store, retention};
use crate::domain::{id::RunId, limits::EXPIRY_REMOVAL_MS_MAX, principal::OwnerId, retention::Age};

/// A tree of runs in which every run has ended.
#[derive(Clone, Debug)]
pub struct EndedTree {
    pub owner: OwnerId,
    pub root: RunId,
    pub age: Age,
    pub runs: Vec<RunId>,
    pub events: i64,
}

/// A place in the order in which runs end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EndPlace(DateTime<Utc>, Uuid);

/// Trees in the order in which their last runs ended, and where to continue; `None` at the end.
#[derive(Clone, Debug, Default)]
pub struct EndedTrees {
    pub trees: Vec<EndedTree>,
    pub next: Option<EndPlace>,
}

/// The ended ones of some trees.
#[derive(Debug)]
pub(super) struct Trees {
    pub ended: Vec<EndedTree>,
    /// Whether all of those trees have ended.
    pub have_ended: bool,
}

/// A connection that removes trees.
#[derive(Debug)]
pub struct Remover {
    pub(super) connection: PgConnection,
}

impl Store {
    /// The shortest time to live that an ended run has of its own, seconds.
    pub async fn least_run_ttl(&self) -> Result<Option<i64>, Error> {
        self.maintenance(async |mut connection| {
            let least =
                sqlx::query_scalar!("select min(ttl_s) from store.run where ttl_s > 0 and ended_at is not null");
            Ok(least.fetch_one(&mut *connection).await?)
        })
        .await
    }

    /// The trees whose last run ended after a place and before a moment, found among the next `limit` ended runs.
    pub async fn ended_trees(
        &self,
        after: Option<EndPlace>,
        before: DateTime<Utc>,
        limit: i64,
    ) -> Result<EndedTrees, Error> {
        let EndPlace(ended_at, run) = after.unwrap_or(EndPlace(DateTime::UNIX_EPOCH, Uuid::nil()));
        self.maintenance(async |mut connection| {
            // A tree counts at its last run to end, so each is checked as a whole, once.
            let rows = sqlx::query!(
                r#"select p.ended_at as "ended_at!", p.run_id, p.owner_id, p.root_run_id,
                          last.run_id = p.run_id as "is_last!"
                   from (select ended_at, run_id, owner_id, root_run_id from store.run
                         where ended_at is not null and (ended_at, run_id) > ($1, $2) and ended_at < $3
                         order by ended_at, run_id limit $4) p
                   cross join lateral (
                       select r.run_id from store.run r
                       where r.root_run_id = p.root_run_id and r.owner_id = p.owner_id
                       order by r.ended_at desc nulls first, r.run_id desc limit 1) last
                   order by p.ended_at, p.run_id"#,
                ended_at,
                run,
                before,
                limit
            )
            .fetch_all(&mut *connection)
            .await?;
            let is_last = i64::try_from(rows.len()).is_ok_and(|rows| rows < limit);
            let next = rows.last().filter(|_| !is_last).map(|last| EndPlace(last.ended_at, last.run_id));
            let (roots, owners) =
                rows.into_iter().filter(|row| row.is_last).map(|row| (row.root_run_id, row.owner_id)).unzip();
            Ok(EndedTrees { trees: trees(&mut connection, roots, owners).await?.ended, next })
        })
        .await
    }

    /// A connection that removes trees, outside the pool, because a large tree takes longer than a request may.
    pub async fn remover(&self) -> Result<Remover, Error> {
        let mut connection = self.dedicated("runreel_retention").await?;
        let longer =
            sqlx::query_scalar!("select set_config('statement_timeout', $1, false)", EXPIRY_REMOVAL_MS_MAX.to_string());
        longer.fetch_one(&mut connection).await?;
        Ok(Remover { connection })
    }
}

impl Remover {
    /// Removes a tree in one transaction; returns the number of events, or `None` if the tree has changed since it was
    /// found: another server removed it, or a run was added to it.
    pub async fn remove(&mut self, tree: &EndedTree) -> Result<Option<i64>, Error> {
        let mut tx = self.connection.begin().await?;
        retention::act_for(&mut tx, &tree.owner).await?;
        let now = sqlx::query!(
            r#"select coalesce(array_agg(run_id), '{}') as "runs!", bool_and(ended_at is not null) as is_over,
                      max(greatest(ended_at, imported_at)) as since
               from store.run where root_run_id = $1 and owner_id = $2"#,
            tree.root.uuid(),
            tree.owner.as_str()
        );
        let now = now.fetch_one(&mut *tx).await?;
        if now.is_over != Some(true) || now.since != Some(tree.age.since) {
            tx.rollback().await?;
            return Ok(None);
        }
        let events = retention::remove_runs(&mut tx, &tree.owner, &now.runs).await?;
        let is_whole = sqlx::query_scalar!(
            r#"select not exists (select from store.run where root_run_id = $1 and owner_id = $2) as "is_whole!""#,
            tree.root.uuid(),
            tree.owner.as_str()
        );
        if !is_whole.fetch_one(&mut *tx).await? {
            tx.rollback().await?;
            return Ok(None);
        }
        tx.commit().await?;
        Ok(Some(events))
    }

    pub async fn close(self) {
        let _ = self.connection.close().await;
    }
}

/// Trees by their roots and owners.
pub(super) async fn trees(
    connection: &mut PgConnection,
    roots: Vec<Uuid>,
    owners: Vec<String>,
) -> Result<Trees, Error> {
    // The top run of a tree is its root, or its oldest remaining run if the root was deleted alone.
    let rows = sqlx::query!(
        r#"select w.root_run_id as "root_run_id!", w.owner_id as "owner_id!", t.since, t.is_over, t.runs, t.events,
                  top.ttl_s as "ttl_s?", top.agent as "agent?", top.tags as "tags?"
           from unnest($1::uuid[], $2::text[]) with ordinality as w (root_run_id, owner_id, place)
           cross join lateral (
               select max(greatest(r.ended_at, r.imported_at)) as since, bool_and(r.ended_at is not null) as is_over,
                      array_agg(r.run_id) as runs, sum(r.last_seq)::bigint as events
               from store.run r where r.root_run_id = w.root_run_id and r.owner_id = w.owner_id) t
           left join lateral (
               select r.ttl_s, r.agent, r.tags from store.run r
               where r.root_run_id = w.root_run_id and r.owner_id = w.owner_id
               order by r.run_id <> r.root_run_id, r.created_at, r.run_id limit 1) top on true
           order by w.place"#,
        &roots,
        &owners
    );
    let rows = rows.fetch_all(connection).await?;
    let asked = rows.len();
    let ended = rows.into_iter().filter(|row| row.is_over == Some(true)).filter_map(|row| {
        Some(EndedTree {
            owner: OwnerId::trusted(&row.owner_id),
            root: RunId::trusted(row.root_run_id),
            age: Age { since: row.since?, ttl_s: row.ttl_s, agent: row.agent, tags: row.tags.unwrap_or_default() },
            runs: row.runs.unwrap_or_default().into_iter().map(RunId::trusted).collect(),
            events: row.events.unwrap_or(0),
        })
    });
    let ended: Vec<EndedTree> = ended.collect();
    Ok(Trees { have_ended: ended.len() == asked, ended })
}
