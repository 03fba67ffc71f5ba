//! The integration tests: real Postgres, real sockets. A test is a principal of its own on the server that all share, or has
//! a server and a database of its own where it looks at what others would change.
//!
//! `support/` owns everything that talks to the server, so that a change of the API is a change in one place. The
//! tests themselves say what must hold. Nothing sleeps and nothing is tried twice: a test waits on a condition, with a
//! bound. Set `RUNREEL_TEST_DATABASE_URL` to use a Postgres of yours; otherwise one is kept under the target folder.
#![expect(clippy::unwrap_used, reason = "a test that meets what it did not expect has failed")]
#![expect(
    clippy::disallowed_methods,
    clippy::large_futures,
    reason = "the bans are the program's; tests own their world"
)]
#![expect(unreachable_pub, reason = "nothing is outside of a test binary")]

mod admission;
mod agents;
mod aging;
mod agui;
#[cfg(feature = "agents")]
mod agui_proxy;
mod ai_sdk;
mod any_log;
mod artifacts;
mod auth;
mod backup;
mod bounds;
mod bounds_table;
mod chain;
mod channels;
mod chat;
mod checkpoints;
mod cli;
mod compressed;
mod confined;
mod corpus;
mod cors;
mod credentials;
mod deletion;
#[cfg(feature = "demo")]
mod demo;
mod dispatch;
mod docker;
mod embedded;
mod emit;
mod event_types;
mod executors;
mod export;
mod external_ids;
mod fairness;
#[cfg(not(all(feature = "agents", feature = "demo", feature = "s3")))]
mod features;
mod feeds;
mod first_contact;
mod frames;
mod guide;
mod index;
mod interrupts;
mod isolation;
mod lists;
mod live;
mod many_streams;
#[cfg(feature = "agents")]
mod mcp;
#[path = "../met/mod.rs"]
mod met;
#[cfg(feature = "agents")]
mod models;
mod nginx;
mod oidc;
mod openapi;
mod pages;
mod plans;
mod poolers;
mod processes;
mod providers;
mod queries;
mod read_tokens;
mod readme;
mod refusals;
mod replica;
mod responses;
mod retention;
mod runners;
mod runs;
#[cfg(feature = "agents")]
mod saved;
mod search;
mod secrets;
mod server_info;
mod set_back;
mod sql;
mod stalled;
mod stream;
mod support;
mod threads;
mod tidy;
mod times;
mod tls;
mod tokens;
mod tools;
mod unhealthy;
mod upgrade;
mod usage;
mod views;
