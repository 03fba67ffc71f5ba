//! What is saved of a thread: all of its state, or the messages in its log.

use bytes::{Bytes, BytesMut};
use futures::TryStreamExt as _;
use serde_json::Value;

use super::{Error, off_the_loop};
use crate::{
    artifacts::Artifacts,
    domain::{
        id::{RunId, Seq, ThreadId},
        limits::{SAVED_FILE_BYTES_MAX, SAVED_MESSAGES_MAX, SAVED_VALUES_MAX},
        principal::OwnerId,
        transcript::{
            SavedThread,
            fallback::{Logged, MessageBuilder},
            full::{self, CheckpointContent},
            message::check,
            plain::Reader,
        },
    },
    store::Store,
};

/// A thread of this owner as it is now. Each query takes a connection of its own.
pub(super) async fn thread_of(
    store: &Store,
    artifacts: &Artifacts,
    owner: &OwnerId,
    thread: &ThreadId,
) -> Result<SavedThread, Error> {
    let latest = store.checkpoints().latest(owner, thread).await?;
    let held = match latest {
        Some(checkpoint) => off_the_loop(move || Ok(full::of_checkpoint(checkpoint))).await?,
        None if !store.threads().exists(owner, thread).await? => return Err(Error::NotFound),
        None => CheckpointContent::Nothing,
    };
    if let CheckpointContent::Thread(thread) = held {
        check_count(thread.messages.len())?;
        return Ok(thread);
    }
    let messages = logged_messages(store, artifacts, owner, thread).await?;
    Ok(match held {
        CheckpointContent::State(metadata) if messages.iter().all(|message| check(message).is_ok()) => {
            SavedThread { messages, metadata }
        }
        _ => SavedThread::fallback(messages),
    })
}

/// The messages in the log, in the order in which the thread's runs were created.
async fn logged_messages(
    store: &Store,
    artifacts: &Artifacts,
    owner: &OwnerId,
    thread: &ThreadId,
) -> Result<Vec<Value>, Error> {
    let (mut gathering, mut last) = (MessageBuilder::default(), None);
    loop {
        let talks = store.threads().runs(owner, thread, last).await?;
        last = talks.last().copied();
        if last.is_none() {
            return Ok(gathering.finish());
        }
        let runs: Vec<RunId> = talks.into_iter().map(|(_, run)| run).collect();
        let mut after = (1, Seq::default());
        loop {
            let (page, next) = store.threads().logged(owner, &runs, after).await?;
            for mut logged in page {
                whole(store, artifacts, owner, &mut logged).await;
                gathering.push(logged);
                if gathering.is_too_much() {
                    let detail = format!(
                        "the thread's messages exceed {SAVED_FILE_BYTES_MAX} bytes or {SAVED_VALUES_MAX} values"
                    );
                    return Err(Error::TooLarge(detail));
                }
            }
            check_count(gathering.len())?;
            match next {
                Some(next) => after = next,
                None => break,
            }
        }
    }
}

/// Replaces the pointer to a payload that was too large for its event by the payload. If it is not available, the
/// prefix in the event remains.
async fn whole(store: &Store, artifacts: &Artifacts, owner: &OwnerId, logged: &mut Logged) {
    let Some(id) = logged.payload["$artifact"]["artifact_id"].as_str().and_then(|id| id.parse().ok()) else { return };
    let loaded = async {
        let artifact = store.artifacts().get(owner, id).await.ok()??;
        if artifact.size > SAVED_FILE_BYTES_MAX as u64 {
            return None;
        }
        let pieces = artifacts.read(owner, &artifact, 0, artifact.size).await.ok()?;
        let add = |mut bytes: BytesMut, piece: Bytes| async move {
            bytes.extend_from_slice(&piece);
            Ok(bytes)
        };
        let bytes = pieces.try_fold(BytesMut::new(), add).await.ok()?;
        Reader::default().decode("json", &bytes).filter(Value::is_object)
    };
    if let Some(payload) = loaded.await {
        logged.payload = payload;
    }
}

fn check_count(messages: usize) -> Result<(), Error> {
    if messages <= SAVED_MESSAGES_MAX {
        return Ok(());
    }
    Err(Error::TooLarge(format!("the thread has more than {SAVED_MESSAGES_MAX} messages")))
}
