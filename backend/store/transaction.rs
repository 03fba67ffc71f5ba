//! Short transactions on a pool's connection, which come back to the pool without one, whatever becomes of the request.
//!
//! sqlx's own forget a `begin` whose future is dropped before the answer: the connection goes back with a transaction
//! open, and what the next one writes on it is committed by nobody.

use std::ops::{Deref, DerefMut};

use sqlx::{PgConnection, Postgres, pool::PoolConnection};
use tokio_util::task::TaskTracker;

use super::Error;
use crate::quota::Share;

/// A transaction; dropped without [`Tx::commit`] it is rolled back.
#[derive(Debug)]
pub(super) struct Tx {
    /// `None` only while it is dropped.
    connection: Option<PoolConnection<Postgres>>,
    /// Whether the database may think that a transaction is open.
    open: bool,
    /// A principal's share of the pool. It is held until the connection is free again, not until the request is over.
    share: Option<Share>,
    rollbacks: TaskTracker,
}

impl Tx {
    pub(super) async fn begin(connection: PoolConnection<Postgres>, rollbacks: TaskTracker) -> Result<Self, Error> {
        let mut tx = Self { connection: Some(connection), open: true, share: None, rollbacks };
        sqlx::raw_sql("begin").execute(&mut *tx).await?;
        Ok(tx)
    }

    /// With the share of the pool that it takes.
    pub(super) fn holding(mut self, share: Share) -> Self {
        self.share = Some(share);
        self
    }

    pub(super) async fn commit(mut self) -> Result<(), sqlx::Error> {
        sqlx::raw_sql("commit").execute(&mut *self).await?;
        self.open = false;
        Ok(())
    }
}

impl Deref for Tx {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.connection.as_ref().expect("a transaction has its connection until it is dropped")
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.connection.as_mut().expect("a transaction has its connection until it is dropped")
    }
}

impl Drop for Tx {
    fn drop(&mut self) {
        let (Some(mut connection), share) = (self.connection.take(), self.share.take()) else { return };
        if !self.open {
            return;
        }
        self.rollbacks.spawn(async move {
            // A statement that was left in the middle ends first; until then the connection is its owner's.
            if sqlx::raw_sql("rollback").execute(&mut *connection).await.is_err() {
                connection.close_on_drop();
            }
            drop(connection);
            drop(share);
        });
    }
}
