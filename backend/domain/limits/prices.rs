//! Calls of models, and what they cost.

/// Most models that the usage of one run is told by.
pub const MODELS_MAX: i64 = 100;
/// Most own prices in the configuration file.
pub const PRICES_MAX: usize = 1_000;
/// Highest price, US dollars for a million tokens.
pub const PRICE_USD_MAX: f64 = 1_000_000.0;
/// Calls whose costs one step computes anew after a change of prices.
pub const REPRICE_ROWS: i64 = 2_000;
