//! Translates an update of Telegram into a message, if it contains one.

use chrono::DateTime;
use serde::Deserialize;

use super::{FileId, Target};
use crate::{
    channels::Envelope,
    domain::{
        json::Json,
        limits::{IMAGE_BYTES_MAX, KEY_CHARS_MAX},
        session::inbound::{ChatId, Inbound, MessageId, UserId, Username},
    },
};

/// The part of an update that is used. Edited messages, channel posts and kinds of updates that Telegram may add later
/// have no `message` and are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct Update {
    pub update_id: i64,
    pub message: Option<Message>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Message {
    message_id: i64,
    message_thread_id: Option<i64>,
    #[serde(default)]
    is_topic_message: bool,
    from: Option<User>,
    /// Who a message was sent as, if not as the user.
    sender_chat: Option<Chat>,
    /// The title of an administrator who writes as the group.
    author_signature: Option<String>,
    /// A service message: the group became this supergroup.
    migrate_to_chat_id: Option<i64>,
    /// The counterpart in the supergroup: the id of the group it was.
    migrate_from_chat_id: Option<i64>,
    /// The id shared by the pieces of an album.
    media_group_id: Option<String>,
    chat: Chat,
    date: i64,
    text: Option<String>,
    caption: Option<String>,
    #[serde(default)]
    entities: Vec<Entity>,
    #[serde(default)]
    caption_entities: Vec<Entity>,
    #[serde(default)]
    photo: Vec<Photo>,
    reply_to_message: Option<Box<Replied>>,
}

#[derive(Clone, Debug, Deserialize)]
struct Replied {
    from: Option<User>,
}

#[derive(Clone, Debug, Deserialize)]
struct User {
    id: i64,
    #[serde(default)]
    is_bot: bool,
    username: Option<String>,
    first_name: Option<String>,
    last_name: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Chat {
    id: i64,
    #[serde(rename = "type")]
    kind: String,
    title: Option<String>,
}

/// A marked range of the text, in UTF-16 units.
#[derive(Clone, Debug, Deserialize)]
struct Entity {
    #[serde(rename = "type")]
    kind: String,
    offset: usize,
    length: usize,
    user: Option<User>,
}

#[derive(Clone, Debug, Deserialize)]
struct Photo {
    file_id: String,
    file_size: Option<usize>,
    width: u64,
    height: u64,
}

/// The content of an update that is for the bot.
#[derive(Debug)]
pub enum Said {
    Message(Box<Envelope>),
    /// A group became a supergroup, which has another id.
    Moved {
        from: ChatId,
        to: ChatId,
    },
}

/// Reads an update: a message to the bot from a person, in a private chat or a group, or a chat's new id. `None` for
/// anything else.
pub fn read(update: Update, bot: Option<&str>, bot_id: Option<i64>) -> Option<Said> {
    let message = update.message?;
    let chat = |id: i64| ChatId::trusted(&id.to_string());
    match (message.migrate_from_chat_id, message.migrate_to_chat_id) {
        (Some(from), _) => return Some(Said::Moved { from: chat(from), to: chat(message.chat.id) }),
        (None, Some(to)) => return Some(Said::Moved { from: chat(message.chat.id), to: chat(to) }),
        (None, None) => {}
    }
    let is_private = message.chat.kind == "private";
    if !is_private && !matches!(message.chat.kind.as_str(), "group" | "supergroup") {
        return None;
    }
    let (user_id, username) = sender(&message)?;
    let photo = largest(&message.photo);
    let (text, entities) = match &message.text {
        Some(text) => (Some(text), &message.entities),
        None => (message.caption.as_ref(), &message.caption_entities),
    };
    let is_bot = |user: &User| {
        let named = user.username.as_deref().zip(bot).is_some_and(|(name, bot)| name.eq_ignore_ascii_case(bot));
        bot_id.map_or(named, |id| user.id == id)
    };
    let replied = message.reply_to_message.as_ref().and_then(|message| message.from.as_ref()).is_some_and(is_bot);
    let command = text.and_then(|text| command(text, entities));
    let is_ours = command.as_ref().zip(bot).map(|(command, bot)| command.to.eq_ignore_ascii_case(bot));
    if !is_private && is_ours == Some(false) {
        return None;
    }
    let mentioned = text.and_then(|text| mention(text, entities, bot, is_bot));
    let text = text.map(|text| match (&command, mentioned) {
        (Some(command), _) if is_ours == Some(true) => format!("{}{}", command.name, command.rest),
        // A mention at the beginning addresses the bot and is not part of the message.
        (_, Some(0)) => after_mention(text, entities).to_owned(),
        _ => text.clone(),
    });
    let inbound = Inbound {
        message_id: Some(MessageId::trusted(&update.update_id.to_string())),
        chat_id: ChatId::trusted(&message.chat.id.to_string()),
        thread_id: None,
        user_id,
        username,
        text: text.map(|text| text.replace('\0', "")),
        is_private,
        reset_session: false,
        addressed: replied || is_ours == Some(true) || mentioned.is_some(),
        image: None,
        more_images: Vec::new(),
        at: DateTime::from_timestamp(message.date, 0).unwrap_or_default(),
        at_digits: 0,
        trace_id: None,
    };
    let target = Target {
        chat_id: message.chat.id,
        message_thread_id: message.message_thread_id.filter(|_| message.is_topic_message),
        reply_to: (!is_private).then_some(message.message_id),
        has_moved: false,
    };
    let album = message.media_group_id;
    Some(Said::Message(Box::new(Envelope { inbound, photo, target: Some(Json::of(&target)), album, more: Vec::new() })))
}

/// The sender, if it is a person. An administrator who writes as the group has the group's id.
fn sender(message: &Message) -> Option<(UserId, Option<Username>)> {
    if let Some(group) = message.sender_chat.as_ref().filter(|sender| sender.id == message.chat.id) {
        let name = message.author_signature.as_ref().or(group.title.as_ref()).or(message.chat.title.as_ref());
        return Some((UserId::trusted(&group.id.to_string()), name.and_then(|name| shown(name))));
    }
    // Bots are ignored: two that answered each other would never stop.
    let from = message.from.as_ref().filter(|user| !user.is_bot)?;
    Some((UserId::trusted(&from.id.to_string()), username(from)))
}

/// The largest size within the bound.
fn largest(photos: &[Photo]) -> Option<FileId> {
    let fits = |photo: &&Photo| photo.file_size.is_none_or(|bytes| bytes <= IMAGE_BYTES_MAX);
    let best = photos.iter().filter(fits).max_by_key(|photo| photo.width.saturating_mul(photo.height))?;
    Some(FileId(best.file_id.clone()))
}

/// The command to a named bot that a text begins with: `/name@bot`.
struct Command<'a> {
    name: &'a str,
    to: &'a str,
    rest: &'a str,
}

fn command<'a>(text: &'a str, entities: &[Entity]) -> Option<Command<'a>> {
    let first = entities.iter().find(|entity| entity.offset == 0 && entity.kind == "bot_command")?;
    let whole = units(text, 0, first.length)?;
    let (name, to) = whole.split_once('@')?;
    Some(Command { name, to, rest: &text[whole.len()..] })
}

/// The offset at which the bot is mentioned, in units.
fn mention(text: &str, entities: &[Entity], bot: Option<&str>, is_bot: impl Fn(&User) -> bool) -> Option<usize> {
    let found = entities.iter().find(|entity| match entity.kind.as_str() {
        "mention" => {
            let name = units(text, entity.offset, entity.length).and_then(|name| name.strip_prefix('@'));
            name.zip(bot).is_some_and(|(name, bot)| name.eq_ignore_ascii_case(bot))
        }
        "text_mention" => entity.user.as_ref().is_some_and(&is_bot),
        _ => false,
    });
    found.map(|entity| entity.offset)
}

/// The text after the mention at its beginning.
fn after_mention<'a>(text: &'a str, entities: &[Entity]) -> &'a str {
    let first = entities.iter().find(|entity| entity.offset == 0 && entity.kind.ends_with("mention"));
    let name = first.and_then(|entity| units(text, 0, entity.length));
    name.map_or(text, |name| text[name.len()..].trim_start())
}

/// A range of a text, in UTF-16 units; `None` if it is not a valid range.
fn units(text: &str, offset: usize, length: usize) -> Option<&str> {
    let byte_at = |wanted: usize| {
        let mut units = 0;
        for (at, c) in text.char_indices() {
            if units == wanted {
                return Some(at);
            }
            units += c.len_utf16();
        }
        (units == wanted).then_some(text.len())
    };
    text.get(byte_at(offset)?..byte_at(offset.checked_add(length)?)?)
}

fn username(user: &User) -> Option<Username> {
    let full = || {
        let names = [user.first_name.as_deref(), user.last_name.as_deref()];
        names.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    shown(&user.username.clone().unwrap_or_else(full))
}

fn shown(name: &str) -> Option<Username> {
    let name: String = name.chars().filter(|c| !c.is_control()).take(KEY_CHARS_MAX).collect();
    name.parse().ok()
}

#[cfg(test)]
mod tests;
