//! The positions of the log, its histories, and whether the database is the one it was written in.

use super::{Error, Store};
use crate::domain::{
    cursor::FeedCursor,
    history::{Fork, Histories, Tag},
};

/// The state of the log.
#[derive(Clone, Debug)]
pub struct LogState {
    pub tail: FeedCursor,
    pub histories: Histories,
    /// The database is in another cluster, or on another timeline of it, than the one the current history was written
    /// in: a restored copy or a promoted replica.
    pub is_elsewhere: bool,
}

impl Store {
    /// The positions of all lanes and every history the database knows, in one snapshot.
    pub async fn log_standing(&self) -> Result<LogState, Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query!(
                r#"select null::bigint as tag, array_agg(position order by lane) as "positions!",
                          store.is_elsewhere() as "flag!"
                   from store.lane
                   union all
                   (select tag, cut, ordinal <= 0 from store.history order by ordinal)"#
            )
            .fetch_all(&mut *connection)
            .await?;
            let (mut tail, mut forks, mut is_elsewhere) = (FeedCursor::start(), Vec::new(), false);
            for row in rows {
                match row.tag {
                    None => (tail, is_elsewhere) = (FeedCursor::of(row.positions), row.flag),
                    Some(tag) => forks.push(Fork { tag: Tag::stored(tag), cut: row.positions, is_lost: row.flag }),
                }
            }
            let histories = Histories::of(forks);
            Ok(LogState { tail: tail.of_history(histories.current()), histories, is_elsewhere })
        })
        .await
    }

    /// Begins another history at the lanes' current positions, unless the current one is no longer `current`. `lost`
    /// are the histories that the database has lost, in order. Writers of the old history are fenced off.
    pub async fn begin_history(&self, current: Tag, lost: &[Fork], tag: Tag) -> Result<(), Error> {
        let tags: Vec<i64> = lost.iter().map(|fork| fork.tag.number()).collect();
        let cuts: Vec<String> = lost.iter().map(|fork| serde_json::json!(fork.cut).to_string()).collect();
        self.maintenance(async |mut connection| {
            sqlx::query!(
                r#"with lane as (
                       update store.lane set epoch = epoch + 1, history = $2 where history = $1 returning lane, position
                   ), forked as (
                       select array_agg(position order by lane) as cut from lane having count(*) > 0
                   ), noted as (
                       insert into store.origin (origin) select store.log_origin() from forked
                       on conflict (single) do update set origin = excluded.origin
                   )
                   insert into store.history (ordinal, tag, cut)
                   select (select greatest(max(ordinal), 0) + 1 from store.history), $2, cut from forked
                   union all
                   select (select least(min(ordinal), 1) from store.history) - cardinality($3::bigint[]) + l.n - 1, l.tag,
                          array(select json_array_elements_text(l.cut::json)::bigint)
                   from forked cross join unnest($3::bigint[], $4::text[]) with ordinality as l (tag, cut, n)"#,
                current.number(),
                tag.number(),
                &tags,
                &cuts
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }

    /// Records in which database the log is written, unless already recorded.
    pub async fn note_origin(&self) -> Result<(), Error> {
        self.maintenance(async |mut connection| {
            sqlx::query!(
                "insert into store.origin (origin) values (store.log_origin()) on conflict (single) do nothing"
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }
}
