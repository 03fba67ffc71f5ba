//! Runreel.
pub mod domain;
