//! The outbox: replies that are pending until they have been delivered.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Error;
use crate::domain::{
    id::{Name, RunId, ThreadId},
    json::Json,
    principal::OwnerId,
    session::inbound::{ChannelName, UserId},
};

/// A reply to be delivered.
#[derive(Clone, Debug)]
pub struct NewReply<'a> {
    pub owner: &'a OwnerId,
    pub channel: &'a ChannelName,
    pub user_id: &'a UserId,
    pub what: Promised<'a>,
    /// Where it is sent; `None` if the sender polls for it.
    pub target: Option<&'a Json>,
    pub now: DateTime<Utc>,
}

/// What the reply will contain.
#[derive(Clone, Debug)]
pub enum Promised<'a> {
    /// The answer of this run, in this session.
    Run { run_id: RunId, session_id: &'a Name, thread_id: &'a ThreadId },
    /// This text, in reply to this message.
    Text { inbound_no: i64, body: &'a str },
}

/// A claimed reply.
#[derive(Clone, Debug)]
pub struct PendingReply {
    pub reply_no: i64,
    pub owner_id: OwnerId,
    pub channel: ChannelName,
    pub user_id: UserId,
    pub run_id: Option<RunId>,
    pub body: Option<String>,
    pub session_id: Option<Name>,
    pub thread_id: Option<ThreadId>,
    pub target: Option<Json>,
    pub attempts: i32,
    pub is_logged: bool,
    pub parts_sent: i32,
}

#[derive(Debug)]
struct Row {
    reply_no: i64,
    owner_id: String,
    channel: String,
    user_id: String,
    run_id: Option<Uuid>,
    body: Option<String>,
    session_id: Option<String>,
    thread_id: Option<String>,
    target: Option<String>,
    attempts: i32,
    is_logged: bool,
    parts_sent: i32,
}

impl From<Row> for PendingReply {
    fn from(row: Row) -> Self {
        Self {
            reply_no: row.reply_no,
            owner_id: OwnerId::trusted(&row.owner_id),
            channel: ChannelName::trusted(&row.channel),
            user_id: UserId::trusted(&row.user_id),
            run_id: row.run_id.map(RunId::trusted),
            body: row.body,
            session_id: row.session_id.as_deref().map(Name::trusted),
            thread_id: row.thread_id.as_deref().map(ThreadId::trusted),
            target: row.target.map(Json::trusted),
            attempts: row.attempts,
            is_logged: row.is_logged,
            parts_sent: row.parts_sent,
        }
    }
}

repository! {
    /// Replies that are due, until they are delivered.
    Outbox, outbox
}

impl Outbox<'_> {
    /// Records that a reply will be due; repeating it has no effect.
    pub async fn promise(self, reply: NewReply<'_>) -> Result<(), Error> {
        self.scoped(reply.owner, async |mut connection| insert_reply(&mut connection, &reply).await).await
    }

    /// Claims replies that can be delivered now, of all owners or of one run: their runs have ended, or do not exist an
    /// hour after the reply was recorded. Without `can_send` only those without a target.
    pub async fn claim(
        self,
        only: Option<RunId>,
        can_send: bool,
        (now, lease_until): (DateTime<Utc>, DateTime<Utc>),
        most: i64,
    ) -> Result<Vec<PendingReply>, Error> {
        let gone_before = now - TimeDelta::hours(1);
        self.maintenance(async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"update store.reply r set attempts = r.attempts + 1, lease_until = $2
                   where reply_no in (
                       select w.reply_no from store.reply w
                       left join store.run u on u.run_id = w.run_id and u.owner_id = w.owner_id
                       where w.done_at is null and w.lease_until <= $1 and ($3::uuid is null or w.run_id = $3)
                         and (w.target is null or $6)
                         and (w.run_id is null or store.has_ended(u.status)
                              or u.run_id is null and w.created_at < $5
                                 and not exists (select from store.inbound i where i.run_id = w.run_id
                                                 and i.owner_id = w.owner_id and i.state in ('open', 'held')))
                       order by w.lease_until limit $4 for update of w skip locked)
                   returning reply_no, owner_id, channel, user_id, run_id, body, session_id, thread_id,
                             target::text as target, attempts, logged_at is not null as "is_logged!", parts_sent"#,
                now,
                lease_until,
                only.map(RunId::uuid),
                most,
                gone_before,
                can_send
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows.into_iter().map(PendingReply::from).collect())
        })
        .await
    }

    /// Records that the reply is in its session's log, and counts it there. One without a target is then delivered.
    pub async fn note_logged(
        self,
        reply: &PendingReply,
        (thread, line): (&ThreadId, &str),
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        self.scoped(&reply.owner_id, async |mut connection| {
            sqlx::query!(
                r#"with logged as (
                       update store.reply
                       set logged_at = $3, done_at = case when target is null then $3 else done_at end
                       where reply_no = $1 and owner_id = $2 and logged_at is null returning session_id
                   ), written as (
                       insert into store.session_line (owner_id, thread_id, line_key, line)
                       select $2, $4, $5, $6 from logged on conflict do nothing
                   )
                   update store.session s set answers = answers + 1, last_activity_at = greatest(last_activity_at, $3)
                   from logged where s.owner_id = $2 and s.session_id = logged.session_id"#,
                reply.reply_no,
                reply.owner_id.as_str(),
                now,
                thread.as_str(),
                format!("reply {}", reply.reply_no),
                line
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }

    /// Records how many parts of the reply the other side has acknowledged.
    pub async fn note_sent(self, reply: &PendingReply, parts: i32) -> Result<(), Error> {
        self.scoped(&reply.owner_id, async |mut connection| {
            sqlx::query!(
                "update store.reply set parts_sent = greatest(parts_sent, $3) where reply_no = $1 and owner_id = $2",
                reply.reply_no,
                reply.owner_id.as_str(),
                parts
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }

    /// The reply is delivered, or abandoned for this reason.
    pub async fn finish(self, reply: &PendingReply, failure: Option<&str>, now: DateTime<Utc>) -> Result<(), Error> {
        self.scoped(&reply.owner_id, async |mut connection| {
            sqlx::query!(
                r#"update store.reply set done_at = $3, failure = $4, body = null
                   where reply_no = $1 and owner_id = $2 and done_at is null"#,
                reply.reply_no,
                reply.owner_id.as_str(),
                now,
                failure
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }

    /// Postpones the next attempt until `until`.
    pub async fn reschedule(self, reply: &PendingReply, until: DateTime<Utc>) -> Result<(), Error> {
        self.deliveries().renew_reply(reply, until).await.map(drop)
    }

    /// Whether the run's answer is in its session's log, or never will be.
    pub async fn is_answered(self, owner: &OwnerId, run: RunId) -> Result<bool, Error> {
        self.scoped(owner, async |mut connection| {
            let open = sqlx::query_scalar!(
                r#"select exists (select from store.reply where owner_id = $1 and reply_key = $2
                                  and logged_at is null and done_at is null) as "open!""#,
                owner.as_str(),
                run.to_string()
            )
            .fetch_one(&mut *connection)
            .await?;
            Ok(!open)
        })
        .await
    }

    /// The payload of the last message that the run's agent completed.
    pub async fn last_message(self, owner: &OwnerId, run: RunId) -> Result<Option<Json>, Error> {
        self.scoped(owner, async |mut connection| {
            let payload = sqlx::query_scalar!(
                r#"select payload::text as "payload!" from store.run_event
                   where run_id = $1 and owner_id = $2 and type = 'message.completed'
                     and coalesce(payload ->> 'role', 'assistant') = 'assistant'
                   order by seq desc limit 1"#,
                run.uuid(),
                owner.as_str()
            )
            .fetch_optional(&mut *connection)
            .await?;
            Ok(payload.map(Json::trusted))
        })
        .await
    }
}

/// Records that a reply will be due, unless that is recorded already.
pub(super) async fn insert_reply(connection: &mut PgConnection, reply: &NewReply<'_>) -> Result<(), Error> {
    let (key, run, body, session, thread) = match &reply.what {
        Promised::Run { run_id, session_id, thread_id } => {
            (run_id.to_string(), Some(run_id.uuid()), None, Some(session_id.as_str()), Some(thread_id.as_str()))
        }
        Promised::Text { inbound_no, body } => (format!("#{inbound_no}"), None, Some(*body), None, None),
    };
    sqlx::query!(
        r#"insert into store.reply (owner_id, reply_key, channel, run_id, body, session_id, thread_id, user_id,
                                    target, created_at, lease_until)
           values ($1, $2, $3, $4, $5, $6, $7, $8, $9::text::json, $10, $10)
           on conflict (owner_id, reply_key) do nothing"#,
        reply.owner.as_str(),
        key,
        reply.channel.as_str(),
        run,
        body,
        session,
        thread,
        reply.user_id.as_str(),
        reply.target.map(Json::as_str),
        reply.now
    )
    .execute(connection)
    .await?;
    Ok(())
}
