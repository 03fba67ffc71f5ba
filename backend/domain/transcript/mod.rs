//! A conversation as people keep it: the file of a saved session, and what a thread's state or log makes of one.
//!
//! Invariants kept here: nothing that a checkpoint holds is ever carried out, its messages are read as data and the
//! rest goes by as bytes ([`plain`]); whatever a reader may put into a file is either usable or refused with its line
//! ([`mod@file`]); and each refused name is told the one rule it broke ([`name`]).
//!
//! Start reading at [`mod@file`] (what is kept), then [`full`] (from a checkpoint and back), and [`fallback`] and
//! [`summary`] (where a checkpoint says nothing).

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

/// The version that the metadata of a saved thread names. Files of others are read all the same.
pub const VERSION: &str = "1.0";
