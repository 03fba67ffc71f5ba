//! Connections of a pool, lent for one statement ([`PooledConnection`]) or a short transaction ([`Tx`]). They return to
//! the pool with neither in progress, whatever happens to the request.
//!
//! sqlx's own transactions forget a `begin` whose future is dropped before the answer: the connection returns with an
//! open transaction, and what the next user writes on it is never committed.

use std::ops::{Deref, DerefMut};

use sqlx::{Connection as _, PgConnection, Postgres, pool::PoolConnection};
use tokio_util::task::TaskTracker;

use super::Error;
use crate::{quota::Share, throttle::Usage};

/// A principal's part of the pool.
#[derive(Debug)]
pub(super) struct Lent {
    pub _share: Share,
    pub _usage: Option<Usage>,
}

/// A connection, with the principal's share of the pool that it uses.
#[derive(Debug)]
pub(super) struct PooledConnection {
    /// `None` only while it is being dropped.
    connection: Option<PoolConnection<Postgres>>,
    share: Option<Lent>,
    /// Whether a transaction may be open in the database.
    in_transaction: bool,
    /// Whether it is closed instead of returning.
    is_retired: bool,
    returns: TaskTracker,
}

impl PooledConnection {
    /// The task that returns it to the pool is one of `returns`.
    pub(super) fn new(connection: PoolConnection<Postgres>, share: Option<Lent>, returns: TaskTracker) -> Self {
        Self { connection: Some(connection), share, in_transaction: false, is_retired: false, returns }
    }

    /// Sets whether it is closed after this use, because it carries a large result: sqlx cannot release a buffer whose
    /// end is still in use.
    pub(super) fn retire(&mut self, is_retired: bool) {
        self.is_retired = is_retired;
    }
}

impl Deref for PooledConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect("it has its connection until it is dropped")
    }
}

impl DerefMut for PooledConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("it has its connection until it is dropped")
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let (Some(mut connection), share) = (self.connection.take(), self.share.take()) else { return };
        let (in_transaction, is_retired) = (self.in_transaction, self.is_retired);
        self.returns.spawn(async move {
            // An interrupted statement ends first; until then the connection counts against its principal's share.
            let is_over = if in_transaction {
                sqlx::raw_sql("rollback").execute(&mut *connection).await.is_ok()
            } else {
                !is_retired || connection.ping().await.is_ok()
            };
            if is_retired || !is_over {
                connection.close_on_drop();
            } else {
                // A large statement would otherwise keep its memory for as long as the connection lives.
                connection.shrink_buffers();
                connection.return_to_pool().await;
            }
            drop((connection, share));
        });
    }
}

/// A transaction; rolled back if dropped without [`Tx::commit`].
#[derive(Debug)]
pub(super) struct Tx(PooledConnection);

impl Tx {
    pub(super) async fn begin(mut lent: PooledConnection) -> Result<Self, Error> {
        lent.in_transaction = true;
        sqlx::raw_sql("begin").execute(&mut *lent).await?;
        Ok(Self(lent))
    }

    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql("commit").execute(&mut *self.0).await?;
        self.0.in_transaction = false;
        Ok(())
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.0
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.0
    }
}
