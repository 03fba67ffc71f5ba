//! How processes notify each other of new events. The table is the source of truth; a notification is only a wake-up.

use sqlx::{
    PgConnection, PgPool,
    postgres::{PgListener, PgPoolOptions},
};

use super::{
    Error, Store, bounded,
    events::{Filling, PositionedEvent, Row},
};
use crate::domain::{
    cursor::FeedCursor,
    id::RunId,
    limits::{EVENT_PAGE_BYTES_MAX, NOTE_RUNS_MAX, READ_WAIT_MS_MAX},
};

pub(super) const CHANNEL: &str = "runreel";
/// The second word of a note of open texts, after its sender; a note of commits has a cursor there.
const TEXTS: &str = "texts";

/// The sending end: one connection of its own.
#[derive(Debug)]
pub struct Notifier(PgConnection);

/// The receiving end.
#[derive(Debug)]
pub struct Notifications {
    listener: PgListener,
    pool: PgPool,
}

/// A received notification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Another process has committed.
    Commits,
    /// Another process has saved open texts of these runs.
    Texts(Vec<RunId>),
    /// The connection was reestablished; notifications may have been missed.
    Renewed,
}

/// Notes that a process has saved open texts of these runs, split to the length that Postgres permits.
pub(crate) fn notes_of_texts(process: &str, runs: &[RunId]) -> Vec<String> {
    let note = |runs: &[RunId]| {
        let runs: Vec<String> = runs.iter().map(ToString::to_string).collect();
        format!("{process} {TEXTS} {}", runs.join(","))
    };
    runs.chunks(NOTE_RUNS_MAX).map(note).collect()
}

impl Store {
    pub async fn notifier(&self) -> Result<Notifier, Error> {
        Ok(Notifier(self.dedicated("runreel_writer").await?))
    }

    pub async fn notifications(&self) -> Result<Notifications, Error> {
        bounded(READ_WAIT_MS_MAX, async {
            let pool = self.access.as_role("runreel_app").pool(PgPoolOptions::new().max_connections(1));
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen(CHANNEL).await?;
            Ok(Notifications { listener, pool })
        })
        .await
    }

    /// The events of all owners in a lane after a position, as many as fit a page; only the relay reads this way.
    pub(crate) async fn lane_range(&self, lane: u8, after: i64, limit: i64) -> Result<Vec<PositionedEvent>, Error> {
        self.maintenance(async |mut connection| {
            let rows = sqlx::query_as!(
                Row,
                r#"select run_id, seq, lane, position, owner_id, type as event_type, role, agent, span_id,
                          parent_span_id, event_id, at, payload::text as "payload!"
                   from store.run_event where lane = $1 and position > $2 order by position limit $3"#,
                i16::from(lane),
                after,
                limit
            );
            let mut page = Filling::new(limit, EVENT_PAGE_BYTES_MAX);
            page.take(limit, rows.fetch(&mut *connection)).await?;
            Ok(page.events)
        })
        .await
    }
}

impl Notifier {
    /// Notifies other processes how far this one has committed. One small transaction per call, not one per event.
    pub async fn notify(&mut self, process: &str, tail: &FeedCursor) -> Result<(), Error> {
        let note = format!("{process} {tail}");
        bounded(READ_WAIT_MS_MAX, async {
            sqlx::query_scalar!("select pg_notify($1, $2)", CHANNEL, note).fetch_one(&mut self.0).await?;
            Ok(())
        })
        .await
    }
}

impl Notifications {
    /// Waits for another process's notification.
    pub async fn hear(&mut self, own_process: &str) -> Result<Heard, Error> {
        loop {
            let Some(note) = self.listener.try_recv().await? else { return Ok(Heard::Renewed) };
            let mut words = note.payload().split(' ');
            if words.next() == Some(own_process) {
                continue;
            }
            return Ok(match (words.next(), words.next()) {
                (Some(TEXTS), Some(runs)) => Heard::Texts(runs.split(',').filter_map(|run| run.parse().ok()).collect()),
                _ => Heard::Commits,
            });
        }
    }
}

impl Drop for Notifications {
    /// Marks the pool as closed, so that a returned connection is closed instead of tested: if the database has stopped
    /// by then, the driver would log a warning.
    fn drop(&mut self) {
        drop(self.pool.close());
    }
}
