//! [`Message`]: a message being routed, and what is derived from it alone.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::ROUTER;
use crate::{
    channels::codes,
    config::channels::ChannelConfig,
    domain::{
        context::{Origin, Role, RunContext},
        id::{Name, RunId, Title},
        json::Json,
        principal::OwnerId,
        run::{RunFields, Spec},
        session::{
            self, Chat, LogLine, formatted,
            inbound::{ChannelName, Inbound},
        },
    },
    store::sessions::MessageSession,
};

/// Maximum characters of a message that become its run's title.
const TITLE_CHARS: usize = 80;

/// A message with everything the router needs. The ids of its runs are fixed, so routing it twice makes no second run.
#[derive(Clone, Debug)]
pub struct Message {
    pub owner: OwnerId,
    pub channel: ChannelName,
    pub config: Arc<ChannelConfig>,
    pub inbound: Inbound,
    /// Its number in the inbox.
    pub inbound_no: i64,
    pub router_run_id: RunId,
    /// The run of the agent, if it starts one.
    pub run_id: RunId,
    /// 1 for the first attempt.
    pub attempts: i32,
    /// Where the reply is sent; `None` if the sender fetches it.
    pub target: Option<Json>,
}

impl Message {
    pub fn chat(&self) -> Chat {
        Chat { channel: self.channel.clone(), chat_id: self.inbound.chat_id.clone() }
    }

    /// The one-time code in its text, if the text is one.
    pub(super) fn code(&self) -> Option<String> {
        codes::read(self.inbound.text.as_deref()?)
    }

    /// Its line in the session's log.
    pub(super) fn line(&self, text: &str) -> String {
        LogLine::of_user(&self.channel, &self.inbound, text).to_line()
    }

    fn origin(&self) -> Origin {
        Origin {
            channel: Name::trusted(self.channel.as_str()),
            chat: self.inbound.chat_id.to_string(),
            user: Some(self.inbound.user_id.to_string()),
        }
    }

    /// The trace of both runs: the sender's, or a new one.
    fn trace(&self) -> String {
        self.inbound.trace_id.clone().unwrap_or_else(|| self.router_run_id.uuid().simple().to_string())
    }

    /// The router's run. It identifies the sender by hashes under `key`.
    pub(super) fn router_spec(&self, key: &[u8]) -> Spec {
        let hashed = |id: &str| session::hashed(key, &self.channel, id);
        let inbound = &self.inbound;
        let input = json!({
            "channel": self.channel, "chat": hashed(inbound.chat_id.as_str()),
            "user": hashed(inbound.user_id.as_str()), "is_private": inbound.is_private,
            "has_text": inbound.text.is_some(), "has_image": inbound.image.is_some(),
        });
        let mut spec = router_spec(&self.owner, &self.channel, self.router_run_id);
        // A user who may not be allowed is recorded only as a hash.
        spec.context.origin = Some(Origin { user: None, ..self.origin() });
        spec.context.trace_id = Some(self.trace());
        spec.fields.input = Some(Json::of(&input));
        spec
    }

    /// The run that the message starts; `text` is its text without the trigger.
    pub(super) fn agent_spec(&self, session: &MessageSession, input: &Value, text: &str) -> Spec {
        let line = if text.trim().is_empty() { formatted(&self.inbound, "") } else { text.trim().to_owned() };
        let title: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TITLE_CHARS).collect();
        Spec {
            context: RunContext {
                run_id: self.run_id,
                root_run_id: self.run_id,
                parent_run_id: None,
                owner_id: self.owner.clone(),
                thread_id: Some(session.thread_id.clone()),
                session_id: Some(session.session_id.clone()),
                role: if self.config.has_workers { Role::Supervisor } else { Role::Agent },
                agent: Some(self.config.agent.clone()),
                origin: Some(self.origin()),
                trace_id: Some(self.trace()),
            },
            fields: RunFields {
                title: Some(Title::trusted(&title)),
                input: Some(Json::of(input)),
                metadata: Json::of(&json!({ "channel": self.channel, "router_run_id": self.router_run_id })),
                tags: vec![Name::trusted(self.channel.as_str())],
                ..RunFields::default()
            },
            start: false,
        }
    }
}

/// The router's run of a message about which nothing else is known.
pub(super) fn router_spec(owner: &OwnerId, channel: &ChannelName, run_id: RunId) -> Spec {
    Spec {
        context: RunContext {
            run_id,
            root_run_id: run_id,
            parent_run_id: None,
            owner_id: owner.clone(),
            thread_id: None,
            session_id: None,
            role: Role::Router,
            agent: Some(Name::trusted(ROUTER)),
            origin: None,
            trace_id: None,
        },
        fields: RunFields {
            title: Some(Title::trusted(&format!("A message from {channel}"))),
            tags: vec![Name::trusted(channel.as_str())],
            ..RunFields::default()
        },
        start: true,
    }
}

/// Only the router creates runs with such ids, so the id determines the content.
pub(super) fn request_hash(run: RunId) -> [u8; 32] {
    Sha256::digest(format!("a run of a channel {run}")).into()
}
