use std::collections::HashMap;

use proptest::prelude::*;

use super::{
    inbound::{Image, InvalidImage, MediaType},
    thread::{ThreadBase, are_apart, chat_of, counter_above, log_file_name},
    *,
};
use crate::domain::{
    id::{Name, ThreadId},
    limits::THREAD_ID_BYTES_MAX,
};

fn message(text: &str) -> Inbound {
    Inbound {
        message_id: None,
        chat_id: "5".parse().unwrap(),
        thread_id: None,
        user_id: "u".parse().unwrap(),
        username: None,
        text: Some(text.to_owned()),
        is_private: false,
        reset_session: false,
        addressed: false,
        image: None,
        more_images: Vec::new(),
        at: DateTime::from_timestamp(1_780_000_000, 123_450_000).unwrap(),
        at_digits: 0,
        trace_id: None,
    }
}

fn base(channel: &str, chat: &str) -> ThreadBase {
    ThreadBase::of(&channel.parse().unwrap(), &chat.parse().unwrap())
}

#[test]
fn an_empty_list_lets_everybody_speak() {
    let (ann, bob): (UserId, UserId) = ("ann".parse().unwrap(), "bob".parse().unwrap());
    assert!(is_allowed(&[], &ann));
    assert!(is_allowed(std::slice::from_ref(&ann), &ann) && !is_allowed(std::slice::from_ref(&ann), &bob));
    assert!(!is_allowed(&[ann], &"Ann".parse().unwrap()), "an id is to the letter");
}

#[test]
fn a_hashed_id_tells_nothing_without_its_key() {
    let channel = ChannelName::trusted("t");
    let hash = hashed(b"key", &channel, "123456");
    assert_eq!(hash.len(), 16);
    assert_ne!(hash, hashed(b"other key", &channel, "123456"));
    assert_ne!(hash, hashed(b"key", &ChannelName::trusted("u"), "123456"));
}

#[test]
fn a_trigger_is_found_in_whatever_case_and_taken_off() {
    for (text, trigger, rest) in [
        ("@reel what?", "@reel", Some("what?")),
        ("  @REEL   what?", "@reel", Some("what?")),
        ("@reel", "@Reel", Some("")),
        ("hey @reel", "@reel", None),
        ("@ree", "@reel", None),
        ("ÄFFCHEN, hör zu", "äffchen", Some(", hör zu")),
        ("δημήτρης ΠΟΥ", "ΔΗΜΉΤΡΗΣ", Some("ΠΟΥ")),
        ("привет бот", "ПРИВЕТ", Some("бот")),
        ("İstanbul nerede", "i\u{307}stanbul", Some("nerede")),
        ("GROSSE Frage", "große", Some("Frage")),
        ("ß", "s", None),
        ("助手你好", "助手", Some("你好")),
        ("", "@reel", None),
    ] {
        assert_eq!(strip_trigger(text, trigger), rest, "{text} {trigger}");
    }
}

#[test]
fn in_private_everything_is_heard_and_in_groups_what_is_said_to_the_agent() {
    let private = Inbound { is_private: true, ..message("hello") };
    assert_eq!(heard(&private, Some("@reel")), Some("hello"));
    assert_eq!(heard(&message("hello"), Some("@reel")), None);
    assert_eq!(heard(&message("@reel hello"), Some("@reel")), Some("hello"));
    assert_eq!(heard(&message("hello"), None), Some("hello"));
    let reply = Inbound { addressed: true, ..message("hello") };
    assert_eq!(heard(&reply, Some("@reel")), Some("hello"));
    let image = Inbound { text: None, ..message("") };
    assert_eq!(heard(&image, Some("@reel")), None);
}

#[test]
fn a_reset_is_asked_for_by_a_flag_or_a_command() {
    let reset = |text: &str| is_reset(&message(text), Some("@reel"), Some("Reel_Bot"));
    for yes in ["/new", " /NEW\n", "/new@reel_bot", "@reel /new", "@reel/new@Reel_Bot"] {
        assert!(reset(yes), "{yes}");
    }
    for no in ["", "new", "/news", "/new topic", "/new@other_bot", "/new@", "say /new"] {
        assert!(!reset(no), "{no}");
    }
    assert!(is_reset(&Inbound { reset_session: true, ..message("anything") }, None, None));
    assert!(!is_reset(&message("/new@reel_bot"), None, None), "whose command it is is not known");
}

#[test]
fn a_message_without_text_and_image_is_empty() {
    assert!(is_empty("", false) && is_empty(" \n\t\u{a0}", false));
    assert!(!is_empty("", true) && !is_empty("x", false));
}

#[test]
fn a_session_is_over_after_its_idle_time_and_not_before() {
    let at = DateTime::UNIX_EPOCH;
    assert!(!is_idle(at, at + TimeDelta::milliseconds(59_999), 60));
    assert!(is_idle(at, at + TimeDelta::seconds(60), 60));
    assert!(!is_idle(at, at - TimeDelta::days(1), 60));
}

#[test]
fn the_agent_reads_when_and_who() {
    let named = |name: &str| Inbound { username: Some(name.parse().unwrap()), ..message("") };
    assert_eq!(formatted(&message(""), "hello"), "[2026-05-28T20:26:40Z] [u]: hello");
    assert_eq!(formatted(&named("Ann"), "a\nb "), "[2026-05-28T20:26:40Z] [Ann]: a\nb");
    assert_eq!(formatted(&named("x]: hi [y"), "hello"), "[2026-05-28T20:26:40Z] [x): hi (y]: hello");
    assert_eq!(formatted(&message(""), ""), "[2026-05-28T20:26:40Z] [u]:");
    for (at_digits, time) in [(2, "40.12"), (6, "40.123450"), (9, "40.123450000")] {
        let exact = Inbound { at_digits, ..message("") };
        assert_eq!(formatted(&exact, "hello"), format!("[2026-05-28T20:26:{time}Z] [u]: hello"));
    }
}

#[test]
fn an_image_makes_a_second_part() {
    let image = Image::of_bytes(b"\x89PNG\r\n\x1a\nrest").unwrap();
    let inbound = Inbound { image: Some(image.clone()), ..message("look") };
    let input = agent_input("[..] look", &inbound, &[]);
    assert_eq!(input["messages"][0]["role"], "user");
    assert_eq!(input["messages"][0]["content"][0], json!({ "type": "text", "text": "[..] look" }));
    let url = format!("data:image/png;base64,{}", image.base64);
    assert_eq!(input["messages"][0]["content"][1], json!({ "type": "image", "media_type": "image/png", "url": url }));
    let place = ImagePlace::Artifact { reference: json!({ "size": 12 }), url: "/api/artifacts/x".to_owned() };
    let input = agent_input("[..] look", &inbound, &[place]);
    assert_eq!(input["messages"][0]["content"][1]["artifact"]["size"], 12);
    assert!(!input.to_string().contains(&image.base64));
    let line = LogLine::of_user(&"t".parse().unwrap(), &inbound, "look").to_line();
    assert!(line.contains(&image.sha256()) && !line.contains(&image.base64), "{line}");
}

#[test]
fn an_image_is_what_its_bytes_say() {
    let png = Image::of_bytes(b"\x89PNG\r\n\x1a\n").unwrap().base64;
    assert_eq!(Image::new(&png, None).unwrap().media_type, MediaType::Png);
    for same in ["IMAGE/PNG", " image/png; charset=binary", ""] {
        assert_eq!(Image::new(&png, Some(same)).unwrap().media_type, MediaType::Png, "{same}");
    }
    for other in ["image/jpeg", "image/jpg", "image/svg+xml", "png"] {
        assert_eq!(Image::new(&png, Some(other)), Err(InvalidImage::MediaType), "{other}");
    }
    let jpeg = Image::of_bytes(b"\xff\xd8\xff\xe0").unwrap().base64;
    assert_eq!(Image::new(&jpeg, Some("image/jpg")).unwrap().media_type, MediaType::Jpeg);
    assert_eq!(Image::new("PHN2Zz4=", Some("image/svg+xml")), Err(InvalidImage::MediaType));
    assert_eq!(Image::new("not base64!", None), Err(InvalidImage::Encoding));
    assert_eq!(Image::new(&"A".repeat(8 * 1024 * 1024), None), Err(InvalidImage::TooLarge));
}

#[test]
fn bytes_that_say_nothing_are_what_they_were_said_to_be() {
    assert_eq!(Image::new("PHN2Zz4=", None), Err(InvalidImage::Kind));
    assert_eq!(Image::new("PHN2Zz4=", Some("image/webp")).unwrap().media_type, MediaType::Webp);
    assert_eq!(Image::new("data:image/gif;base64,PHN2Zz4=", None).unwrap().media_type, MediaType::Gif);
    assert_eq!(Image::new("data:image/gif;base64,", None), Err(InvalidImage::Kind), "no bytes are no image");
}

#[test]
fn an_image_may_come_as_a_data_uri_and_without_its_padding() {
    let png = Image::of_bytes(b"\x89PNG\r\n\x1a\n").unwrap();
    let bare = png.base64.trim_end_matches('=');
    assert_ne!(bare, png.base64);
    let forms = ["", "data:image/png;base64,", "DATA:;BASE64,", "data:image/png;name=x;base64,"];
    for text in forms.iter().flat_map(|form| [format!("{form}{}", png.base64), format!("{form}{bare}")]) {
        assert_eq!(Image::new(&text, None).as_ref(), Ok(&png), "{text}");
    }
    for text in ["data:image/png,x", "data:image/png", "data:", "https://example.org/x.png"] {
        assert_eq!(Image::new(text, None), Err(InvalidImage::Encoding), "{text}");
    }
    let uri = format!("data:image/jpeg;base64,{bare}");
    assert_eq!(Image::new(&uri, None), Err(InvalidImage::MediaType), "the bytes say otherwise");
    let uri = format!("data:image/png;base64,{bare}");
    assert_eq!(Image::new(&uri, Some("image/gif")), Err(InvalidImage::MediaType));
}

#[test]
fn an_answer_is_found_in_the_shapes_that_agents_answer_in() {
    for (output, message, expected) in [
        (json!("hi"), Value::Null, Some("hi")),
        (json!({ "text": "hi", "x": 1 }), Value::Null, Some("hi")),
        (
            json!({ "message": { "content": [{ "type": "text", "text": "h" }, { "text": "i" }] } }),
            Value::Null,
            Some("hi"),
        ),
        (
            json!({ "messages": [{ "role": "user", "content": "q" }, { "role": "assistant", "content": "hi" }] }),
            Value::Null,
            Some("hi"),
        ),
        (json!({ "run_ids": [1] }), json!({ "content": [{ "text": "hi" }] }), Some("hi")),
        (Value::Null, json!({ "text": "hi" }), Some("hi")),
        (json!({ "n": 1 }), Value::Null, Some("{\"n\":1}")),
        (Value::Null, Value::Null, None),
        (json!(""), json!({ "text": "hi" }), Some("hi")),
    ] {
        assert_eq!(answer(Some(&output), Some(&message)).as_deref(), expected, "{output} {message}");
    }
}

#[test]
fn a_line_of_the_log_has_its_five_members_and_its_bound() {
    let line = LogLine::of_agent(&"t".parse().unwrap(), &"u".parse().unwrap(), "hi\n", DateTime::UNIX_EPOCH).to_line();
    let expected = "{\"role\":\"assistant\",\"content\":\"hi\\n\",\"ts\":\"1970-01-01T00:00:00.000000Z\",\"channel\":\"t\",\"user_id\":\"u\"}\n";
    assert_eq!(line, expected);
    let endless = "\u{1}".repeat(2 * SESSION_LINE_BYTES_MAX);
    let line =
        LogLine::of_agent(&"t".parse().unwrap(), &"u".parse().unwrap(), &endless, DateTime::UNIX_EPOCH).to_line();
    assert!(line.len() <= SESSION_LINE_BYTES_MAX && line.ends_with("\"}\n"));
    assert!(serde_json::from_str::<LogLine>(&line).unwrap().content.as_str().unwrap().ends_with(" …"));
}

#[test]
fn a_chat_is_written_as_it_is_where_that_is_safe() {
    for (channel, chat, number, thread) in [
        ("telegram", "123456", 0, "telegram_123456"),
        ("telegram", "-100987", 2, "telegram_-100987_s2"),
        ("web", "room_1", 0, "web_room_1"),
        ("my_app", "a@b.c+d:e", 1, "my_app_a@b.c+d:e_s1"),
        ("web", "a_s1", 0, "web_a+:5Fs1"),
        ("web", "a_s1_s2", 1, "web_a_s1+:5Fs2_s1"),
        ("web", "a/b", 0, "web_a+:2Fb"),
        ("web", "é", 0, "web_+:C3+:A9"),
        ("web", "a+:b", 0, "web_a+:2B:b"),
    ] {
        let base = base(channel, chat);
        assert_eq!(base.thread(number).as_str(), thread);
        assert_eq!(base.number(thread), Some(number));
        assert!(thread.parse::<ThreadId>().is_ok());
    }
    let long = base("web", &"ü".repeat(128));
    assert!(long.as_str().starts_with("web_+::") && long.as_str().len() == 71);
}

#[test]
fn only_numbers_as_they_are_written_are_numbers() {
    let base = base("t", "5");
    for (thread, number) in [("t_5", Some(0)), ("t_5_s1", Some(1)), ("t_5_s120", Some(120))] {
        assert_eq!(base.number(thread), number);
    }
    for thread in
        ["t_", "t_50", "t_5_s0", "t_5_s01", "t_5_s", "t_5_sx", "t_5_s1x", "t_5_s+1", "t_5_s9999999999999999999"]
    {
        assert_eq!(base.number(thread), None, "{thread}");
    }
}

#[test]
fn the_chat_of_a_thread_is_known_where_it_is_written_as_it_is() {
    for (thread, chat) in [
        ("t_5", Some(("5", 0))),
        ("t_5_s2", Some(("5", 2))),
        ("t_5_s0", None),
        ("t_5_s", Some(("5_s", 0))),
        ("t_a_b_s1_s2", None),
        ("t_a_b", Some(("a_b", 0))),
        ("t_", None),
        ("t__s1", None),
        ("t", None),
        ("u_5", None),
        ("t_a+:20b", None),
    ] {
        let found = chat_of(&"t".parse().unwrap(), &thread.parse().unwrap());
        assert_eq!(found.as_ref().map(|(chat, number)| (chat.as_str(), *number)), chat, "{thread}");
    }
}

#[test]
fn a_counter_only_grows_and_leaves_no_thread_to_be_used_again() {
    assert_eq!(counter_above(0, None, false), 0);
    assert_eq!(counter_above(0, Some(0), false), 1);
    assert_eq!(counter_above(0, Some(0), true), 0, "a chat that keeps its thread keeps it");
    assert_eq!(counter_above(3, Some(7), true), 8);
    assert_eq!(counter_above(7, Some(3), false), 7);
}

#[test]
fn channels_whose_threads_could_meet_are_not_apart() {
    let name = |text: &str| text.parse::<ChannelName>().unwrap();
    assert!(!are_apart(&name("a"), &name("a_b")) && !are_apart(&name("a_b"), &name("a")));
    assert!(are_apart(&name("a"), &name("ab")) && are_apart(&name("a_b"), &name("a_c")));
}

/// Ids of every kind, including ones that are easy to confuse.
fn id() -> impl Strategy<Value = String> {
    prop_oneof!["[a-b_s+:0-2]{1,8}", "[ab](_s[0-9]{1,2}){0,3}", "\\PC{1,40}", "[/é]{60,128}"]
}

proptest! {
    #[test]
    fn no_two_chats_have_a_thread_in_common(
        chats in proptest::collection::vec((0usize..4, id(), 0i64..4), 1..40)
    ) {
        const CHANNELS: [&str; 4] = ["web", "we", "a_b", "A"];
        let mut seen: HashMap<ThreadId, (usize, String, i64)> = HashMap::new();
        let mut files: HashMap<String, ThreadId> = HashMap::new();
        for (channel, chat, number) in chats {
            let Ok(id) = chat.parse::<ChatId>() else { continue };
            let base = ThreadBase::of(&CHANNELS[channel].parse().unwrap(), &id);
            let thread = base.thread(number);
            prop_assert!(thread.as_str().parse::<ThreadId>().is_ok(), "{}", thread);
            prop_assert!(thread.as_str().len() + 20 <= THREAD_ID_BYTES_MAX);
            prop_assert_eq!(base.number(thread.as_str()), Some(number));
            let place = (channel, chat, number);
            if let Some(other) = seen.insert(thread.clone(), place.clone()) {
                prop_assert_eq!(other, place);
            }
            let name = log_file_name(&thread).to_lowercase();
            prop_assert!(name.len() <= 210 && !name.contains(['/', '\\', ':', '\0']) && !name.starts_with('.'));
            if let Some(other) = files.insert(name, thread.clone()) {
                prop_assert_eq!(other, thread);
            }
        }
    }

    #[test]
    fn a_trigger_in_front_is_always_found(trigger in "[@a-zÄÖéİßж]{1,8}", rest in "\\PC{0,20}") {
        let text = format!("{}{rest}", trigger.to_uppercase());
        prop_assert_eq!(strip_trigger(&text, &trigger), Some(rest.trim_start()));
    }

    #[test]
    fn what_is_not_heard_is_never_an_answer_to_a_panic(text in "\\PC{0,30}", trigger in "\\PC{1,5}") {
        let _ = (strip_trigger(&text, &trigger), is_reset(&message(&text), Some(&trigger), Some(&trigger)));
    }
}

#[test]
fn a_session_is_a_name() {
    assert!("0198c0de-0000-7000-8000-000000000001".parse::<Name>().is_ok());
}
