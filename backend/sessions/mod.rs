//! Sessions: the log of each conversation as a file, saved sessions, one-time codes, and what a router does step by step.
//!
//! Invariants kept here: a line of a log is whole or not there; a thread belongs to one chat; what a step does is done
//! once, however often the step is carried out.
//!
//! Start reading at [`steps`], then [`log`] and [`saved`].

pub mod codes;
pub mod log;
pub mod saved;
pub mod steps;
