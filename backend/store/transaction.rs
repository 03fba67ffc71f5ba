//! Connections of a pool, lent for one statement ([`PooledConnection`]) or a short transaction ([`Tx`]), which come back to the pool
//! without either, whatever becomes of the request.
//!
//! sqlx's own transactions forget a `begin` whose future is dropped before the answer: the connection goes back with a
//! transaction open, and what the next one writes on it is committed by nobody.

use std::ops::{Deref, DerefMut};

use sqlx::{PgConnection, Postgres, pool::PoolConnection};
use tokio_util::task::TaskTracker;

use super::Error;
use crate::quota::Share;

/// A connection, with the share of the pool that a principal pays for it.
#[derive(Debug)]
pub(super) struct PooledConnection {
    /// `None` only while it is dropped.
    connection: Option<PoolConnection<Postgres>>,
    share: Option<Share>,
    /// Whether the database may think that a transaction is open.
    in_transaction: bool,
    returns: TaskTracker,
}

impl PooledConnection {
    /// The task that gives it back is one of `returns`.
    pub(super) fn new(connection: PoolConnection<Postgres>, share: Option<Share>, returns: TaskTracker) -> Self {
        Self { connection: Some(connection), share, in_transaction: false, returns }
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
        let (Some(mut connection), share, in_transaction) =
            (self.connection.take(), self.share.take(), self.in_transaction)
        else {
            return;
        };
        self.returns.spawn(async move {
            // A statement that was left in the middle ends first; until then the connection is its principal's.
            if in_transaction && sqlx::raw_sql("rollback").execute(&mut *connection).await.is_err() {
                connection.close_on_drop();
            } else {
                connection.return_to_pool().await;
            }
            drop((connection, share));
        });
    }
}

/// A transaction; dropped without [`Tx::commit`] it is rolled back.
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
