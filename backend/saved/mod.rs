//! Saved sessions: conversations in files of their own, which people can read, carry away and bring back.
//!
//! A session is made from a thread, in full where the messages of its last checkpoint can be read and from the log where
//! they cannot ([`crate::domain::transcript`]), and a thread is made from a session. Invariants kept here: a file is the old one or
//! the new one, whatever happens while it is written; nothing outside the owner's folder is touched; files are the
//! truth, and the index follows from them; no connection to the database is held while a file is read or written.
//!
//! Start reading at [`SavedSessions`], then [`gather`] (what is kept of a thread), [`restore`] (the thread that goes on),
//! [`folder`] and [`turns`] (how a file is written, and by whom) and [`index`] (how a list heals).

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

/// Why something was not done with a saved session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no such session, or no such thread")]
    NotFound,
    /// This session's file would be the same where capitals do not count.
    #[error(
        "a session named {0} exists, which differs in upper and lower case only: on some systems both are the same file"
    )]
    Alike(SavedName),
    /// What was sent is no saved session.
    #[error("{0}")]
    Refused(Unreadable),
    /// What lies in the folder is no saved session, or none any more.
    #[error("the file of this session cannot be read: {0}")]
    Unreadable(Unreadable),
    #[error("{0}")]
    TooLarge(String),
    #[error("the thread already has checkpoints")]
    ThreadTaken,
    #[error(transparent)]
    Store(#[from] store::Error),
    /// Too many others write. Nothing was done.
    #[error("too many sessions are being saved")]
    Busy,
    /// Somebody else kept the folder locked for too long. Nothing was done.
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

/// Where files are.
#[derive(Debug)]
struct Location {
    root: PathBuf,
    /// Whose files lie in the folder itself; those of others lie in folders below it.
    local: OwnerId,
}

impl SavedSessions {
    /// Sessions in this folder, which is made when the first one is saved; those of `local` lie in the folder itself.
    /// Whoever waits to write waits no longer once `stop` is cancelled.
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

    /// Saves a thread as it is now, in the place of what was saved under this name; says whether the name is new.
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

    /// Takes a file over as it is; says whether the name is new.
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

    /// The sessions of an owner by their names, and the files that are none.
    pub async fn list(&self, owner: &OwnerId) -> Result<Listing, Error> {
        self.in_folder(owner, |folder| {
            let Some(folder) = folder.found()? else { return Ok(Listing::default()) };
            let (listing, is_fresh) = index::look(&folder)?;
            if !is_fresh {
                // What can be read can be listed, also where nothing can be written, or somebody else is writing.
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

    /// Removes a session, also one that cannot be read.
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

    /// Works in the folder, which is made if need be, while nobody else writes there.
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

/// Writes a session while the folder is locked, and brings the index up to date.
fn put(folder: &Folder, session: &SavedSession) -> Result<(), Error> {
    let text = session.to_text();
    if text.len() > SAVED_FILE_BYTES_MAX {
        return Err(Error::TooLarge(format!("the session's file would exceed {SAVED_FILE_BYTES_MAX} bytes")));
    }
    // Nothing is written that could not be read: whoever comes back for it wants to go on.
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
