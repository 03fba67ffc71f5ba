//! Threads: the rows that checkpoints, their values and pending writes belong to.

use chrono::{DateTime, Utc};

use super::{
    Error,
    page::{Page, page},
};
use crate::domain::{
    checkpoint::CheckpointId,
    id::{RunId, Seq, ThreadId},
    json::Json,
    principal::OwnerId,
};

/// A thread as stored.
#[derive(Clone, Debug)]
pub struct ThreadRecord {
    pub thread_id: ThreadId,
    pub owner_id: OwnerId,
    pub metadata: Json,
    /// Its own time to live, seconds: 0 is forever, `None` the server's default.
    pub ttl_s: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// The newest checkpoint of the root namespace.
    pub latest_checkpoint_id: Option<CheckpointId>,
}

/// What a `PUT` changes; `None` leaves the value unchanged.
#[derive(Clone, Debug, Default)]
pub struct ThreadChange {
    pub metadata: Option<Json>,
    pub ttl: TtlChange,
}

/// The change to a thread's own time to live.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TtlChange {
    #[default]
    Keep,
    /// Back to the server's default.
    Clear,
    /// Seconds; 0 is forever.
    To(i64),
}

/// One durable message of a thread's runs.
#[derive(Clone, Debug)]
pub struct Message {
    pub run_id: RunId,
    pub seq: Seq,
    pub message_id: Option<String>,
    pub agent: Option<String>,
    pub payload: Json,
    pub at: DateTime<Utc>,
}

#[derive(Debug)]
struct MessageRow {
    run_id: uuid::Uuid,
    seq: i64,
    span_id: Option<String>,
    agent: Option<String>,
    payload: String,
    at: DateTime<Utc>,
}

impl From<MessageRow> for Message {
    fn from(row: MessageRow) -> Self {
        Self {
            run_id: RunId::trusted(row.run_id),
            seq: Seq::new(row.seq).unwrap_or_default(),
            message_id: row.span_id,
            agent: row.agent,
            payload: Json::trusted(row.payload),
            at: row.at,
        }
    }
}

#[derive(Debug)]
struct Row {
    thread_id: String,
    owner_id: String,
    metadata: String,
    ttl_s: Option<i64>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
    latest_checkpoint_id: Option<String>,
}

impl From<Row> for ThreadRecord {
    fn from(row: Row) -> Self {
        Self {
            thread_id: ThreadId::trusted(&row.thread_id),
            owner_id: OwnerId::trusted(&row.owner_id),
            metadata: Json::trusted(row.metadata),
            ttl_s: row.ttl_s,
            created_at: row.created_at,
            updated_at: row.updated_at,
            latest_checkpoint_id: row.latest_checkpoint_id.as_deref().map(CheckpointId::trusted),
        }
    }
}

repository! {
    /// Threads and their messages.
    Threads, threads
}

impl Threads<'_> {
    /// Records that a thread is in use; `false` if there is none. A run that names it first writes its row, see
    /// [`Appender::append`](super::append::Appender::append).
    pub async fn renew(self, owner: &OwnerId, thread: &ThreadId, now: DateTime<Utc>) -> Result<bool, Error> {
        self.scoped(owner, async |mut connection| {
            let renewed = sqlx::query!(
                r#"update store.thread set updated_at = greatest(updated_at, $3)
                   where owner_id = $1 and thread_id = $2"#,
                owner.as_str(),
                thread.as_str(),
                now
            )
            .execute(&mut *connection)
            .await?;
            Ok(renewed.rows_affected() > 0)
        })
        .await
    }

    /// Waits for concurrent transactions that create the thread, so that the lane does not have to.
    pub async fn wait_for_others(self, owner: &OwnerId, thread: &ThreadId, now: DateTime<Utc>) -> Result<(), Error> {
        self.transaction(owner, async |mut tx| {
            sqlx::query!(
                r#"insert into store.thread (owner_id, thread_id, created_at, updated_at) values ($1, $2, $3, $3)
                   on conflict (owner_id, thread_id) do nothing"#,
                owner.as_str(),
                thread.as_str(),
                now
            )
            .execute(&mut *tx)
            .await?;
            // Not committed: the row is written with the run.
            Ok(())
        })
        .await
    }

    /// Creates or changes a thread; returns whether it is new.
    pub async fn put(
        self,
        owner: &OwnerId,
        thread: &ThreadId,
        change: &ThreadChange,
        now: DateTime<Utc>,
    ) -> Result<bool, Error> {
        self.scoped(owner, async |mut connection| {
            let created = sqlx::query_scalar!(
                r#"insert into store.thread as t (owner_id, thread_id, metadata, ttl_s, created_at, updated_at)
                   values ($1, $2, coalesce($3::text, '{}')::json, $4, $6, $6)
                   on conflict (owner_id, thread_id) do update
                   set metadata = coalesce($3::text::json, t.metadata),
                       ttl_s = case when $5 then $4 else t.ttl_s end,
                       updated_at = greatest(t.updated_at, $6)
                   returning xmax = 0 as "created!""#,
                owner.as_str(),
                thread.as_str(),
                change.metadata.as_ref().map(Json::as_str),
                if let TtlChange::To(ttl_s) = change.ttl { Some(ttl_s) } else { None },
                change.ttl != TtlChange::Keep,
                now
            )
            .fetch_one(&mut *connection)
            .await?;
            Ok(created)
        })
        .await
    }

    /// One thread of this owner.
    pub async fn get(self, owner: &OwnerId, thread: &ThreadId) -> Result<Option<ThreadRecord>, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query_as!(
                Row,
                r#"select thread_id, owner_id, metadata::text as "metadata!", ttl_s, created_at, updated_at,
                          (select max(c.checkpoint_id) from store.checkpoint c
                           where c.thread_no = t.thread_no and c.owner_id = t.owner_id and c.ns = '')
                              as latest_checkpoint_id
                   from store.thread t where owner_id = $1 and thread_id = $2"#,
                owner.as_str(),
                thread.as_str()
            )
            .fetch_optional(&mut *connection)
            .await?;
            Ok(row.map(ThreadRecord::from))
        })
        .await
    }

    /// Threads of this owner, newest first; `search` is text that their ids contain.
    pub async fn list(
        self,
        owner: &OwnerId,
        search: Option<&str>,
        wanted: &Page<(DateTime<Utc>, ThreadId)>,
    ) -> Result<(Vec<ThreadRecord>, bool), Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"select thread_id, owner_id, metadata::text as "metadata!", ttl_s, created_at, updated_at,
                          (select max(c.checkpoint_id) from store.checkpoint c
                           where c.thread_no = t.thread_no and c.owner_id = t.owner_id and c.ns = '')
                              as latest_checkpoint_id
                   from store.thread t
                   where owner_id = $1 and ($2::text is null or position(lower($2) in lower(thread_id)) > 0)
                     and ($3::timestamptz is null or (created_at, thread_id) < ($3, $4::text))
                   order by created_at desc, thread_id desc
                   limit $5"#,
                owner.as_str(),
                search,
                wanted.after.as_ref().map(|(created_at, _)| *created_at),
                wanted.after.as_ref().map(|(_, thread)| thread.as_str()),
                wanted.limit + 1
            );
            let (rows, more) = page(wanted.limit, rows.fetch(&mut *connection), |row| row.metadata.len()).await?;
            Ok((rows.into_iter().map(ThreadRecord::from).collect(), more))
        })
        .await
    }

    /// The durable messages of a thread's runs after the given one, oldest first.
    pub async fn messages(
        self,
        owner: &OwnerId,
        thread: &ThreadId,
        wanted: &Page<(RunId, Seq)>,
    ) -> Result<(Vec<Message>, bool), Error> {
        let limit = wanted.limit;
        let (run, seq) = wanted.after.map_or((uuid::Uuid::nil(), 0), |(run, seq)| (run.uuid(), seq.get()));
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                MessageRow,
                r#"select e.run_id, e.seq, e.span_id, e.agent, e.payload::text as "payload!", e.at
                   from store.run r
                   join store.run_event e on e.run_id = r.run_id and e.owner_id = r.owner_id
                   where r.owner_id = $1 and r.thread_id = $2 and r.run_id >= $3 and e.type = 'message.completed'
                     and (e.run_id, e.seq) > ($3, $4)
                   order by e.run_id, e.seq
                   limit $5"#,
                owner.as_str(),
                thread.as_str(),
                run,
                seq,
                limit + 1
            );
            let (rows, more) = page(limit, rows.fetch(&mut *connection), |row| row.payload.len()).await?;
            Ok((rows.into_iter().map(Message::from).collect(), more))
        })
        .await
    }

    /// The durable messages of a thread's runs before the given one, newest first.
    pub async fn messages_before(
        self,
        owner: &OwnerId,
        thread: &ThreadId,
        (run, seq): (RunId, Seq),
        limit: i64,
    ) -> Result<(Vec<Message>, bool), Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                MessageRow,
                r#"select e.run_id, e.seq, e.span_id, e.agent, e.payload::text as "payload!", e.at
                   from store.run r
                   join store.run_event e on e.run_id = r.run_id and e.owner_id = r.owner_id
                   where r.owner_id = $1 and r.thread_id = $2 and r.run_id <= $3 and e.type = 'message.completed'
                     and (e.run_id, e.seq) < ($3, $4)
                   order by e.run_id desc, e.seq desc
                   limit $5"#,
                owner.as_str(),
                thread.as_str(),
                run.uuid(),
                seq.get(),
                limit + 1
            );
            let (rows, more) = page(limit, rows.fetch(&mut *connection), |row| row.payload.len()).await?;
            Ok((rows.into_iter().map(Message::from).collect(), more))
        })
        .await
    }
}
