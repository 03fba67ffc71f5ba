//! Users of channels that require a one-time code, and the codes.

use chrono::{DateTime, TimeDelta, Utc};

use super::{Error, transaction::Tx};
use crate::domain::{
    limits::{CODE_CHANNEL_TRIES_MAX, CODE_TRIES_MAX, CODE_WAITING_MAX, CODE_WINDOW_S, CODES_MAX},
    principal::OwnerId,
    session::inbound::{ChannelName, UserId},
};

/// What a channel that requires codes knows about a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verification {
    /// Has entered a code, with this message if `by_this`. Another message of the user, `held_no`, was held for the
    /// code and is not processed yet.
    Verified {
        by_this: bool,
        held_no: Option<i64>,
    },
    /// Has been asked for a code, and this message of the user is held.
    Asked {
        held_no: Option<i64>,
    },
    Unknown,
}

/// What happened to a message whose user has to enter a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It is held.
    Waits,
    /// The user has entered one in the meantime.
    Verified,
    /// Another message of the user is held.
    Another,
    /// Too many users are waiting already.
    TooMany,
}

/// The outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The user is verified from now on; this message was held until then.
    Good {
        held_no: Option<i64>,
    },
    Wrong,
    /// Not checked: there were too many wrong ones.
    Blocked,
}

repository! {
    /// One-time codes, and the users who have entered one.
    Codes, codes
}

impl Codes<'_> {
    /// What is known about a message's user. One verified at `expired_until` or before must enter a code again.
    pub async fn verification(
        self,
        owner: &OwnerId,
        channel: &ChannelName,
        user: &UserId,
        inbound_no: i64,
        expired_until: Option<DateTime<Utc>>,
    ) -> Result<Verification, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query!(
                r#"select verified_at, held_no,
                          exists (select from store.inbound where inbound_no = $4 and owner_id = $1
                                  and reason = 'code_accepted') as "by_this!"
                   from store.channel_user where owner_id = $1 and channel = $2 and user_id = $3"#,
                owner.as_str(),
                channel.as_str(),
                user.as_str(),
                inbound_no
            )
            .fetch_optional(&mut *connection)
            .await?;
            Ok(match row {
                None => Verification::Unknown,
                Some(row) if row.verified_at.is_some_and(|at| expired_until.is_none_or(|until| at > until)) => {
                    Verification::Verified { by_this: row.by_this, held_no: row.held_no }
                }
                Some(row) => Verification::Asked { held_no: row.held_no },
            })
        })
        .await
    }

    /// Holds a message until its user, who is asked for a code, has entered one.
    pub async fn hold(
        self,
        owner: &OwnerId,
        channel: &ChannelName,
        user: &UserId,
        inbound_no: i64,
        (now, expired_until): (DateTime<Utc>, Option<DateTime<Utc>>),
    ) -> Result<Asked, Error> {
        self.transaction(owner, async |mut tx| {
            let asked = sqlx::query!(
                r#"insert into store.channel_user as u (owner_id, channel, user_id, held_no, asked_at)
                   select $1, $2, $3, $4, $5
                   where (select count(*) from store.channel_user w
                          where w.owner_id = $1 and w.channel = $2 and w.verified_at is null) < $6
                   on conflict (owner_id, channel, user_id) do update
                   set held_no = case when u.verified_at > coalesce($7, timestamptz '-infinity') then u.held_no
                                      else coalesce(u.held_no, excluded.held_no) end,
                       verified_at = case when u.verified_at <= $7 then null else u.verified_at end
                   returning verified_at, held_no"#,
                owner.as_str(),
                channel.as_str(),
                user.as_str(),
                inbound_no,
                now,
                CODE_WAITING_MAX,
                expired_until
            )
            .fetch_optional(&mut *tx)
            .await?;
            let asked = match asked {
                None => Asked::TooMany,
                Some(row) if row.verified_at.is_some() => Asked::Verified,
                Some(row) if row.held_no != Some(inbound_no) => Asked::Another,
                Some(_) => {
                    sqlx::query!(
                        r#"update store.inbound set state = 'held', reason = 'code_wanted'
                           where inbound_no = $1 and owner_id = $2 and state = 'open'"#,
                        inbound_no,
                        owner.as_str()
                    )
                    .execute(&mut *tx)
                    .await?;
                    Asked::Waits
                }
            };
            tx.commit().await?;
            Ok(asked)
        })
        .await
    }

    /// Checks the code in this message of a user. A valid one can be used once; the message records the result.
    pub async fn attempt(
        self,
        owner: &OwnerId,
        channel: &ChannelName,
        (user, inbound_no): (&UserId, i64),
        code_hash: &[u8],
        now: DateTime<Utc>,
    ) -> Result<Verdict, Error> {
        self.transaction(owner, async |mut tx| {
            if let Some(verdict) = earlier_try(&mut tx, (owner, channel, user), inbound_no).await? {
                return Ok(verdict);
            }
            // Always in this order; the rows stay locked, so that attempts are counted one after the other.
            let of_channel = tries(&mut tx, (owner, channel, ""), now, 0).await?;
            let of_user = tries(&mut tx, (owner, channel, user.as_str()), now, 0).await?;
            if of_channel >= CODE_CHANNEL_TRIES_MAX || of_user >= CODE_TRIES_MAX {
                return Ok(Verdict::Blocked);
            }
            let spent = sqlx::query!(
                r#"update store.channel_code set used_at = $4
                   where owner_id = $1 and channel = $2 and code_hash = $3 and used_at is null and expires_at > $4"#,
                owner.as_str(),
                channel.as_str(),
                code_hash,
                now
            )
            .execute(&mut *tx)
            .await?;
            if spent.rows_affected() == 0 {
                sqlx::query!(
                    "update store.inbound set reason = 'code_wrong' where inbound_no = $1 and owner_id = $2",
                    inbound_no,
                    owner.as_str()
                )
                .execute(&mut *tx)
                .await?;
                tries(&mut tx, (owner, channel, ""), now, 1).await?;
                tries(&mut tx, (owner, channel, user.as_str()), now, 1).await?;
                tx.commit().await?;
                return Ok(Verdict::Wrong);
            }
            let held_no = sqlx::query_scalar!(
                r#"insert into store.channel_user as u (owner_id, channel, user_id, verified_at, asked_at)
                   values ($1, $2, $3, $4, $4)
                   on conflict (owner_id, channel, user_id) do update set verified_at = excluded.verified_at
                   returning held_no"#,
                owner.as_str(),
                channel.as_str(),
                user.as_str(),
                now
            )
            .fetch_one(&mut *tx)
            .await?;
            sqlx::query!(
                "update store.inbound set reason = 'code_accepted' where inbound_no = $1 and owner_id = $2",
                inbound_no,
                owner.as_str()
            )
            .execute(&mut *tx)
            .await?;
            sqlx::query!(
                "delete from store.channel_tries where owner_id = $1 and channel = $2 and user_id = $3",
                owner.as_str(),
                channel.as_str(),
                user.as_str()
            )
            .execute(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(Verdict::Good { held_no })
        })
        .await
    }

    /// Marks a code of the channel as used; `false` if there is no such code. For a user who no longer needs one.
    pub async fn spend(
        self,
        owner: &OwnerId,
        channel: &ChannelName,
        code_hash: &[u8],
        now: DateTime<Utc>,
    ) -> Result<bool, Error> {
        self.scoped(owner, async |mut connection| {
            let spent = sqlx::query!(
                r#"update store.channel_code set used_at = coalesce(used_at, $4)
                   where owner_id = $1 and channel = $2 and code_hash = $3"#,
                owner.as_str(),
                channel.as_str(),
                code_hash,
                now
            )
            .execute(&mut *connection)
            .await?;
            Ok(spent.rows_affected() > 0)
        })
        .await
    }

    /// Records that the message held for the code has been processed.
    pub async fn release(self, owner: &OwnerId, channel: &ChannelName, user: &UserId) -> Result<(), Error> {
        self.scoped(owner, async |mut connection| {
            sqlx::query!(
                r#"update store.channel_user set held_no = null
                   where owner_id = $1 and channel = $2 and user_id = $3 and verified_at is not null"#,
                owner.as_str(),
                channel.as_str(),
                user.as_str()
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }

    /// Stores a code's hash; `false` if the channel has too many valid ones. Expired and used ones are removed.
    pub async fn add(
        self,
        owner: &OwnerId,
        channel: &ChannelName,
        code_hash: &[u8],
        (now, expires_at): (DateTime<Utc>, DateTime<Utc>),
    ) -> Result<bool, Error> {
        self.transaction(owner, async |mut tx| {
            sqlx::query!(
                "delete from store.channel_code where owner_id = $1 and channel = $2 and (expires_at <= $3 or used_at is not null)",
                owner.as_str(),
                channel.as_str(),
                now
            )
            .execute(&mut *tx)
            .await?;
            let added = sqlx::query!(
                r#"insert into store.channel_code (owner_id, channel, code_hash, created_at, expires_at)
                   select $1, $2, $3, $4, $5
                   where (select count(*) from store.channel_code c where c.owner_id = $1 and c.channel = $2) < $6"#,
                owner.as_str(),
                channel.as_str(),
                code_hash,
                now,
                expires_at,
                CODES_MAX
            )
            .execute(&mut *tx)
            .await?;
            tx.commit().await?;
            Ok(added.rows_affected() == 1)
        })
        .await
    }
}

/// The result of an earlier attempt with the same message, from the inbox: it does not count as another attempt.
async fn earlier_try(
    tx: &mut Tx,
    (owner, channel, user): (&OwnerId, &ChannelName, &UserId),
    inbound_no: i64,
) -> Result<Option<Verdict>, Error> {
    let known = sqlx::query!(
        r#"select i.reason, u.held_no as "held_no?"
           from store.inbound i
           left join store.channel_user u on u.owner_id = $2 and u.channel = $3 and u.user_id = $4
           where i.inbound_no = $1 and i.owner_id = $2"#,
        inbound_no,
        owner.as_str(),
        channel.as_str(),
        user.as_str()
    )
    .fetch_optional(&mut **tx)
    .await?;
    Ok(known.and_then(|row| match row.reason.as_deref() {
        Some("code_wrong") => Some(Verdict::Wrong),
        Some("code_accepted") => Some(Verdict::Good { held_no: row.held_no }),
        _ => None,
    }))
}

/// Adds to the wrong attempts of a user ("" for the channel) in the current window, and returns their number.
async fn tries(
    tx: &mut Tx,
    (owner, channel, user): (&OwnerId, &ChannelName, &str),
    now: DateTime<Utc>,
    more: i32,
) -> Result<i32, Error> {
    let window_before = now - TimeDelta::seconds(CODE_WINDOW_S);
    let tries = sqlx::query_scalar!(
        r#"insert into store.channel_tries as t (owner_id, channel, user_id, window_at, tries) values ($1, $2, $3, $4, $5)
           on conflict (owner_id, channel, user_id) do update
           set tries = case when t.window_at <= $6 then 0 else t.tries end + $5,
               window_at = case when t.window_at <= $6 then $4 else t.window_at end
           returning tries"#,
        owner.as_str(),
        channel.as_str(),
        user,
        now,
        more,
        window_before
    )
    .fetch_one(&mut **tx)
    .await?;
    Ok(tries)
}
