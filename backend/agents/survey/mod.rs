//! A job to watch: a supervisor and its workers survey a source tree, side by side, and write down what they measured.
//!
//! No model takes part and none is imitated. The agents' plan is a program, their tools measure, and their messages
//! are sentences from a template with the measured numbers in them, streamed at the pace of a reader.
//!
//! Invariant kept here: a number that is shown was counted in this run. What a bound or an error kept from being
//! counted is told beside it.
//!
//! Functions of text and numbers are apart from everything that reads, waits or emits: [`lexer`], [`count`],
//! [`functions`], [`markers`], [`duplicates`], [`parts`] and [`report`] are pure; [`source`] reads files; the rest
//! acts. Start reading at [`supervisor`].

mod actor;
pub mod count;
pub mod duplicates;
pub mod findings;
pub mod functions;
mod header;
pub mod language;
pub mod lexer;
pub mod markers;
pub mod parts;
pub mod report;
pub mod scope;
pub mod source;
pub mod supervisor;
pub mod tools;
pub mod worker;

pub use actor::{Survey, SurveyError};
