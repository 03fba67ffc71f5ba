//! A thread that begins with a restored state, and the session of the chat after which it is named.

use crate::store::sessions::Sessions;
use chrono::{DateTime, TimeDelta, Utc};

use super::{EndReason, SessionPolicy, chat::Locked};
use crate::{
    domain::{
        id::{Name, ThreadId},
        principal::OwnerId,
        session::{Chat, is_idle},
    },
    store::{
        Error,
        checkpoints::{NewCheckpoint, put},
        transaction::Tx,
    },
};

/// The chat after which a thread is named.
#[derive(Clone, Debug)]
pub struct CalledLike {
    pub chat: Chat,
    /// The thread's number in the chat.
    pub number: i64,
    pub keeping: SessionPolicy,
    /// The id of the session, if one is created.
    pub fresh: Name,
}

impl Sessions<'_> {
    /// Stores the first checkpoint of a thread, and lets the chat continue on the thread, unless it has an open session
    /// on another. All or nothing; `None` if the thread has checkpoints already, else the chat's session on it.
    pub async fn begin_thread(
        self,
        owner: &OwnerId,
        thread: &ThreadId,
        new: &NewCheckpoint,
        called_like: Option<&CalledLike>,
        now: DateTime<Utc>,
    ) -> Result<Option<Option<Name>>, Error> {
        self.transaction(owner, async |mut tx| {
            let Some(called_like) = called_like else {
                let is_first = put_first(&mut tx, owner, thread, new, now).await?;
                tx.commit().await?;
                return Ok(is_first.then_some(None));
            };
            let mut locked = Locked::take(tx, owner, &called_like.chat).await?;
            if !put_first(&mut locked.tx, owner, thread, new, now).await? {
                return Ok(None);
            }
            let session = locked.go_on_with(thread, called_like, now).await?;
            locked.commit().await?;
            Ok(Some(session))
        })
        .await
    }
}

/// Stores a checkpoint in a thread that has none. A concurrent call waits here for the thread's row, and then finds
/// this checkpoint.
async fn put_first(
    tx: &mut Tx,
    owner: &OwnerId,
    thread: &ThreadId,
    new: &NewCheckpoint,
    now: DateTime<Utc>,
) -> Result<bool, Error> {
    let thread_no = sqlx::query_scalar!(
        r#"insert into store.thread as t (owner_id, thread_id, created_at, updated_at) values ($1, $2, $3, $3)
           on conflict (owner_id, thread_id) do update set updated_at = greatest(t.updated_at, $3)
           returning thread_no"#,
        owner.as_str(),
        thread.as_str(),
        now
    )
    .fetch_one(&mut **tx)
    .await?;
    let is_taken = sqlx::query_scalar!(
        r#"select exists (select from store.checkpoint where thread_no = $1 and owner_id = $2) as "taken!""#,
        thread_no,
        owner.as_str()
    )
    .fetch_one(&mut **tx)
    .await?;
    if !is_taken {
        put(&mut **tx, owner, thread, new, now).await?;
    }
    Ok(!is_taken)
}

impl Locked<'_> {
    /// The chat's session on this thread: the open one, or a new one if the chat has none open.
    async fn go_on_with(
        &mut self,
        thread: &ThreadId,
        called_like: &CalledLike,
        now: DateTime<Utc>,
    ) -> Result<Option<Name>, Error> {
        let CalledLike { number, keeping, fresh, .. } = called_like;
        if let Some((session, on, last_activity_at)) = self.open().await? {
            if !is_idle(last_activity_at, now, keeping.idle_timeout_s) {
                return Ok((on == thread.as_str()).then(|| Name::trusted(&session)));
            }
            self.end(EndReason::Idle, last_activity_at + TimeDelta::seconds(keeping.idle_timeout_s)).await?;
            self.counter += i64::from(keeping.thread_per_session);
        }
        self.counter = self.counter.max(*number);
        self.begin(fresh, thread, *number, now).await?;
        Ok(Some(fresh.clone()))
    }
}
