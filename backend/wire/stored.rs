//! JSON in answers. It was checked when it was stored, and a reader that checked it again would refuse what the server
//! accepted: an event's payload is one level deeper in a page than in its request.

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::domain::json::Json;

pub(super) fn one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Json, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(trusted)
}

pub(super) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Json>, D::Error> {
    Ok(Option::<Box<RawValue>>::deserialize(deserializer)?.map(trusted))
}

pub(super) fn list<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Json>, D::Error> {
    Ok(Vec::<Box<RawValue>>::deserialize(deserializer)?.into_iter().map(trusted).collect())
}

fn trusted(raw: Box<RawValue>) -> Json {
    Json::trusted(String::from(Box::<str>::from(raw)))
}
