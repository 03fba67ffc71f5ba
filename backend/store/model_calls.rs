//! Model calls: their tokens and costs, and repricing.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Error;
use crate::domain::{
    id::{RunId, Seq},
    limits::{MODELS_MAX, REPRICE_ROWS},
    principal::OwnerId,
    usage::{Spent, Usage},
};

/// A call as recorded in its run's log.
#[derive(Clone, Debug)]
pub struct CallRecord {
    pub seq: i64,
    pub span_id: Option<String>,
    pub model: Option<String>,
    pub at: DateTime<Utc>,
    pub usage: Usage,
    pub cost_usd: Option<f64>,
}

/// A call whose cost is to be recomputed.
#[derive(Clone, Debug)]
pub struct Priced {
    pub run_id: Uuid,
    pub seq: i64,
    pub model: Option<String>,
    pub at: DateTime<Utc>,
    pub usage: Usage,
}

/// Parses the result of the SQL function `store.spent`.
pub(super) fn spent(numbers: &str) -> Option<Spent> {
    let (calls, input, cached, cache_write, output, reasoning, cost, unpriced): (
        i64,
        u64,
        u64,
        u64,
        u64,
        u64,
        f64,
        i64,
    ) = serde_json::from_str(numbers).ok()?;
    let usage = Usage { input, cached, cache_write, output, reasoning };
    Some(Spent { calls, usage, cost_usd: (calls > unpriced).then_some(cost), is_partial: unpriced > 0 })
}

fn tokens(columns: [i64; 5]) -> Usage {
    let [input, cached, cache_write, output, reasoning] = columns.map(i64::unsigned_abs);
    Usage { input, cached, cache_write, output, reasoning }
}

repository! {
    /// Calls of models.
    ModelCalls, model_calls
}

impl ModelCalls<'_> {
    /// Calls of a run after a seq, in their order, and whether there are more.
    pub async fn page(
        self,
        owner: &OwnerId,
        run: RunId,
        after: Seq,
        limit: i64,
    ) -> Result<(Vec<CallRecord>, bool), Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query!(
                r#"select c.seq, (select e.span_id from store.run_event e
                                  where e.run_id = $1 and e.owner_id = $2 and e.seq = c.seq) as span_id,
                          c.model, c.at, c.input_tokens, c.cached_tokens, c.cache_write_tokens, c.output_tokens,
                          c.reasoning_tokens, c.cost_usd::float8 as cost_usd
                   from store.model_call c
                   where c.run_id = $1 and c.owner_id = $2 and c.seq > $3
                   order by c.seq limit $4"#,
                run.uuid(),
                owner.as_str(),
                after.get(),
                limit + 1
            );
            let rows = rows.fetch_all(&mut *connection).await?;
            let more = rows.len() as i64 > limit;
            let calls = rows.into_iter().map(|row| CallRecord {
                seq: row.seq,
                span_id: row.span_id,
                model: row.model,
                at: row.at,
                usage: tokens([
                    row.input_tokens,
                    row.cached_tokens,
                    row.cache_write_tokens,
                    row.output_tokens,
                    row.reasoning_tokens,
                ]),
                cost_usd: row.cost_usd,
            });
            Ok((calls.take(usize::try_from(limit).unwrap_or_default()).collect(), more))
        })
        .await
    }

    /// What a run spent on each model, the most expensive first.
    pub async fn by_model(self, owner: &OwnerId, run: RunId) -> Result<Vec<(Option<String>, Spent)>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query!(
                r#"select model, store.spent(count(*), sum(input_tokens)::bigint, sum(cached_tokens)::bigint,
                              sum(cache_write_tokens)::bigint, sum(output_tokens)::bigint, sum(reasoning_tokens)::bigint,
                              coalesce(sum(cost_usd), 0), count(*) - count(cost_usd)) as "spent!"
                   from store.model_call where run_id = $1 and owner_id = $2
                   group by model order by sum(cost_usd) desc nulls last, count(*) desc, model limit $3"#,
                run.uuid(),
                owner.as_str(),
                MODELS_MAX
            );
            let rows = rows.fetch_all(&mut *connection).await?.into_iter();
            Ok(rows.filter_map(|row| Some((row.model, spent(&row.spent)?))).collect())
        })
        .await
    }

    /// Number of runs in a run's subtree, including itself, and what they spent together.
    pub async fn of_tree(self, owner: &OwnerId, run: RunId) -> Result<(i64, Option<Spent>), Error> {
        self.scoped(owner, async |mut connection| {
            let row = sqlx::query!(
                r#"with recursive tree as (
                       select run_id, calls, input_tokens, cached_tokens, cache_write_tokens, output_tokens,
                              reasoning_tokens, cost_usd, unpriced_calls
                       from store.run where run_id = $1 and owner_id = $2
                       union all
                       select r.run_id, r.calls, r.input_tokens, r.cached_tokens, r.cache_write_tokens, r.output_tokens,
                              r.reasoning_tokens, r.cost_usd, r.unpriced_calls
                       from tree t join store.run r on r.parent_run_id = t.run_id and r.owner_id = $2
                   )
                   select count(*) as "runs!", store.spent(sum(calls)::bigint, sum(input_tokens)::bigint,
                              sum(cached_tokens)::bigint, sum(cache_write_tokens)::bigint, sum(output_tokens)::bigint,
                              sum(reasoning_tokens)::bigint, sum(cost_usd), sum(unpriced_calls)::bigint) as spent
                   from tree"#,
                run.uuid(),
                owner.as_str()
            );
            let row = row.fetch_one(&mut *connection).await?;
            Ok((row.runs, row.spent.as_deref().and_then(spent)))
        })
        .await
    }

    /// Fingerprint of the prices by which the stored costs were computed.
    pub async fn price_list(self) -> Result<String, Error> {
        self.maintenance(async |mut connection| {
            Ok(sqlx::query_scalar!("select fingerprint from store.price_list").fetch_one(&mut *connection).await?)
        })
        .await
    }

    /// Records the fingerprint of the prices by which they are computed now.
    pub async fn note_price_list(self, fingerprint: &str) -> Result<(), Error> {
        self.maintenance(async |mut connection| {
            sqlx::query!("update store.price_list set fingerprint = $1", fingerprint).execute(&mut *connection).await?;
            Ok(())
        })
        .await
    }

    /// Calls of all owners after a run and seq, in that order; only for repricing.
    pub async fn all_after(self, (run, seq): (Uuid, i64)) -> Result<Vec<Priced>, Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query!(
                r#"select run_id, seq, model, at, input_tokens, cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens
                   from store.model_call where (run_id, seq) > ($1, $2) order by run_id, seq limit $3"#,
                run,
                seq,
                REPRICE_ROWS
            );
            let rows = rows.fetch_all(&mut *connection).await?.into_iter();
            let priced = rows.map(|row| Priced {
                run_id: row.run_id,
                seq: row.seq,
                model: row.model,
                at: row.at,
                usage: tokens([
                    row.input_tokens,
                    row.cached_tokens,
                    row.cache_write_tokens,
                    row.output_tokens,
                    row.reasoning_tokens,
                ]),
            });
            Ok(priced.collect())
        })
        .await
    }

    /// Replaces the costs of calls and adjusts the sums of their runs. Writers may add calls of these runs meanwhile,
    /// and another server may do the same, so sums change by the difference, which is computed under the calls' locks.
    pub async fn reprice(self, calls: &[(Uuid, i64, Option<f64>)]) -> Result<(), Error> {
        let runs: Vec<Uuid> = calls.iter().map(|(run, ..)| *run).collect();
        let seqs: Vec<i64> = calls.iter().map(|(_, seq, _)| *seq).collect();
        let costs: Vec<Option<f64>> = calls.iter().map(|(.., cost)| *cost).collect();
        self.maintenance(async |mut connection| {
            sqlx::query!(
                r#"with old as (
                       select c.run_id, c.seq, c.cost_usd as old_usd, k.cost_usd::numeric as new_usd
                       from unnest($1::uuid[], $2::bigint[], $3::float8[]) as k (run_id, seq, cost_usd)
                       join store.model_call c on c.run_id = k.run_id and c.seq = k.seq
                       where c.cost_usd is distinct from k.cost_usd::numeric
                       order by c.run_id, c.seq for update of c
                   ), changed as (
                       update store.model_call c set cost_usd = o.new_usd
                       from old o where c.run_id = o.run_id and c.seq = o.seq
                   ), moved as (
                       select run_id, coalesce(sum(new_usd), 0) - coalesce(sum(old_usd), 0) as usd,
                              count(old_usd) - count(new_usd) as unpriced
                       from old group by run_id order by run_id
                   )
                   update store.run r set cost_usd = r.cost_usd + m.usd, unpriced_calls = r.unpriced_calls + m.unpriced
                   from moved m where r.run_id = m.run_id"#,
                &runs,
                &seqs,
                &costs as &[Option<f64>]
            )
            .execute(&mut *connection)
            .await?;
            Ok(())
        })
        .await
    }
}
