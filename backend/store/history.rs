//! Where the log stands, in which history, and in which cluster of Postgres.

use super::{Error, Store, bounded};
use crate::domain::{
    cursor::FeedCursor,
    history::{Fork, Histories, Tag},
    limits::READ_WAIT_MS_MAX,
};

/// Where the log stands.
#[derive(Clone, Debug)]
pub struct Standing {
    pub tail: FeedCursor,
    pub histories: Histories,
}

/// In which cluster, and on which of its timelines, the log was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// What was noted last; nothing before the first server.
    pub before: Option<String>,
    pub now: String,
}

impl Store {
    /// Where all lanes stand, with every history the database knows, in one snapshot.
    pub async fn log_standing(&self) -> Result<Standing, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut connection = self.relay_connection().await?;
            let rows = sqlx::query!(
                r#"select null::bigint as tag, array_agg(position order by lane) as "positions!" from store.lane
                   union all
                   (select tag, cut from store.history order by ordinal)"#
            )
            .fetch_all(&mut *connection)
            .await?;
            let (mut tail, mut forks) = (FeedCursor::start(), Vec::new());
            for row in rows {
                match row.tag {
                    None => tail = FeedCursor::of(row.positions),
                    Some(tag) => forks.push(Fork { tag: Tag::stored(tag), cut: row.positions }),
                }
            }
            let histories = Histories::of(forks);
            Ok(Standing { tail: tail.of_history(histories.current()), histories })
        })
        .await
    }

    /// Begins another history where the lanes stand now, unless the current one is not `current` any more. `lost` are
    /// those that the database has forgotten. Writers of the old history are fenced off.
    pub async fn begin_history(&self, current: Tag, lost: &[Fork], tag: Tag) -> Result<(), Error> {
        let tags: Vec<i64> = lost.iter().map(|fork| fork.tag.number()).collect();
        let cuts: Vec<String> = lost.iter().map(|fork| serde_json::json!(fork.cut).to_string()).collect();
        bounded(READ_WAIT_MS_MAX, async {
            let mut connection = self.relay_connection().await?;
            sqlx::query!(
                r#"with lane as (
                       update store.lane set epoch = epoch + 1, history = $2 where history = $1 returning lane, position
                   ), forked as (
                       select $2::bigint as tag, array_agg(position order by lane) as cut, 1 as last from lane having count(*) > 0
                       union all
                       select l.tag, array(select json_array_elements_text(l.cut::json)::bigint), 0
                       from unnest($3::bigint[], $4::text[]) as l (tag, cut) where exists (select from lane)
                   )
                   insert into store.history (ordinal, tag, cut)
                   select (select coalesce(max(ordinal), 0) from store.history) + row_number() over (order by last), tag, cut
                   from forked"#,
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

    /// The cluster and timeline the log was written in, and those it is in now.
    pub async fn origin(&self) -> Result<Origin, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut connection = self.relay_connection().await?;
            let row = sqlx::query!(
                r#"select (select origin from store.origin) as before,
                          (select system_identifier from pg_control_system()) || '/' ||
                          left(pg_walfile_name(pg_current_wal_lsn()), 8) as "now!""#
            )
            .fetch_one(&mut *connection)
            .await?;
            Ok(Origin { before: row.before, now: row.now })
        })
        .await
    }

    /// Notes the cluster and timeline the log is written in.
    pub async fn note_origin(&self, origin: &str) -> Result<(), Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut connection = self.relay_connection().await?;
            sqlx::query!(
                "insert into store.origin (origin) values ($1) on conflict (single) do update set origin = excluded.origin",
                origin
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }
}
