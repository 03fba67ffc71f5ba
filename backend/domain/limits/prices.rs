//! Model calls and their costs.

/// Most models by which the usage of one run is broken down.
pub const MODELS_MAX: i64 = 100;
/// Most own prices in the configuration file.
pub const PRICES_MAX: usize = 1_000;
/// Highest price, US dollars per million tokens.
pub const PRICE_USD_MAX: f64 = 1_000_000.0;
/// Calls whose costs one step recomputes after a change of prices.
pub const REPRICE_ROWS: i64 = 2_000;
