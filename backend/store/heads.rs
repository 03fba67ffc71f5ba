//! What a writer lane must know before it can number events: the runs' heads and the keys in use.

use std::collections::HashMap;

use uuid::Uuid;

use super::{Error, append::Appender, error::known};
use crate::domain::{
    artifact::Hash,
    id::{EventId, RunId, Seq, SpanId},
    interrupt::asked_key,
    json::Json,
    principal::OwnerId,
    run::{Head, Status},
};

/// A run as seen by the lane that writes it.
#[derive(Clone, Debug)]
pub struct StoredHead {
    pub head: Head,
    pub owner_id: OwnerId,
    pub request_hash: Vec<u8>,
    /// The link of its last event; `None` if that one has none.
    pub link: Option<Hash>,
}

impl Appender {
    /// The heads of these runs, without those that do not exist.
    pub async fn heads(&mut self, runs: &[RunId]) -> Result<HashMap<RunId, StoredHead>, Error> {
        let ids: Vec<Uuid> = runs.iter().map(|run| run.uuid()).collect();
        let rows = sqlx::query!(
            r#"select run_id, owner_id, request_hash, status, last_seq, output::text as output, error::text as error,
                      created_at, started_at, ended_at, last_event_at, link
               from store.run where run_id = any ($1)"#,
            &ids
        )
        .fetch_all(self.reads())
        .await?;
        let stored = rows.into_iter().map(|row| {
            let head = Head {
                status: known(Status::parse(&row.status), &row.status)?,
                last_seq: Seq::new(row.last_seq).unwrap_or_default(),
                created_at: row.created_at,
                started_at: row.started_at,
                ended_at: row.ended_at,
                last_event_at: row.last_event_at,
                output: row.output.map(Json::trusted),
                error: row.error.map(Json::trusted),
            };
            let owner_id = OwnerId::trusted(&row.owner_id);
            let link = row.link.as_deref().and_then(Hash::from_bytes);
            Ok((RunId::trusted(row.run_id), StoredHead { head, owner_id, request_hash: row.request_hash, link }))
        });
        stored.collect()
    }

    /// The seqs of events that already have one of these keys.
    pub async fn known_keys(&mut self, keys: &[(RunId, EventId)]) -> Result<HashMap<(RunId, EventId), Seq>, Error> {
        let runs: Vec<Uuid> = keys.iter().map(|(run, _)| run.uuid()).collect();
        let ids: Vec<&str> = keys.iter().map(|(_, id)| id.as_str()).collect();
        let rows = sqlx::query!(
            r#"select e.run_id, e.event_id as "event_id!", e.seq
               from unnest($1::uuid[], $2::text[]) as k (run_id, event_id)
               join store.run_event e on e.run_id = k.run_id and e.event_id = k.event_id"#,
            &runs,
            &ids as &[&str]
        )
        .fetch_all(self.reads())
        .await?;
        let stored = rows.into_iter().map(|row| {
            let key = (RunId::trusted(row.run_id), EventId::trusted(&row.event_id));
            (key, Seq::new(row.seq).unwrap_or_default())
        });
        Ok(stored.collect())
    }

    /// The keys in use by interrupts with these ids: of the ids themselves, and of the events that requested them.
    pub async fn known_questions(
        &mut self,
        asked: &[(RunId, SpanId)],
    ) -> Result<HashMap<(RunId, EventId), Seq>, Error> {
        let runs: Vec<Uuid> = asked.iter().map(|(run, _)| run.uuid()).collect();
        let spans: Vec<&str> = asked.iter().map(|(_, span)| span.as_str()).collect();
        let rows = sqlx::query!(
            r#"select e.run_id, e.span_id as "span_id!", e.event_id, e.seq
               from unnest($1::uuid[], $2::text[]) as q (run_id, span_id)
               join store.run_event e on e.run_id = q.run_id and e.span_id = q.span_id
                    and e.type = 'interrupt.requested' and e.type like 'interrupt.%'"#,
            &runs,
            &spans as &[&str]
        )
        .fetch_all(self.reads())
        .await?;
        let stored = rows.into_iter().flat_map(|row| {
            let (run, seq) = (RunId::trusted(row.run_id), Seq::new(row.seq).unwrap_or_default());
            let of_event = row.event_id.as_deref().map(EventId::trusted);
            let keys = [Some(asked_key(&SpanId::trusted(&row.span_id))), of_event];
            keys.into_iter().flatten().map(move |key| ((run, key), seq))
        });
        Ok(stored.collect())
    }
}
