//! Pages of one run's log for browsing: from the newest event backwards, or selected events by their seqs.

use super::{
    Error,
    events::{Events, Filling, Head, Row, RunPage},
};
use crate::domain::{
    id::{RunId, Seq},
    principal::OwnerId,
};

impl Events<'_> {
    /// Up to `limit` of the last events of a run before `before`, or of all, newest first; `None` if the owner has no
    /// such run. The page is complete if it includes the first event.
    pub async fn page_before(
        self,
        owner: &OwnerId,
        run: RunId,
        before: Option<Seq>,
        limit: i64,
        bytes_max: usize,
    ) -> Result<Option<RunPage>, Error> {
        self.scoped(owner, async |mut connection| {
            let Some(head) = Head::read(&mut connection, owner, run).await? else { return Ok(None) };
            let mut page = Filling::new(limit, bytes_max);
            while let Some(rows) = page.next_pass() {
                let before = page.events.last().map(|(place, _)| place.seq).or(before);
                let pass = sqlx::query_as!(
                    Row,
                    r#"select run_id, seq, lane, position, owner_id, type as event_type, role, agent, span_id,
                          parent_span_id, event_id, at, payload::text as "payload!"
                   from store.run_event where run_id = $1 and owner_id = $2 and seq < $3 order by seq desc limit $4"#,
                    run.uuid(),
                    owner.as_str(),
                    before.map_or(i64::MAX, Seq::get),
                    rows
                );
                page.take(rows, pass.fetch(&mut *connection)).await?;
            }
            Ok(Some(head.page(page)))
        })
        .await
    }

    /// The events of a run with these seqs, in the order of their seqs; `None` if the owner has no such run.
    pub async fn at_seqs(
        self,
        owner: &OwnerId,
        run: RunId,
        seqs: &[i64],
        bytes_max: usize,
    ) -> Result<Option<RunPage>, Error> {
        self.scoped(owner, async |mut connection| {
            let Some(head) = Head::read(&mut connection, owner, run).await? else { return Ok(None) };
            let mut page = Filling::new(i64::try_from(seqs.len()).unwrap_or(i64::MAX), bytes_max);
            while let Some(rows) = page.next_pass() {
                let after = page.events.last().map_or(Seq::ZERO, |(place, _)| place.seq);
                let pass = sqlx::query_as!(
                    Row,
                    r#"select run_id, seq, lane, position, owner_id, type as event_type, role, agent, span_id,
                          parent_span_id, event_id, at, payload::text as "payload!"
                   from store.run_event where run_id = $1 and owner_id = $2 and seq = any ($3) and seq > $4
                   order by seq limit $5"#,
                    run.uuid(),
                    owner.as_str(),
                    seqs,
                    after.get(),
                    rows
                );
                page.take(rows, pass.fetch(&mut *connection)).await?;
            }
            Ok(Some(head.page(page)))
        })
        .await
    }
}
