use proptest::prelude::*;
use rmpv::Value as Packed;
use serde_json::json;

use super::*;

const PYDANTIC: i8 = 5;

fn decode(kind: &str, bytes: &[u8]) -> Option<Value> {
    Reader::default().decode(kind, bytes)
}

fn packed(value: &Packed) -> Vec<u8> {
    let mut bytes = Vec::new();
    rmpv::encode::write_value(&mut bytes, value).unwrap();
    bytes
}

/// A `LangChain` message with this content, as its serialiser packs it.
fn message(content: Packed) -> Packed {
    let members = Packed::Map(vec![("type".into(), "human".into()), ("content".into(), content)]);
    let (module, class) = ("langchain_core.messages.human".into(), "HumanMessage".into());
    Packed::Ext(PYDANTIC, packed(&Packed::Array(vec![module, class, members, "model_validate_json".into()])))
}

#[test]
fn json_and_packed_data_are_read_and_what_is_packed_otherwise_is_not() {
    assert_eq!(decode("json", b"{\"a\":[1,null]}"), Some(json!({"a": [1, null]})));
    assert_eq!(decode("null", b""), Some(Value::Null));
    let map = Packed::Map(vec![("a".into(), Packed::Array(vec![1.into(), (-2).into(), Packed::F64(0.5)]))]);
    assert_eq!(decode("msgpack", &packed(&map)), Some(json!({"a": [1, -2, 0.5]})));
    for (kind, bytes) in [("pickle", b"N.".as_slice()), ("bytes", b"{}"), ("json", b"{"), ("msgpack", b"\xc0\xc0")] {
        assert_eq!(decode(kind, bytes), None, "{kind}");
    }
}

#[test]
fn what_json_has_no_form_for_is_read_as_the_text_or_the_value_inside() {
    let inside = |value: Packed| packed(&Packed::Array(vec!["datetime".into(), "datetime".into(), value, "f".into()]));
    let model = message(Packed::Array(vec![Packed::Ext(3, inside("2026-06-01".into()))]));
    for (value, read) in [
        (Packed::Binary(vec![1]), json!("AQ==")),
        (Packed::Map(vec![(1.into(), Packed::Nil)]), json!({"1": null})),
        (Packed::F64(f64::NAN), Value::Null),
        (Packed::Ext(3, inside("2026-06-01".into())), json!("2026-06-01")),
        (Packed::Ext(0, inside(Packed::Array(vec![1.into()]))), json!([1])),
        (Packed::Ext(7, packed(&Packed::Array(vec![1.into(), 2.into(), 3.into()]))), json!([1, 2, 3])),
        (Packed::Ext(-1, vec![0]), json!("AA==")),
        (model, json!({"type": "human", "content": ["2026-06-01"]})),
    ] {
        assert_eq!(decode("msgpack", &packed(&value)), Some(read), "{value:?}");
    }
    assert_eq!(decode("msgpack", &packed(&Packed::Ext(5, vec![0xc1]))), None);
}

#[test]
fn an_edited_list_keeps_what_nobody_edited_to_the_byte() {
    let (first, second) = (message("one".into()), message(Packed::Array(vec![Packed::Ext(-1, vec![7])])));
    let list = packed(&Packed::Array(vec![first, second.clone()]));
    let Some(Value::Array(read)) = decode("msgpack", &list) else { panic!("a list") };
    let mut messages: Vec<Value> = read.into_iter().map(crate::domain::transcript::message::as_read).collect();
    messages[0] = json!({"role": "user", "content": "two"});
    let calls = json!([{"id": "c", "name": "x", "args": {"q": 1}}]);
    messages.push(json!({"role": "assistant", "content": "", "tool_calls": calls}));
    let list = packed::list(&list, &messages).unwrap();
    let Packed::Array(items) = rmpv::decode::read_value(&mut list.as_slice()).unwrap() else { panic!("a list") };
    assert_eq!((items.len(), &items[1]), (3, &second));
    let members = decode("msgpack", &list).unwrap();
    assert_eq!(members[0], json!({"content": "two", "type": "human"}));
    assert_eq!(members[2]["tool_calls"][0]["type"], "tool_call");
    let Packed::Ext(PYDANTIC, body) = &items[2] else { panic!("a model") };
    let body = rmpv::decode::read_value(&mut body.as_slice()).unwrap();
    assert_eq!((body[0].as_str(), body[1].as_str()), (Some("langchain_core.messages.ai"), Some("AIMessage")));
    // If messages were maps, an edited one is a map too.
    let maps = packed(&Packed::Array(vec![Packed::Map(vec![("role".into(), "user".into())])]));
    let maps = packed::list(&maps, &messages[..1]).unwrap();
    assert_eq!(decode("msgpack", &maps), Some(json!([{"role": "user", "content": "two"}])));
    assert_eq!(packed::list(b"\xc0", &messages), None);
}

#[test]
fn a_tower_of_extensions_is_refused_however_high_it_is() {
    for kind in [PYDANTIC, 7] {
        let mut tower = packed(&Packed::Nil);
        for _ in 0..5_000 {
            tower = packed(&Packed::Ext(kind, tower));
        }
        assert_eq!(decode("msgpack", &tower), None);
    }
    let tower = (0..500).fold(Packed::from("hi"), |inner, _| message(inner));
    assert_eq!(decode("msgpack", &packed(&tower)), None);
}

#[test]
fn a_value_that_is_nested_too_deeply_is_not_read() {
    for mark in [0x91, 0x81] {
        assert_eq!(decode("msgpack", &[mark].repeat(100_000)), None);
    }
    assert_eq!(decode("msgpack", &[0x81, 0xa1, b'a'].repeat(100_000)), None);
    assert_eq!(decode("json", &b"[".repeat(10_000)), None);
    let nested = |levels: usize| [b"[".repeat(levels), b"]".repeat(levels)].concat();
    assert!(decode("json", &nested(JSON_DEPTH_MAX)).is_some());
    assert_eq!(decode("json", &nested(JSON_DEPTH_MAX + 2)), None);
    // Levels outside and inside a message add up.
    let deep = |levels: usize, inner: Packed| (0..levels).fold(inner, |inner, _| Packed::Array(vec![inner]));
    let both = |outside, inside| decode("msgpack", &packed(&deep(outside, message(deep(inside, Packed::Nil)))));
    assert!(both(30, 30).is_some());
    assert_eq!(both(40, 40), None);
}

#[test]
fn lengths_that_are_made_up_and_values_without_end_are_refused() {
    for mark in [0xc6, 0xc9, 0xdb, 0xdd, 0xdf] {
        assert_eq!(decode("msgpack", &[mark, 0xff, 0xff, 0xff, 0xff]), None, "{mark:x}");
        assert_eq!(decode("msgpack", &[mark, 0xff, 0xff, 0xff, 0xff, 5, 0x91, 0xc0]), None, "{mark:x}");
    }
    let count = u32::try_from(SAVED_VALUES_MAX).unwrap();
    let many = |count: u32| [&[0xdd][..], &count.to_be_bytes(), &vec![0xc0; count as usize][..]].concat();
    assert!(decode("msgpack", &many(count - 1)).is_some());
    assert_eq!(decode("msgpack", &many(count)), None);
    let list = |values: usize| format!("[{}0]", "0,".repeat(values - 2)).into_bytes();
    assert!(decode("json", &list(SAVED_VALUES_MAX - 1)).is_some());
    assert_eq!(decode("json", &list(SAVED_VALUES_MAX + 1)), None);
    // The bound applies to all values of a checkpoint together.
    let mut reader = Reader::default();
    assert!(reader.decode("msgpack", &many(count / 2)).is_some());
    assert!(reader.decode("json", &list(SAVED_VALUES_MAX / 2 + 9)).is_none());
    assert!(
        Reader::default().decode("json", format!("\"{}\"", ",[{\\\"".repeat(SAVED_VALUES_MAX)).as_bytes()).is_some()
    );
}

proptest! {
    #[test]
    fn no_bytes_break_the_reader(kind in "json|msgpack|null|empty|pickle", bytes: Vec<u8>) {
        let _ = decode(&kind, &bytes);
    }

    #[test]
    fn packed_data_is_read_as_another_reader_reads_it(bytes in proptest::collection::vec(prop_oneof![0x80u8..0xa4, 0xc0u8..=0xff, 0u8..4], 0..24)) {
        let mut rest = bytes.as_slice();
        let theirs = rmpv::decode::read_value(&mut rest);
        if decode("msgpack", &bytes).is_some() {
            prop_assert!(theirs.is_ok() && rest.is_empty());
        }
    }
}
