//! Inputs that users of this kind of software reported as bugs, and what is right for each.
//!
//! One file for each kind of fault, named after it; longer inputs lie in the folder of the same name, minimised. The
//! tests are part of the integration tests and use their `support`. CONTRIBUTING.md says how to add one.

mod conversation_ids;
mod cut_off;
#[cfg(feature = "agents")]
mod endpoints;
mod environment;
mod errors;
mod forged;
mod formulas;
mod heavy_queries;
mod index_turns;
#[cfg(feature = "agents")]
mod model_calls;
mod opened_and_closed;
mod preflight;
mod questions;
mod repeated_ids;
mod resuming;
mod same_words;
mod telegram;
mod tokens_of_providers;
#[cfg(feature = "agents")]
mod tool_servers;
mod what_commands_say;
