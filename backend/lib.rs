//! Runreel: a durable, gap-free, SQL-queryable log of AI-agent runs, followed live.
//!
//! # One event, from socket to socket
//!
//! A producer posts an event. [`http`] reads it into a typed value (`http/events.rs`) and hands it to
//! [`timeline::Timeline::emit_run_event`], the one way in. The run's lane (`timeline/writer.rs`) takes everything that
//! waits, lets [`domain::run::decide`] say whether the run takes it, gives each event the next `seq`
//! (`timeline/plan.rs`) and has the store write the batch in one statement (`store/append.rs`). After the commit the
//! batch passes the gate (`timeline/publish.rs`) onto the [`bus`], and the producer gets its answer.
//!
//! A reader opens a stream (`http/stream.rs`). Its follower (`timeline/follow.rs`) subscribes to the bus first, then
//! pages the past from the table, then goes live; [`domain::splice`] decides every step. Frames are encoded once
//! ([`bus::Frame`]) and go out as they are (`faces/sse.rs`).
//!
//! # Where things are
//!
//! Folders are ranks, from pure to worldly; a file names only modules of a lower rank:
//! [`domain`] → [`store`], [`postgres`], [`bus`], [`auth`], [`artifacts`], [`client`] → [`timeline`], [`threads`] →
//! [`emitters`], [`dispatch`], [`saved`] → [`engine`] → [`agents`] → [`channels`], [`runners`], [`faces`] → [`http`]
//! → [`database`], [`app`] → [`cli`].

#![cfg_attr(
    test,
    expect(
        clippy::disallowed_methods,
        clippy::float_cmp,
        reason = "tests make the files they read and the numbers they compare"
    )
)]

pub mod agents;
pub mod app;
pub mod artifacts;
pub mod auth;
pub mod bus;
pub mod channels;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod confine;
pub mod database;
pub mod dispatch;
pub mod domain;
pub mod emitters;
pub mod engine;
pub mod faces;
pub mod http;
pub mod postgres;
pub mod quota;
pub mod rate;
pub mod runners;
pub mod saved;
pub mod store;
pub mod supervise;
pub mod telemetry;
pub mod threads;
pub mod timeline;
