//! The logs of conversations as files: one append-only JSON Lines file for each thread.
//!
//! A file contains what this server, and those that share the folder, received and sent; its first line states this.
//! The complete log is in the database (`store/sessions/lines.rs`), from which the API serves it.
//!
//! Each owner has a folder. A line is written with one call under a lock that other processes honour, and is on disk
//! when the call returns. A partial line left by a crash is cut off before the next one is written.

use std::{
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::PathBuf,
    sync::Arc,
};

use cap_std::{
    ambient_authority,
    fs::{Dir, DirBuilder, DirBuilderExt as _, File, OpenOptions, OpenOptionsExt as _},
};
use rustix::fs::FlockOperation;

use crate::domain::{
    id::ThreadId,
    limits::{SESSION_LOG_BYTES_MAX, SESSION_LOG_TAIL_BYTES},
    principal::OwnerId,
    session::thread::log_file_name,
};

/// Bytes read in each step backwards.
const STEP_BYTES: u64 = 64 * 1024;

/// The session logs in a folder. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SessionLog {
    root: Arc<PathBuf>,
    /// The name of this machine.
    server: Arc<str>,
}

impl SessionLog {
    /// Logs below this folder, which is created when the first line is written.
    pub fn new(root: PathBuf) -> Self {
        let server = rustix::system::uname().nodename().to_string_lossy().into();
        Self { root: Arc::new(root), server }
    }

    /// Appends a line, which ends with a line feed. With `again`, a line already present is not appended twice.
    pub async fn append(&self, owner: &OwnerId, thread: &ThreadId, line: String, again: bool) -> io::Result<()> {
        let (root, owner, name) = (Arc::clone(&self.root), owner.clone(), log_file_name(thread));
        let whose = serde_json::json!({
            "log_of": thread, "owner_id": owner, "server": *self.server,
            "note": "what this server received and sent; the complete log is at GET \
             /api/sessions/{session_id}/log.jsonl",
        });
        blocking(move || {
            let authority = ambient_authority();
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&*root)?;
            let root = Dir::open_ambient_dir(&*root, authority)?;
            match root.create_dir_with(owner.as_str(), DirBuilder::new().mode(0o700)) {
                Ok(()) => sync_folder(&root)?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            append(&root.open_dir(owner.as_str())?, &name, &format!("{whose}\n"), line.as_bytes(), again)
        })
        .await
    }

    /// Like [`SessionLog::append`]; returns whether the line was written. A failure is logged and stops nothing, since
    /// the database has the line.
    pub async fn write(&self, owner: &OwnerId, thread: &ThreadId, line: String, again: bool) -> bool {
        match self.append(owner, thread, line, again).await {
            Ok(()) => true,
            Err(error) => {
                metrics::counter!("runreel_session_log_failures_total").increment(1);
                tracing::warn!(error = &error as &dyn std::error::Error, "session log line not written");
                false
            }
        }
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

fn append(folder: &Dir, name: &str, whose: &str, line: &[u8], again: bool) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let is_new = !folder.exists(name);
    let mut file = folder.open_with(name, &options)?;
    // Released when the file is closed, also by the end of the process.
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    let end = end_of_lines(&mut file)?;
    if end < file.metadata()?.len() {
        file.set_len(end)?;
    }
    if again && holds(&mut file, end, line)? {
        return file.sync_data();
    }
    if end + line.len() as u64 > SESSION_LOG_BYTES_MAX {
        return Err(io::Error::other("the log of this thread is full"));
    }
    let head = if end == 0 { whose.as_bytes() } else { b"" };
    file.write_all(&[head, line].concat())?;
    file.sync_data()?;
    if is_new { sync_folder(folder) } else { Ok(()) }
}

fn sync_folder(folder: &Dir) -> io::Result<()> {
    // The handle itself is path-only (`O_PATH`), which cannot be synced.
    folder.open(".")?.sync_all()
}

/// The end of the last complete line.
fn end_of_lines(file: &mut File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    while end > 0 {
        let start = end.saturating_sub(STEP_BYTES);
        let piece = piece(file, start, end)?;
        if let Some(at) = memchr::memrchr(b'\n', &piece) {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Whether the tail of the file contains this line.
fn holds(file: &mut File, end: u64, line: &[u8]) -> io::Result<bool> {
    let piece = piece(file, end.saturating_sub(SESSION_LOG_TAIL_BYTES), end)?;
    Ok(piece.split_inclusive(|byte| *byte == b'\n').any(|known| known == line))
}

fn piece(file: &mut File, start: u64, end: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(start))?;
    let mut piece = Vec::new();
    file.take(end - start).read_to_end(&mut piece)?;
    Ok(piece)
}

#[cfg(test)]
mod tests;
