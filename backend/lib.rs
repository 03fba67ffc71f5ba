//! Runreel.
pub mod bus;
pub mod clock;
pub mod domain;
pub mod postgres;
pub mod store;
pub mod timeline;
