//! The second reading of a verified file: classifies its lines and checks that the file is still the same.
//!
//! The hashes cover everything that was checked the first time, so events are not parsed again, only hashed.

use super::{Chain, Line, LineError, Total, read_line};
use crate::domain::id::RunId;

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    Header,
    Run(RunId),
    Event,
    End,
    Total,
}

/// Reads a file line by line for the second time.
#[derive(Debug)]
pub struct Skim {
    /// The result of the first reading.
    total: Total,
    ends: Option<Chain>,
    run: Option<Chain>,
    is_over: bool,
}

impl Skim {
    pub fn of(total: Total) -> Self {
        Self { total, ends: None, run: None, is_over: false }
    }

    /// Reads the next line, without its line break.
    pub fn line(&mut self, line: &str) -> Result<LineKind, LineError> {
        if line.starts_with("{\"event\":{") {
            self.run.as_mut().ok_or_else(changed)?.add(line);
            return Ok(LineKind::Event);
        }
        match (read_line(line)?, &mut self.ends) {
            (Line::Header(_), ends @ None) => {
                *ends = Some(Chain::of(line));
                Ok(LineKind::Header)
            }
            (Line::Run(subject), Some(_)) if self.run.is_none() => {
                self.run = Some(Chain::of(line));
                Ok(LineKind::Run(subject.run_id))
            }
            (Line::End(end), Some(ends)) if self.run.take().is_some_and(|run| run.hash() == end.sha256) => {
                ends.add(line);
                Ok(LineKind::End)
            }
            (Line::Total(total), Some(ends)) if total == self.total && ends.hash() == total.sha256 => {
                self.is_over = true;
                Ok(LineKind::Total)
            }
            _ => Err(changed()),
        }
    }

    /// Checks that the file was complete and unchanged.
    pub fn finish(self) -> Result<(), LineError> {
        if self.is_over { Ok(()) } else { Err(changed()) }
    }
}

fn changed() -> LineError {
    LineError::say("the file changed after it was verified")
}
