//! What acts inside a run: emitters that speak for it, tools it calls, and the surveyors of the demo.
//!
//! Invariant kept here: whoever acts says for whom. A [`RunContext`](crate::domain::context::RunContext) is an
//! argument of every entry point, and an emitter carries the one it was built with; nothing is looked up in a
//! task-local, a static or the payload. So two runs that work side by side in one process cannot be confused.
//!
//! Events leave through a [`sink::Sink`], which is the in-process timeline or the HTTP client; code here cannot tell
//! which. Time, ids and randomness are passed in.
//!
//! Start reading at [`emitter`] (how a run speaks), then [`tools`] and [`step`] (how it acts), then [`survey`] (a
//! whole supervisor with its workers).

pub mod emitter;
pub mod identity;
pub mod schema;
pub mod sink;
pub mod step;
pub mod survey;
pub mod tools;

#[cfg(test)]
mod testing;
