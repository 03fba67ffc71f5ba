//! Creates a thread from a session, with which a run or a chat continues.

use serde_json::json;

use super::{Error, SavedSessions, off_the_loop};
use crate::{
    domain::{
        checkpoint::{CheckpointId, Namespace},
        id::{Name, ThreadId},
        json::Json,
        principal::OwnerId,
        session::{Chat, inbound::ChannelName, thread::chat_of},
        transcript::{SavedName, full::OF_SESSION},
    },
    store::{
        checkpoints::NewCheckpoint,
        sessions::{SessionPolicy, restored::CalledLike},
    },
};

/// A channel of this server: a thread's name may be one of its chats' thread names.
#[derive(Clone, Debug)]
pub struct Talk {
    pub channel: ChannelName,
    pub keeping: SessionPolicy,
    /// The owner of its chats; `None` if each caller has their own chats.
    pub owner: Option<OwnerId>,
}

/// A thread created from a session.
#[derive(Clone, Debug)]
pub struct Thread {
    pub thread_id: ThreadId,
    pub checkpoint_id: CheckpointId,
    pub message_count: usize,
    pub fallback: bool,
    /// The session of the chat that continues with the thread.
    pub session_id: Option<Name>,
}

impl SavedSessions {
    /// Creates a thread from a session: the one named, or a new one. If the name is one of a chat's thread names, that
    /// chat continues with the thread, unless it has an open session on another.
    pub async fn restore(&self, owner: &OwnerId, name: SavedName, to: Option<ThreadId>) -> Result<Thread, Error> {
        let session = self.read(owner, name).await?;
        let called_like = to.as_ref().and_then(|thread| self.called_like(owner, thread));
        let thread_id = match to {
            Some(thread) => thread,
            None => ThreadId::trusted(&format!("{}-{}", session.name, self.ids.uuid())),
        };
        let (now, fresh, saved_session) = (self.clock.now(), self.ids.uuid(), session.name.clone());
        let (message_count, fallback) = (session.message_count, session.thread.is_fallback());
        let restored = off_the_loop(move || Ok(session.thread.restored(fresh, now))).await?;
        // The members that LangGraph expects, and the session the state is from.
        let metadata = json!({"source": "update", "step": restored.step, "parents": {}, OF_SESSION: saved_session});
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
        let begun = self.store.sessions().begin_thread(owner, &thread_id, &new, called_like.as_ref(), now).await?;
        let session_id = begun.ok_or(Error::ThreadTaken)?;
        Ok(Thread { thread_id, checkpoint_id: new.checkpoint_id, message_count, fallback, session_id })
    }

    /// The chat of this owner to which a thread's name belongs.
    fn called_like(&self, owner: &OwnerId, thread: &ThreadId) -> Option<CalledLike> {
        let mut mine = self.talks.iter().filter(|talk| talk.owner.as_ref().is_none_or(|whose| whose == owner));
        let (talk, (chat_id, number)) = mine.find_map(|talk| Some((talk, chat_of(&talk.channel, thread)?)))?;
        let chat = Chat { channel: talk.channel.clone(), chat_id };
        Some(CalledLike { chat, number, keeping: talk.keeping, fresh: Name::trusted(&self.ids.uuid().to_string()) })
    }
}
