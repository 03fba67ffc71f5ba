//! Bodies of requests and responses: one type each for the routes, the client and the commands.
//!
//! Routes refuse unknown members; readers of responses ignore them, since the server may be newer.

pub mod events;
pub mod frames;
pub mod health;
pub mod messages;
pub mod runs;
pub mod saved_sessions;
mod stored;
pub mod threads;
pub mod verification;
