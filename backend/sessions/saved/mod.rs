//! Saved sessions: conversations in files of their own, which people can read, carry away and bring back.
//!
//! A session is made from a thread, in full where its last checkpoint is plain data and from the log where it is not
//! ([`crate::domain::transcript`]), and a thread is made from a session. Invariants kept here: a file is the old one or
//! the new one, whatever happens while it is written; nothing outside the owner's folder is touched; files are the
//! truth, and the index follows from them; no connection to the database is held while a file is read or written.
//!
//! Start reading at [`SavedSessions`], then [`gather`] (what is kept of a thread), [`folder`] (how a file is written) and
//! [`index`] (how a list heals).

mod folder;
mod gather;
mod index;

use std::{io, path::PathBuf, sync::Arc};

use serde_json::json;

use self::folder::Folder;
pub use self::index::{Entry, Listing};
use crate::{
    artifacts::Artifacts,
    clock::{Clock, IdSource},
    domain::{
        checkpoint::{CheckpointId, Namespace},
        id::{Malformed, ThreadId},
        json::Json,
        limits::{SAVED_FILE_BYTES_MAX, SAVED_SESSIONS_MAX},
        principal::OwnerId,
        transcript::{SavedName, SavedSession, Unreadable},
    },
    store::{self, Store, checkpoints::NewCheckpoint},
};

/// Why something was not done with a saved session.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no such session, or no such thread")]
    NotFound,
    /// Another session's file would be the same where capitals do not count.
    #[error("{0}")]
    Name(Malformed),
    /// What was sent is no saved session.
    #[error("{0}")]
    Refused(Unreadable),
    /// What lies in the folder is no saved session, or none any more.
    #[error("the file of this session cannot be read: {0}")]
    Unreadable(Unreadable),
    #[error("{0}")]
    TooLarge(String),
    #[error("the thread holds checkpoints already")]
    ThreadTaken,
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("the folder of saved sessions cannot be used")]
    Disk(#[from] io::Error),
}

/// A thread that was made from a session.
#[derive(Clone, Debug)]
pub struct Thread {
    pub thread_id: ThreadId,
    pub checkpoint_id: CheckpointId,
    pub message_count: usize,
    pub fallback: bool,
}

/// All saved sessions. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SavedSessions {
    store: Store,
    artifacts: Artifacts,
    clock: Clock,
    ids: IdSource,
    place: Arc<Place>,
}

/// Where files are.
#[derive(Debug)]
struct Place {
    root: PathBuf,
    /// Whose files lie in the folder itself; those of others lie in folders below it.
    local: OwnerId,
}

impl SavedSessions {
    /// Sessions in this folder, which is made when the first one is saved.
    pub fn new(artifacts: Artifacts, store: Store, times: (Clock, IdSource), root: PathBuf, local: OwnerId) -> Self {
        let (clock, ids) = times;
        Self { store, artifacts, clock, ids, place: Arc::new(Place { root, local }) }
    }

    /// Saves a thread as it is now, in the place of what was saved under this name; says whether the name is new.
    pub async fn save(
        &self,
        owner: &OwnerId,
        name: SavedName,
        thread: &ThreadId,
        description: Option<String>,
    ) -> Result<(bool, SavedSession), Error> {
        let saved = gather::thread_of(&self.store, &self.artifacts, owner, thread).await?;
        let new = SavedSession::new(name, description, saved, self.clock.now());
        self.in_folder(owner, |folder| {
            let folder = folder.made()?;
            let _lock = folder.lock()?;
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
            put(&folder, &new)?;
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
        self.in_folder(owner, move |folder| {
            let new = SavedSession::read(name, &bytes, now).map_err(Error::Refused)?;
            let folder = folder.made()?;
            let _lock = folder.lock()?;
            let created = folder.read(&new.name)?.is_none();
            put(&folder, &new)?;
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
                // What can be read can be listed, also where nothing can be written.
                let healed = folder.lock().and_then(|_lock| index::heal(&folder));
                if let Err(error) = healed {
                    tracing::warn!(error = &error as &dyn std::error::Error, "an index of saved sessions stays old");
                }
            }
            Ok(listing)
        })
        .await
    }

    pub async fn read(&self, owner: &OwnerId, name: SavedName) -> Result<SavedSession, Error> {
        self.in_folder(owner, move |folder| {
            let folder = folder.found()?.ok_or(Error::NotFound)?;
            let file = folder.read(&name)?.ok_or(Error::NotFound)?;
            file.session(name).map_err(Error::Unreadable)
        })
        .await
    }

    /// Removes a session, also one that cannot be read.
    pub async fn delete(&self, owner: &OwnerId, name: SavedName) -> Result<(), Error> {
        self.in_folder(owner, move |folder| {
            let folder = folder.found()?.ok_or(Error::NotFound)?;
            let _lock = folder.lock()?;
            if !folder.remove(&name)? {
                return Err(Error::NotFound);
            }
            Ok(index::heal(&folder)?)
        })
        .await
    }

    /// Makes a thread from a session: the one that is named, or a new one.
    pub async fn restore(&self, owner: &OwnerId, name: SavedName, to: Option<ThreadId>) -> Result<Thread, Error> {
        let session = self.read(owner, name).await?;
        let thread_id = match to {
            Some(thread) => thread,
            None => ThreadId::trusted(&format!("{}-{}", session.name, self.ids.uuid())),
        };
        let there = self.store.thread(owner, &thread_id).await?;
        if there.is_some_and(|thread| thread.latest_checkpoint_id.is_some()) {
            return Err(Error::ThreadTaken);
        }
        let now = self.clock.now();
        let restored = session.thread.restored(self.ids.uuid(), now);
        // The members that LangGraph looks for, and where the state is from.
        let metadata = json!({"source": "update", "step": restored.step, "parents": {}, "saved_session": session.name});
        let new = NewCheckpoint {
            ns: Namespace::default(),
            checkpoint_id: restored.checkpoint_id,
            parent_id: None,
            run_id: None,
            checkpoint: restored.checkpoint,
            metadata: Json::of(&metadata),
            versions: restored.versions,
            blobs: restored.blobs,
        };
        self.store.put_checkpoint(owner, &thread_id, &new, now).await?;
        let (message_count, fallback) = (session.message_count, session.thread.is_fallback());
        Ok(Thread { thread_id, checkpoint_id: new.checkpoint_id, message_count, fallback })
    }

    async fn in_folder<T: Send + 'static>(
        &self,
        owner: &OwnerId,
        work: impl FnOnce(folder::Path) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let below = (*owner != self.place.local).then(|| owner.as_str().to_owned());
        let path = folder::Path { root: self.place.root.clone(), below };
        off_the_loop(move || work(path)).await
    }
}

async fn off_the_loop<T: Send + 'static>(work: impl FnOnce() -> Result<T, Error> + Send + 'static) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

/// Writes a session while the folder is locked, and brings the index up to date.
fn put(folder: &Folder, session: &SavedSession) -> Result<(), Error> {
    let text = session.to_text();
    if text.len() > SAVED_FILE_BYTES_MAX {
        return Err(Error::TooLarge(format!("the session would be a file of more than {SAVED_FILE_BYTES_MAX} bytes")));
    }
    let names = folder.names()?;
    if names.iter().any(|name| name.is_nearly(&session.name)) {
        return Err(Error::Name(Malformed(
            "a name differs from those that are there by more than its capitals: on some systems they are one file",
        )));
    }
    if names.len() >= SAVED_SESSIONS_MAX && !names.contains(&session.name) {
        return Err(Error::TooLarge(format!("there are {SAVED_SESSIONS_MAX} saved sessions; delete one first")));
    }
    folder.write(&session.name.file_name(), text.as_bytes())?;
    Ok(index::heal(folder)?)
}

#[cfg(test)]
mod tests;
