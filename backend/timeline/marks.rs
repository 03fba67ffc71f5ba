//! How far a server has come, kept where no restore of the database takes it back: in a file of the data directory.
//!
//! The file is a note and not the truth. It is written behind the log, a few milliseconds late, and without fsync: what it
//! has to outlive is this process, not the machine. A log that stands before it was set back; one that stands behind it
//! was not.

#![expect(clippy::disallowed_methods, reason = "this is the one file of the timeline")]

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use super::publish::Gate;
use crate::domain::{cursor::FeedCursor, history::Histories};

/// Pause between two notes.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize, Deserialize)]
struct Note {
    /// Per lane, the last position that was shown to readers.
    positions: Vec<i64>,
    histories: Histories,
}

/// The file. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Marks {
    path: Arc<PathBuf>,
    /// The last note, which writers take turns to make.
    last: Arc<Mutex<String>>,
}

impl Marks {
    /// The note about one log in a folder; both are made when there is something to note.
    pub(super) fn of(folder: &Path, log: &str) -> Self {
        Self { path: Arc::new(folder.join(format!("{log}.json"))), last: Arc::default() }
    }

    /// How far this server had come, and in which histories; nothing when it never was here or the file is damaged.
    pub(super) fn read(&self) -> (FeedCursor, Histories) {
        let note = fs::read(self.path.as_path()).ok().and_then(|bytes| serde_json::from_slice::<Note>(&bytes).ok());
        note.map(|note| (FeedCursor::of(note.positions), note.histories)).unwrap_or_default()
    }

    /// Notes where the log stands.
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
            fs::create_dir_all(folder)?;
        }
        fs::write(&new, note)?;
        fs::rename(&new, self.path.as_path())
    }

    /// Notes what is published, until `stop`.
    pub(super) async fn keep(self, gate: Gate, stop: CancellationToken) {
        let mut progress = gate.progress();
        let work = async {
            while progress.changed().await.is_ok() {
                let (marks, tail, histories) = (self.clone(), gate.tail(), gate.histories());
                // On a thread for such things: a disk may be slow.
                let noted = tokio::task::spawn_blocking(move || marks.replace(&tail, &histories)).await;
                if noted.is_err() {
                    // It panicked: whoever supervises this begins it again and says so.
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
