//! What is kept of a thread: all of its state, or what its log tells.

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt as _;
use serde_json::Value;

use super::{Error, off_the_loop};
use crate::{
    artifacts::Artifacts,
    domain::{
        checkpoint::Namespace,
        id::ThreadId,
        limits::{SAVED_FILE_BYTES_MAX, SAVED_MESSAGES_MAX},
        principal::OwnerId,
        transcript::{
            SavedThread,
            fallback::{Gathering, Logged},
            full,
        },
    },
    store::Store,
};

/// A thread of this owner as it is now. Each look into the database is a use of its own.
pub(super) async fn thread_of(
    store: &Store,
    artifacts: &Artifacts,
    owner: &OwnerId,
    thread: &ThreadId,
) -> Result<SavedThread, Error> {
    let latest = store.checkpoint(owner, thread, &Namespace::default(), None, None).await?;
    let full = match latest {
        Some(checkpoint) => off_the_loop(move || Ok(full::of_checkpoint(&checkpoint))).await?,
        None if !store.has_thread(owner, thread).await? => return Err(Error::NotFound),
        None => None,
    };
    if let Some(full) = full {
        check_count(full.messages.len())?;
        return Ok(full);
    }
    let (mut gathering, mut after, mut bytes) = (Gathering::default(), None, 0);
    loop {
        let (page, next) = store.said(owner, thread, after).await?;
        let Some(next) = next else { return Ok(SavedThread::fallback(gathering.finish())) };
        for mut logged in page {
            bytes += whole(store, artifacts, owner, &mut logged).await;
            if bytes > SAVED_FILE_BYTES_MAX as u64 {
                let detail = format!("the thread's messages are more than {SAVED_FILE_BYTES_MAX} bytes");
                return Err(Error::TooLarge(detail));
            }
            gathering.push(logged);
        }
        check_count(gathering.len())?;
        after = Some(next);
    }
}

/// Puts a payload that was too large for its event in the place of the pointer to it, and tells how many bytes it is.
/// Where it cannot be had, the beginning that the event has must do.
async fn whole(store: &Store, artifacts: &Artifacts, owner: &OwnerId, logged: &mut Logged) -> u64 {
    let Some(id) = logged.payload["$artifact"]["artifact_id"].as_str().and_then(|id| id.parse().ok()) else { return 0 };
    let loaded = async {
        let artifact = store.artifact(owner, id).await.ok()??;
        if artifact.size > SAVED_FILE_BYTES_MAX as u64 {
            return None;
        }
        let pieces = artifacts.read(&artifact, 0, artifact.size).await.ok()?;
        let add = |mut bytes: BytesMut, piece: Bytes| async move {
            bytes.extend_from_slice(&piece);
            Ok(bytes)
        };
        let bytes = pieces.try_fold(BytesMut::new(), add).await.ok()?;
        serde_json::from_slice::<Value>(&bytes).ok().filter(Value::is_object).map(|payload| (payload, artifact.size))
    };
    match loaded.await {
        Some((payload, size)) => {
            logged.payload = payload;
            size
        }
        None => 0,
    }
}

fn check_count(messages: usize) -> Result<(), Error> {
    if messages <= SAVED_MESSAGES_MAX {
        return Ok(());
    }
    Err(Error::TooLarge(format!("the thread has more than {SAVED_MESSAGES_MAX} messages")))
}
