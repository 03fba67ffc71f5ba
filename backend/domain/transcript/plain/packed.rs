//! `MessagePack` as readable JSON, and the repacking of an edited list of messages.
//!
//! An extension of `LangGraph`'s serialiser is an envelope, `[module, class, content, …]`: its content is read, and
//! nothing is ever instantiated from it. Values without a JSON form become text. The bytes themselves are kept beside
//! the decoded values; unedited items of a list are packed again unchanged.

use std::{collections::HashMap, fmt};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rmp::{Marker, decode::read_array_len, encode};
use rmp_serde::Deserializer as Unpacker;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, json};

use super::Reader;
use crate::domain::{
    limits::JSON_DEPTH_MAX,
    transcript::message::{as_read, role_of, usable_one},
};

/// The extension of packed models, the last of the envelopes.
const MODEL: i8 = 5;
/// The last extension that contains packed data.
const DELTA: i8 = 7;

/// Reads the first value and leaves the rest in `bytes`. Decoded values are subtracted from `values`.
pub(super) fn unpack(bytes: &mut &[u8], values: &mut usize) -> Option<Value> {
    Packed { values, levels: JSON_DEPTH_MAX }.deserialize(&mut Unpacker::new(bytes)).ok()
}

/// Packs `messages` as a list in the form of the original `bytes`; `None` if those are not a list.
pub fn list(bytes: &[u8], messages: &[Value]) -> Option<Vec<u8>> {
    let (mut reader, mut rest, mut known, mut are_maps) = (Reader::default(), bytes, HashMap::new(), false);
    for _ in 0..read_array_len(&mut rest).ok()? {
        let item = rest;
        let message = unpack(&mut rest, &mut reader.values)?;
        are_maps |= matches!(Marker::from_u8(item[0]), Marker::FixMap(_) | Marker::Map16 | Marker::Map32);
        known.insert(as_read(message).to_string(), &item[..item.len() - rest.len()]);
    }
    let mut list = Vec::new();
    encode::write_array_len(&mut list, u32::try_from(messages.len()).ok()?).ok()?;
    for (number, message) in messages.iter().enumerate() {
        match known.get(&message.to_string()) {
            Some(bytes) => list.extend_from_slice(bytes),
            None if are_maps => list.extend(rmp_serde::to_vec(&usable_one(number, message)).ok()?),
            None => pack_model(&mut list, usable_one(number, message))?,
        }
    }
    Some(list)
}

/// Packs a message as `LangChain` does.
fn pack_model(list: &mut Vec<u8>, mut message: Value) -> Option<()> {
    let (module, class) = match role_of(&message) {
        Some("user") => ("human", "HumanMessage"),
        Some("system") => ("system", "SystemMessage"),
        Some("tool") => ("tool", "ToolMessage"),
        _ => ("ai", "AIMessage"),
    };
    let members = message.as_object_mut()?;
    members.remove("role");
    members.insert("type".to_owned(), json!(module));
    for call in members.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        call["type"] = json!("tool_call");
    }
    let module = format!("langchain_core.messages.{module}");
    let body = rmp_serde::to_vec(&(module, class, message, "model_validate_json")).ok()?;
    encode::write_ext_meta(list, u32::try_from(body.len()).ok()?, MODEL).ok()?;
    list.extend(body);
    Some(())
}

/// A packed value, and the levels it may have.
struct Packed<'v> {
    values: &'v mut usize,
    levels: usize,
}

impl Packed<'_> {
    fn below<E: Error>(&mut self) -> Result<Packed<'_>, E> {
        let levels = self.levels.checked_sub(1).ok_or_else(|| E::custom("it is nested too deeply"))?;
        Ok(Packed { values: &mut *self.values, levels })
    }
}

impl<'de> DeserializeSeed<'de> for Packed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, packed: D) -> Result<Value, D::Error> {
        *self.values = self.values.checked_sub(1).ok_or_else(|| D::Error::custom("too many values"))?;
        packed.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Packed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("packed data")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Value, E> {
        Ok(STANDARD.encode(bytes).into())
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = list.next_element_seed(self.below()?)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = map.next_key_seed(self.below()?)? {
            let name = name.as_str().map_or_else(|| name.to_string(), str::to_owned);
            members.insert(name, map.next_value_seed(self.below()?)?);
        }
        Ok(Value::Object(members))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(mut self, extension: D) -> Result<Value, D::Error> {
        extension.deserialize_any(Extension { inside: self.below()?, kind: None })
    }
}

/// An extension: its kind, then its bytes.
struct Extension<'v> {
    inside: Packed<'v>,
    kind: Option<i8>,
}

impl<'de> DeserializeSeed<'de> for Extension<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, bytes: D) -> Result<Value, D::Error> {
        bytes.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for Extension<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an extension")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut extension: A) -> Result<Value, A::Error> {
        let kind = extension.next_element()?;
        Ok(extension.next_element_seed(Self { kind, ..self })?.unwrap_or_default())
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Value, E> {
        let Some(kind @ 0..=DELTA) = self.kind else { return Ok(STANDARD.encode(bytes).into()) };
        let inside = self.inside.deserialize(&mut Unpacker::from_read_ref(bytes)).map_err(E::custom)?;
        Ok(match inside {
            Value::Array(mut parts) if kind <= MODEL && parts.len() > 2 => parts.swap_remove(2),
            inside => inside,
        })
    }
}
