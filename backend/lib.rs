//! Runreel: a durable, gap-free, SQL-queryable log of AI-agent runs that clients follow live.
//!
//! # One event, from socket to socket
//!
//! A producer posts an event. [`http`] parses it into a typed value (`http/events.rs`) and passes it to
//! [`timeline::Timeline::emit_run_event`], the one way in. The run's lane (`timeline/writer.rs`) takes everything in
//! its queue, asks [`domain::run::decide`] whether the run accepts it, assigns each event the next `seq`
//! (`timeline/plan.rs`) and has the store write the batch in one statement (`store/append.rs`). After the commit the
//! batch passes the gate (`timeline/publish.rs`) onto the [`bus`], and the producer gets its answer.
//!
//! A reader opens a stream (`http/stream.rs`). Its follower (`timeline/follow.rs`) subscribes to the bus first, then
//! pages past events from the table, then goes live; [`domain::splice`] decides every step. Frames are encoded once
//! ([`bus::Frame`]) and sent unchanged (`faces/sse.rs`).
//!
//! # Where things are
//!
//! Folders have ranks, from pure to I/O; a file uses only modules of a lower rank:
//! [`domain`] → [`store`], [`postgres`], [`bus`], [`auth`], [`artifacts`], [`client`] → [`timeline`], [`threads`] →
//! [`emitters`], [`dispatch`], [`saved`] → [`engine`] → [`agents`] → [`channels`], [`runners`], [`faces`] → [`http`]
//! → [`database`], [`app`] → [`cli`].

#![cfg_attr(test, expect(clippy::disallowed_methods, reason = "tests make the files they read"))]

pub use runreel_core::{
    artifacts, auth, bus, client, clock, config, confine, domain, postgres, quota, store, supervise, threads, throttle,
    timeline, wire,
};

pub mod agents;
pub mod app;
pub mod channels;
pub mod cli;
pub mod database;
pub mod dispatch;
pub mod emitters;
pub mod engine;
pub mod faces;
pub mod http;
pub mod indexer;
pub mod nats;
pub mod paced;
pub mod pricing;
pub mod rate;
pub mod retention;
pub mod runners;
pub mod saved;
pub mod sealer;
pub mod telemetry;
