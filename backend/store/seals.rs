//! Seals: created from the runs that changed since the last one, and read again.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use uuid::Uuid;

use super::Error;
use crate::domain::{
    artifact::Hash,
    chain::seal::{Entry, Key, Seal, SealRef, Signature},
    id::{RunId, Seq},
    limits::{SEAL_POSITIONS_MAX, SEAL_REMOVED_MAX},
};

/// A sealed run that is missing from the log or changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unaccounted {
    pub run_id: RunId,
    pub last_seq: Seq,
    /// The seal says that the run was removed, but no removal is recorded.
    pub is_removed: bool,
}

/// A stored seal with its entries.
#[derive(Debug)]
pub struct StoredSeal {
    pub seal: Seal,
    pub entries: Vec<Entry>,
    pub unaccounted: Vec<Unaccounted>,
}

/// A new seal.
#[derive(Debug)]
pub struct NewSeal {
    pub seal: Seal,
    pub runs: usize,
    /// Whether there is more to seal.
    pub has_more: bool,
}

/// Where the next seal begins.
struct Since {
    before: Option<Hash>,
    number: i64,
    /// For each lane: its number, the position up to which it is sealed, the one up to which it will be, and its
    /// current one.
    lanes: Vec<(i16, i64, i64, i64)>,
}

repository! {
    /// The seals of the log.
    Seals, seals
}

impl Seals<'_> {
    /// Distinguishes this log from those of other databases: a hash of the cluster's identity and the database's name,
    /// which the owner of the tables cannot change.
    pub async fn log(self) -> Result<Hash, Error> {
        self.maintenance(async |mut connection| {
            let log = sqlx::query_scalar!(
                r#"select sha256(convert_to((select system_identifier from pg_control_system()) || ' ' || current_database(),
                                            'UTF8')) as "log!""#
            );
            Ok(hash(&log.fetch_one(&mut *connection).await?))
        })
        .await
    }

    /// The last seal, and when it was made; `None` if there is none.
    pub async fn last(self) -> Result<Option<(SealRef, DateTime<Utc>)>, Error> {
        self.maintenance(async |mut connection| {
            let last = sqlx::query!("select number, sha256, at from store.seal order by number desc limit 1");
            let last = last.fetch_optional(&mut *connection).await?;
            Ok(last.map(|last| (SealRef { number: last.number, sha256: hash(&last.sha256) }, last.at)))
        })
        .await
    }

    /// The hash of a seal; `None` if there is no such seal.
    pub async fn sha256_of(self, number: i64) -> Result<Option<Hash>, Error> {
        self.maintenance(async |mut connection| {
            let sha256 = sqlx::query_scalar!("select sha256 from store.seal where number = $1", number);
            Ok(sha256.fetch_optional(&mut *connection).await?.as_deref().map(hash))
        })
        .await
    }

    /// Seals what changed since the last seal, whose hash is `before`; `None` if nothing did, or another server just
    /// did it.
    pub async fn seal(
        self,
        now: DateTime<Utc>,
        before: Option<Hash>,
        key: Option<&Key>,
    ) -> Result<Option<NewSeal>, Error> {
        let mut tx = self.upkeep_transaction().await?;
        let since = since(&mut tx).await?;
        if since.before != before {
            return Ok(None);
        }
        let number = since.number;
        let mut entries = changed(&mut tx, &since.lanes).await?;
        // After the existing runs, so that one that is removed in between is in this seal or in the next.
        let removed = removed(&mut tx, number).await?;
        let is_full = i64::try_from(removed.len()).is_ok_and(|removed| removed >= SEAL_REMOVED_MAX);
        entries.extend(removed);
        if entries.is_empty() && since.lanes.iter().all(|(_, from, to, _)| from == to) {
            return Ok(None);
        }
        entries.sort_unstable();
        entries.dedup();
        let has_more = is_full || since.lanes.iter().any(|(_, _, to, head)| to < head);
        let positions = since.lanes.iter().map(|(_, _, to, _)| *to).collect();
        let seal = Seal::of(since.before, (number, now), positions, &entries, key);
        if !insert(&mut tx, &seal, &entries).await? {
            return Ok(None);
        }
        tx.commit().await?;
        Ok(Some(NewSeal { seal, runs: entries.len(), has_more }))
    }

    /// The next seal after a number, with its entries.
    pub async fn after(self, number: i64) -> Result<Option<StoredSeal>, Error> {
        self.maintenance(async |mut connection| {
            let row = sqlx::query!(
                r#"select number, at, positions, sha256, key, signature from store.seal
                   where number > $1 order by number limit 1"#,
                number
            )
            .fetch_optional(&mut *connection)
            .await?;
            let Some(row) = row else { return Ok(None) };
            let entries = entries(&mut connection, row.number).await?;
            let unaccounted = unaccounted(&mut connection, row.number).await?;
            let seal = Seal {
                number: row.number,
                at: row.at,
                positions: row.positions,
                sha256: hash(&row.sha256),
                signature: row.key.zip(row.signature).map(|(key, signature)| Signature { key, signature }),
            };
            Ok(Some(StoredSeal { seal, entries, unaccounted }))
        })
        .await
    }
}

/// A damaged hash becomes one that no seal has.
fn hash(sha256: &[u8]) -> Hash {
    Hash::from_bytes(sha256).unwrap_or(Hash::new([0; 32]))
}

async fn since(tx: &mut PgConnection) -> Result<Since, Error> {
    let last = sqlx::query!("select number, sha256, positions from store.seal order by number desc limit 1");
    let last = last.fetch_optional(&mut *tx).await?;
    let lanes = sqlx::query!("select lane, position from store.lane order by lane").fetch_all(&mut *tx).await?;
    let sealed = last.as_ref().map_or(&[][..], |last| &last.positions);
    let lanes = lanes.iter().zip(sealed.iter().copied().chain(std::iter::repeat(0))).map(|(lane, sealed)| {
        // If only the log was set back, sealing continues from where it is.
        let from = sealed.min(lane.position);
        (lane.lane, from, lane.position.min(from + SEAL_POSITIONS_MAX), lane.position)
    });
    Ok(Since {
        before: last.as_ref().map(|last| hash(&last.sha256)),
        number: last.as_ref().map_or(1, |last| last.number + 1),
        lanes: lanes.collect(),
    })
}

/// The runs with events in these parts of their lanes, as they are now.
async fn changed(tx: &mut PgConnection, lanes: &[(i16, i64, i64, i64)]) -> Result<Vec<Entry>, Error> {
    let mut all = Vec::new();
    for (lane, from, to, _) in lanes.iter().filter(|(_, from, to, _)| from < to) {
        let rows = sqlx::query!(
            r#"select r.run_id, r.owner_id, r.last_seq, r.link
               from (select distinct e.run_id from store.run_event e
                     where e.lane = $1 and e.position > $2 and e.position <= $3) c
               cross join lateral (select * from store.run o where o.run_id = c.run_id limit 1) r"#,
            lane,
            from,
            to
        );
        all.extend(rows.fetch_all(&mut *tx).await?.into_iter().map(|row| Entry {
            run_id: RunId::trusted(row.run_id),
            last_seq: Seq::new(row.last_seq).unwrap_or_default(),
            is_removed: false,
            head: row.link.as_deref().and_then(Hash::from_bytes),
            owner_id: row.owner_id,
        }));
    }
    Ok(all)
}

/// The removed runs that no seal names as removed; assigns them to the seal with this number.
async fn removed(tx: &mut PgConnection, number: i64) -> Result<Vec<Entry>, Error> {
    let rows = sqlx::query!(
        r#"update store.removed_run set number = $1
           where ctid = any (array(select g.ctid from store.removed_run g where g.number is null
                                   order by g.removed_at, g.run_id limit $2))
           returning run_id, owner_id, last_seq, link"#,
        number,
        SEAL_REMOVED_MAX
    );
    let entries = rows.fetch_all(tx).await?.into_iter().map(|row| Entry {
        run_id: RunId::trusted(row.run_id),
        last_seq: Seq::new(row.last_seq).unwrap_or_default(),
        is_removed: true,
        head: row.link.as_deref().and_then(Hash::from_bytes),
        owner_id: row.owner_id,
    });
    Ok(entries.collect())
}

/// Stores a seal with its entries; `false` if another server has just made one with this number.
async fn insert(tx: &mut PgConnection, seal: &Seal, entries: &[Entry]) -> Result<bool, Error> {
    let (key, signature) = seal.signature.as_ref().map(|by| (by.key.as_str(), by.signature.as_str())).unzip();
    let made = sqlx::query!(
        "insert into store.seal (number, at, positions, sha256, key, signature) values ($1, $2, $3, $4, $5, $6)
         on conflict do nothing",
        seal.number,
        seal.at,
        &seal.positions,
        seal.sha256.as_bytes(),
        key,
        signature
    );
    if made.execute(&mut *tx).await?.rows_affected() == 0 {
        return Ok(false);
    }
    let runs: Vec<Uuid> = entries.iter().map(|entry| entry.run_id.uuid()).collect();
    let owners: Vec<&str> = entries.iter().map(|entry| entry.owner_id.as_str()).collect();
    let seqs: Vec<i64> = entries.iter().map(|entry| entry.last_seq.get()).collect();
    let removed: Vec<bool> = entries.iter().map(|entry| entry.is_removed).collect();
    let links: Vec<Option<&[u8]>> = entries.iter().map(|entry| entry.head.as_ref().map(Hash::as_bytes)).collect();
    sqlx::query!(
        r#"insert into store.sealed_run (number, n, run_id, owner_id, last_seq, is_removed, link)
           select $1, e.n, e.run_id, e.owner_id, e.last_seq, e.is_removed, e.link
           from unnest($2::uuid[], $3::text[], $4::bigint[], $5::boolean[], $6::bytea[]) with ordinality
               as e (run_id, owner_id, last_seq, is_removed, link, n)"#,
        seal.number,
        &runs,
        &owners as &[&str],
        &seqs,
        &removed,
        &links as &[Option<&[u8]>]
    )
    .execute(tx)
    .await?;
    Ok(true)
}

async fn entries(connection: &mut PgConnection, number: i64) -> Result<Vec<Entry>, Error> {
    let rows = sqlx::query!(
        "select run_id, owner_id, last_seq, is_removed, link from store.sealed_run where number = $1 order by n",
        number
    );
    let entries = rows.fetch_all(connection).await?.into_iter().map(|row| Entry {
        run_id: RunId::trusted(row.run_id),
        last_seq: Seq::new(row.last_seq).unwrap_or_default(),
        is_removed: row.is_removed,
        head: row.link.as_deref().and_then(Hash::from_bytes),
        owner_id: row.owner_id,
    });
    Ok(entries.collect())
}

/// Entries of a seal that the log lacks or has changed, although they were not removed since.
async fn unaccounted(connection: &mut PgConnection, number: i64) -> Result<Vec<Unaccounted>, Error> {
    let rows = sqlx::query!(
        r#"select s.run_id, s.last_seq, s.is_removed
           from store.sealed_run s
           left join lateral (select v.seq, v.link from store.run_event v
                              where v.run_id = s.run_id and v.seq = s.last_seq limit 1) e on true
           left join lateral (select o.owner_id from store.run o where o.run_id = s.run_id limit 1) r on true
           where s.number = $1
             and case when s.is_removed
                      then (select true from store.removed_run g where g.run_id = s.run_id and g.number = $1 limit 1) is null
                      else (e.seq is null or e.link is distinct from s.link or r.owner_id is distinct from s.owner_id)
                           and not store.was_removed_since($1, s.run_id, s.last_seq)
                 end
           order by s.n"#,
        number
    );
    let missing = rows.fetch_all(connection).await?.into_iter().map(|row| Unaccounted {
        run_id: RunId::trusted(row.run_id),
        last_seq: Seq::new(row.last_seq).unwrap_or_default(),
        is_removed: row.is_removed,
    });
    Ok(missing.collect())
}
