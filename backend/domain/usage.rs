//! Tokens used by model calls. The member names of all producers are known only here.

use std::{collections::BTreeMap, ops::AddAssign};

use serde_json::Value;

use super::{event::Recorded, json::JsonSlice, limits::NAME_CHARS_MAX};

/// Larger numbers are ignored.
const TOKENS_MAX: f64 = 1e11;

/// Tokens of a model call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// All input.
    pub input: u64,
    /// Input read from the provider's cache.
    pub cached: u64,
    /// Input written to the provider's cache.
    pub cache_write: u64,
    /// All output.
    pub output: u64,
    /// Output that is not part of the answer.
    pub reasoning: u64,
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.input += more.input;
        self.cached += more.cached;
        self.cache_write += more.cache_write;
        self.output += more.output;
        self.reasoning += more.reasoning;
    }
}

/// A model call, as an event reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub model: Option<String>,
    pub usage: Usage,
}

/// Totals of the model calls of one or more runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spent {
    pub calls: i64,
    pub usage: Usage,
    /// US dollars of the calls with a known price; `None` if there are none.
    pub cost_usd: Option<f64>,
    /// Whether the price of some calls is unknown.
    pub is_partial: bool,
}

/// Names for all input, in order of precedence.
const INPUT: [&str; 6] = [
    "input_tokens",
    "prompt_tokens",
    "inputTokens",
    "promptTokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.prompt_tokens",
];
const OUTPUT: [&str; 6] = [
    "output_tokens",
    "completion_tokens",
    "outputTokens",
    "completionTokens",
    "gen_ai.usage.output_tokens",
    "gen_ai.usage.completion_tokens",
];
/// Names for a part of the input.
const CACHED: [&str; 5] =
    ["cached_tokens", "cache_read_tokens", "cache_read", "cachedInputTokens", "gen_ai.usage.cache_read.input_tokens"];
const CACHE_WRITE: [&str; 4] =
    ["cache_write_tokens", "cache_creation_tokens", "cache_creation", "gen_ai.usage.cache_creation.input_tokens"];
const REASONING: [&str; 4] =
    ["reasoning_tokens", "reasoning", "reasoningTokens", "gen_ai.usage.reasoning.output_tokens"];
/// Names for tokens that the reported input does not include.
const CACHED_ON_TOP: [&str; 1] = ["cache_read_input_tokens"];
const CACHE_WRITE_ON_TOP: [&str; 1] = ["cache_creation_input_tokens"];

impl Usage {
    /// Reads the member `usage` of a payload; `None` if it has no token counts.
    pub fn of(usage: JsonSlice<'_>) -> Option<Self> {
        Self::read(&serde_json::from_str(usage.as_str()).ok()?)
    }

    /// As [`Self::of`], for a parsed value.
    pub fn read(usage: &Value) -> Option<Self> {
        let numbers = numbers(usage);
        let find = |names: &[&str]| names.iter().find_map(|name| numbers.get(*name).copied());
        let (input, output) = (find(&INPUT), find(&OUTPUT));
        let (cached, cached_on_top) = (find(&CACHED), find(&CACHED_ON_TOP));
        let (cache_write, write_on_top) = (find(&CACHE_WRITE), find(&CACHE_WRITE_ON_TOP));
        let reasoning = find(&REASONING);
        let counts = [input, output, cached, cached_on_top, cache_write, write_on_top, reasoning];
        if counts.iter().all(Option::is_none) {
            return None;
        }
        let or =
            |part: Option<u64>, on_top: Option<u64>| part.map_or((on_top.unwrap_or(0), on_top), |part| (part, None));
        let ((cached, more), (cache_write, more_written)) = (or(cached, cached_on_top), or(cache_write, write_on_top));
        let mut input = input.unwrap_or(0) + more.unwrap_or(0) + more_written.unwrap_or(0);
        // A part cannot exceed the whole: this producer reports them separately.
        if cached + cache_write > input {
            input += cached + cache_write;
        }
        let reasoning = reasoning.unwrap_or(0);
        let output = output.unwrap_or(0).max(reasoning);
        Some(Self { input, cached, cache_write, output, reasoning })
    }
}

/// The token counts in an object and in the objects directly inside it, whose names have lower precedence.
fn numbers(usage: &Value) -> BTreeMap<&str, u64> {
    let Some(members) = usage.as_object() else { return BTreeMap::new() };
    let number = |value: &Value| value.as_f64().filter(|number| (0.0..=TOKENS_MAX).contains(number)).map(whole);
    let inner = members.values().filter_map(Value::as_object).flatten();
    let all = inner.chain(members).filter_map(|(name, value)| Some((name.as_str(), number(value)?)));
    all.collect()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is within the bound of tokens")]
fn whole(number: f64) -> u64 {
    number as u64
}

impl Call {
    /// The call that an event reports: the end of anything but a run or a worker, with a `usage`.
    pub fn of(event: &Recorded) -> Option<Self> {
        let event_type = &event.event_type;
        let is_end = [".completed", ".failed"].iter().any(|end| event_type.as_str().ends_with(end));
        if !is_end || matches!(event_type.family(), "run" | "worker") || !event.payload.as_str().contains("\"usage\"") {
            return None;
        }
        let members = event.payload.members();
        let usage = Usage::of(members.slice("usage")?)?;
        let model = members.read::<String>("model").filter(|model| !model.is_empty());
        Some(Self { model: model.map(|model| model.chars().take(NAME_CHARS_MAX).collect()), usage })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn usage(input: u64, cached: u64, cache_write: u64, output: u64, reasoning: u64) -> Usage {
        Usage { input, cached, cache_write, output, reasoning }
    }

    #[test]
    fn tokens_are_read_in_each_producers_words() {
        for (payload, expected) in [
            // This program, and the Python package for LangGraph and Pydantic AI.
            (
                json!({ "input_tokens": 30, "cached_tokens": 20, "output_tokens": 9, "reasoning_tokens": 4 }),
                Some(usage(30, 20, 0, 9, 4)),
            ),
            (
                json!({ "input_tokens": 30, "cache_read_tokens": 20, "cache_creation_tokens": 5, "total_tokens": 39 }),
                Some(usage(30, 20, 5, 0, 0)),
            ),
            (
                json!({ "input_tokens": 3, "cache_read_tokens": 1, "cache_read_input_tokens": 1 }),
                Some(usage(3, 1, 0, 0, 0)),
            ),
            // OpenAI and Anthropic, as in their APIs.
            (
                json!({ "prompt_tokens": 30, "prompt_tokens_details": { "cached_tokens": 20 }, "completion_tokens": 9,
                        "completion_tokens_details": { "reasoning_tokens": 4 } }),
                Some(usage(30, 20, 0, 9, 4)),
            ),
            (
                json!({ "input_tokens": 10, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 5, "output_tokens": 9 }),
                Some(usage(35, 20, 5, 9, 0)),
            ),
            // OpenTelemetry, and the AI SDK.
            (json!({ "gen_ai.usage.input_tokens": 30, "gen_ai.usage.output_tokens": 9 }), Some(usage(30, 0, 0, 9, 0))),
            (json!({ "inputTokens": 30, "cachedInputTokens": 20, "outputTokens": 9 }), Some(usage(30, 20, 0, 9, 0))),
            // Parts that are not included in the whole.
            (
                json!({ "input_tokens": 10, "cached_tokens": 20, "output_tokens": 1, "reasoning_tokens": 4 }),
                Some(usage(30, 20, 0, 4, 4)),
            ),
            (json!({ "input_tokens": 3.0, "output_tokens": -1 }), Some(usage(3, 0, 0, 0, 0))),
            (json!({ "input_tokens": 1e300 }), None),
            (json!({ "requests": 3 }), None),
            (json!([1]), None),
        ] {
            assert_eq!(Usage::read(&payload), expected, "{payload}");
        }
    }
}
