//! External ids and aliases of runs, which share one namespace.

use std::collections::HashMap;

use uuid::Uuid;

use super::{Error, append::Appender, runs::Runs};
use crate::domain::{
    id::{ExternalId, RunId},
    principal::OwnerId,
};

impl Runs<'_> {
    /// The run of this owner that has this external id.
    pub async fn with_external_id(self, owner: &OwnerId, id: &ExternalId) -> Result<Option<RunId>, Error> {
        self.by_itself(owner, |mut connection| async move {
            let run = sqlx::query_scalar!(
                r#"select run_id as "run_id!"
                   from (select set_config('runreel.owner', $1, true) as owner offset 0) me
                   cross join lateral (
                       select run_id from store.run where owner_id = me.owner and external_id = $2 offset 0
                   ) run"#,
                owner.as_str(),
                id.as_str()
            );
            Ok(run.fetch_optional(&mut *connection).await?.map(RunId::trusted))
        })
        .await
    }
}

/// Which ids of a batch are in use already, and by which runs.
#[derive(Clone, Debug, Default)]
pub struct Named {
    /// The runs that have these ids, as their external ids or as aliases.
    pub runs: HashMap<(OwnerId, ExternalId), RunId>,
    /// Number of aliases by run; one that is missing has none.
    pub aliases: HashMap<RunId, i64>,
}

impl Appender {
    /// The runs that have one of these external ids or aliases, and how many aliases `runs` have.
    pub async fn named(&mut self, ids: &[(OwnerId, ExternalId)], runs: &[RunId]) -> Result<Named, Error> {
        let owners: Vec<&str> = ids.iter().map(|(owner, _)| owner.as_str()).collect();
        let texts: Vec<&str> = ids.iter().map(|(_, id)| id.as_str()).collect();
        let rows = sqlx::query!(
            r#"select r.owner_id as "owner_id!", r.external_id as "external_id!", r.run_id as "run_id!"
               from unnest($1::text[], $2::text[]) as k (owner_id, external_id)
               join store.run r on r.owner_id = k.owner_id and r.external_id = k.external_id
               union all
               select a.owner_id, a.alias, a.run_id
               from unnest($1::text[], $2::text[]) as k (owner_id, external_id)
               join store.run_alias a on a.owner_id = k.owner_id and a.alias = k.external_id"#,
            &owners as &[&str],
            &texts as &[&str]
        )
        .fetch_all(self.reads())
        .await?;
        let taken = rows.into_iter().map(|row| {
            ((OwnerId::trusted(&row.owner_id), ExternalId::trusted(&row.external_id)), RunId::trusted(row.run_id))
        });
        let mut named = Named { runs: taken.collect(), aliases: HashMap::new() };
        if !runs.is_empty() {
            let runs: Vec<Uuid> = runs.iter().map(|run| run.uuid()).collect();
            let rows = sqlx::query!(
                r#"select run_id, count(*) as "aliases!" from store.run_alias where run_id = any ($1) group by run_id"#,
                &runs
            );
            let rows = rows.fetch_all(self.reads()).await?;
            named.aliases = rows.into_iter().map(|row| (RunId::trusted(row.run_id), row.aliases)).collect();
        }
        Ok(named)
    }
}
