//! How far a server has come, kept where a restore of the database does not reset it: in a file of the data directory.
//!
//! The file is a hint and not the truth. It is written after the log, a few milliseconds late, and without fsync: it
//! has to survive this process, not the machine. A log that is behind it was set back; one that is ahead of it was not.

#![expect(clippy::disallowed_methods, reason = "this is the one file of the timeline")]

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::publish::Gate;
use crate::domain::{cursor::FeedCursor, history::Histories};

/// Pause between two writes.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// Per lane, the last position that was published to readers.
    positions: Vec<i64>,
    histories: Histories,
}

/// The file. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    path: Arc<PathBuf>,
    /// The last content written; the lock makes writers take turns.
    last: Arc<Mutex<String>>,
}

impl Marks {
    /// The file for one log in a folder; both are created by the first write.
    pub(super) fn of(folder: &Path, log: &str) -> Self {
        Self { path: Arc::new(folder.join(format!("{log}.json"))), last: Arc::default() }
    }

    /// How far this server had come, and in which histories; the defaults if the file is missing or damaged.
    pub(super) fn read(&self) -> (FeedCursor, Histories) {
        let note = fs::read(self.path.as_path()).ok().and_then(|bytes| serde_json::from_slice::<Note>(&bytes).ok());
        note.map(|note| (FeedCursor::of(note.positions), note.histories)).unwrap_or_default()
    }

    /// Records how far the log is.
    pub(super) fn replace(&self, tail: &FeedCursor, histories: &Histories) {
        let positions = tail.lanes().map(|(_, position)| position).collect();
        let Ok(note) = serde_json::to_string(&Note { positions, histories: histories.clone() }) else { return };
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if *last == note {
            return;
        }
        match self.write(&note) {
            Ok(()) => *last = note,
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "history note not written");
            }
        }
    }

    fn write(&self, note: &str) -> io::Result<()> {
        let new = self.path.with_extension("new");
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        fs::write(&new, note)?;
        fs::rename(&new, self.path.as_path())
    }

    /// Records what is published, until `stop`.
    pub(super) async fn keep(self, gate: Gate, stop: CancellationToken) {
        let mut progress = gate.progress();
        let work = async {
            while progress.changed().await.is_ok() {
                let (marks, tail, histories) = (self.clone(), gate.tail(), gate.histories());
                // On a blocking thread: a disk may be slow.
                let noted = tokio::task::spawn_blocking(move || marks.replace(&tail, &histories)).await;
                if noted.is_err() {
                    // It panicked: the supervisor logs it and restarts this task.
                    return;
                }
                tokio::time::sleep(PAUSE).await;
            }
        };
        stop.run_until_cancelled(work).await;
        self.replace(&gate.tail(), &gate.histories());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::history::{Fork, Tag};

    #[test]
    fn a_note_is_read_back_and_a_damaged_one_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let marks = Marks::of(&folder.path().join("history"), "log");
        assert_eq!(marks.read(), (FeedCursor::start(), Histories::default()));
        let histories = Histories::of(vec![Fork { tag: Tag::from_random(77), cut: vec![3, 4], is_lost: false }]);
        let tail = FeedCursor::of(vec![9, 8]).of_history(histories.current());
        marks.replace(&tail, &histories);
        assert_eq!(marks.read(), (FeedCursor::of(vec![9, 8]), histories));
        fs::write(marks.path.as_path(), "{").unwrap();
        assert_eq!(marks.read().0, FeedCursor::start());
    }
}
