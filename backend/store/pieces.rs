//! Which pieces of a lane are noted as having events of an owner (`store.owner_piece`).
//!
//! A feed finds its owner's events through these notes, so the statement that appends makes them. This process caches
//! its notes: most appends have none to make, and need no query for that.

use std::sync::Arc;

use lru::LruCache;

use super::{Error, Store};
use crate::domain::{
    event::Recorded,
    limits::{PIECE_OWNERS_MAX, PIECE_RECENT_POSITIONS},
};

/// Positions per piece; the statements that write and read the notes contain the same number.
pub(super) const PIECE_POSITIONS: i64 = 512;

/// The last piece of a lane that is noted, by owner.
#[derive(Debug)]
pub(super) struct Pieces(LruCache<Arc<str>, i64>);

/// The owners of a batch, and for each the last piece that is known to be noted.
#[derive(Debug, Default)]
pub(super) struct Owners {
    pub owner_id: Vec<Arc<str>>,
    pub noted: Vec<Option<i64>>,
}

impl Owners {
    /// The last position up to which all of them are noted; -1 if that is unknown for one of them.
    pub(super) fn noted_until(&self) -> i64 {
        let last = self.noted.iter().copied().min().flatten();
        last.map_or(-1, |piece| (piece + 1) * PIECE_POSITIONS - 1)
    }
}

impl Pieces {
    pub(super) fn new() -> Self {
        Self(LruCache::new(PIECE_OWNERS_MAX))
    }

    /// The owners of these events, without duplicates.
    pub(super) fn of(&mut self, events: &[Recorded]) -> Owners {
        let mut owner_id: Vec<Arc<str>> = events.iter().map(|event| Arc::clone(&event.owner_id)).collect();
        // Neighbours first: events of one run mostly follow each other, and sorting a few owners costs nothing.
        owner_id.dedup();
        owner_id.sort_unstable();
        owner_id.dedup();
        let noted = owner_id.iter().map(|owner| self.0.get(owner).copied()).collect();
        Owners { owner_id, noted }
    }

    /// Caches what an executed statement has noted up to its last position.
    pub(super) fn note(&mut self, owners: Owners, last_position: i64) {
        for owner in owners.owner_id {
            self.0.put(owner, last_position / PIECE_POSITIONS);
        }
    }
}

impl Store {
    /// Adds the notes that are missing for the last events of every lane: those of a server of an earlier release,
    /// which does not make notes and may have written until a moment ago.
    pub async fn note_recent_pieces(&self) -> Result<(), Error> {
        self.maintenance(async |mut connection| {
            sqlx::query!(
                r#"insert into store.owner_piece (owner_id, lane, piece)
                   select distinct e.owner_id, e.lane, e.position / 512
                   from store.lane l
                   cross join lateral (
                       select * from store.run_event e where e.lane = l.lane and e.position > l.position - $1
                       order by e.position limit $1
                   ) e
                   on conflict do nothing"#,
                PIECE_RECENT_POSITIONS
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }
}
