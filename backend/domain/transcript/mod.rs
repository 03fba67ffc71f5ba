//! Saved sessions: a conversation as a file for people, made from a thread's state or log.
//!
//! Invariants: nothing in a checkpoint is ever executed: its messages are read as data and the rest is kept as bytes
//! ([`plain`]); content of an edited file is either usable or refused with its line ([`mod@file`]); a refused name
//! comes with the rule it broke ([`name`]).
//!
//! Start reading at [`mod@file`] (the file), then [`full`] (from a checkpoint and back), and [`fallback`] and
//! [`summary`] (for checkpoints that cannot be read).

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
