//! Users of channels who have entered a one-time code.

use chrono::{DateTime, Utc};

use super::{
    Error,
    codes::Codes,
    page::{Page, page},
};
use crate::domain::{
    principal::OwnerId,
    session::inbound::{ChannelName, UserId},
};

/// A user who has entered a code.
#[derive(Clone, Debug)]
pub struct VerifiedUser {
    pub user_id: UserId,
    pub verified_at: DateTime<Utc>,
}

impl Codes<'_> {
    /// Users of a channel who have entered a code after `expired_until`, by their ids.
    pub async fn users(
        self,
        owner: &OwnerId,
        channel: &ChannelName,
        expired_until: Option<DateTime<Utc>>,
        wanted: &Page<UserId>,
    ) -> Result<(Vec<VerifiedUser>, bool), Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query!(
                r#"select user_id, verified_at as "verified_at!" from store.channel_user
                   where owner_id = $1 and channel = $2 and verified_at > coalesce($3, timestamptz '-infinity')
                         and user_id > $4
                   order by user_id limit $5"#,
                owner.as_str(),
                channel.as_str(),
                expired_until,
                wanted.after.as_ref().map_or("", UserId::as_str),
                wanted.limit + 1
            );
            let (rows, more) = page(wanted.limit, rows.fetch(&mut *connection), |row| row.user_id.len()).await?;
            let user = |user_id: &str, verified_at| VerifiedUser { user_id: UserId::trusted(user_id), verified_at };
            Ok((rows.into_iter().map(|row| user(&row.user_id, row.verified_at)).collect(), more))
        })
        .await
    }

    /// Removes a user's verification; `false` if there is none. A message of the user that is still held is kept.
    pub async fn revoke(self, owner: &OwnerId, channel: &ChannelName, user: &UserId) -> Result<bool, Error> {
        self.transaction(owner, async |mut tx| {
            let gone = sqlx::query!(
                r#"delete from store.channel_user
                   where owner_id = $1 and channel = $2 and user_id = $3 and verified_at is not null and held_no is null"#,
                owner.as_str(),
                channel.as_str(),
                user.as_str()
            )
            .execute(&mut *tx)
            .await?;
            let kept = sqlx::query!(
                r#"update store.channel_user set verified_at = null
                   where owner_id = $1 and channel = $2 and user_id = $3 and verified_at is not null"#,
                owner.as_str(),
                channel.as_str(),
                user.as_str()
            )
            .execute(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(gone.rows_affected() + kept.rows_affected() == 1)
        })
        .await
    }
}
