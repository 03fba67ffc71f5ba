//! The place of a run in its tree, among the stored runs.
//!
//! Imports may bring the runs of a tree in any order, so a run may be stored before its parent, and the depth stored
//! with it counts from the topmost run known then. The true place is found by walking up and down; both walks end
//! regardless of what the parents state.

use super::{Error, error::known, runs::Runs};
use crate::domain::{
    context::RunContext,
    id::RunId,
    limits::{CANCEL_RUNS_MAX, RUN_DEPTH_MAX},
    principal::OwnerId,
    run::Status,
};

/// What is above and below a run that is about to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreePlace {
    /// The status of its parent; `None` if the owner has no such run.
    pub parent: Option<Status>,
    /// The stored runs above it, and those on the longest path below it; neither is counted beyond its bound.
    pub above: u16,
    pub below: u16,
    /// Whether its parents would make it its own ancestor.
    pub is_cycle: bool,
    /// Whether its parent, or a run of which it is the parent, has another root.
    pub has_other_root: bool,
}

impl Runs<'_> {
    /// Whether a run is `top` or one of its descendants, among the owner's runs.
    pub async fn is_in_tree(self, owner: &OwnerId, run: RunId, top: RunId) -> Result<bool, Error> {
        self.scoped(owner, async |mut connection| {
            let found = sqlx::query_scalar!(
                r#"with recursive above (run_id, parent_run_id, level) as (
                       select run_id, parent_run_id, 1 from store.run where run_id = $2 and owner_id = $1
                       union
                       select r.run_id, r.parent_run_id, a.level + 1
                       from above a join store.run r on r.run_id = a.parent_run_id
                       where r.owner_id = $1 and a.level <= $4
                   )
                   select exists (select from above where run_id = $3) as "found!""#,
                owner.as_str(),
                run.uuid(),
                top.uuid(),
                i32::from(RUN_DEPTH_MAX)
            )
            .fetch_one(&mut *connection)
            .await?;
            Ok(found)
        })
        .await
    }

    /// The place of a run with this context.
    pub async fn place_in_tree(self, context: &RunContext) -> Result<TreePlace, Error> {
        self.scoped(&context.owner_id, async |mut connection| {
            let row = sqlx::query!(
                r#"with recursive above (run_id, parent_run_id, root_run_id, status, level) as (
                       select run_id, parent_run_id, root_run_id, status, 1
                       from store.run where run_id = $3 and owner_id = $1
                       union
                       select r.run_id, r.parent_run_id, r.root_run_id, r.status, a.level + 1
                       from above a join store.run r on r.run_id = a.parent_run_id
                       where r.owner_id = $1 and a.level <= $5
                   ), below (run_id, root_run_id, level) as (
                       select run_id, root_run_id, 1 from store.run where parent_run_id = $2 and owner_id = $1
                       union
                       select r.run_id, r.root_run_id, b.level + 1
                       from below b join store.run r on r.parent_run_id = b.run_id
                       where r.owner_id = $1 and b.level <= $5
                   )
                   select (select status from above where level = 1) as parent,
                          coalesce((select max(level) from above), 0) as "above!",
                          coalesce((select max(level) from below), 0) as "below!",
                          exists (select from above where parent_run_id = $2) as "is_cycle!",
                          exists (select from above where level = 1 and root_run_id <> $4)
                          or exists (select from below where level = 1 and root_run_id <> $4) as "has_other_root!""#,
                context.owner_id.as_str(),
                context.run_id.uuid(),
                context.parent_run_id.map(RunId::uuid),
                context.root_run_id.uuid(),
                i32::from(RUN_DEPTH_MAX)
            )
            .fetch_one(&mut *connection)
            .await?;
            let levels = |levels: i32| u16::try_from(levels).unwrap_or(u16::MAX);
            Ok(TreePlace {
                parent: row.parent.map(|status| known(Status::parse(&status), &status)).transpose()?,
                above: levels(row.above),
                below: levels(row.below),
                is_cycle: row.is_cycle,
                has_other_root: row.has_other_root,
            })
        })
        .await
    }

    /// The descendants of a run that have not ended, the run itself first.
    pub async fn live_tree(self, owner: &OwnerId, root: RunId) -> Result<Vec<RunId>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_scalar!(
                r#"with recursive tree as (
                       select run_id, depth, status from store.run where run_id = $2 and owner_id = $1
                       union
                       select r.run_id, r.depth, r.status
                       from store.run r join tree t on r.parent_run_id = t.run_id where r.owner_id = $1
                   )
                   select run_id as "run_id!" from tree
                   where not store.has_ended(status) order by depth limit $3"#,
                owner.as_str(),
                root.uuid(),
                CANCEL_RUNS_MAX
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.into_iter().map(RunId::trusted).collect())
        })
        .await
    }
}
