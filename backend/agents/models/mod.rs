//! The model implementations.
//!
//! Invariant kept here: a model is a value that is built once, with its key inside; no call reads the environment, and
//! no key appears in an error, a log line or a `Debug`.
//!
//! Start reading at [`scripted`] (no network at all), then [`provider`] (a call and its retries). `frames` splits a
//! response into events, a file for each API writes requests and reads events, and `answer` and `calls` assemble the
//! result. `ids` keeps the ids and signatures of one provider from the others, `error` classifies the failures.

#[cfg(feature = "agents")]
mod answer;
#[cfg(feature = "agents")]
mod anthropic;
#[cfg(feature = "agents")]
mod calls;
#[cfg(feature = "agents")]
mod claude;
#[cfg(feature = "agents")]
mod conversation;
#[cfg(feature = "agents")]
mod error;
#[cfg(feature = "agents")]
mod frames;
#[cfg(feature = "agents")]
mod gemini;
#[cfg(feature = "agents")]
mod ids;
#[cfg(feature = "agents")]
mod ollama;
#[cfg(feature = "agents")]
mod openai;
#[cfg(feature = "agents")]
pub mod provider;
#[cfg(feature = "agents")]
mod responses;
pub mod scripted;
#[cfg(feature = "agents")]
mod web;

#[cfg(feature = "agents")]
pub use self::web::Web;
