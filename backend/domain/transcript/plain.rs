//! A typed value as plain data, where it is some. Nothing is carried out and no class is made, whatever a value asks for.

use rmpv::{Value as Packed, decode::read_value_with_max_depth};
use serde_json::{Map, Number, Value};

use crate::domain::limits::JSON_DEPTH_MAX;

/// The extension under which `LangGraph`'s serialiser packs a model: `[module, class, its members, …]`.
const PYDANTIC: i8 = 5;
/// The one package whose models are read for their members: messages are plain data there.
const MESSAGES: &str = "langchain_core.messages.";

/// What a value of this type holds, as JSON; `None` where that is not all of it, or is not known.
pub fn decode(kind: &str, bytes: &[u8]) -> Option<Value> {
    match kind {
        "json" => serde_json::from_slice(bytes).ok().filter(|value| is_flat(value, JSON_DEPTH_MAX)),
        "null" => Some(Value::Null),
        "msgpack" => unpack(bytes),
        _ => None,
    }
}

/// Whether a value has no more levels than a file, in which it stands some levels down, can be read with.
fn is_flat(value: &Value, levels: usize) -> bool {
    let below = |value: &Value| levels.checked_sub(1).is_some_and(|levels| is_flat(value, levels));
    match value {
        Value::Array(items) => items.iter().all(below),
        Value::Object(members) => members.values().all(below),
        _ => true,
    }
}

fn unpack(bytes: &[u8]) -> Option<Value> {
    let mut rest = bytes;
    let packed = read_value_with_max_depth(&mut rest, JSON_DEPTH_MAX).ok()?;
    // What comes after the value is nobody's; a value with something after it is another format.
    if rest.is_empty() { plain(packed) } else { None }
}

fn plain(packed: Packed) -> Option<Value> {
    Some(match packed {
        Packed::Nil => Value::Null,
        Packed::Boolean(truth) => Value::Bool(truth),
        Packed::Integer(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => Value::from(number),
            (None, number) => Value::from(number?),
        },
        Packed::F32(number) => Value::Number(Number::from_f64(number.into())?),
        Packed::F64(number) => Value::Number(Number::from_f64(number)?),
        Packed::String(text) => Value::String(text.into_str()?),
        Packed::Array(items) => Value::Array(items.into_iter().map(plain).collect::<Option<_>>()?),
        Packed::Map(members) => {
            let mut object = Map::new();
            for (name, value) in members {
                let Packed::String(name) = name else { return None };
                // A name that stands twice would lose one of the two.
                if object.insert(name.into_str()?, plain(value)?).is_some() {
                    return None;
                }
            }
            Value::Object(object)
        }
        Packed::Ext(PYDANTIC, body) => message(&body)?,
        Packed::Binary(_) | Packed::Ext(..) => return None,
    })
}

/// The members of one of `LangChain`'s messages.
fn message(body: &[u8]) -> Option<Value> {
    let Value::Array(mut model) = unpack(body)? else { return None };
    let is_message = model.first()?.as_str()?.starts_with(MESSAGES) && model.get(1)?.as_str()?.contains("Message");
    let members = model.get_mut(2).filter(|members| is_message && members.is_object())?;
    Some(members.take())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn packed(value: &Packed) -> Vec<u8> {
        let mut bytes = Vec::new();
        rmpv::encode::write_value(&mut bytes, value).unwrap();
        bytes
    }

    #[test]
    fn json_and_packed_data_are_read_and_everything_else_is_not() {
        assert_eq!(decode("json", b"{\"a\":[1,null]}"), Some(json!({"a": [1, null]})));
        assert_eq!(decode("null", b""), Some(Value::Null));
        let map = Packed::Map(vec![("a".into(), Packed::Array(vec![1.into(), (-2).into(), Packed::F64(0.5)]))]);
        assert_eq!(decode("msgpack", &packed(&map)), Some(json!({"a": [1, -2, 0.5]})));
        let (bytes, odd) = (Packed::Binary(vec![1]), Packed::Map(vec![(1.into(), Packed::Nil)]));
        let twice = Packed::Map(vec![("a".into(), 1.into()), ("a".into(), 2.into())]);
        for value in [bytes, odd, twice, Packed::F64(f64::NAN), Packed::Ext(3, vec![0xc0]), Packed::Ext(5, vec![0xc0])]
        {
            assert_eq!(decode("msgpack", &packed(&value)), None, "{value:?}");
        }
        for (kind, bytes) in [("pickle", b"N.".as_slice()), ("bytes", b"{}"), ("json", b"{"), ("msgpack", b"\xc0\xc0")]
        {
            assert_eq!(decode(kind, bytes), None, "{kind}");
        }
    }

    #[test]
    fn of_models_only_messages_are_read_and_only_as_their_members() {
        let model = |module: &str, class: &str| {
            let members = Packed::Map(vec![("type".into(), "human".into()), ("content".into(), "hi".into())]);
            let body = packed(&Packed::Array(vec![module.into(), class.into(), members, "model_validate_json".into()]));
            decode("msgpack", &packed(&Packed::Ext(PYDANTIC, body)))
        };
        let read = Some(json!({"type": "human", "content": "hi"}));
        assert_eq!(model("langchain_core.messages.human", "HumanMessage"), read);
        assert_eq!(model("os", "HumanMessage"), None);
        assert_eq!(model("langchain_core.messages.human", "system"), None);
    }

    #[test]
    fn a_value_that_is_nested_too_deeply_is_not_read() {
        let deep = (0..10_000).fold(Vec::new(), |mut bytes: Vec<u8>, _| {
            bytes.push(0x91);
            bytes
        });
        assert_eq!(decode("msgpack", &deep), None);
        assert_eq!(decode("json", &b"[".repeat(10_000)), None);
        let nested = |levels: usize| [b"[".repeat(levels), b"]".repeat(levels)].concat();
        assert!(decode("json", &nested(JSON_DEPTH_MAX)).is_some());
        assert_eq!(decode("json", &nested(JSON_DEPTH_MAX + 2)), None);
        // An array that says it has four thousand million items, and has none.
        assert_eq!(decode("msgpack", &[0xdd, 0xff, 0xff, 0xff, 0xff]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(kind in "json|msgpack|null|empty|pickle", bytes: Vec<u8>) {
            let _ = decode(&kind, &bytes);
        }
    }
}
