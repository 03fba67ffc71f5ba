//! Additional ids of a run, which clients give to what follows an answer. The lane writes them with the answers.

use super::{Error, runs::Runs};
use crate::domain::{
    id::{ExternalId, RunId, Seq},
    principal::OwnerId,
};

impl Runs<'_> {
    /// The run of this owner that has this alias, and the event after which the alias applies.
    pub async fn with_alias(self, owner: &OwnerId, alias: &ExternalId) -> Result<Option<(RunId, Seq)>, Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query!(
                "select run_id, after_seq from store.run_alias where owner_id = $1 and alias = $2",
                owner.as_str(),
                alias.as_str()
            );
            let row = row.fetch_optional(&mut *connection).await?;
            Ok(row.map(|row| (RunId::trusted(row.run_id), Seq::new(row.after_seq).unwrap_or_default())))
        })
        .await
    }
}
