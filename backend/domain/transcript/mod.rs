//! A conversation as a file for people: a saved session, made from a thread's state or log.
//!
//! Invariants: nothing in a checkpoint is ever executed: its messages are read as data and the rest is kept as bytes
//! ([`plain`]); whatever a reader may put into a file is either usable or refused with its line ([`mod@file`]); and
//! each refused name comes with the one rule it broke ([`name`]).
//!
//! Start reading at [`mod@file`] (what is kept), then [`full`] (from a checkpoint and back), and [`fallback`] and
//! [`summary`] (where a checkpoint has nothing readable).

pub mod fallback;
pub mod file;
pub mod full;
pub mod message;
pub mod name;
pub mod plain;
pub mod summary;

pub use self::{
    file::{SavedSession, SavedThread, Unreadable},
    name::SavedName,
};

/// The version in the metadata of a saved thread. Files of other versions are read too.
pub const VERSION: &str = "1.0";
