//! The models there are.
//!
//! Invariant kept here: a model is a value that was made once, with its key inside; no call looks anything up in the
//! environment, and no key comes out again in an error, a log line or a `Debug`.
//!
//! Start reading at [`scripted`] (no network at all), then [`provider`] (a call and its repetitions); `translate` turns
//! our words into the provider library's and back, `error` sorts the failures.

mod error;
pub mod provider;
pub mod scripted;
mod translate;
mod web;

pub use self::web::Web;
