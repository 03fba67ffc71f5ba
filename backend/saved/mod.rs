//! Saved sessions: conversations in files of their own, which people can read, copy and restore.
//!
//! A session is created from a thread, in full if the messages of its last checkpoint are readable and from the log
//! otherwise ([`crate::domain::transcript`]), and a thread is created from a session. Invariants: a file is always the
//! old one or the new one, regardless of what happens during a write; nothing outside the owner's folder is touched;
//! the files are the source of truth and the index is derived; no database connection is held during file I/O.
//!
//! Start reading at [`SavedSessions`], then [`gather`] (what is saved of a thread), [`restore`] (the thread that
//! continues), [`folder`] and [`turns`] (how a file is written, and by whom) and [`index`] (how a listing is repaired).

mod folder;
mod gather;
mod index;
mod restore;
mod turns;

use std::{io, path::PathBuf, sync::Arc};

use tokio_util::sync::CancellationToken;

use self::{folder::Folder, turns::Turns};
pub use self::{
    index::{Entry, Listing},
    restore::{Talk, Thread},
};
use crate::{
    artifacts::Artifacts,
    clock::{Clock, IdSource},
    domain::{
        id::ThreadId,
        limits::{SAVED_FILE_BYTES_MAX, SAVED_SESSIONS_MAX},
        principal::OwnerId,
        transcript::{SavedName, SavedSession, Unreadable},
    },
    store::{self, Store},
};

/// Why an operation on a saved session failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no such session, or no such thread")]
    NotFound,
    /// On a case-insensitive file system the file would be the same as this session's.
    #[error(
        "a session named {0} exists, which differs in upper and lower case only: on some systems both are the same file"
    )]
    Alike(SavedName),
    /// The bytes sent are not a saved session.
    #[error("{0}")]
    Refused(Unreadable),
    /// The file in the folder is not, or no longer, a saved session.
    #[error("the file of this session cannot be read: {0}")]
    Unreadable(Unreadable),
    #[error("{0}")]
    TooLarge(String),
    #[error("the thread already has checkpoints")]
    ThreadTaken,
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Too many operations are waiting. Nothing was done.
    #[error("too many sessions are being saved")]
    Busy,
    /// Another writer held the folder's lock for too long. Nothing was done.
    #[error("another writer is using the folder of saved sessions")]
    Locked,
    #[error("the folder of saved sessions cannot be used")]
    Disk(#[from] io::Error),
}

/// All saved sessions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SavedSessions {
    store: Store,
    artifacts: Artifacts,
    clock: Clock,
    ids: IdSource,
    place: Arc<Location>,
    turns: Arc<Turns>,
    talks: Arc<[Talk]>,
}

/// Where the files are.
#[derive(Debug)]
struct Location {
    root: PathBuf,
    /// The owner whose files are in the folder itself; those of others are in folders below it.
    local: OwnerId,
}

impl SavedSessions {
    /// Sessions in this folder, which is created by the first save; those of `local` are in the folder itself. Waiting
    /// operations end with an error once `stop` is cancelled.
    pub fn new(
        artifacts: Artifacts,
        store: Store,
        (clock, ids): (Clock, IdSource),
        (root, local): (PathBuf, OwnerId),
        talks: Vec<Talk>,
        stop: CancellationToken,
    ) -> Self {
        let (place, turns) = (Arc::new(Location { root, local }), Arc::new(Turns::new(stop)));
        Self { store, artifacts, clock, ids, place, turns, talks: talks.into() }
    }

    /// Saves a thread as it is now, replacing what was saved under this name; returns whether the name is new.
    pub async fn save(
        &self,
        owner: &OwnerId,
        name: SavedName,
        thread: &ThreadId,
        description: Option<String>,
    ) -> Result<(bool, SavedSession), Error> {
        let _turn = self.turns.take(owner).await?;
        let saved = gather::thread_of(&self.store, &self.artifacts, owner, thread).await?;
        let new = SavedSession::new(name, description, saved, self.clock.now());
        self.as_writer(owner, |folder| {
            let before = match folder.read(&new.name)? {
                None => None,
                Some(file) => Some(file.session(new.name.clone()).map_err(Error::Unreadable)?),
            };
            let created = before.is_none();
            let new = match before {
                None => new,
                Some(before) => SavedSession {
                    created_at: before.created_at,
                    description: new.description.or(before.description),
                    ..new
                },
            };
            put(folder, &new)?;
            Ok((created, new))
        })
        .await
    }

    /// Imports a file as it is; returns whether the name is new.
    pub async fn import(
        &self,
        owner: &OwnerId,
        name: SavedName,
        bytes: Vec<u8>,
    ) -> Result<(bool, SavedSession), Error> {
        let now = self.clock.now();
        let _turn = self.turns.take(owner).await?;
        let new = off_the_loop(move || SavedSession::read(name, &bytes, now).map_err(Error::Refused)).await?;
        self.as_writer(owner, |folder| {
            let created = folder.read(&new.name)?.is_none();
            put(folder, &new)?;
            Ok((created, new))
        })
        .await
    }

    /// The sessions of an owner by name, and the files that are not sessions.
    pub async fn list(&self, owner: &OwnerId) -> Result<Listing, Error> {
        self.in_folder(owner, |folder| {
            let Some(folder) = folder.found()? else { return Ok(Listing::default()) };
            let (listing, is_fresh) = index::look(&folder)?;
            if !is_fresh {
                // Listing needs only read access: it works in a read-only folder and while another writer is active.
                match folder.try_lock() {
                    Ok(Some(_lock)) => index::follow(&folder),
                    Ok(None) => {}
                    Err(error) => {
                        let error = &error as &dyn std::error::Error;
                        tracing::warn!(error, "index of saved sessions not updated");
                    }
                }
            }
            Ok(listing)
        })
        .await
    }

    pub async fn read(&self, owner: &OwnerId, name: SavedName) -> Result<SavedSession, Error> {
        let _turn = self.turns.take(owner).await?;
        self.in_folder(owner, move |folder| {
            let folder = folder.found()?.ok_or(Error::NotFound)?;
            let file = folder.read(&name)?.ok_or(Error::NotFound)?;
            file.session(name).map_err(Error::Unreadable)
        })
        .await
    }

    /// Deletes a session, even an unreadable one.
    pub async fn delete(&self, owner: &OwnerId, name: SavedName) -> Result<(), Error> {
        let _turn = self.turns.take(owner).await?;
        self.in_folder(owner, |folder| folder.found()?.map(drop).ok_or(Error::NotFound)).await?;
        self.as_writer(owner, move |folder| {
            if !folder.remove(&name)? {
                return Err(Error::NotFound);
            }
            index::follow(folder);
            Ok(())
        })
        .await
    }

    /// Runs `work` in the folder, created if necessary, while its lock is held.
    async fn as_writer<T: Send + 'static>(
        &self,
        owner: &OwnerId,
        work: impl FnOnce(&Folder) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let (folder, lock) = self.turns.lock(self.path(owner)).await?;
        off_the_loop(move || {
            let done = work(&folder);
            drop(lock);
            done
        })
        .await
    }

    async fn in_folder<T: Send + 'static>(
        &self,
        owner: &OwnerId,
        work: impl FnOnce(folder::Path) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let path = self.path(owner);
        off_the_loop(move || work(path)).await
    }

    fn path(&self, owner: &OwnerId) -> folder::Path {
        let below = (*owner != self.place.local).then(|| owner.as_str().to_owned());
        folder::Path { root: self.place.root.clone(), below }
    }
}

async fn off_the_loop<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Writes a session and updates the index. The caller holds the folder's lock.
fn put(folder: &Folder, session: &SavedSession) -> Result<(), Error> {
    let text = session.to_text();
    if text.len() > SAVED_FILE_BYTES_MAX {
        return Err(Error::TooLarge(format!("the session's file would exceed {SAVED_FILE_BYTES_MAX} bytes")));
    }
    // Nothing is written that could not be read back.
    SavedSession::read(session.name.clone(), text.as_bytes(), session.updated_at).map_err(Error::Refused)?;
    let names = folder.names()?;
    if let Some(other) = names.iter().find(|name| name.is_nearly(&session.name)) {
        return Err(Error::Alike(other.clone()));
    }
    if names.len() >= SAVED_SESSIONS_MAX && !names.contains(&session.name) {
        return Err(Error::TooLarge(format!("there are {SAVED_SESSIONS_MAX} saved sessions; delete one first")));
    }
    folder.write(&session.name.file_name(), text.as_bytes())?;
    index::follow(folder);
    Ok(())
}

#[cfg(test)]
mod tests;
