//! What messages and answers have in common: leases that are renewed or taken back, and being forgotten.

use chrono::{DateTime, Utc};

use super::{Error, inbox::ClaimedMessage, outbox::PendingReply};

repository! {
    /// What inbox and outbox share: leases, and what is forgotten.
    Deliveries, deliveries
}

impl Deliveries<'_> {
    /// Whoever carries the message out goes on doing so; `false` when somebody else has taken it up meanwhile.
    pub async fn renew_inbound(self, taken: &ClaimedMessage, lease_until: DateTime<Utc>) -> Result<bool, Error> {
        self.scoped(&taken.owner_id, async |mut connection| {
            // How often it was taken up tells who has it.
            let renewed = sqlx::query!(
                r#"update store.inbound set lease_until = $4
                   where inbound_no = $1 and owner_id = $2 and attempts = $3"#,
                taken.inbound_no,
                taken.owner_id.as_str(),
                taken.attempts,
                lease_until
            )
            .execute(&mut *connection)
            .await?;
            Ok(renewed.rows_affected() == 1)
        })
        .await
    }

    /// Whoever gives the answer goes on doing so; `false` when somebody else has taken it up meanwhile.
    pub async fn renew_reply(self, owed: &PendingReply, lease_until: DateTime<Utc>) -> Result<bool, Error> {
        self.scoped(&owed.owner_id, async |mut connection| {
            // How often it was taken up tells who has it.
            let renewed = sqlx::query!(
                "update store.reply set lease_until = $4 where reply_no = $1 and owner_id = $2 and attempts = $3",
                owed.reply_no,
                owed.owner_id.as_str(),
                owed.attempts,
                lease_until
            )
            .execute(&mut *connection)
            .await?;
            Ok(renewed.rows_affected() == 1)
        })
        .await
    }

    /// Takes messages and answers from whoever had them under way, of all owners; only where nobody can be left who
    /// has. What was put off for longer than a lease stays so.
    pub async fn reclaim(self, now: DateTime<Utc>, longest_lease: DateTime<Utc>) -> Result<u64, Error> {
        self.maintenance(async |mut connection| {
            let messages = sqlx::query!(
                "update store.inbound set lease_until = $1 where state = 'open' and lease_until > $1 and lease_until <= $2",
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

    /// Forgets messages and answers that were done before then; says how many.
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
