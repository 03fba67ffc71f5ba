//! Database sessions that keep a lane's row locked.

use super::{Appended, Appender, Batch};
use crate::store::{Error, Fate, Store};

impl Store {
    /// Ends sessions that lock a lane's row and have not heard from their client for long: the client, or something in
    /// between, was cut off in the middle of an append.
    pub(super) async fn end_stuck_writers(&self) -> Result<(), Error> {
        let ended = self
            .maintenance(async |mut connection| {
                let ended = sqlx::query_scalar!(r#"select store.end_stuck_writers() as "ended!""#);
                Ok(ended.fetch_one(&mut *connection).await?)
            })
            .await?;
        if ended > 0 {
            tracing::warn!(ended, "ended writers that were cut off in the middle of an append");
        }
        Ok(())
    }
}

impl Appender {
    /// Writes a batch in one round trip, if the lane's epoch is the known one and its position is at least `least`.
    ///
    /// After an error other than [`Error::Conflict`] the connection is unusable: open another and call
    /// [`Appender::resolve`].
    pub async fn append(&mut self, batch: &Batch, least: i64) -> Result<Appended, Error> {
        let appended = self.write(batch, least).await;
        self.ending_stuck(appended).await
    }

    /// Ends stuck writers if a statement failed because the lane's row is locked.
    pub(super) async fn ending_stuck<T>(&self, done: Result<T, Error>) -> Result<T, Error> {
        if done.as_ref().is_err_and(|error| error.fate() == Fate::Locked) {
            self.store.end_stuck_writers().await?;
        }
        done
    }
}
