//! The vocabulary: runs, events, cursors, principals.
//!
//! Everything here is a value or a decision about values. There is no async, no SQL, no HTTP, no clock and no
//! randomness in this folder, so every rule of the product can be tested as a function.
//!
//! Invariant: a value of these types is valid. Strings are parsed into [`id::RunId`], [`event::EventType`] or
//! [`cursor`] at the boundary and are never checked again.
//!
//! Start reading at [`event`], then [`run`] (what may happen to a run) and [`splice`] (how a reader sees it).

pub mod artifact;
pub mod cell;
pub mod chain;
pub mod checkpoint;
pub mod context;
pub mod cursor;
pub mod event;
pub mod export;
pub mod failure;
pub mod history;
pub mod id;
pub mod id_prefix;
pub mod index;
pub mod interrupt;
pub mod job;
pub mod json;
pub mod json_patch;
pub mod lenient;
pub mod limits;
pub mod meaning;
pub mod misread;
pub mod open;
pub mod pace;
pub mod price;
pub mod principal;
pub mod query;
pub mod readable;
pub mod retention;
pub mod run;
pub mod runner;
pub mod search;
pub mod segments;
pub mod session;
pub mod span;
pub mod splice;
pub mod title;
pub mod trace;
pub mod transcript;
pub mod usage;
pub mod words;
