//! What was said in a thread, out of the log.

use serde_json::Value;

use super::{Error, Store, bounded};
use crate::domain::{
    id::{RunId, Seq, ThreadId},
    limits::{READ_WAIT_MS_MAX, REPLAY_ROWS},
    principal::OwnerId,
    transcript::fallback::Logged,
};

impl Store {
    /// Messages and tool calls of a thread's own runs after a place, in their order, and the place after them; an
    /// empty page is the end. `None` is the beginning.
    pub async fn said(
        &self,
        owner: &OwnerId,
        thread: &ThreadId,
        after: Option<(RunId, Seq)>,
    ) -> Result<(Vec<Logged>, Option<(RunId, Seq)>), Error> {
        let (run, seq) = after.map_or((uuid::Uuid::nil(), 0), |(run, seq)| (run.uuid(), seq.get()));
        bounded(READ_WAIT_MS_MAX, async {
            let mut tx = self.owned(owner).await?;
            let rows =
                sqlx::query_file!("backend/store/sql/said.sql", owner.as_str(), thread.as_str(), run, seq, REPLAY_ROWS)
                    .fetch_all(&mut *tx)
                    .await?;
            tx.commit().await?;
            let next = rows.last().map(|row| (RunId::trusted(row.run_id), Seq::new(row.seq).unwrap_or_default()));
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
    pub async fn has_thread(&self, owner: &OwnerId, thread: &ThreadId) -> Result<bool, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut tx = self.owned(owner).await?;
            let there = sqlx::query_scalar!(
                r#"select exists (select from store.thread where owner_id = $1 and thread_id = $2)
                       or exists (select from store.run where owner_id = $1 and thread_id = $2) as "there!""#,
                owner.as_str(),
                thread.as_str()
            )
            .fetch_one(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(there)
        })
        .await
    }
}
