//! What the inbox and the outbox share: renewing and reclaiming leases, and forgetting old rows.

use chrono::{DateTime, Utc};

use super::{Error, inbox::ClaimedMessage, outbox::PendingReply};

repository! {
    /// What inbox and outbox share: leases, and removal of old rows.
    Deliveries, deliveries
}

impl Deliveries<'_> {
    /// Renews the lease on a message; `false` if another worker has claimed it in the meantime.
    pub async fn renew_inbound(self, claimed: &ClaimedMessage, lease_until: DateTime<Utc>) -> Result<bool, Error> {
        self.scoped(&claimed.owner_id, async |mut connection| {
            // The number of attempts identifies the holder.
            let renewed = sqlx::query!(
                r#"update store.inbound set lease_until = $4
                   where inbound_no = $1 and owner_id = $2 and attempts = $3"#,
                claimed.inbound_no,
                claimed.owner_id.as_str(),
                claimed.attempts,
                lease_until
            )
            .execute(&mut *connection)
            .await?;
            Ok(renewed.rows_affected() == 1)
        })
        .await
    }

    /// Renews the lease on a reply; `false` if another worker has claimed it in the meantime.
    pub async fn renew_reply(self, reply: &PendingReply, lease_until: DateTime<Utc>) -> Result<bool, Error> {
        self.scoped(&reply.owner_id, async |mut connection| {
            // The number of attempts identifies the holder.
            let renewed = sqlx::query!(
                "update store.reply set lease_until = $4 where reply_no = $1 and owner_id = $2 and attempts = $3",
                reply.reply_no,
                reply.owner_id.as_str(),
                reply.attempts,
                lease_until
            )
            .execute(&mut *connection)
            .await?;
            Ok(renewed.rows_affected() == 1)
        })
        .await
    }

    /// Ends the leases of all owners' messages and replies; only where no holder can be left. What was postponed for
    /// longer than a lease stays postponed.
    pub async fn reclaim(self, now: DateTime<Utc>, longest_lease: DateTime<Utc>) -> Result<u64, Error> {
        self.maintenance(async |mut connection| {
            let messages = sqlx::query!(
                r#"update store.inbound set lease_until = $1
                   where state = 'open' and attempts > 0 and lease_until > $1 and lease_until <= $2"#,
                now,
                longest_lease
            )
            .execute(&mut *connection)
            .await?;
            let answers = sqlx::query!(
                "update store.reply set lease_until = $1 where done_at is null and lease_until > $1 and lease_until <= $2",
                now,
                longest_lease
            )
            .execute(&mut *connection)
            .await?;
            Ok(messages.rows_affected() + answers.rows_affected())
        })
        .await
    }

    /// Removes finished messages received before `before`, and replies done before it; returns how many.
    pub async fn forget(self, before: DateTime<Utc>, most: i64) -> Result<u64, Error> {
        self.maintenance(async |mut connection| {
            let messages = sqlx::query!(
                r#"delete from store.inbound where inbound_no = any (array(
                       select inbound_no from store.inbound where state in ('done', 'failed') and received_at < $1
                       order by received_at limit $2))"#,
                before,
                most
            )
            .execute(&mut *connection)
            .await?;
            let answers = sqlx::query!(
                r#"delete from store.reply where reply_no = any (array(
                       select reply_no from store.reply where done_at is not null and done_at < $1
                       order by done_at limit $2))"#,
                before,
                most
            )
            .execute(&mut *connection)
            .await?;
            Ok(messages.rows_affected() + answers.rows_affected())
        })
        .await
    }
}
