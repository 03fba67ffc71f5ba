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

/// A message of `LangChain` with this content, as its serialiser packs it.
fn model(module: &str, class: &str, content: Packed) -> Packed {
    let members = Packed::Map(vec![("type".into(), "human".into()), ("content".into(), content)]);
    let body = packed(&Packed::Array(vec![module.into(), class.into(), members, "model_validate_json".into()]));
    Packed::Ext(PYDANTIC, body)
}

fn message(content: Packed) -> Packed {
    model("langchain_core.messages.human", "HumanMessage", content)
}

#[test]
fn json_and_packed_data_are_read_and_everything_else_is_not() {
    assert_eq!(decode("json", b"{\"a\":[1,null]}"), Some(json!({"a": [1, null]})));
    assert_eq!(decode("null", b""), Some(Value::Null));
    let map = Packed::Map(vec![("a".into(), Packed::Array(vec![1.into(), (-2).into(), Packed::F64(0.5)]))]);
    assert_eq!(decode("msgpack", &packed(&map)), Some(json!({"a": [1, -2, 0.5]})));
    let (bytes, odd) = (Packed::Binary(vec![1]), Packed::Map(vec![(1.into(), Packed::Nil)]));
    let twice = Packed::Map(vec![("a".into(), 1.into()), ("a".into(), 2.into())]);
    for value in [bytes, odd, twice, Packed::F64(f64::NAN), Packed::Ext(3, vec![0xc0]), Packed::Ext(5, vec![0xc0])] {
        assert_eq!(decode("msgpack", &packed(&value)), None, "{value:?}");
    }
    for (kind, bytes) in [("pickle", b"N.".as_slice()), ("bytes", b"{}"), ("json", b"{"), ("msgpack", b"\xc0\xc0")] {
        assert_eq!(decode(kind, bytes), None, "{kind}");
    }
}

#[test]
fn of_models_only_messages_are_read_and_only_as_their_members() {
    let read = |module: &str, class: &str| decode("msgpack", &packed(&model(module, class, "hi".into())));
    let members = json!({"type": "human", "content": "hi"});
    assert_eq!(read("langchain_core.messages.human", "HumanMessage"), Some(members.clone()));
    assert_eq!(read("os", "HumanMessage"), None);
    assert_eq!(read("langchain_core.messages.human", "system"), None);
    let list = Packed::Array(vec![message("hi".into()), message("hi".into())]);
    assert_eq!(decode("msgpack", &packed(&list)), Some(json!([members, members])));
}

#[test]
fn a_tower_of_models_is_refused_at_its_second_floor_however_high_it_is() {
    assert_eq!(decode("msgpack", &packed(&message(message("hi".into())))), None);
    let mut tower = packed(&Packed::Nil);
    for _ in 0..5_000 {
        tower = packed(&Packed::Ext(PYDANTIC, tower));
    }
    assert_eq!(decode("msgpack", &tower), None);
    // Each floor names the right module, and is a message but for what it holds.
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
    // Levels outside a message and within it are levels of one value.
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
    // The bound is that of all values of a checkpoint together.
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
