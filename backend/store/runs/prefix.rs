//! Runs by the beginning of their id; and the size of a row of a list.

use super::{Row, RunRecord, Runs};
use crate::{
    domain::{id_prefix::RunIdPrefix, principal::OwnerId},
    store::{Error, page::page},
};

impl Runs<'_> {
    /// Runs of this owner whose ids begin like this, of any role: the greatest ids first, at most `limit`.
    pub async fn with_prefix(self, owner: &OwnerId, prefix: RunIdPrefix, limit: i64) -> Result<Vec<RunRecord>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = runs!(
                r#"from store.run
                   left join (select run_id, lease_ms as j_lease_ms,
                                     lease_until - lease_ms * interval '1 millisecond' as j_heard_at
                              from store.job) j using (run_id)
                   cross join (select null::text as node_times) n
                   where owner_id = $1 and run_id between $2 and $3
                   order by run_id desc
                   limit $4"#,
                owner.as_str(),
                prefix.first(),
                prefix.last(),
                limit
            );
            let (rows, _) = page(limit, rows.fetch(&mut *connection), texts_bytes).await?;
            rows.into_iter().map(RunRecord::try_from).collect()
        })
        .await
    }
}

/// The size of a row's columns that have no small bound.
pub(super) fn texts_bytes(row: &Row) -> usize {
    let texts = [row.input.as_ref(), Some(&row.metadata), row.output.as_ref(), row.error.as_ref()];
    texts.into_iter().flatten().map(String::len).sum()
}
