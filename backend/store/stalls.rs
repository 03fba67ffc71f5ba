//! Runs whose producers are silent.

use chrono::{DateTime, Utc};

use super::{Error, runs::Runs};
use crate::domain::{
    id::{RunId, Seq},
    limits::STALLED_OWN_ROWS,
    principal::OwnerId,
};

impl Runs<'_> {
    /// The running runs of these owners whose leases have lapsed at this time, each with its last seq: the rule of
    /// [`RunRecord::is_stalled`](super::runs::RunRecord::is_stalled). At most [`STALLED_OWN_ROWS`] of each owner, in no
    /// particular order. Not on behalf of an owner.
    pub(crate) async fn stalled(
        self,
        owners: &[OwnerId],
        now: DateTime<Utc>,
    ) -> Result<Vec<(RunId, OwnerId, Seq)>, Error> {
        let owners: Vec<String> = owners.iter().map(|owner| owner.as_str().to_owned()).collect();
        self.maintenance(async |mut connection| {
            let rows = sqlx::query!(
                r#"select s.run_id, o.owner_id as "owner_id!", s.last_seq
                   from unnest($1::text[]) as o (owner_id)
                   cross join lateral (
                       select r.run_id, r.last_seq
                       from store.run r
                       left join lateral (
                           select lease_ms, lease_until - lease_ms * interval '1 millisecond' as heard_at
                           from store.job where run_id = r.run_id offset 0
                       ) j on true
                       where r.owner_id = o.owner_id and not store.has_ended(r.status) and r.status = 'running'
                         and greatest(r.last_event_at, r.heartbeat_at, j.heard_at)
                             < $2::timestamptz - coalesce(j.lease_ms, r.lease_ms) * interval '1 millisecond'
                       limit $3
                   ) s"#,
                &owners,
                now,
                STALLED_OWN_ROWS
            )
            .fetch_all(&mut *connection)
            .await?;
            let stalled = rows.into_iter().map(|row| {
                let seq = Seq::new(row.last_seq).unwrap_or_default();
                (RunId::trusted(row.run_id), OwnerId::trusted(&row.owner_id), seq)
            });
            Ok(stalled.collect())
        })
        .await
    }
}
