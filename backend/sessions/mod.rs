//! Sessions: the log of each conversation as a file, saved sessions, one-time codes.
//!
//! Invariants kept here: a line of a log is whole or not there; a thread belongs to one chat.
//!
//! Start reading at [`log`], then [`saved`].

pub mod codes;
pub mod log;
pub mod saved;
