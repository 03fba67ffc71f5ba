//! Interrupts as far as somebody other than their run has to know of them.

use uuid::Uuid;

use super::{Error, Store, bounded};
use crate::domain::{
    checkpoint::{CheckpointId, Namespace},
    id::{RunId, SpanId, ThreadId},
    limits::{INTERRUPT_ROWS, READ_WAIT_MS_MAX},
    principal::OwnerId,
};

/// An interrupt that nobody has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenInterrupt {
    pub owner_id: OwnerId,
    pub run_id: RunId,
    pub interrupt_id: SpanId,
    /// As the producer said it.
    pub expires_at: Option<String>,
}

impl Store {
    /// The open interrupts of one run, oldest first.
    pub async fn open_interrupts(&self, owner: &OwnerId, run: RunId) -> Result<Vec<OpenInterrupt>, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut tx = self.owned(owner).await?;
            let rows = sqlx::query!(
                r#"select e.span_id as "span_id!", e.payload ->> 'expires_at' as expires_at
                   from store.run_event e
                   where e.run_id = $1 and e.owner_id = $2 and e.type like 'interrupt.%'
                     and e.type = 'interrupt.requested' and e.span_id is not null and not exists (
                         select from store.run_event z
                         where z.run_id = e.run_id and z.span_id = e.span_id and z.owner_id = $2
                           and z.type like 'interrupt.%' and z.type = 'interrupt.resolved')
                   order by e.seq limit $3"#,
                run.uuid(),
                owner.as_str(),
                INTERRUPT_ROWS
            )
            .fetch_all(&mut *tx)
            .await?;
            tx.commit().await?;
            let open = rows.into_iter().map(|row| OpenInterrupt {
                owner_id: owner.clone(),
                run_id: run,
                interrupt_id: SpanId::trusted(&row.span_id),
                expires_at: row.expires_at,
            });
            Ok(open.collect())
        })
        .await
    }

    /// The newest checkpoint that a run has put into its thread, of the root namespace if it has put any there.
    pub async fn checkpoint_of_run(
        &self,
        owner: &OwnerId,
        thread: &ThreadId,
        run: RunId,
    ) -> Result<Option<(Namespace, CheckpointId)>, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut tx = self.owned(owner).await?;
            let row = sqlx::query!(
                r#"select c.ns, c.checkpoint_id
                   from store.checkpoint c
                   join store.thread t on t.thread_no = c.thread_no and t.owner_id = c.owner_id
                   where c.owner_id = $1 and t.thread_id = $2 and c.run_id = $3
                   order by c.ns = '' desc, c.checkpoint_id desc limit 1"#,
                owner.as_str(),
                thread.as_str(),
                run.to_string()
            )
            .fetch_optional(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(row.map(|row| (Namespace::trusted(&row.ns), CheckpointId::trusted(&row.checkpoint_id))))
        })
        .await
    }

    /// Open interrupts of all owners' runs that say when they expire, after the given one; not narrowed to an owner, so
    /// only the sweep asks.
    pub(crate) async fn expiring_interrupts(&self, after: (Uuid, i64)) -> Result<Vec<(i64, OpenInterrupt)>, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut connection = self.relay_connection().await?;
            let rows = sqlx::query!(
                r#"select r.owner_id, r.run_id, e.seq, e.span_id as "span_id!", e.payload ->> 'expires_at' as expires_at
                   from store.run r
                   join store.run_event e on e.run_id = r.run_id
                   where r.status not in ('completed', 'failed', 'cancelled') and e.type like 'interrupt.%'
                     and e.type = 'interrupt.requested' and e.span_id is not null
                     and e.payload ->> 'expires_at' is not null and not exists (
                         select from store.run_event z
                         where z.run_id = e.run_id and z.span_id = e.span_id
                           and z.type like 'interrupt.%' and z.type = 'interrupt.resolved')
                     and r.run_id >= $1 and (e.run_id, e.seq) > ($1, $2)
                   order by e.run_id, e.seq limit $3"#,
                after.0,
                after.1,
                INTERRUPT_ROWS
            )
            .fetch_all(&mut *connection)
            .await?;
            let open = rows.into_iter().map(|row| {
                let interrupt = OpenInterrupt {
                    owner_id: OwnerId::trusted(&row.owner_id),
                    run_id: RunId::trusted(row.run_id),
                    interrupt_id: SpanId::trusted(&row.span_id),
                    expires_at: row.expires_at,
                };
                (row.seq, interrupt)
            });
            Ok(open.collect())
        })
        .await
    }
}
