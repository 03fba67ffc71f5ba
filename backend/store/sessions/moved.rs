//! A chat whose channel gave it another id.

use chrono::{DateTime, Utc};

use super::{EndReason, Sessions};
use crate::{
    domain::{
        principal::OwnerId,
        session::inbound::{ChannelName, ChatId},
    },
    store::Error,
};

impl Sessions<'_> {
    /// Gives a chat its new id. Its sessions, their threads and the counter move with it, and messages to the old id
    /// belong to the new one. Repeating it changes nothing; nor does another id for a chat that has moved.
    pub async fn moved(
        self,
        owner: &OwnerId,
        channel: &ChannelName,
        (from, to): (&ChatId, &ChatId),
        now: DateTime<Utc>,
    ) -> Result<(), Error> {
        if from == to {
            return Ok(());
        }
        self.transaction(owner, async |mut tx| {
            let moved = sqlx::query!(
                r#"insert into store.chat as c (owner_id, channel, chat_id, thread_base, counter, began_as)
                   select owner_id, channel, $4, thread_base, counter, chat_id from store.chat
                   where owner_id = $1 and channel = $2 and chat_id = $3 and began_as is null
                     and not exists (select from store.chat m
                                     where m.owner_id = $1 and m.channel = $2 and m.began_as = $3)
                   for update
                   on conflict (owner_id, channel, chat_id) do update
                   set thread_base = excluded.thread_base, counter = greatest(c.counter, excluded.counter),
                       began_as = excluded.began_as
                   where c.began_as is null"#,
                owner.as_str(),
                channel.as_str(),
                from.as_str(),
                to.as_str()
            )
            .execute(&mut *tx)
            .await?;
            if moved.rows_affected() == 0 {
                return Ok(());
            }
            // If the new id already has an open session, that one continues.
            sqlx::query!(
                r#"with continued as (
                       select from store.session where owner_id = $1 and channel = $2 and chat_id = $4 and ended_at is null
                   )
                   update store.session set ended_at = $5, end_reason = $6
                   where owner_id = $1 and channel = $2 and chat_id = $3 and ended_at is null
                     and exists (select from continued)"#,
                owner.as_str(),
                channel.as_str(),
                from.as_str(),
                to.as_str(),
                now,
                EndReason::Ended.as_str()
            )
            .execute(&mut *tx)
            .await?;
            sqlx::query!(
                "update store.session set chat_id = $4 where owner_id = $1 and channel = $2 and chat_id = $3",
                owner.as_str(),
                channel.as_str(),
                from.as_str(),
                to.as_str()
            )
            .execute(&mut *tx)
            .await?;
            Ok(tx.commit().await?)
        })
        .await
    }
}
