//! The texts of messages that are still being written, as their processes last saved them.
//!
//! A text is saved in pieces; only the last of them still grows. The table is a hint, like a wake-up: its rows may be
//! late, or missing after a crash of Postgres, and the event that ends a message has all of its text.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Error, error::known, listen::CHANNEL};
use crate::domain::{
    event::EventType,
    id::{RunId, SpanId},
    limits::{OPEN_BEHIND_EVENTS_MAX, OPEN_READ_ROWS_MAX, OPEN_STAY_MS, OPEN_SWEEP_ROWS},
    principal::OwnerId,
};

repository! {
    /// The saved texts of messages that are still being written.
    OpenTexts, open_texts
}

/// Identifies a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextKey {
    pub owner_id: OwnerId,
    pub run_id: RunId,
    pub span_id: SpanId,
    /// Which text of the span: each start from the beginning gets a new id.
    pub text_id: Uuid,
}

/// One save of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextWrite {
    pub key: TextKey,
    /// Whether it replaces any text saved for the span.
    pub is_first: bool,
    pub event_type: EventType,
    pub parent_span_id: Option<SpanId>,
    /// A published position of the run's lane at which the span was still open.
    pub position: i64,
    /// When its last delta was emitted.
    pub at: DateTime<Utc>,
    /// The index of the first of these pieces.
    pub first_piece: usize,
    pub pieces: Vec<String>,
}

/// Whose text the table had for a span before a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Saved {
    /// The writer's: it continues.
    Done,
    /// None: the text must be saved from its beginning.
    Missing,
    /// Another process's, which began later.
    Superseded,
}

/// A text as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedText {
    pub key: TextKey,
    pub event_type: EventType,
    pub parent_span_id: Option<SpanId>,
    pub at: DateTime<Utc>,
    /// Pieces by index, in order; text is `None` where it was not requested.
    pub pieces: Vec<(i32, Option<String>)>,
}

/// Texts that were read together.
#[derive(Debug, Default)]
pub struct SavedTexts {
    pub texts: Vec<SavedText>,
    /// Whether nothing was cut off by the row limit.
    pub is_complete: bool,
}

/// Where a sweep continues.
#[derive(Clone, Debug, Default)]
pub struct SweepPlace {
    owner_id: String,
    run_id: Uuid,
    span_id: String,
    piece: i32,
}

impl OpenTexts<'_> {
    /// Saves texts and removes finished ones in one small transaction that does not wait for the disk, and sends these
    /// notes to other processes; returns the outcome for each text.
    pub(crate) async fn save(
        self,
        texts: &[TextWrite],
        over: &[TextKey],
        notes: &[String],
    ) -> Result<Vec<Saved>, Error> {
        let (at, gone) = (Keys::of(texts.iter().map(|text| &text.key)), Keys::of(over));
        let is_first: Vec<bool> = texts.iter().map(|text| text.is_first).collect();
        let types: Vec<&str> = texts.iter().map(|text| text.event_type.as_str()).collect();
        let parents: Vec<_> = texts.iter().map(|text| text.parent_span_id.as_ref().map(SpanId::as_str)).collect();
        let positions: Vec<i64> = texts.iter().map(|text| text.position).collect();
        let times: Vec<_> = texts.iter().map(|text| text.at).collect();
        let ends: Vec<i32> = texts.iter().map(|text| index(text.first_piece + text.pieces.len())).collect();
        let pieces = || {
            texts.iter().zip(1i64..).flat_map(|(text, n)| {
                text.pieces.iter().zip(text.first_piece..).map(move |(piece, at)| (n, index(at), piece.as_bytes()))
            })
        };
        let numbers: Vec<i64> = pieces().map(|(n, ..)| n).collect();
        let indexes: Vec<i32> = pieces().map(|(_, index, _)| index).collect();
        let bytes: Vec<&[u8]> = pieces().map(|(.., bytes)| bytes).collect();
        let row = self
            .maintenance(async |mut connection| {
                let row = sqlx::query_file!(
                    "store/sql/save_open_texts.sql",
                    CHANNEL,
                    notes,
                    &at.owners as &[&str],
                    &at.runs,
                    &at.spans as &[&str],
                    &at.texts,
                    &is_first,
                    &types as &[&str],
                    &parents as &[Option<&str>],
                    &positions,
                    &times,
                    &ends,
                    &numbers,
                    &indexes,
                    &bytes as &[&[u8]],
                    &gone.owners as &[&str],
                    &gone.runs,
                    &gone.spans as &[&str],
                    &gone.texts,
                );
                Ok(row.fetch_one(&mut *connection).await?)
            })
            .await?;
        let judge = |(text, stored): (&TextWrite, Option<Uuid>)| match stored {
            _ if text.is_first => Saved::Done,
            None => Saved::Missing,
            Some(id) if id == text.key.text_id => Saved::Done,
            Some(_) => Saved::Superseded,
        };
        Ok(texts.iter().zip(row.stored_ids).map(judge).collect())
    }

    /// The open texts of these runs (`None`: of all runs of the owner), up to a row limit. Of texts that are known up
    /// to a piece, only the pieces from that one on.
    ///
    /// Not limited to one owner: each run is named with the owner it must belong to.
    pub(crate) async fn read(
        self,
        asked: &[(OwnerId, Option<RunId>)],
        known: &[(RunId, SpanId, i32)],
    ) -> Result<SavedTexts, Error> {
        let owners: Vec<&str> = asked.iter().map(|(owner, _)| owner.as_str()).collect();
        let runs: Vec<Option<Uuid>> = asked.iter().map(|(_, run)| run.map(RunId::uuid)).collect();
        let known_runs: Vec<Uuid> = known.iter().map(|(run, ..)| run.uuid()).collect();
        let known_spans: Vec<&str> = known.iter().map(|(_, span, _)| span.as_str()).collect();
        let known_pieces: Vec<i32> = known.iter().map(|(.., piece)| *piece).collect();
        let rows = self
            .maintenance(async |mut connection| {
                let rows = sqlx::query_file_as!(
                    Row,
                    "store/sql/open_texts.sql",
                    &owners as &[&str],
                    &runs as &[Option<Uuid>],
                    &known_runs,
                    &known_spans as &[&str],
                    &known_pieces,
                    OPEN_READ_ROWS_MAX,
                    OPEN_BEHIND_EVENTS_MAX,
                );
                Ok(rows.fetch_all(&mut *connection).await?)
            })
            .await?;
        let mut read = SavedTexts { is_complete: (rows.len() as i64) < OPEN_READ_ROWS_MAX, ..SavedTexts::default() };
        for row in rows {
            row.add_to(&mut read.texts)?;
        }
        Ok(read)
    }

    /// Removes texts that their process left behind: those of ended or missing runs, and those not continued for a long
    /// time. Checks a page of rows and returns where to continue; `None` at the end.
    pub async fn sweep(self, after: SweepPlace) -> Result<Option<SweepPlace>, Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query_as!(
                SweepPlace,
                r#"with step as (
                       select owner_id, run_id, span_id, piece, saved_at from store.open_text
                       where (owner_id, run_id, span_id, piece) > ($1, $2, $3, $4)
                       order by owner_id, run_id, span_id, piece limit $5
                   ), gone as (
                       delete from store.open_text t using step s left join store.run r
                           on r.run_id = s.run_id and r.owner_id = s.owner_id
                       where t.owner_id = s.owner_id and t.run_id = s.run_id and t.span_id = s.span_id and t.piece = s.piece
                         and (r.run_id is null or store.has_ended(r.status)
                              or s.saved_at < now() - $6 * interval '1 millisecond')
                   )
                   select owner_id, run_id, span_id, piece from step order by owner_id, run_id, span_id, piece"#,
                after.owner_id,
                after.run_id,
                after.span_id,
                after.piece,
                OPEN_SWEEP_ROWS,
                OPEN_STAY_MS as f64
            );
            let mut rows = rows.fetch_all(&mut *connection).await?;
            Ok(if rows.len() as i64 == OPEN_SWEEP_ROWS { rows.pop() } else { None })
        })
        .await
    }
}

/// Keys of texts as columns.
#[derive(Default)]
struct Keys<'a> {
    owners: Vec<&'a str>,
    runs: Vec<Uuid>,
    spans: Vec<&'a str>,
    texts: Vec<Uuid>,
}

impl<'a> Keys<'a> {
    fn of(keys: impl IntoIterator<Item = &'a TextKey>) -> Self {
        let mut columns = Self::default();
        for key in keys {
            columns.owners.push(key.owner_id.as_str());
            columns.runs.push(key.run_id.uuid());
            columns.spans.push(key.span_id.as_str());
            columns.texts.push(key.text_id);
        }
        columns
    }
}

/// A piece of a text.
struct Row {
    owner_id: String,
    run_id: Uuid,
    span_id: String,
    piece: i32,
    text_id: Uuid,
    event_type: String,
    parent_span_id: Option<String>,
    at: DateTime<Utc>,
    text: Option<Vec<u8>>,
}

impl Row {
    /// Adds the piece to the text it belongs to, which is the one that has the span's first piece.
    fn add_to(self, texts: &mut Vec<SavedText>) -> Result<(), Error> {
        let key = TextKey {
            owner_id: OwnerId::trusted(&self.owner_id),
            run_id: RunId::trusted(self.run_id),
            span_id: SpanId::trusted(&self.span_id),
            text_id: self.text_id,
        };
        let text = self.text.map(|bytes| known(String::from_utf8(bytes).ok(), "a text")).transpose()?;
        match texts.last_mut() {
            Some(last) if last.key == key => {
                last.at = self.at;
                last.pieces.push((self.piece, text));
            }
            _ if self.piece == 0 => texts.push(SavedText {
                key,
                event_type: known(self.event_type.parse().ok(), &self.event_type)?,
                parent_span_id: self.parent_span_id.as_deref().map(SpanId::trusted),
                at: self.at,
                pieces: vec![(0, text)],
            }),
            // Left over from an earlier text of the span.
            _ => {}
        }
        Ok(())
    }
}

fn index(piece: usize) -> i32 {
    i32::try_from(piece).unwrap_or(i32::MAX)
}
