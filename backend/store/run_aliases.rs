//! Further ids of a run: an id that a client gave to what follows an answer.

use super::{Error, runs::Runs};
use crate::domain::{
    id::{ExternalId, RunId, Seq},
    limits::RUN_ALIASES_MAX,
    principal::OwnerId,
};

impl Runs<'_> {
    /// The run of this owner that has this alias, and the event after which the alias counts.
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

    /// Gives a run of this owner an alias. The first run that has it keeps it; nothing is stored if the owner has no such
    /// run, or the run as many as it may have.
    pub async fn add_alias(self, owner: &OwnerId, alias: &ExternalId, run: RunId, after: Seq) -> Result<(), Error> {
        self.scoped(owner, async |mut connection| {
            sqlx::query!(
                "insert into store.run_alias (owner_id, alias, run_id, after_seq)
                 select owner_id, $2, run_id, $4 from store.run where owner_id = $1 and run_id = $3
                    and (select count(*) from store.run_alias where run_id = $3) < $5
                 on conflict (owner_id, alias) do nothing",
                owner.as_str(),
                alias.as_str(),
                run.uuid(),
                after.get(),
                RUN_ALIASES_MAX
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }
}
