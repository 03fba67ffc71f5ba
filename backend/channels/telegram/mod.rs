//! Telegram: updates received over its webhook, and replies sent through its Bot API.
//!
//! Invariants: an update is accepted only with the secret of the webhook, compared in constant time; the bot's token
//! appears in no error, no log and no table.
//!
//! Start reading at [`update`] (pure), then [`api`].

pub mod api;
pub mod text;
pub mod update;

use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use self::{
    api::{Api, ApiError},
    update::{Said, Update},
};
use crate::{
    config::channels::ChannelConfig,
    domain::{json::Json, principal::OwnerId, session::inbound::Image},
};

/// Telegram's id of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileId(pub String);

/// Where a reply is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub chat_id: i64,
    /// A topic of a forum.
    pub message_thread_id: Option<i64>,
    /// In groups, the message to which the first part replies.
    pub reply_to: Option<i64>,
    /// Whether `chat_id` is the supergroup that the group became while the reply was sent.
    #[serde(skip)]
    pub has_moved: bool,
}

impl Target {
    /// Reads a target as stored with a reply.
    pub fn read(target: &Json) -> Result<Self, String> {
        serde_json::from_str(target.as_str()).map_err(|error| format!("invalid target: {error}"))
    }
}

/// A bot.
#[derive(Clone)]
pub struct Telegram {
    api: Api,
    /// A MAC of the webhook's secret.
    secret: [u8; 32],
    owner: OwnerId,
    bot_id: Option<i64>,
}

impl Telegram {
    /// A bot whose messages belong to `owner`. Fails if the API's address is invalid.
    pub fn new(api_base: &str, bot_token: &str, webhook_secret: &str, owner: OwnerId) -> Result<Self, String> {
        // The number before the colon is the bot's own id.
        let bot_id = bot_token.split(':').next().and_then(|id| id.parse().ok());
        let secret = mac(webhook_secret).finalize().into_bytes().into();
        Ok(Self { api: Api::new(api_base, bot_token)?, secret, owner, bot_id })
    }

    /// The owner of the bot's messages.
    pub fn owner(&self) -> &OwnerId {
        &self.owner
    }

    /// Whether this is the secret of the webhook, compared in constant time.
    pub fn knows(&self, presented: &[u8]) -> bool {
        let mut mac = mac("");
        mac.update(presented);
        mac.verify_slice(&self.secret).is_ok()
    }

    /// Reads an update; `None` if it contains nothing for the bot.
    pub fn read(&self, update: Update, config: &ChannelConfig) -> Option<Said> {
        update::read(update, config.bot(), self.bot_id)
    }

    /// Fetches and checks an image.
    pub async fn fetch(&self, file: &FileId) -> Result<Image, ApiError> {
        let bytes = self.api.file(file).await?;
        Image::of_bytes(&bytes).map_err(|flaw| ApiError::lasting(flaw.to_string()))
    }

    /// Sends a part of a reply, and updates `target` to where it was accepted ([`Api::send`]).
    pub async fn send(&self, target: &mut Target, part: &str, is_first: bool) -> Result<(), ApiError> {
        self.api.send(target, part, is_first).await
    }
}

fn mac(text: &str) -> Hmac<Sha256> {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(b"telegram-webhook").expect("any length will do");
    mac.update(text.as_bytes());
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_itself_is_known() {
        let telegram =
            Telegram::new("http://127.0.0.1:1", "42:x", "a secret of the webhook", OwnerId::trusted("o")).unwrap();
        assert!(telegram.knows(b"a secret of the webhook"));
        for wrong in ["", "a secret of the webhoo", "a secret of the webhook ", "A secret of the webhook"] {
            assert!(!telegram.knows(wrong.as_bytes()), "{wrong}");
        }
        assert_eq!(telegram.bot_id, Some(42));
    }
}
