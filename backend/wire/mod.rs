//! The bodies of requests and answers: what the routes read and write, and what the client and the commands write and
//! read, is one type.
//!
//! A route refuses members that it does not know; a reader of an answer ignores them, for the server may be newer.

pub mod events;
pub mod frames;
pub mod health;
pub mod messages;
pub mod runs;
pub mod saved_sessions;
pub mod threads;
pub mod verification;
