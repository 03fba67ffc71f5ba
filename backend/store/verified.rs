//! Users of channels who have given a one-time code.

use chrono::{DateTime, Utc};

use super::{Error, Store, bounded};
use crate::domain::{
    limits::READ_WAIT_MS_MAX,
    principal::OwnerId,
    session::inbound::{ChannelName, UserId},
};

/// A user who has given a code.
#[derive(Clone, Debug)]
pub struct VerifiedUser {
    pub user_id: UserId,
    pub verified_at: DateTime<Utc>,
}

impl Store {
    /// Users of a channel who have given a code after `expired_until`, by their ids.
    pub async fn verified_users(
        &self,
        owner: &OwnerId,
        channel: &ChannelName,
        expired_until: Option<DateTime<Utc>>,
        after: Option<&UserId>,
        limit: i64,
    ) -> Result<Vec<VerifiedUser>, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut connection = self.as_owner(owner).await?;
            let rows = sqlx::query!(
                r#"select user_id, verified_at as "verified_at!" from store.channel_user
                   where owner_id = $1 and channel = $2 and verified_at > coalesce($3, timestamptz '-infinity')
                         and user_id > $4
                   order by user_id limit $5"#,
                owner.as_str(),
                channel.as_str(),
                expired_until,
                after.map_or("", UserId::as_str),
                limit
            )
            .fetch_all(&mut *connection)
            .await?;
            let user = |user_id: &str, verified_at| VerifiedUser { user_id: UserId::trusted(user_id), verified_at };
            Ok(rows.into_iter().map(|row| user(&row.user_id, row.verified_at)).collect())
        })
        .await
    }

    /// Forgets that a user has given a code; `false` when none has. A message of the user's that still waits is not forgotten.
    pub async fn revoke_user(&self, owner: &OwnerId, channel: &ChannelName, user: &UserId) -> Result<bool, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let mut tx = self.owned(owner).await?;
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
