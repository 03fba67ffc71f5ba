//! A posted message. Members are parsed one by one, so that an error names the invalid one.

use std::str::FromStr;

use chrono::{DateTime, Datelike as _, Utc};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    domain::{
        id::Malformed,
        session::inbound::{Image, Inbound, InvalidImage, check_text},
    },
    http::problem::{Code, Problem},
};

/// A message of a channel.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PostMessage {
    /// The channel's id of the delivery; the same id again in the same chat is the same message. 1–128 characters.
    #[schema(value_type = Option<String>)]
    message_id: Option<Value>,
    /// 1–128 characters without control characters, or a whole number; so is `user_id`.
    #[schema(value_type = String, required = true)]
    chat_id: Option<Value>,
    #[schema(value_type = String, required = true)]
    user_id: Option<Value>,
    /// The thread it is said on: the chat's session goes on if it is there, else it ends and another begins there.
    #[schema(value_type = Option<String>)]
    thread_id: Option<Value>,
    /// The user's display name; the id when absent.
    #[schema(value_type = Option<String>)]
    username: Option<Value>,
    /// At most 32 KiB as JSON.
    #[schema(value_type = Option<String>)]
    text: Option<Value>,
    /// `false` in a group, where the channel's trigger counts. Default `true`.
    #[schema(value_type = Option<bool>)]
    is_private: Option<Value>,
    /// Ends the session and does nothing else with the message. Default `false`.
    #[schema(value_type = Option<bool>)]
    reset_session: Option<Value>,
    /// PNG, JPEG, GIF or WebP of at most 5 MiB, in base64 or as a data URI.
    #[schema(value_type = Option<String>)]
    image_base64: Option<Value>,
    /// Must match the bytes. Required if the type cannot be detected from them.
    #[schema(value_type = Option<String>)]
    image_media_type: Option<Value>,
    /// When it was sent, RFC 3339 or a Unix time in seconds; now when absent.
    #[schema(value_type = Option<String>)]
    ts: Option<Value>,
}

type Member = (&'static str, Option<Value>);

impl PostMessage {
    pub(super) fn into_inbound(self, now: DateTime<Utc>) -> Result<Inbound, Problem> {
        let text = text(("text", self.text))?;
        if let Some(text) = &text {
            let code = if text.contains('\0') { Code::InvalidRequest } else { Code::TooLarge };
            check_text(text).map_err(|rule| Problem::new(code, rule.0).field("text"))?;
        }
        let (base64, media_type) =
            (text_of(("image_base64", self.image_base64))?, text_of(("image_media_type", self.image_media_type))?);
        let image =
            base64.map(|base64| Image::new(&base64, media_type.as_deref()).map_err(image_problem)).transpose()?;
        let thread = self::text(("thread_id", self.thread_id))?;
        let username = text_of(("username", self.username))?;
        let (at, at_digits) = time(self.ts)?.unwrap_or((now, 0));
        Ok(Inbound {
            message_id: id(("message_id", self.message_id))?,
            chat_id: needed(("chat_id", self.chat_id))?,
            thread_id: thread.map(|thread| thread.parse().map_err(|rule| malformed(rule, "thread_id"))).transpose()?,
            user_id: needed(("user_id", self.user_id))?,
            username: username.map(|name| name.parse().map_err(|rule| malformed(rule, "username"))).transpose()?,
            text,
            is_private: truth(("is_private", self.is_private))?.unwrap_or(true),
            reset_session: truth(("reset_session", self.reset_session))?.unwrap_or(false),
            addressed: false,
            image,
            more_images: Vec::new(),
            at,
            at_digits,
            trace_id: None,
        })
    }
}

fn invalid(rule: impl Into<String>, field: &str) -> Problem {
    Problem::new(Code::InvalidRequest, rule).field(field)
}

fn malformed(rule: Malformed, field: &str) -> Problem {
    Problem::from(rule).field(field)
}

fn text((name, value): Member) -> Result<Option<String>, Problem> {
    match value {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(invalid(format!("{name} must be a string"), name)),
    }
}

/// Like [`text`]; an empty one counts as absent.
fn text_of(member: Member) -> Result<Option<String>, Problem> {
    Ok(text(member)?.filter(|text| !text.is_empty()))
}

fn truth((name, value): Member) -> Result<Option<bool>, Problem> {
    match value {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(value)),
        Some(_) => Err(invalid(format!("{name} must be true or false"), name)),
    }
}

/// An id sent as a string or as an integer.
fn id<T: FromStr<Err = Malformed>>((name, value): Member) -> Result<Option<T>, Problem> {
    let text = match value {
        None => return Ok(None),
        Some(Value::String(text)) => text,
        Some(Value::Number(number)) if !number.is_f64() => number.to_string(),
        Some(_) => return Err(invalid(format!("{name} must be a string or a whole number"), name)),
    };
    text.parse().map(Some).map_err(|rule| malformed(rule, name))
}

fn needed<T: FromStr<Err = Malformed>>(member: Member) -> Result<T, Problem> {
    let name = member.0;
    id(member)?.ok_or_else(|| invalid(format!("{name} is missing; it is a string or a whole number"), name))
}

/// When the message was sent, and how many digits the fraction of its second had.
fn time(value: Option<Value>) -> Result<Option<(DateTime<Utc>, u8)>, Problem> {
    const RULE: &str = "ts must be an RFC 3339 time such as 2026-11-22T05:13:58Z, or a Unix time in seconds";
    let (at, digits) = match value {
        None => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) => {
            let at = DateTime::parse_from_rfc3339(&text).map_err(|_| invalid(RULE, "ts"))?;
            (Some(at.to_utc()), digits_of(&text))
        }
        Some(Value::Number(number)) => (unix_time(&number), digits_of(number.to_string().trim_end_matches('0')).min(6)),
        Some(_) => return Err(invalid(RULE, "ts")),
    };
    let within = at.filter(|at| (1970..=9999).contains(&at.year()));
    let within = within.ok_or_else(|| invalid("ts must be a time between the years 1970 and 9999", "ts"))?;
    Ok(Some((within, digits)))
}

/// To the microsecond: a number is not more precise.
fn unix_time(seconds: &serde_json::Number) -> Option<DateTime<Utc>> {
    if let Some(seconds) = seconds.as_i64() {
        return DateTime::from_timestamp(seconds, 0);
    }
    let micros = seconds.as_f64().map(|seconds| (seconds * 1e6).round()).filter(|micros| micros.abs() < 1e18)?;
    #[expect(clippy::cast_possible_truncation, reason = "it is whole and within the bound")]
    DateTime::from_timestamp_micros(micros as i64)
}

/// Digits of the fraction of a second, at most nine.
fn digits_of(time: &str) -> u8 {
    let fraction = time.split_once('.').map_or("", |(_, fraction)| fraction);
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).take(9).count();
    u8::try_from(digits).unwrap_or(9)
}

fn image_problem(flaw: InvalidImage) -> Problem {
    let (code, field) = match flaw {
        InvalidImage::TooLarge => (Code::TooLarge, "image_base64"),
        InvalidImage::Encoding => (Code::InvalidRequest, "image_base64"),
        InvalidImage::Kind => (Code::UnsupportedMediaType, "image_base64"),
        InvalidImage::MediaType => (Code::UnsupportedMediaType, "image_media_type"),
    };
    Problem::new(code, flaw.to_string()).field(field)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(ts: Value) -> Option<(String, u8)> {
        let ts = serde_json::from_value(ts).unwrap();
        time(ts).unwrap_or_else(|problem| panic!("{problem:?}")).map(|(at, digits)| (at.to_rfc3339(), digits))
    }

    #[test]
    fn a_time_is_a_text_or_a_number_of_seconds() {
        let at = |text: &str, digits: u8| Some((format!("2026-11-22T05:13:58{text}+00:00"), digits));
        assert_eq!(parsed(json!("2026-11-22T05:13:58Z")), at("", 0));
        assert_eq!(parsed(json!("2026-11-22T06:13:58.5+01:00")), at(".500", 1));
        assert_eq!(parsed(json!("2026-11-22T05:13:58.123456789Z")), at(".123456789", 9));
        assert_eq!(parsed(json!(1_795_324_438)), at("", 0));
        assert_eq!(parsed(json!(1_795_324_438.0)), at("", 0));
        assert_eq!(parsed(json!(1_795_324_438.25)), at(".250", 2));
        assert_eq!(parsed(json!(1_795_324_438.123_456)), at(".123456", 6));
        assert_eq!((parsed(json!("")), parsed(Value::Null)), (None, None));
        for wrong in
            [json!("yesterday"), json!("1795324438"), json!("2026-11-22"), json!(true), json!(-1), json!(1e300)]
        {
            assert!(time(Some(wrong.clone())).is_err(), "{wrong}");
        }
        assert!(time(Some(json!(1_795_324_438_000_i64))).is_err(), "milliseconds");
    }
}
