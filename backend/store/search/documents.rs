//! Documents of the index: the words of a part of a run.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::PgConnection;
use uuid::Uuid;

use crate::{domain::limits::DOCUMENT_WORDS_MAX, store::Error};

/// How many of a run's last documents may be merged with new words.
const MERGED_DOCUMENTS_MAX: i64 = 16;

/// The new words of a run.
pub(super) struct News {
    pub owner_id: String,
    pub words: BTreeSet<String>,
}

/// A document to be written.
pub(super) struct Document {
    run_id: Uuid,
    piece: i32,
    owner_id: String,
    /// One per line.
    words: String,
}

/// The documents of the new words. The run's last documents that have at most twice as many words are merged into them,
/// so a word is written again only when its document grows by half.
pub(super) async fn merge(tx: &mut PgConnection, mut news: BTreeMap<Uuid, News>) -> Result<Vec<Document>, Error> {
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

pub(super) async fn write(tx: &mut PgConnection, documents: Vec<Document>) -> Result<(), Error> {
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
