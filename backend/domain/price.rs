//! Costs of model calls: prices bundled with the program (crate `genai-prices`), and the operator's own.
//!
//! Invariant: an unknown price is `None`, never 0.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Mutex, PoisonError},
};

use chrono::{DateTime, Utc};
use genai_prices::{Calculator, PriceRequest, UsageKey};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::usage::Usage;

/// The version of the bundled prices; a test compares it with the linked crate.
const BUNDLED: &str = "genai-prices 0.2.1";
/// Tokens per unit of price.
const MILLION: f64 = 1e6;
/// Costs are rounded to one in this many parts of a dollar.
const PARTS: f64 = 1e12;
/// Most models whose place is cached.
const REMEMBERED_MAX: usize = 1_000;

/// The price of a model, US dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    pub input: f64,
    pub output: f64,
    /// For input read from the provider's cache; `None`: as for other input.
    pub cached: Option<f64>,
    /// For input written to the provider's cache; `None`: as for other input.
    pub cache_write: Option<f64>,
}

/// All prices.
#[derive(Debug, Default)]
pub struct Prices {
    /// By model name.
    own: BTreeMap<String, Price>,
    /// A model's place in the bundled prices, by its name in a payload; `None` if they do not have it.
    known: Mutex<HashMap<String, Option<Place>>>,
}

/// A model in the bundled prices: its provider, if the name states it, and its name there.
#[derive(Clone, Debug)]
struct Place {
    provider: Option<String>,
    model: String,
}

impl Prices {
    /// The bundled prices and `own`, which take precedence.
    pub fn with(own: BTreeMap<String, Price>) -> Self {
        Self { own, known: Mutex::default() }
    }

    /// Identifies this set of prices.
    pub fn fingerprint(&self) -> String {
        let own = serde_json::to_string(&self.own).unwrap_or_default();
        hex::encode(Sha256::digest(format!("{BUNDLED}\n{own}")))
    }

    /// The cost of a call at this time, US dollars.
    pub fn cost(&self, model: Option<&str>, usage: &Usage, at: DateTime<Utc>) -> Option<f64> {
        let model = model?;
        let cost = match self.own.get(model) {
            Some(price) => price.of(usage),
            None => self.bundled(model, usage, at)?,
        };
        cost.is_finite().then(|| (cost * PARTS).round() / PARTS)
    }

    fn bundled(&self, model: &str, usage: &Usage, at: DateTime<Utc>) -> Option<f64> {
        let usage = genai_prices::Usage::from([
            (UsageKey::INPUT_TOKENS, tokens(usage.input)),
            (UsageKey::CACHE_READ_TOKENS, tokens(usage.cached)),
            (UsageKey::CACHE_WRITE_TOKENS, tokens(usage.cache_write)),
            (UsageKey::OUTPUT_TOKENS, tokens(usage.output)),
        ]);
        // Some models are listed without prices, as part of a subscription.
        self.place(model)?.cost(&usage, at).filter(|cost| *cost > 0.0)
    }

    /// A model's place in the bundled prices. The lookup takes longer than computing a cost, so it is cached.
    fn place(&self, model: &str) -> Option<Place> {
        if let Some(place) = self.known.lock().unwrap_or_else(PoisonError::into_inner).get(model) {
            return place.clone();
        }
        let one = genai_prices::Usage::from([(UsageKey::INPUT_TOKENS, 1.0)]);
        let place = places(model).into_iter().find(|place| place.cost(&one, DateTime::UNIX_EPOCH).is_some());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= REMEMBERED_MAX {
            known.clear();
        }
        known.insert(model.to_owned(), place.clone());
        place
    }
}

/// Possible places of a model: `anthropic/claude-sonnet-4-5` and `anthropic:claude-sonnet-4-5` name their provider.
fn places(model: &str) -> Vec<Place> {
    let named = model
        .split_once(['/', ':'])
        .map(|(provider, name)| Place { provider: Some(provider.to_owned()), model: name.to_owned() });
    named.into_iter().chain([Place { provider: None, model: model.to_owned() }]).collect()
}

impl Place {
    fn cost(&self, usage: &genai_prices::Usage, at: DateTime<Utc>) -> Option<f64> {
        let request = PriceRequest::new(&self.model, usage).with_timestamp(at);
        let request = match &self.provider {
            Some(provider) => request.with_provider_id(provider),
            None => request,
        };
        Calculator::bundled().calculate(&request).ok().map(|price| price.total_price)
    }
}

impl Price {
    fn of(&self, usage: &Usage) -> f64 {
        let plain = usage.input.saturating_sub(usage.cached + usage.cache_write);
        let input = tokens(plain) * self.input
            + tokens(usage.cached) * self.cached.unwrap_or(self.input)
            + tokens(usage.cache_write) * self.cache_write.unwrap_or(self.input);
        (input + tokens(usage.output) * self.output) / MILLION
    }
}

fn tokens(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at() -> DateTime<Utc> {
        DateTime::parse_from_rfc3339("2026-10-20T00:00:00Z").unwrap().to_utc()
    }

    const USAGE: Usage =
        Usage { input: 1_000_000, cached: 200_000, cache_write: 100_000, output: 10_000, reasoning: 0 };

    #[test]
    fn own_prices_count_first_and_may_be_nothing() {
        let price = Price { input: 2.0, output: 10.0, cached: Some(0.5), cache_write: None };
        let free = Price { input: 0.0, output: 0.0, cached: None, cache_write: None };
        let own = [("gpt-4o".to_owned(), price), ("at-home".to_owned(), free)];
        let prices = Prices::with(own.into());
        // 0.7 × 2 + 0.2 × 0.5 + 0.1 × 2 + 0.01 × 10
        assert_eq!(prices.cost(Some("gpt-4o"), &USAGE, at()), Some(1.8));
        assert_eq!(prices.cost(Some("at-home"), &USAGE, at()), Some(0.0));
        assert_ne!(prices.fingerprint(), Prices::default().fingerprint());
    }

    #[test]
    fn a_price_that_nobody_knows_is_none() {
        let prices = Prices::default();
        for model in [None, Some("no-such-model"), Some("script"), Some("echo"), Some("a/b:c"), Some("")] {
            assert_eq!(prices.cost(model, &USAGE, at()), None, "{model:?}");
        }
    }

    #[test]
    fn models_are_found_by_the_names_that_producers_have_for_them() {
        let prices = Prices::default();
        let usage = Usage { input: 1_000, output: 500, ..Usage::default() };
        // 1 000 × $2.50 + 500 × $10 per million.
        for model in ["gpt-4o", "gpt-4o-2024-11-20", "openai/gpt-4o", "openai:gpt-4o"] {
            assert_eq!(prices.cost(Some(model), &usage, at()), Some(0.0075), "{model}");
        }
        // 1 000 × $3 + 500 × $15 per million.
        for model in ["claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4-5"] {
            assert_eq!(prices.cost(Some(model), &usage, at()), Some(0.0105), "{model}");
        }
    }

    #[test]
    fn the_bundled_prices_are_those_of_the_fingerprint() {
        let lock = include_str!("../../Cargo.lock").replace("\"\nversion = \"", " ");
        assert!(lock.contains(&format!("name = \"{BUNDLED}\"")), "change BUNDLED: prices are computed anew then");
    }
}
