//! The index of words: filled from the log, in the order of its positions.
//!
//! Invariant: a lane's progress moves in the transaction that stores the words up to it, so nothing is left out or done
//! twice, whichever of several servers does it and whenever it stops. The progress stays locked from before events are
//! read until their words are committed; a deletion waits for it, and removes what it finds then.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
};

use chrono::{DateTime, Utc};
use futures::TryStreamExt as _;
use sqlx::{Connection as _, PgConnection};
use uuid::Uuid;

use super::{Error, Store};
use crate::domain::{
    limits::{DOCUMENT_WORDS_MAX, EVENT_WORDS_MAX, INDEXED_BYTES_MAX, INDEXED_EVENTS_MAX, INDEXER_MS_MAX},
    search::{index_payload, index_text},
};

/// Last documents of a run that may be merged with what is new.
const MERGED_DOCUMENTS_MAX: i64 = 16;

/// How far a search saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Searched {
    /// Everything that was committed before this time was searched; `None` while the index of an older log is filled.
    pub up_to: Option<DateTime<Utc>>,
}

/// A connection that fills the index.
#[derive(Debug)]
pub struct Indexing {
    connection: PgConnection,
}

/// What one step did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Indexed {
    /// The lane's position when the step began.
    pub head: i64,
    /// The position up to which the lane is indexed now.
    pub position: i64,
    pub events: u64,
    pub up_to: Option<DateTime<Utc>>,
}

/// The new words of a run.
struct News {
    owner_id: String,
    words: BTreeSet<String>,
}

/// A document to be written.
struct Document {
    run_id: Uuid,
    piece: i32,
    owner_id: String,
    /// One a line.
    words: String,
}

/// Where a lane is.
struct Progress {
    position: i64,
    head: i64,
    seen_position: Option<i64>,
    seen_at: Option<DateTime<Utc>>,
    up_to: Option<DateTime<Utc>>,
}

impl Store {
    /// A connection that fills the index: its own, so that it takes none from what requests wait for.
    pub async fn indexing(&self) -> Result<Indexing, Error> {
        let mut connection = self.dedicated("runreel_writer").await?;
        // What is lost in a crash of the database is indexed again, since the progress is lost with it.
        sqlx::query_scalar!("select set_config('synchronous_commit', 'off', false)").fetch_one(&mut connection).await?;
        // Postgres puts new words in order from time to time, which may take longer than a request may.
        let longer =
            sqlx::query_scalar!("select set_config('statement_timeout', $1, false)", INDEXER_MS_MAX.to_string());
        longer.fetch_one(&mut connection).await?;
        sqlx::query!(
            "insert into store.search_progress (lane) select lane from store.lane on conflict (lane) do nothing"
        )
        .execute(&mut connection)
        .await?;
        Ok(Indexing { connection })
    }

    /// Remembers that everything was indexed that had been committed at this time. When nothing happens, nothing is
    /// written about it.
    pub fn note_searched(&self, at: DateTime<Utc>) {
        self.searched_until.fetch_max(at.timestamp_micros(), Ordering::Relaxed);
    }

    /// How far the index is, as a request sees it that searches afterwards.
    pub(super) async fn searched(&self, connection: &mut PgConnection, now: DateTime<Utc>) -> Result<Searched, Error> {
        let noted = DateTime::from_timestamp_micros(self.searched_until.load(Ordering::Relaxed));
        let lanes = sqlx::query!(
            r#"select coalesce(p.position >= l.position, l.position = 0) as "is_done!", p.up_to as "up_to?"
               from store.lane l left join store.search_progress p using (lane)"#
        )
        .fetch_all(connection)
        .await?;
        let up_to = lanes.into_iter().map(|lane| if lane.is_done { Some(now) } else { lane.up_to.max(noted) });
        Ok(Searched { up_to: up_to.min().flatten() })
    }
}

impl Indexing {
    pub async fn lanes(&mut self) -> Result<Vec<i16>, Error> {
        let lanes = sqlx::query_scalar!("select lane from store.lane order by lane");
        Ok(lanes.fetch_all(&mut self.connection).await?)
    }

    /// Indexes the next events of a lane.
    pub async fn step(&mut self, lane: i16, now: DateTime<Utc>) -> Result<Indexed, Error> {
        let found = sqlx::query!(
            r#"select l.position as head, p.position, p.up_to
               from store.search_progress p join store.lane l using (lane) where p.lane = $1"#,
            lane
        )
        .fetch_one(&mut self.connection)
        .await?;
        if found.position > found.head {
            // The log was set back alone; what it has now was indexed up to here at most.
            sqlx::query!(
                r#"update store.search_progress p set position = l.position
                   from store.lane l where p.lane = $1 and l.lane = p.lane and p.position > l.position"#,
                lane
            )
            .execute(&mut self.connection)
            .await?;
        }
        if found.position >= found.head {
            return Ok(Indexed { head: found.head, position: found.position, events: 0, up_to: Some(now) });
        }
        let mut tx = self.connection.begin().await?;
        let progress = sqlx::query_as!(
            Progress,
            r#"select p.position, l.position as head, p.seen_position, p.seen_at, p.up_to
               from store.search_progress p join store.lane l using (lane) where p.lane = $1 for update of p"#,
            lane
        )
        .fetch_one(&mut *tx)
        .await?;
        let (news, reached, events) = read(&mut tx, lane, &progress).await?;
        let documents = merge(&mut tx, news).await?;
        write(&mut tx, documents).await?;
        let up_to = advance(&mut tx, lane, &progress, reached, now).await?;
        tx.commit().await?;
        Ok(Indexed { head: progress.head, position: reached, events, up_to })
    }

    pub async fn close(self) {
        let _ = self.connection.close().await;
    }
}

/// The words of the next events by their runs, and how far that reaches.
async fn read(
    tx: &mut PgConnection,
    lane: i16,
    progress: &Progress,
) -> Result<(BTreeMap<Uuid, News>, i64, u64), Error> {
    let (mut runs, mut events, mut bytes) = (BTreeMap::new(), 0, 0);
    let mut rows = sqlx::query!(
        r#"select run_id, seq, position, owner_id, agent, payload::text as "payload!" from store.run_event
           where lane = $1 and position > $2 and position <= $3 order by position limit $4"#,
        lane,
        progress.position,
        progress.head,
        INDEXED_EVENTS_MAX
    )
    .fetch(tx);
    while let Some(row) = rows.try_next().await? {
        (events, bytes) = (events + 1, bytes + row.payload.len());
        let news = runs.entry(row.run_id).or_insert_with(|| News { owner_id: row.owner_id, words: BTreeSet::new() });
        index_payload(&mut news.words, &news.owner_id, &row.payload);
        if row.seq == 1 {
            let mut left = EVENT_WORDS_MAX;
            for text in [Some(row.run_id.to_string()), row.agent].into_iter().flatten() {
                index_text(&mut news.words, &news.owner_id, &text, &mut left);
            }
        }
        if bytes >= INDEXED_BYTES_MAX || events >= INDEXED_EVENTS_MAX.unsigned_abs() {
            return Ok((runs, row.position, events));
        }
    }
    // What is missing before the head was deleted.
    Ok((runs, progress.head, events))
}

/// The documents of the new words. Small ones of the same run go into the new ones: always those that are not much larger
/// than what is new, so a word is written again only as often as its document doubles.
async fn merge(tx: &mut PgConnection, mut news: BTreeMap<Uuid, News>) -> Result<Vec<Document>, Error> {
    let runs: Vec<Uuid> = news.keys().copied().collect();
    let last = sqlx::query!(
        r#"select r.run_id as "run_id!", d.piece, length(d.words) as "words!"
           from unnest($1::uuid[]) as r (run_id)
           cross join lateral (
               select piece, words from store.search_document d where d.run_id = r.run_id order by piece desc limit $2
           ) d
           order by r.run_id, d.piece desc"#,
        &runs,
        MERGED_DOCUMENTS_MAX
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut next: BTreeMap<Uuid, i32> = BTreeMap::new();
    let (mut old_runs, mut old_pieces) = (Vec::new(), Vec::new());
    for pieces in last.chunk_by(|one, other| one.run_id == other.run_id) {
        let run = pieces[0].run_id;
        let mut words = news.get(&run).map_or(0, |news| news.words.len());
        next.insert(run, pieces[0].piece + 1);
        for piece in pieces {
            let size = usize::try_from(piece.words).unwrap_or(0);
            if size > 2 * words || size + words > DOCUMENT_WORDS_MAX {
                break;
            }
            words += size;
            next.insert(run, piece.piece);
            old_runs.push(run);
            old_pieces.push(piece.piece);
        }
    }
    let merged = sqlx::query!(
        r#"delete from store.search_document d using unnest($1::uuid[], $2::int[]) as old (run_id, piece)
           where d.run_id = old.run_id and d.piece = old.piece
           returning d.run_id, tsvector_to_array(d.words) as "words!""#,
        &old_runs,
        &old_pieces
    );
    for row in merged.fetch_all(tx).await? {
        if let Some(news) = news.get_mut(&row.run_id) {
            news.words.extend(row.words);
        }
    }
    Ok(news.into_iter().flat_map(|(run, news)| documents(run, news, next.get(&run).copied().unwrap_or(0))).collect())
}

fn documents(run_id: Uuid, news: News, first: i32) -> Vec<Document> {
    let words: Vec<String> = news.words.into_iter().collect();
    let document = |(piece, words): (i32, &[String])| Document {
        run_id,
        piece,
        owner_id: news.owner_id.clone(),
        words: words.join("\n"),
    };
    (first..).zip(words.chunks(DOCUMENT_WORDS_MAX)).map(document).collect()
}

async fn write(tx: &mut PgConnection, documents: Vec<Document>) -> Result<(), Error> {
    let (mut runs, mut pieces, mut owners, mut words) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for document in documents {
        runs.push(document.run_id);
        pieces.push(document.piece);
        owners.push(document.owner_id);
        words.push(document.words);
    }
    sqlx::query!(
        r#"insert into store.search_document (run_id, piece, owner_id, words)
           select run_id, piece, owner_id, array_to_tsvector(string_to_array(words, E'\n'))
           from unnest($1::uuid[], $2::int[], $3::text[], $4::text[]) as d (run_id, piece, owner_id, words)"#,
        &runs,
        &pieces,
        &owners,
        &words
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Notes how far the lane is indexed; returns the time up to which everything is.
async fn advance(
    tx: &mut PgConnection,
    lane: i16,
    progress: &Progress,
    reached: i64,
    now: DateTime<Utc>,
) -> Result<Option<DateTime<Utc>>, Error> {
    let is_past = progress.seen_position.is_some_and(|seen| seen <= reached);
    let up_to = if is_past { progress.seen_at } else { progress.up_to };
    // The lane stood at its head when the progress was read, which was after `now`.
    let seen = if is_past || progress.seen_position.is_none() {
        (Some(progress.head), Some(now))
    } else {
        (progress.seen_position, progress.seen_at)
    };
    let up_to = if reached >= progress.head { Some(now) } else { up_to };
    sqlx::query!(
        r#"update store.search_progress set position = $2, seen_position = $3, seen_at = $4, up_to = $5
           where lane = $1"#,
        lane,
        reached,
        seen.0,
        seen.1,
        up_to
    )
    .execute(tx)
    .await?;
    Ok(up_to)
}
