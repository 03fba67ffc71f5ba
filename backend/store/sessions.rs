//! Sessions of chats, and the counters of their threads.

mod chat;
pub mod lines;
mod moved;
pub mod restored;

use chrono::{DateTime, Utc};

use self::{chat::Locked, lines::insert_line};
use super::{
    Error,
    error::known,
    outbox::{NewReply, Promised, insert_reply},
    page::{Page, page},
};
use crate::domain::{
    id::{Name, RunId, ThreadId},
    json::Json,
    principal::OwnerId,
    session::{
        Chat,
        inbound::{ChannelName, ChatId, UserId},
    },
};

/// Why a session ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndReason {
    /// Nothing was said for the channel's idle timeout.
    Idle,
    /// The user asked for a new one.
    Reset,
    /// It was ended over the API.
    Ended,
}

impl EndReason {
    fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Reset => "reset",
            Self::Ended => "ended",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::Idle, Self::Reset, Self::Ended].into_iter().find(|reason| reason.as_str() == text)
    }
}

/// A session as stored.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    pub session_id: Name,
    pub owner_id: OwnerId,
    pub channel: ChannelName,
    pub chat_id: ChatId,
    pub thread_id: ThreadId,
    pub started_at: DateTime<Utc>,
    pub last_activity_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
    pub end_reason: Option<EndReason>,
    pub messages: i64,
    pub answers: i64,
}

/// The session a message belongs to.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct MessageSession {
    pub session_id: Name,
    pub thread_id: ThreadId,
    /// It began with this message.
    pub is_new: bool,
}

/// A channel's session policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionPolicy {
    pub idle_timeout_s: i64,
    /// A new session gets a new thread.
    pub thread_per_session: bool,
}

/// What a message requires of its session.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    pub keeping: SessionPolicy,
    /// The required thread; `None` for the chat's current one.
    pub thread: Option<&'a ThreadId>,
}

/// What is recorded of a message together with its session.
#[derive(Clone, Copy, Debug)]
pub struct Noted<'a> {
    /// Its line in the session's log.
    pub line: &'a str,
    /// The run that will answer it.
    pub run_id: RunId,
    pub user_id: &'a UserId,
    /// Where the answer is sent; `None` if the sender polls for it.
    pub target: Option<&'a Json>,
}

/// The filter of a list of sessions.
#[derive(Clone, Debug, Default)]
pub struct SessionFilter {
    pub channel: Option<ChannelName>,
    pub chat_id: Option<ChatId>,
}

#[derive(Debug)]
struct Row {
    session_id: String,
    owner_id: String,
    channel: String,
    chat_id: String,
    thread_id: String,
    started_at: DateTime<Utc>,
    last_activity_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
    end_reason: Option<String>,
    messages: i64,
    answers: i64,
}

impl TryFrom<Row> for SessionRecord {
    type Error = Error;

    fn try_from(row: Row) -> Result<Self, Error> {
        Ok(Self {
            session_id: Name::trusted(&row.session_id),
            owner_id: OwnerId::trusted(&row.owner_id),
            channel: ChannelName::trusted(&row.channel),
            chat_id: ChatId::trusted(&row.chat_id),
            thread_id: ThreadId::trusted(&row.thread_id),
            started_at: row.started_at,
            last_activity_at: row.last_activity_at,
            ended_at: row.ended_at,
            end_reason: row.end_reason.map(|reason| known(EndReason::parse(&reason), &reason)).transpose()?,
            messages: row.messages,
            answers: row.answers,
        })
    }
}

repository! {
    /// Sessions of chats, and their logs.
    Sessions, sessions
}

impl Sessions<'_> {
    /// Finds or creates the session that a message belongs to, counts the message in it, and records that a reply will
    /// be due.
    ///
    /// The result is stored with the message, so repeating the call for it changes nothing. Messages of one chat are
    /// serialized.
    pub async fn resolve(
        self,
        owner: &OwnerId,
        chat: &Chat,
        inbound_no: i64,
        wanted: Wanted<'_>,
        noted: Noted<'_>,
        (now, fresh): (DateTime<Utc>, Name),
    ) -> Result<MessageSession, Error> {
        self.transaction(owner, async |tx| {
            let mut locked = Locked::take(tx, owner, chat).await?;
            let known = sqlx::query!(
                "select session_id, thread_id from store.inbound where inbound_no = $1 and owner_id = $2",
                inbound_no,
                owner.as_str()
            )
            .fetch_optional(&mut *locked.tx)
            .await?;
            if let Some((session, thread)) = known.and_then(|row| row.session_id.zip(row.thread_id)) {
                let (session_id, thread_id) = (Name::trusted(&session), ThreadId::trusted(&thread));
                return Ok(MessageSession { session_id, thread_id, is_new: false });
            }
            let session = locked.session(wanted, now, fresh).await?;
            sqlx::query!(
                r#"with counted as (
                       update store.session set messages = messages + 1, last_activity_at = greatest(last_activity_at, $3)
                       where owner_id = $1 and session_id = $2
                   )
                   update store.inbound set session_id = $2, thread_id = $4 where inbound_no = $5 and owner_id = $1"#,
                owner.as_str(),
                session.session_id.as_str(),
                now,
                session.thread_id.as_str(),
                inbound_no
            )
            .execute(&mut *locked.tx)
            .await?;
            let Noted { line, run_id, user_id, target } = noted;
            insert_line(&mut locked.tx, owner, &session.thread_id, inbound_no, line).await?;
            let what =
                Promised::Run { run_id, session_id: &session.session_id, thread_id: &session.thread_id };
            insert_reply(&mut locked.tx, &NewReply { owner, channel: &chat.channel, user_id, what, target, now }).await?;
            locked.commit().await?;
            Ok(session)
        })
        .await
    }

    /// Ends the chat's session, if there is one, and increments its counter. The message records that it did.
    pub async fn reset(self, owner: &OwnerId, chat: &Chat, inbound_no: i64, now: DateTime<Utc>) -> Result<(), Error> {
        self.transaction(owner, async |tx| {
            let mut locked = Locked::take(tx, owner, chat).await?;
            let first = sqlx::query!(
                r#"update store.inbound set reason = 'session_reset'
                   where inbound_no = $1 and owner_id = $2 and reason is null"#,
                inbound_no,
                owner.as_str()
            )
            .execute(&mut *locked.tx)
            .await?;
            if first.rows_affected() == 1 {
                locked.end(EndReason::Reset, now).await?;
                locked.counter += 1;
            }
            locked.commit().await
        })
        .await
    }

    /// Ends a session; one that has ended is unchanged. `None` if the owner has no such session.
    pub async fn end(
        self,
        owner: &OwnerId,
        session: &Name,
        thread_per_session: bool,
        now: DateTime<Utc>,
    ) -> Result<Option<SessionRecord>, Error> {
        let Some(found) = self.get(owner, session).await? else { return Ok(None) };
        let chat = Chat { channel: found.channel, chat_id: found.chat_id };
        self.transaction(owner, async |tx| {
            let mut locked = Locked::take(tx, owner, &chat).await?;
            let open = locked.open().await?;
            if open.is_some_and(|(id, ..)| id == session.as_str()) {
                locked.end(EndReason::Ended, now).await?;
                locked.counter += i64::from(thread_per_session);
            }
            locked.commit().await
        })
        .await?;
        self.get(owner, session).await
    }

    /// One session of this owner.
    pub async fn get(self, owner: &OwnerId, session: &Name) -> Result<Option<SessionRecord>, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query_as!(
                Row,
                r#"select session_id, owner_id, channel, chat_id, thread_id, started_at, last_activity_at, ended_at,
                          end_reason, messages, answers
                   from store.session where owner_id = $1 and session_id = $2"#,
                owner.as_str(),
                session.as_str()
            )
            .fetch_optional(&mut *connection)
            .await?;
            row.map(SessionRecord::try_from).transpose()
        })
        .await
    }

    /// Sessions of this owner, newest first.
    pub async fn list(
        self,
        owner: &OwnerId,
        filter: &SessionFilter,
        wanted: &Page<(DateTime<Utc>, Name)>,
    ) -> Result<(Vec<SessionRecord>, bool), Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"select session_id, owner_id, channel, chat_id, thread_id, started_at, last_activity_at, ended_at,
                          end_reason, messages, answers
                   from store.session
                   where owner_id = $1 and ($2::text is null or channel = $2) and ($3::text is null or chat_id = $3)
                     and ($4::timestamptz is null or (started_at, session_id) < ($4, $5::text))
                   order by started_at desc, session_id desc
                   limit $6"#,
                owner.as_str(),
                filter.channel.as_ref().map(ChannelName::as_str),
                filter.chat_id.as_ref().map(ChatId::as_str),
                wanted.after.as_ref().map(|(at, _)| *at),
                wanted.after.as_ref().map(|(_, id)| id.as_str()),
                wanted.limit + 1
            );
            let size = |row: &Row| row.chat_id.len() + row.thread_id.len();
            let (rows, more) = page(wanted.limit, rows.fetch(&mut *connection), size).await?;
            Ok((rows.into_iter().map(SessionRecord::try_from).collect::<Result<_, _>>()?, more))
        })
        .await
    }
}
