//! The model implementations.
//!
//! Invariant kept here: a model is a value that is built once, with its key inside; no call reads the environment, and
//! no key appears in an error, a log line or a `Debug`.
//!
//! Start reading at [`scripted`] (no network at all), then [`provider`] (a call and its retries); `translate` converts
//! to the provider library's types and back, `error` classifies the failures.

#[cfg(feature = "agents")]
mod error;
#[cfg(feature = "agents")]
pub mod provider;
pub mod scripted;
#[cfg(feature = "agents")]
mod translate;
#[cfg(feature = "agents")]
mod web;

#[cfg(feature = "agents")]
pub use self::web::Web;
