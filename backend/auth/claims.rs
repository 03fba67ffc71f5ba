//! The claims of a token in their JSON form.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::{Map, Value};

/// Typed, so that a string in place of a number is rejected rather than converted.
#[derive(Deserialize)]
pub(super) struct Body {
    pub(super) sub: String,
    pub(super) exp: NumericDate,
    pub(super) nbf: Option<NumericDate>,
    pub(super) iss: Option<String>,
    #[serde(flatten)]
    pub(super) others: Map<String, Value>,
}

/// Seconds since 1970, perhaps with a fraction (RFC 7519, 2). Times outside the calendar's range are rejected.
pub(super) struct NumericDate(pub(super) DateTime<Utc>);

impl<'de> Deserialize<'de> for NumericDate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        let span = Duration::try_from_secs_f64(seconds.abs()).ok().and_then(|span| TimeDelta::from_std(span).ok());
        let span = span.map(|span| if seconds < 0.0 { -span } else { span });
        let moment = span.and_then(|span| DateTime::UNIX_EPOCH.checked_add_signed(span));
        moment.map(Self).ok_or_else(|| D::Error::custom("not a time"))
    }
}

/// The claim of this name or, failing that, the value at this dotted path, such as `realm_access.roles`. Names in the
/// path may contain dots themselves, as URLs do. Null counts as absent.
pub(super) fn claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    if let Some(value) = claims.get(name) {
        return Some(value).filter(|value| !value.is_null());
    }
    name.match_indices('.').find_map(|(dot, _)| claim(claims.get(&name[..dot])?.as_object()?, &name[dot + 1..]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn date(text: &str) -> Option<i64> {
        serde_json::from_str::<NumericDate>(text).ok().map(|date| date.0.timestamp_millis())
    }

    #[test]
    fn a_date_may_have_a_fraction_and_must_be_one_of_a_calendar() {
        for (text, expected) in [
            ("1764334800", Some(1_764_334_800_000)),
            ("1764334800.25", Some(1_764_334_800_250)),
            ("1764334800.0", Some(1_764_334_800_000)),
            ("1.7643348e9", Some(1_764_334_800_000)),
            ("0", Some(0)),
            ("-0.5", Some(-500)),
            ("8210266876799", Some(8_210_266_876_799_000)),
            ("8210266876800", None),
            ("18446744073709551615", None),
            ("1e300", None),
            ("-1e300", None),
            ("1e999", None),
            ("\"1764334800\"", None),
            ("true", None),
            ("null", None),
        ] {
            assert_eq!(date(text), expected, "{text}");
        }
    }

    #[test]
    fn a_claim_is_found_by_its_name_first_and_then_by_its_path() {
        let claims = json!({
            "org_id": null,
            "realm_access": { "roles": ["owner"], "deep": { "est": 1 } },
            "resource_access": { "my.client": { "roles": ["reader"] } },
            "https://app.example/roles": "admin",
            "https://app.example/meta": { "team": "acme" },
            "realm_access.roles.literal": 3,
            "a.b": 4, "a": { "b": 5, "c": null },
        });
        let claims = claims.as_object().unwrap();
        for (name, expected) in [
            ("realm_access.roles", Some(json!(["owner"]))),
            ("realm_access.deep.est", Some(json!(1))),
            ("resource_access.my.client.roles", Some(json!(["reader"]))),
            ("https://app.example/roles", Some(json!("admin"))),
            ("https://app.example/meta.team", Some(json!("acme"))),
            ("realm_access.roles.literal", Some(json!(3))),
            ("a.b", Some(json!(4))),
            ("a.c", None),
            ("a.b.c", None),
            ("org_id", None),
            ("org_id.x", None),
            ("realm_access.", None),
            (".", None),
            ("", None),
        ] {
            assert_eq!(claim(claims, name), expected.as_ref(), "{name}");
        }
    }
}
