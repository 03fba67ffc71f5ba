use proptest::prelude::*;
use serde_json::json;

use super::*;

fn name() -> SavedName {
    "trip".parse().unwrap()
}

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(seconds, 0).unwrap()
}

fn read(text: &str) -> Result<SavedSession, Unreadable> {
    SavedSession::read(name(), text.as_bytes(), at(9))
}

#[test]
fn a_file_has_exactly_these_members_in_this_order() {
    let thread = SavedThread::fallback(vec![json!({"role": "user", "content": "hi"})]);
    let text = SavedSession::new(name(), None, thread, at(1)).to_text();
    assert_eq!(
        text,
        r#"{
  "name": "trip",
  "description": null,
  "created_at": "1970-01-01T00:00:01.000000Z",
  "updated_at": "1970-01-01T00:00:01.000000Z",
  "message_count": 1,
  "first_message": "hi",
  "thread": {
    "messages": [
      {
        "role": "user",
        "content": "hi"
      }
    ],
    "metadata": {
      "fallback": true,
      "version": "1.0"
    }
  }
}
"#
    );
}

#[test]
fn a_file_by_hand_needs_messages_only_and_counts_for_itself() {
    let session = read("\u{feff}{\"thread\": {\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}}").unwrap();
    assert_eq!((session.created_at, session.updated_at, session.description.as_deref()), (at(9), at(9), None));
    assert_eq!((session.message_count, session.first_message.as_deref()), (1, Some("hi")));
    let text = r#"{"name": "other", "description": null, "message_count": 70, "mood": [1], "created_at": "1970-01-01T00:00:03Z",
        "thread": {"messages": [], "metadata": {"version": "3.7", "new": {"a": 1}}}, "first_message": 4}"#;
    let session = read(text).unwrap();
    assert_eq!((session.message_count, session.first_message.as_deref(), session.updated_at), (0, None, at(3)));
    assert_eq!(session.thread.metadata["new"], json!({"a": 1}));
}

#[test]
fn what_cannot_be_read_is_refused_with_its_line_column_and_reason() {
    for (text, line, column, word) in [
        ("", 1, 1, "empty"),
        (" \n ", 1, 1, "empty"),
        ("[]", 1, 1, "a saved session must be a JSON object"),
        ("{\n  \"thread\": {", 2, 13, "ends in the middle"),
        ("{\n  \"name\": \"a\",\n}", 3, 1, "comma"),
        ("{\n  name: 1}", 2, 3, "double quotes"),
        ("{\"name\": \"a\" \"b\": 1}", 1, 14, "not valid JSON"),
        ("{\"description\": \"é\n\"}", 1, 18, "line break"),
        ("{\"thread\": 1, \"thread\": 2}", 1, 22, "duplicate"),
        ("\n{\"name\": \"a\"}", 2, 1, "thread is missing"),
        ("{\"thread\": [1]}", 1, 12, "thread must be an object"),
        ("{\"thread\":\n {}}", 2, 2, "the member messages is missing"),
        ("{\"thread\": {\"messages\": {}}}", 1, 25, "must be a list"),
        ("{\"thread\": {\"metadata\": 7}}", 1, 25, "must be an object"),
        (
            "{\"thread\": {\"messages\": [\n  {\"role\": \"user\", \"content\": \"a\"},\n  {\"content\": \"b\"}\n]}}",
            3,
            3,
            "message 2: a message has no role",
        ),
        ("{\"thread\": {\"messages\": [\"hi\"]}}", 1, 26, "message 1: a message must be an object"),
        ("{\"description\": 7, \"thread\": {\"messages\": []}}", 1, 17, "the description must be a string"),
        ("{\"created_at\": \"soon\", \"thread\": {\"messages\": []}}", 1, 16, "created_at must be a time"),
        (
            "{\"created_at\": \"9999-12-31T23:59:59-01:00\", \"thread\": {\"messages\": []}}",
            1,
            16,
            "created_at must be a time",
        ),
        ("{\"thread\": {\"messages\": []}} x", 1, 30, "trailing"),
    ] {
        let refused = read(text).unwrap_err();
        assert!(refused.reason.contains(word), "{text:?}: {refused}");
        assert_eq!((refused.line, refused.column), (line, column), "{text:?}: {refused}");
    }
    let refused = SavedSession::read(name(), b"{\n\"name\": \"\xff\"}", at(1)).unwrap_err();
    assert_eq!((refused.line, refused.column, refused.reason.as_str()), (2, 10, "the file is not UTF-8"));
    let deep = format!("{}{}", "[".repeat(JSON_DEPTH_MAX + 10), "]".repeat(JSON_DEPTH_MAX + 10));
    for (text, column) in [
        (format!("{{\"thread\": {{\"messages\": [{{\"role\": \"user\", \"content\": \"a\", \"x\": {deep}}}]}}}}"), 26),
        (format!("{{\"thread\": {{\"messages\": [], \"metadata\": {{\"x\": {deep}}}}}}}"), 41),
    ] {
        let refused = read(&text).unwrap_err();
        assert!(refused.reason.contains("nested too deeply") && refused.column == column, "{refused}");
    }
    let long = format!("{{\"description\": \"{}\"}}", "x".repeat(SAVED_DESCRIPTION_CHARS_MAX + 1));
    assert!(read(&long).unwrap_err().reason.contains("2000 characters"));
}

#[test]
fn a_file_may_name_itself() {
    assert_eq!(SavedSession::named(b"{\"name\": \"a b\"}").unwrap().as_deref(), Some("a b"));
    assert_eq!(SavedSession::named(b"{}").unwrap(), None);
    assert_eq!(SavedSession::named(b"{\n\"name\": 1}").unwrap_err().line, 2);
}

fn any_message() -> impl Strategy<Value = Value> {
    let content = prop_oneof!["\\PC{0,40}".prop_map(Value::from), Just(json!([{"type": "text", "text": "a"}, "b"]))];
    ("user|assistant|system", content, proptest::option::of("[a-z]{1,8}")).prop_map(|(role, content, tool)| {
        let mut message = json!({"role": role, "content": content});
        if let Some(tool) = tool {
            message["tool_calls"] = json!([{"id": "1", "name": tool, "args": {"z": 1, "a": null}}]);
        }
        message
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(
        messages in proptest::collection::vec(any_message(), 0..6),
        description in proptest::option::of("\\PC{0,60}"),
        times in (0i64..4_000_000_000, 0i64..4_000_000_000),
    ) {
        let metadata = Map::from_iter([("version".to_owned(), json!("1.0")), ("state".to_owned(), json!({"a": [1.5, "é"]}))]);
        let session = SavedSession::new(name(), description, SavedThread { messages, metadata }, at(times.0));
        let session = SavedSession { updated_at: at(times.1), ..session };
        let text = session.to_text();
        let back = read(&text).unwrap();
        prop_assert_eq!(back.to_text(), text);
        prop_assert_eq!(back, session);
    }

    #[test]
    fn a_file_that_was_cut_anywhere_is_refused_within_its_lines(cut in 0usize..300) {
        let thread = SavedThread::fallback(vec![json!({"role": "user", "content": "é hi"})]);
        let text = SavedSession::new(name(), Some("d".to_owned()), thread, at(1)).to_text();
        let mut cut = cut.min(text.len() - 2);
        while !text.is_char_boundary(cut) {
            cut -= 1;
        }
        let refused = read(&text[..cut]).unwrap_err();
        prop_assert!(refused.line >= 1 && refused.line <= text.lines().count(), "{}", refused);
    }

    #[test]
    fn no_bytes_break_the_reader(bytes: Vec<u8>, text in "[\\[\\]{}:,\"a-z0-9 \n]{0,80}") {
        let _ = SavedSession::read(name(), &bytes, at(1));
        let _ = read(&text);
    }
}
