//! Agents, and the models and tools they use.
//!
//! Invariant kept here: identity is an argument. A [`RunContext`](crate::domain::context::RunContext) and an
//! [`Emitter`](crate::emitters::emitter::Emitter) are passed to every entry point, and so are time, ids and randomness.
//!
//! Start reading at [`agent`] and [`execution`], then [`tools`] and [`step`] (how an agent acts), then [`assistant`].

pub mod agent;
#[cfg(feature = "agents")]
mod agui;
pub mod assistant;
pub mod builtin;
pub mod exclusive;
pub mod execution;
#[cfg(feature = "agents")]
pub mod mcp;
pub mod model;
pub mod models;
mod offload;
#[cfg(feature = "agents")]
mod outside;
#[cfg(not(feature = "agents"))]
#[path = "outside_absent.rs"]
mod outside;
pub mod registry;
pub mod runtime;
mod schema;
pub mod step;
pub mod tools;
pub mod workers;
