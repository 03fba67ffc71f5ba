//! `MessagePack`, read in one go from the bytes as they lie there: nothing is copied but the texts, and nothing is made
//! before its bytes are seen.

use serde_json::{Map, Number, Value};

use crate::domain::limits::JSON_DEPTH_MAX;

/// The extension under which `LangGraph`'s serialiser packs a model: `[module, class, its members, …]`.
const PYDANTIC: u8 = 5;
/// The one package whose models are read for their members: messages are plain data there.
const MESSAGES: &str = "langchain_core.messages.";
/// Models within models. A message stands in a list, and holds no other.
const MODELS_MAX: usize = 1;

/// What these bytes hold; `None` where that is not all plain data. Each value is taken from `values`.
pub(super) fn unpack(bytes: &[u8], values: &mut usize) -> Option<Value> {
    let mut packed = Packed { rest: bytes, values };
    let value = packed.value(Room { levels: JSON_DEPTH_MAX, models: MODELS_MAX })?;
    // What comes after the value is nobody's; a value with something after it is another format.
    packed.rest.is_empty().then_some(value)
}

/// How far down a value may still go.
#[derive(Clone, Copy)]
struct Room {
    levels: usize,
    models: usize,
}

impl Room {
    fn below(self) -> Option<Self> {
        Some(Self { levels: self.levels.checked_sub(1)?, ..self })
    }

    fn in_a_model(self) -> Option<Self> {
        Self { models: self.models.checked_sub(1)?, ..self }.below()
    }
}

struct Packed<'a, 'v> {
    rest: &'a [u8],
    values: &'v mut usize,
}

impl<'a> Packed<'a, '_> {
    fn value(&mut self, room: Room) -> Option<Value> {
        *self.values = self.values.checked_sub(1)?;
        Some(match self.byte()? {
            byte @ 0x00..=0x7f => Value::from(byte),
            byte @ 0x80..=0x8f => self.map(usize::from(byte & 0x0f), room)?,
            byte @ 0x90..=0x9f => self.array(usize::from(byte & 0x0f), room)?,
            byte @ 0xa0..=0xbf => self.text(usize::from(byte & 0x1f))?,
            0xc0 => Value::Null,
            0xc2 => Value::Bool(false),
            0xc3 => Value::Bool(true),
            byte @ 0xc7..=0xc9 => {
                let length = self.length(1 << (byte - 0xc7))?;
                self.model(length, room)?
            }
            0xca => Value::Number(Number::from_f64(f32::from_be_bytes(self.array_of()?).into())?),
            0xcb => Value::Number(Number::from_f64(f64::from_be_bytes(self.array_of()?))?),
            0xcc => Value::from(self.byte()?),
            0xcd => Value::from(u16::from_be_bytes(self.array_of()?)),
            0xce => Value::from(u32::from_be_bytes(self.array_of()?)),
            0xcf => Value::from(u64::from_be_bytes(self.array_of()?)),
            0xd0 => Value::from(i8::from_be_bytes(self.array_of()?)),
            0xd1 => Value::from(i16::from_be_bytes(self.array_of()?)),
            0xd2 => Value::from(i32::from_be_bytes(self.array_of()?)),
            0xd3 => Value::from(i64::from_be_bytes(self.array_of()?)),
            byte @ 0xd4..=0xd8 => self.model(1 << (byte - 0xd4), room)?,
            byte @ 0xd9..=0xdb => {
                let length = self.length(1 << (byte - 0xd9))?;
                self.text(length)?
            }
            byte @ (0xdc | 0xdd) => {
                let length = self.length(2 << (byte - 0xdc))?;
                self.array(length, room)?
            }
            byte @ (0xde | 0xdf) => {
                let length = self.length(2 << (byte - 0xde))?;
                self.map(length, room)?
            }
            byte @ 0xe0..=0xff => Value::from(i8::from_be_bytes([byte])),
            // Bytes are no plain data, and one mark was never given a meaning.
            0xc1 | 0xc4..=0xc6 => return None,
        })
    }

    /// A list of values; each takes a byte at least, so a length that was made up ends with the bytes.
    fn array(&mut self, length: usize, room: Room) -> Option<Value> {
        let below = room.below()?;
        let mut items = Vec::new();
        for _ in 0..length {
            items.push(self.value(below)?);
        }
        Some(Value::Array(items))
    }

    fn map(&mut self, length: usize, room: Room) -> Option<Value> {
        let below = room.below()?;
        let mut members = Map::new();
        for _ in 0..length {
            let Value::String(name) = self.value(Room { levels: 0, models: 0 })? else { return None };
            // A name that stands twice would lose one of the two.
            if members.insert(name, self.value(below)?).is_some() {
                return None;
            }
        }
        Some(Value::Object(members))
    }

    /// The members of one of `LangChain`'s messages. What it is called is read before anything in it is.
    fn model(&mut self, length: usize, room: Room) -> Option<Value> {
        let inside = room.in_a_model()?;
        let kind = self.byte()?;
        let mut body = Packed { rest: self.take(length)?, values: &mut *self.values };
        let parts = match body.byte()? {
            byte @ 0x93..=0x9f if kind == PYDANTIC => usize::from(byte & 0x0f),
            _ => return None,
        };
        let mut name = || body.value(Room { levels: 0, models: 0 });
        let (module, class) = (name()?, name()?);
        if !module.as_str()?.starts_with(MESSAGES) || !class.as_str()?.contains("Message") {
            return None;
        }
        let members = body.value(inside).filter(Value::is_object)?;
        // How it was to be made again does not matter here.
        for _ in 3..parts {
            body.value(Room { levels: 0, models: 0 })?;
        }
        body.rest.is_empty().then_some(members)
    }

    fn text(&mut self, length: usize) -> Option<Value> {
        Some(Value::from(std::str::from_utf8(self.take(length)?).ok()?))
    }

    /// A length that is written in so many bytes.
    fn length(&mut self, bytes: usize) -> Option<usize> {
        let digits = self.take(bytes)?;
        Some(digits.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)))
    }

    fn byte(&mut self) -> Option<u8> {
        self.array_of().map(|[byte]| byte)
    }

    fn array_of<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }
}
