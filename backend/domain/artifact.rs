//! Artifacts: named bytes produced by a run, identified by the SHA-256 of their content.
//!
//! A payload too large for an event becomes one ([`Pointer::payload`]): the event keeps a pointer and the beginning.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, value::RawValue};
use uuid::Uuid;

use super::{
    event::{Edge, EventKind, EventType},
    id::{Malformed, RunId, checked_text},
    json::Json,
    limits::{ARTIFACT_NAME_CHARS_MAX, MEDIA_TYPE_BYTES_MAX, PAYLOAD_BYTES_MAX, PREVIEW_BYTES_MAX},
};

/// The id of an artifact: UUID version 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct ArtifactId(Uuid);

impl ArtifactId {
    /// An id that this program generated or stored.
    pub fn trusted(id: Uuid) -> Self {
        Self(id)
    }

    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl FromStr for ArtifactId {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        // Same form as a run id.
        text.parse::<RunId>().map(|id| Self(id.uuid())).map_err(|_| Malformed("an artifact id is a UUID version 7"))
    }
}

impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for ArtifactId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The SHA-256 of a content; as text, 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash([u8; 32]);

impl Hash {
    pub fn new(digest: [u8; 32]) -> Self {
        Self(digest)
    }

    /// Reads one back from the database.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl FromStr for Hash {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        const RULE: Malformed = Malformed("a SHA-256 is 64 lower-case hexadecimal digits");
        let mut digest = [0; 32];
        hex::decode_to_slice(text, &mut digest).map_err(|_| RULE)?;
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) { Err(RULE) } else { Ok(Self(digest)) }
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

checked_text!(
    /// A file name. It never becomes a path: the store identifies bytes by their hash alone.
    ArtifactName,
    "a name is 1 to 255 characters without / \\, control characters or text direction marks, and not . or ..",
    |text| !text.is_empty()
        && text.len() <= ARTIFACT_NAME_CHARS_MAX * 4
        && text.chars().count() <= ARTIFACT_NAME_CHARS_MAX
        && !matches!(text, "." | "..")
        && !text.chars().any(|c| c.is_control() || matches!(c, '/' | '\\') || misleads(c))
);
checked_text!(
    /// An RFC 9110 media type such as `text/plain; charset=utf-8`.
    MediaType,
    "a media type is type/subtype, optionally with parameters, at most 255 visible ASCII characters and spaces",
    |text| text.len() <= MEDIA_TYPE_BYTES_MAX
        && text.bytes().all(|b| b == b' ' || b.is_ascii_graphic())
        && text.split(';').next().and_then(|essence| essence.trim_end().split_once('/')).is_some_and(
            |(kind, subtype)| [kind, subtype].iter().all(|word| !word.is_empty() && word.bytes().all(is_token))
        )
);

/// Characters that make a name look like another one: line and paragraph separators, and changes of direction.
fn misleads(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Where a payload that was too large for its event is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pointer {
    pub artifact_id: ArtifactId,
    pub sha256: Hash,
    pub size: u64,
    pub media_type: MediaType,
}

impl Pointer {
    /// Whether an event's payload goes into its own artifact. Events that only the server emits have bounded parts and
    /// stay in the log as a whole; deltas are never stored.
    pub fn is_due(event_type: &EventType, payload: &Json) -> bool {
        payload.as_str().len() > PAYLOAD_BYTES_MAX && !event_type.is_ephemeral() && !event_type.is_the_servers()
    }

    /// What the event keeps of `payload`: this pointer, the beginning, and what the server itself reads in such events.
    pub fn payload(&self, event_type: &EventType, payload: &Json) -> Json {
        self.beside(members_read(event_type), payload)
    }

    /// What the log keeps of a run's input: this pointer, the beginning, and the ids of a `RunAgentInput`.
    pub fn input(&self, input: &Json) -> Json {
        self.beside(&["threadId", "runId"], input)
    }

    /// The artifact that a run's input points to; `None` if the input has members beyond those of a pointer.
    pub fn of_input(input: &Json) -> Option<ArtifactId> {
        let members: Map<String, Value> = serde_json::from_str(input.as_str()).ok()?;
        let is_known = |name: &String| ["$artifact", "preview", "threadId", "runId"].contains(&name.as_str());
        let id = members.get("$artifact")?["artifact_id"].as_str()?;
        if members.keys().all(is_known) { id.parse().ok() } else { None }
    }

    /// The pointer, the beginning of `payload`, and those of `members` that have at most 1 KiB.
    fn beside(&self, members: &[&str], payload: &Json) -> Json {
        let mut kept = Map::new();
        kept.insert("$artifact".to_owned(), serde_json::to_value(self).unwrap_or_default());
        kept.insert("preview".to_owned(), Value::from(beginning(payload.as_str())));
        for name in members {
            let value: Option<Box<RawValue>> = payload.member(name);
            let value = value.filter(|value| value.get().len() <= 1024 && value.get() != "null");
            // The default is omitted.
            let value = value.filter(|value| (*name, value.get()) != ("role", "\"assistant\""));
            if let Some(value) = value.and_then(|value| serde_json::from_str(value.get()).ok()) {
                kept.insert((*name).to_owned(), value);
            }
        }
        Json::of(&kept)
    }
}

/// The members of a payload that the server acts on or shows: an interrupt's terms, a role, a cost, the name of a span.
fn members_read(event_type: &EventType) -> &'static [&'static str] {
    match (event_type.kind(), event_type.edge()) {
        (Some(EventKind::InterruptRequested), _) => &["expires_at", "checkpoint_id", "ns"],
        (Some(EventKind::MessageCompleted), _) => &["role", "usage", "model"],
        (Some(EventKind::WorkerSpawned | EventKind::WorkerCompleted | EventKind::WorkerFailed), _) => &["run_id"],
        (_, Some(Edge::Start)) => &["name"],
        (_, Some(Edge::Completed | Edge::Failed)) => &["usage", "model"],
        _ => &[],
    }
}

/// The first 2 KiB of a text, or slightly less: cut at a character boundary.
fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(PREVIEW_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_line_and_no_path() {
        for good in ["report.txt", "x", "ключ 🗝.pdf", "a\"b;c%", "...", "CON", &"é".repeat(255)] {
            assert!(good.parse::<ArtifactName>().is_ok(), "{good}");
        }
        let long = "é".repeat(256);
        for bad in ["", ".", "..", "a/b", "..\\x", "a\nb", "a\0", "\u{7f}", "a\u{202e}fdp.exe", "a\u{2028}", &long] {
            assert!(bad.parse::<ArtifactName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_media_type_has_two_words() {
        for good in ["text/plain", "text/plain; charset=utf-8", "application/vnd.a+json", "image/svg+xml ;x=\"y z\""] {
            assert!(good.parse::<MediaType>().is_ok(), "{good}");
        }
        for bad in
            ["", "text", "text/", "/plain", "text/pl ain", "a/b/c", "text/plain\r\nx: y", "té/x", &"a/".repeat(200)]
        {
            assert!(bad.parse::<MediaType>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_input_keeps_the_ids_of_its_conversation() {
        let pointer = Pointer {
            artifact_id: ArtifactId::trusted(Uuid::nil()),
            sha256: Hash::new([1; 32]),
            size: 5,
            media_type: MediaType::trusted("application/json"),
        };
        let input = Json::parse(r#"{"threadId":"t","runId":"r","messages":[],"state":{}}"#).unwrap();
        let kept: Value = serde_json::from_str(pointer.input(&input).as_str()).unwrap();
        assert_eq!((&kept["threadId"], &kept["runId"], kept.get("messages")), (&"t".into(), &"r".into(), None));
    }

    #[test]
    fn an_input_is_a_pointer_or_no_pointer() {
        let of = |text: &str| Pointer::of_input(&Json::parse(text).unwrap()).map(|id| id.to_string());
        let id = "0198c0de-0000-7000-8000-000000000001";
        let pointer = format!("\"$artifact\":{{\"artifact_id\":\"{id}\"}}");
        assert_eq!(of(&format!("{{{pointer}}}")).as_deref(), Some(id));
        assert_eq!(
            of(&format!("{{{pointer},\"preview\":\"x\",\"threadId\":\"t\",\"runId\":\"r\"}}")).as_deref(),
            Some(id)
        );
        assert_eq!(of(&format!("{{{pointer},\"threadId\":\"t\",\"runId\":\"r\",\"messages\":[]}}")), None);
        for other in ["{}", "[1]", "\"x\"", "{\"$artifact\":5}", "{\"$artifact\":{\"artifact_id\":\"x\"}}"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    fn spilled(event_type: &str, payload: &str) -> Value {
        let pointer = Pointer {
            artifact_id: ArtifactId::trusted(Uuid::nil()),
            sha256: Hash::new([1; 32]),
            size: payload.len() as u64,
            media_type: MediaType::trusted("application/json"),
        };
        let payload = Json::parse(payload).unwrap();
        serde_json::from_str(pointer.payload(&event_type.parse().unwrap(), &payload).as_str()).unwrap()
    }

    #[test]
    fn a_spilled_payload_is_a_pointer_and_a_beginning() {
        let long = format!("{{\"result\":\"{}\"}}", "é".repeat(40_000));
        let kept = spilled("tool.completed", &long);
        assert_eq!(kept["$artifact"]["size"], 80_013);
        assert_eq!(kept["$artifact"]["sha256"], "01".repeat(32));
        let preview = kept["preview"].as_str().unwrap();
        assert!(long.starts_with(preview) && (2_046..=2_048).contains(&preview.len()));
        assert_eq!(kept.as_object().unwrap().len(), 2);
    }

    #[test]
    fn what_the_server_reads_stays_beside_the_pointer() {
        let kept = spilled("interrupt.requested", r#"{"prompt":"x","expires_at":"2026","ns":null}"#);
        assert_eq!((&kept["expires_at"], kept.get("ns"), kept.get("prompt")), (&"2026".into(), None, None));
        let kept = spilled("message.completed", r#"{"role":"user","usage":{"a":1.50},"text":"x"}"#);
        assert_eq!(kept["role"], "user");
        assert!(spilled("message.completed", r#"{"role":"assistant"}"#).get("role").is_none());
        assert!(spilled("custom.x", &format!("{{\"name\":\"{}\"}}", "x".repeat(2_000))).get("name").is_none());
        assert_eq!(spilled("custom.x", "[1]")["preview"], "[1]");
    }
}
