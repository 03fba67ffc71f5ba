//! The log, its readers, and the modules they depend on. The crate `runreel` re-exports these modules and documents how
//! they fit together.

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        clippy::float_cmp,
        reason = "tests make the files they read and the numbers they compare"
    )
)]

pub mod artifacts;
pub mod auth;
pub mod bus;
pub mod client;
pub mod clock;
pub mod config;
pub mod confine;
pub mod domain;
pub mod postgres;
pub mod quota;
pub mod store;
pub mod supervise;
pub mod threads;
pub mod throttle;
pub mod timeline;
pub mod wire;
