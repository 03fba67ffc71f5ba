//! A chat while its row is locked: its open session and its counter.

use crate::store::sessions::Sessions;
use chrono::{DateTime, TimeDelta, Utc};

use super::{EndReason, MessageSession, Wanted};
use crate::{
    domain::{
        id::{Name, ThreadId},
        principal::OwnerId,
        session::{
            Chat,
            inbound::ChatId,
            is_idle,
            thread::{ThreadBase, counter_above},
        },
    },
    store::{Error, transaction::Tx},
};

/// The number of a thread that is not named after the chat.
const NO_NUMBER: i64 = -1;

/// A chat whose row is locked until the transaction ends.
pub(super) struct Locked<'a> {
    pub(super) tx: Tx,
    owner: &'a OwnerId,
    chat: Chat,
    base: ThreadBase,
    /// The counter as read.
    before: i64,
    pub(super) counter: i64,
}

impl Sessions<'_> {
    /// Raises every counter above the numbers in use, as a restored or edited database may need. Returns how many.
    pub async fn raise_counters(self) -> Result<u64, Error> {
        let (mut raised, mut after) = (0, (String::new(), String::new(), String::new()));
        loop {
            let mut connection = self.upkeep.acquire().await?;
            let page = sqlx::query!(
                r#"select c.owner_id, c.channel, c.chat_id, c.counter, u.highest,
                          (select true from store.session s where s.owner_id = c.owner_id and s.channel = c.channel
                           and s.chat_id = c.chat_id and s.number = u.highest limit 1) is not null as "is_ours!"
                   from (select * from store.chat where (owner_id, channel, chat_id) > ($1::text, $2::text, $3::text)
                         order by owner_id, channel, chat_id limit 500) c
                   cross join lateral (select store.highest_thread_number(c.owner_id, c.thread_base collate "default") as highest) u
                   order by 1, 2, 3"#,
                after.0,
                after.1,
                after.2
            )
            .fetch_all(&mut *connection)
            .await?;
            let Some(last) = page.last() else { return Ok(raised) };
            after = (last.owner_id.clone(), last.channel.clone(), last.chat_id.clone());
            for row in page {
                let counter = counter_above(row.counter, row.highest, row.is_ours);
                if counter != row.counter {
                    raised += sqlx::query!(
                        r#"update store.chat set counter = greatest(counter, $4)
                           where owner_id = $1 and channel = $2 and chat_id = $3"#,
                        row.owner_id,
                        row.channel,
                        row.chat_id,
                        counter
                    )
                    .execute(&mut *connection)
                    .await?
                    .rows_affected();
                }
            }
        }
    }
}

impl<'a> Locked<'a> {
    /// Locks the chat's row in a transaction of its owner. A chat that has moved is locked under its new id.
    pub(super) async fn take(mut tx: Tx, owner: &'a OwnerId, chat: &Chat) -> Result<Self, Error> {
        let Chat { channel, mut chat_id } = chat.clone();
        loop {
            let base = ThreadBase::of(&channel, &chat_id);
            let row = sqlx::query!(
                r#"insert into store.chat as c (owner_id, channel, chat_id, thread_base) values ($1, $2, $3, $4)
                   on conflict (owner_id, channel, chat_id) do update
                   set thread_base = case when c.began_as is null then excluded.thread_base else c.thread_base end
                   returning counter, began_as"#,
                owner.as_str(),
                channel.as_str(),
                chat_id.as_str(),
                base.as_str()
            )
            .fetch_one(&mut *tx)
            .await?;
            // Checked under the lock: the chat may have moved while its row was waited for.
            let moved = sqlx::query_scalar!(
                "select chat_id from store.chat where owner_id = $1 and channel = $2 and began_as = $3",
                owner.as_str(),
                channel.as_str(),
                chat_id.as_str()
            )
            .fetch_optional(&mut *tx)
            .await?;
            if let Some(id) = moved {
                chat_id = ChatId::trusted(&id);
                continue;
            }
            let base = row.began_as.map_or(base, |began_as| ThreadBase::of(&channel, &ChatId::trusted(&began_as)));
            let chat = Chat { channel, chat_id };
            return Ok(Self { tx, owner, chat, base, before: row.counter, counter: row.counter });
        }
    }

    /// The chat's open session: its id, its thread and the time of the last activity.
    pub(super) async fn open(&mut self) -> Result<Option<(String, String, DateTime<Utc>)>, Error> {
        let row = sqlx::query!(
            r#"select session_id, thread_id, last_activity_at from store.session
               where owner_id = $1 and channel = $2 and chat_id = $3 and ended_at is null"#,
            self.owner.as_str(),
            self.chat.channel.as_str(),
            self.chat.chat_id.as_str()
        )
        .fetch_optional(&mut *self.tx)
        .await?;
        Ok(row.map(|row| (row.session_id, row.thread_id, row.last_activity_at)))
    }

    /// The session that a message arriving now belongs to. Ends one on another thread than the message requires.
    pub(super) async fn session(
        &mut self,
        Wanted { keeping, thread }: Wanted<'_>,
        now: DateTime<Utc>,
        fresh: Name,
    ) -> Result<MessageSession, Error> {
        if let Some((session_id, on, last_activity_at)) = self.open().await? {
            let is_over = is_idle(last_activity_at, now, keeping.idle_timeout_s);
            if !is_over && thread.is_none_or(|thread| thread.as_str() == on) {
                let (session_id, thread_id) = (Name::trusted(&session_id), ThreadId::trusted(&on));
                return Ok(MessageSession { session_id, thread_id, is_new: false });
            }
            if is_over {
                // It ended when the timeout passed, not when that was noticed.
                self.end(EndReason::Idle, last_activity_at + TimeDelta::seconds(keeping.idle_timeout_s)).await?;
            } else {
                self.end(EndReason::Ended, now).await?;
            }
            self.counter += i64::from(keeping.thread_per_session);
        }
        let (thread_id, number) = if let Some(thread) = thread {
            (thread.clone(), self.base.number(thread.as_str()).unwrap_or(NO_NUMBER))
        } else {
            let (highest, is_ours) = self.highest().await?;
            self.counter = counter_above(self.counter, highest, is_ours && !keeping.thread_per_session);
            (self.base.thread(self.counter), self.counter)
        };
        self.begin(&fresh, &thread_id, number, now).await?;
        Ok(MessageSession { session_id: fresh, thread_id, is_new: true })
    }

    /// Creates a session on the thread with this number. The chat must have no open one.
    pub(super) async fn begin(
        &mut self,
        fresh: &Name,
        thread_id: &ThreadId,
        number: i64,
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        sqlx::query!(
            r#"insert into store.session
                   (owner_id, session_id, channel, chat_id, thread_id, number, started_at, last_activity_at)
               values ($1, $2, $3, $4, $5, $6, $7, $7)"#,
            self.owner.as_str(),
            fresh.as_str(),
            self.chat.channel.as_str(),
            self.chat.chat_id.as_str(),
            thread_id.as_str(),
            number,
            now
        )
        .execute(&mut *self.tx)
        .await?;
        Ok(())
    }

    /// The largest thread number of this chat in use, and whether it belongs to a session of this chat.
    async fn highest(&mut self) -> Result<(Option<i64>, bool), Error> {
        let row = sqlx::query!(
            r#"select u.highest,
                      exists (select from store.session s where s.owner_id = $1 and s.channel = $3 and s.chat_id = $4
                              and s.number = u.highest) as "is_ours!"
               from (select store.highest_thread_number($1::text, $2::text) as highest) u"#,
            self.owner.as_str(),
            self.base.as_str(),
            self.chat.channel.as_str(),
            self.chat.chat_id.as_str()
        )
        .fetch_one(&mut *self.tx)
        .await?;
        Ok((row.highest, row.is_ours))
    }

    pub(super) async fn end(&mut self, reason: EndReason, at: DateTime<Utc>) -> Result<(), Error> {
        sqlx::query!(
            r#"update store.session set ended_at = $4, end_reason = $5
               where owner_id = $1 and channel = $2 and chat_id = $3 and ended_at is null"#,
            self.owner.as_str(),
            self.chat.channel.as_str(),
            self.chat.chat_id.as_str(),
            at,
            reason.as_str()
        )
        .execute(&mut *self.tx)
        .await?;
        Ok(())
    }

    pub(super) async fn commit(mut self) -> Result<(), Error> {
        if self.counter > self.before {
            sqlx::query!(
                r#"update store.chat set counter = greatest(counter, $4)
                   where owner_id = $1 and channel = $2 and chat_id = $3"#,
                self.owner.as_str(),
                self.chat.channel.as_str(),
                self.chat.chat_id.as_str(),
                self.counter
            )
            .execute(&mut *self.tx)
            .await?;
        }
        Ok(self.tx.commit().await?)
    }
}
