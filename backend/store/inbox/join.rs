//! A message that arrives in several deliveries, such as an album.

use chrono::{DateTime, Utc};

use super::{Arrival, Inbox};
use crate::{domain::json::Json, store::Error};

impl Inbox<'_> {
    /// Adds a delivery to the message of this name in its chat, or starts that message; it can be claimed from `until`
    /// on, which every further delivery postpones. `joined` returns the message's new content. `false` if the delivery
    /// must be a message of its own, because the message was already claimed or cannot take more.
    ///
    /// The row's lock serializes deliveries and claims.
    pub async fn join(
        self,
        arrival: &Arrival<'_>,
        name: &str,
        until: DateTime<Utc>,
        joined: impl Fn(&Json) -> Option<Json>,
    ) -> Result<bool, Error> {
        let Some(piece) = arrival.message_id else { return Ok(false) };
        // Never the key of a single message.
        let key = format!("+{}\u{1f}{name}", arrival.chat_id);
        self.transaction(arrival.owner, async |mut tx| {
            let begun = sqlx::query!(
                r#"insert into store.inbound
                       (owner_id, channel, message_key, chat_id, content, router_run_id, run_id, received_at,
                        lease_until, attempts, pieces)
                   values ($1, $2, $3, $4, $5::text::json, $6, $7, $8, $9, 0, array[$10::text])
                   on conflict (owner_id, channel, message_key) do nothing"#,
                arrival.owner.as_str(),
                arrival.channel.as_str(),
                key,
                arrival.chat_id.as_str(),
                arrival.content.as_str(),
                arrival.router_run_id.uuid(),
                arrival.run_id.uuid(),
                arrival.now,
                until,
                piece.as_str()
            )
            .execute(&mut *tx)
            .await?;
            if begun.rows_affected() == 1 {
                tx.commit().await?;
                return Ok(true);
            }
            let there = sqlx::query!(
                r#"select inbound_no, content::text as content, state = 'open' and attempts = 0 as "waits!",
                          coalesce($4 = any (pieces), false) as "has!"
                   from store.inbound where owner_id = $1 and channel = $2 and message_key = $3 for update"#,
                arrival.owner.as_str(),
                arrival.channel.as_str(),
                key,
                piece.as_str()
            )
            .fetch_optional(&mut *tx)
            .await?;
            // Processed and removed in the meantime.
            let Some(there) = there else { return Ok(false) };
            if there.has {
                return Ok(true);
            }
            let content = there.content.filter(|_| there.waits).and_then(|content| joined(&Json::trusted(content)));
            let Some(content) = content else { return Ok(false) };
            sqlx::query!(
                r#"update store.inbound set content = $3::text::json, pieces = pieces || $4::text,
                          lease_until = greatest(lease_until, $5)
                   where inbound_no = $1 and owner_id = $2"#,
                there.inbound_no,
                arrival.owner.as_str(),
                content.as_str(),
                piece.as_str(),
                until
            )
            .execute(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(true)
        })
        .await
    }
}
