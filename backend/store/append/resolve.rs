//! Resolves a batch whose commit was not acknowledged.

use std::collections::HashMap;

use super::{Appender, Batch, Committed, LaneState, Shift};
use crate::{
    domain::{
        artifact::Hash,
        history::Tag,
        id::{EventId, Seq},
    },
    store::Error,
};

impl Appender {
    /// Finds out, on a new connection, whether a batch was committed before the old one was lost, and where.
    ///
    /// Raising the epoch first makes it impossible for the lost statement to execute afterwards. That statement can
    /// only have written after `least`, the lane's position when it began.
    pub async fn resolve(&mut self, batch: &Batch, least: i64) -> Result<Option<Committed>, Error> {
        let raised = sqlx::query!(
            "update store.lane set epoch = epoch + 1 where lane = $1 returning position, epoch, history",
            self.lane
        )
        .fetch_one(&mut self.connection)
        .await;
        let raised = self.ending_stuck(raised.map_err(Error::from)).await?;
        let history = Tag::stored(raised.history);
        self.mark = LaneState { position: raised.position, epoch: raised.epoch, history, ..self.mark };
        let Some(first) = batch.events.first() else { return Ok(None) };
        let payloads: Vec<&str> = batch.events.iter().map(|event| event.payload.as_str()).collect();
        // Located by its first event, which another writer may have moved: a batch is stored entirely or not at all.
        let found = sqlx::query!(
            r#"select position from store.run_event
               where lane = $1 and run_id = $2 and seq >= $3 and type = $4 and at = $5 and payload::text = $6
                 and event_id is not distinct from $7 and position > $8
               order by seq limit 1"#,
            self.lane,
            first.run_id.uuid(),
            first.seq.map_or(1, Seq::get),
            first.event_type.as_str(),
            first.at,
            first.payload.as_str(),
            first.event_id.as_ref().map(EventId::as_str),
            least
        )
        .fetch_optional(&mut self.connection)
        .await?;
        let Some(first_position) = found.map(|row| row.position) else { return Ok(None) };
        let rows = sqlx::query!(
            r#"select run_id, seq, at, type as "event_type", payload::text as "payload!", link from store.run_event
               where lane = $1 and position >= $2 order by position limit $3"#,
            self.lane,
            first_position,
            batch.events.len() as i64
        )
        .fetch_all(&mut self.connection)
        .await?;
        let mut shifts = HashMap::new();
        for (((row, event), chained), payload) in rows.iter().zip(&batch.events).zip(&batch.chain).zip(&payloads) {
            let same = row.run_id == event.run_id.uuid()
                && row.at == event.at
                && row.event_type == event.event_type.as_str()
                && row.payload == *payload;
            if !same {
                return Ok(None);
            }
            let by = row.seq - event.seq.unwrap_or_default().get();
            let link = row.link.as_deref().and_then(Hash::from_bytes).filter(|link| *link != chained.link);
            if let Some(link) = link {
                shifts.insert(event.run_id, Shift { run_id: event.run_id, by, link });
            }
        }
        let shifts = shifts.into_values().collect();
        Ok((rows.len() == batch.events.len()).then_some(Committed { first_position, shifts }))
    }
}
