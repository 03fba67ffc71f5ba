use serde_json::{Value, json};

use super::*;

/// How the bot `reel_bot`, whose id is 42, reads an update of a message with these members.
fn message(members: &Value) -> Option<Envelope> {
    match update(members)? {
        Said::Message(envelope) => Some(*envelope),
        Said::Moved { .. } => None,
    }
}

fn update(members: &Value) -> Option<Said> {
    let mut message = json!({
        "message_id": 7, "date": 1_780_000_000, "chat": { "id": -100, "type": "group" },
        "from": { "id": 5, "is_bot": false, "first_name": "Ann", "last_name": "Ü", "username": "ann" }
    });
    message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let update = serde_json::from_value(json!({ "update_id": 99, "message": message })).unwrap();
    read(update, Some("reel_bot"), Some(42))
}

fn heard(members: &Value) -> (Option<String>, bool) {
    let inbound = message(members).unwrap().inbound;
    (inbound.text, inbound.addressed)
}

#[test]
fn a_private_text_is_a_message() {
    let envelope = message(&json!({ "text": "hello", "chat": { "id": 5, "type": "private" } })).unwrap();
    let inbound = envelope.inbound;
    assert_eq!((inbound.chat_id.as_str(), inbound.user_id.as_str(), inbound.is_private), ("5", "5", true));
    assert_eq!((inbound.message_id.unwrap().as_str(), inbound.username.unwrap().as_str()), ("99", "ann"));
    assert_eq!(inbound.at.timestamp(), 1_780_000_000);
    let target: Target = serde_json::from_str(envelope.target.unwrap().as_str()).unwrap();
    assert_eq!(target, Target { chat_id: 5, message_thread_id: None, reply_to: None, has_moved: false });
}

#[test]
fn in_a_group_replies_and_mentions_are_addressed() {
    assert_eq!(heard(&json!({ "text": "hello" })), (Some("hello".to_owned()), false));
    let reply = json!({ "text": "and?", "reply_to_message": { "from": { "id": 42, "is_bot": true } } });
    assert_eq!(heard(&reply), (Some("and?".to_owned()), true));
    let other = json!({ "text": "and?", "reply_to_message": { "from": { "id": 43, "is_bot": true } } });
    assert_eq!(heard(&other), (Some("and?".to_owned()), false));
    // Offsets are in UTF-16 units: the emoji is two.
    let mention = json!({ "text": "😀 @Reel_Bot hi", "entities": [{ "type": "mention", "offset": 3, "length": 9 }] });
    assert_eq!(heard(&mention), (Some("😀 @Reel_Bot hi".to_owned()), true));
    let first = json!({ "text": "@reel_bot hi", "entities": [{ "type": "mention", "offset": 0, "length": 9 }] });
    assert_eq!(heard(&first), (Some("hi".to_owned()), true));
    let named = json!({ "caption": "Reel hi", "caption_entities": [
        { "type": "text_mention", "offset": 0, "length": 4, "user": { "id": 42, "is_bot": true } }] });
    assert_eq!(heard(&named), (Some("hi".to_owned()), true));
    let elsewhere = json!({ "text": "@other hi", "entities": [{ "type": "mention", "offset": 0, "length": 6 }] });
    assert_eq!(heard(&elsewhere), (Some("@other hi".to_owned()), false));
}

#[test]
fn a_command_for_another_bot_is_not_for_this_one_where_others_are() {
    let command = |kind: &str| {
        let entity = json!({ "type": "bot_command", "offset": 0, "length": 14 });
        message(&json!({ "text": "/ask@other_bot why", "entities": [entity], "chat": { "id": 5, "type": kind } }))
            .map(|envelope| envelope.inbound.text.unwrap())
    };
    assert_eq!(["group", "supergroup"].map(command), [None, None]);
    assert_eq!(command("private").as_deref(), Some("/ask@other_bot why"));
}

#[test]
fn entities_that_lie_outside_of_the_text_say_nothing() {
    for (offset, length) in [(0, 999), (999, 1), (1, usize::MAX), (1, 1), (0, 0)] {
        let entity = json!({ "type": "mention", "offset": offset, "length": length });
        assert!(!heard(&json!({ "text": "😀@reel_bot", "entities": [entity] })).1, "{offset} {length}");
    }
}

#[test]
fn of_the_sizes_of_a_photo_the_largest_that_fits_is_taken() {
    let photo =
        |id: &str, side: u32, bytes: Value| json!({ "file_id": id, "width": side, "height": side, "file_size": bytes });
    let sizes =
        json!([photo("s", 90, json!(1_000)), photo("m", 320, json!(9_000)), photo("l", 9_000, json!(99_000_000))]);
    let envelope = message(&json!({ "photo": sizes, "caption": "look" })).unwrap();
    assert_eq!(envelope.photo.unwrap().0, "m");
    assert_eq!(envelope.inbound.text.as_deref(), Some("look"));
}

#[test]
fn bots_posts_edits_and_what_nobody_knows_say_nothing() {
    assert!(message(&json!({ "text": "x", "from": { "id": 6, "is_bot": true } })).is_none());
    assert!(message(&json!({ "text": "x", "from": null })).is_none());
    assert!(message(&json!({ "text": "x", "chat": { "id": 1, "type": "channel" } })).is_none());
    for update in [json!({ "update_id": 1, "edited_message": { "text": "x" } }), json!({ "update_id": 1, "poll": {} })]
    {
        assert!(read(serde_json::from_value(update).unwrap(), None, None).is_none());
    }
}

#[test]
fn a_name_is_cut_to_what_a_name_may_be() {
    let name = |user: Value| {
        message(&json!({ "text": "x", "from": user })).unwrap().inbound.username.map(|name| name.to_string())
    };
    assert_eq!(name(json!({ "id": 5, "first_name": "Ann", "last_name": "Ü" })).as_deref(), Some("Ann Ü"));
    assert_eq!(name(json!({ "id": 5, "first_name": "A\nB" })).as_deref(), Some("AB"));
    assert_eq!(name(json!({ "id": 5, "first_name": "x".repeat(500) })).unwrap().len(), 128);
    assert_eq!(name(json!({ "id": 5, "first_name": "" })), None);
}
