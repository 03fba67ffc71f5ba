//! Numbers of runs by the time of their creation and by their status.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;

use super::{
    Runs,
    filter::{RunFilter, Values, filtered},
    list::plan_for_values,
};
use crate::{
    domain::{principal::OwnerId, run::Status},
    store::{Error, error::known, search::Searched},
};

/// Widths of buckets, milliseconds; wider ones are whole years of 365 days.
const WIDTHS_MS: [i64; 16] = {
    const S: i64 = 1_000;
    const MIN: i64 = 60 * S;
    const H: i64 = 60 * MIN;
    const D: i64 = 24 * H;
    [S, 5 * S, 10 * S, 30 * S, MIN, 5 * MIN, 10 * MIN, 30 * MIN, H, 3 * H, 6 * H, 12 * H, D, 7 * D, 30 * D, 365 * D]
};

/// Numbers of runs by time and status.
#[derive(Debug)]
pub struct Histogram {
    pub since: DateTime<Utc>,
    pub until: DateTime<Utc>,
    pub bucket_ms: i64,
    /// The beginning of a bucket, a status and the number of runs, in this order.
    pub counts: Vec<(DateTime<Utc>, Status, i64)>,
    pub searched: Option<Searched>,
}

struct Bucket {
    at_ms: i64,
    status: String,
    runs: i64,
}

macro_rules! counted {
    ($runs:literal, $filter:tt, $($more:expr),+) => {
        filtered!(
            Bucket,
            [r#"select b.at_ms as "at_ms!", b.status as "status!", count(*) as "runs!"
                from (select r.status, floor(extract(epoch from r.created_at) * 1000 / $19::bigint)::bigint * $19 as at_ms
                      from "#, $runs],
            [") b group by b.at_ms, b.status order by b.at_ms, b.status"],
            $filter, $($more),+
        )
    };
}

impl Runs<'_> {
    /// Counts the runs of this owner that pass a filter, in at most `buckets` buckets.
    pub async fn histogram(
        self,
        owner: &OwnerId,
        filter: &RunFilter,
        buckets: i64,
        now: DateTime<Utc>,
    ) -> Result<Histogram, Error> {
        let values = filter.values(owner);
        self.transaction(owner, async |mut tx| {
            let searched =
                if values.queries.is_empty() { None } else { Some(self.searched(&mut tx, now).await?) };
            let ends = sqlx::query!(
                r#"select (select created_at from store.run where owner_id = $1 order by created_at, run_id limit 1) as first,
                          (select created_at from store.run where owner_id = $1 order by created_at desc, run_id desc limit 1) as last"#,
                owner.as_str()
            )
            .fetch_one(&mut *tx)
            .await?;
            // A run's time of creation may be slightly later than now.
            let until = filter.until.unwrap_or(ends.last.unwrap_or(now).max(now));
            let since = filter.since.unwrap_or(ends.first.unwrap_or(until)).min(until);
            let bucket_ms = width_ms(since.timestamp_millis(), until.timestamp_millis(), buckets);
            plan_for_values(&mut tx).await?;
            let counts = counted(&mut tx, filter, &values, bucket_ms).await?;
            tx.commit().await?;
            Ok(Histogram { since, until, bucket_ms, counts, searched })
        })
        .await
    }
}

async fn counted(
    tx: &mut PgConnection,
    filter: &RunFilter,
    values: &Values,
    bucket_ms: i64,
) -> Result<Vec<(DateTime<Utc>, Status, i64)>, Error> {
    let rows = if values.queries.is_empty() {
        counted!("store.run r", (filter, values), bucket_ms).fetch_all(tx).await?
    } else {
        let found = counted!(
            "store.runs_with_words($20) f (id) join store.run r on r.run_id = f.id",
            (filter, values),
            bucket_ms,
            &values.queries
        );
        found.fetch_all(tx).await?
    };
    let count = |row: Bucket| {
        let at = DateTime::from_timestamp_millis(row.at_ms).unwrap_or_default();
        Ok((at, known(Status::parse(&row.status), &row.status)?, row.runs))
    };
    rows.into_iter().map(count).collect()
}

/// The smallest round width with which at most `buckets` buckets cover a range.
fn width_ms(since_ms: i64, until_ms: i64, buckets: i64) -> i64 {
    let [.., year] = WIDTHS_MS;
    let years = (1..).map(|count| count * year);
    let fits = |width: &i64| until_ms.div_euclid(*width) - since_ms.div_euclid(*width) < buckets;
    // 200 buckets of 50 years cover all representable times.
    WIDTHS_MS.into_iter().chain(years).take(10_000).find(fits).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_width_is_round_and_small_enough() {
        let min = 60_000;
        assert_eq!(width_ms(0, 59 * min, 60), min);
        assert_eq!(width_ms(0, 60 * min, 60), 5 * min);
        assert_eq!(width_ms(999, 1_000, 1), 5_000);
        assert_eq!(width_ms(5, 5, 1), 1_000);
        let (first, last) = (DateTime::<Utc>::UNIX_EPOCH.timestamp_millis(), 253_402_300_799_999);
        for buckets in [1, 2, 60, 200] {
            let width = width_ms(first, last, buckets);
            assert!(last.div_euclid(width) - first.div_euclid(width) < buckets, "{buckets}: {width}");
        }
    }
}
