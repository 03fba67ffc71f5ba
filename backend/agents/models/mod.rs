//! The model implementations.
//!
//! Invariant kept here: a model is a value that is built once, with its key inside; no call reads the environment, and
//! no key appears in an error, a log line or a `Debug`.
//!
//! Start reading at [`scripted`] (no network at all), then [`provider`] (a call and its retries); `translate` converts
//! to the provider library's types and back, `error` classifies the failures.

mod error;
pub mod provider;
pub mod scripted;
mod translate;
mod web;

pub use self::web::Web;
