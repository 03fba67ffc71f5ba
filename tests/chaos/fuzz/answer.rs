//! What came of one input.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::ensure;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode, percent_encode};
use reqwest::Response;
use serde_json::Value;
use tokio::time::Instant;

/// Longest time to an answer.
const ANSWER_MAX: Duration = Duration::from_secs(1);

/// How long answers take.
#[derive(Default)]
pub(super) struct Waits {
    longest_ms: AtomicU64,
}

impl Waits {
    /// One answer, which must be there in time.
    pub(super) async fn timed<T>(&self, work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        let began = Instant::now();
        let done = work.await?;
        let took = began.elapsed();
        self.longest_ms.fetch_max(took.as_millis().try_into()?, Ordering::Relaxed);
        ensure!(took <= ANSWER_MAX, "answered after {} ms", took.as_millis());
        Ok(done)
    }

    /// The longest since this was asked last, milliseconds.
    pub(super) fn longest_ms(&self) -> u64 {
        self.longest_ms.swap(0, Ordering::Relaxed)
    }
}

pub(super) struct Answer {
    pub word: String,
    pub is_accepted: bool,
    pub violation: Option<String>,
    /// The beginning of what was sent, for whoever looks for the reason.
    pub input: String,
}

/// An answer that must be a success or a refusal with a code.
pub(super) async fn judged(answer: Response, input: &[u8], violation: Option<String>) -> anyhow::Result<Answer> {
    let (status, bytes) = (answer.status(), answer.bytes().await?);
    let code = || serde_json::from_slice::<Value>(&bytes).ok()?["code"].as_str().map(str::to_owned);
    let (mut word, mut violation) = (status.as_u16().to_string(), violation);
    if !status.is_success() {
        match code() {
            Some(code) if status.is_client_error() => word = format!("{word} {code}"),
            _ => violation = Some(format!("{status} {}", shown(&bytes))),
        }
    }
    Ok(Answer { word, is_accepted: status.is_success(), violation, input: shown(input) })
}

/// JSON without the white space outside its strings.
pub(super) fn without_space(json: &str) -> String {
    let (mut is_in_string, mut is_escaped) = (false, false);
    let is_kept = |letter: &char| {
        let is_quote = *letter == '"' && !is_escaped;
        is_escaped = is_in_string && *letter == '\\' && !is_escaped;
        is_in_string ^= is_quote;
        is_in_string || !letter.is_ascii_whitespace()
    };
    json.chars().filter(is_kept).collect()
}

pub(super) fn leading_number(text: &str) -> Option<u64> {
    text.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

pub(super) fn escaped(bytes: &[u8]) -> String {
    let text = percent_encode(bytes, NON_ALPHANUMERIC).to_string();
    debug_assert!(percent_decode(text.as_bytes()).eq(bytes.iter().copied()), "it is read as it was written");
    text
}

pub(super) fn shown(bytes: &[u8]) -> String {
    bytes.escape_ascii().to_string().chars().take(400).collect()
}
