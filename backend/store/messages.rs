//! The messages of a thread, from the log.

use crate::store::threads::Threads;
use chrono::{DateTime, Utc};
use serde_json::Value;

use super::Error;
use crate::domain::{
    id::{RunId, Seq, ThreadId},
    limits::{SAID_ROWS, SAID_RUNS},
    principal::OwnerId,
    transcript::fallback::Logged,
};

impl Threads<'_> {
    /// A thread's own runs after one of them (`None`: from the beginning), oldest first; an empty page is the end.
    pub async fn runs(
        self,
        owner: &OwnerId,
        thread: &ThreadId,
        after: Option<(DateTime<Utc>, RunId)>,
    ) -> Result<Vec<(DateTime<Utc>, RunId)>, Error> {
        let (at, run) = after.unzip();
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_file!(
                "store/sql/talks.sql",
                owner.as_str(),
                thread.as_str(),
                at,
                run.map(RunId::uuid),
                SAID_RUNS
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.into_iter().map(|row| (row.created_at, RunId::trusted(row.run_id))).collect())
        })
        .await
    }

    /// Messages and tool calls of these runs after a place, in order, and the place after them; an empty page is the
    /// end. A place is a run's index in the list, from 1, and a seq.
    pub async fn logged(
        self,
        owner: &OwnerId,
        runs: &[RunId],
        (place, seq): (i64, Seq),
    ) -> Result<(Vec<Logged>, Option<(i64, Seq)>), Error> {
        let runs: Vec<uuid::Uuid> = runs.iter().copied().map(RunId::uuid).collect();
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_file!("store/sql/messages.sql", owner.as_str(), &runs, place, seq.get(), SAID_ROWS)
                .fetch_all(&mut *connection)
                .await?;
            let next = rows.last().map(|row| (row.place, Seq::new(row.seq).unwrap_or_default()));
            let logged = rows.into_iter().map(|row| Logged {
                run: RunId::trusted(row.run_id),
                is_tool: row.is_tool,
                span: row.span_id,
                payload: serde_json::from_str(&row.payload).unwrap_or(Value::Null),
            });
            Ok((logged.collect(), next))
        })
        .await
    }

    /// Whether the thread has a row or a run.
    pub async fn exists(self, owner: &OwnerId, thread: &ThreadId) -> Result<bool, Error> {
        self.scoped(owner, async |mut connection| {
            let there = sqlx::query_scalar!(
                r#"select exists (select from store.thread where owner_id = $1 and thread_id = $2)
                       or exists (select from store.run where owner_id = $1 and thread_id = $2) as "there!""#,
                owner.as_str(),
                thread.as_str()
            )
            .fetch_one(&mut *connection)
            .await?;
            Ok(there)
        })
        .await
    }
}
