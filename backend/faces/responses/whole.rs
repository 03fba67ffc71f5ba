//! A response as one JSON object: as it is now, or when the run has ended or waits for a person.

use bytes::{BufMut as _, BytesMut};
use serde_json::Value;

use super::Responses;
use crate::{
    domain::{meaning::What, run::Status},
    faces::{
        conversation::{Dialect, Event, Part},
        position::Position,
    },
};

/// When the response is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    Now,
    /// When the run has ended or waits for a person, or the server shuts down.
    Settled,
}

/// Sends a response once, and is then over.
#[derive(Debug)]
pub struct Whole {
    response: Responses,
    when: When,
    is_settled: bool,
    is_over: bool,
}

impl Whole {
    pub fn new(response: Responses, when: When) -> Self {
        Self { response, when, is_settled: false, is_over: false }
    }
}

impl Dialect for Whole {
    type Said = Value;

    fn say(&mut self, part: &Part<'_>, out: &mut Vec<Value>) {
        self.response.say(part, &mut Vec::new());
        match part {
            Part::Event(event) => match event.what {
                What::RunPaused(Status::Interrupted) => self.is_settled = true,
                What::RunResumed => self.is_settled = false,
                _ => self.is_settled |= event.frame.terminal.is_some(),
            },
            Part::SentAway { .. } | Part::Ended(_) => self.is_settled = true,
            _ => {}
        }
        let has_ended = matches!(part, Part::SentAway { .. } | Part::Ended(_));
        let is_due = has_ended || (self.response.is_caught_up && (self.when == When::Now || self.is_settled));
        if is_due && !self.is_over {
            self.is_over = true;
            out.push(self.response.response());
        }
    }

    fn ends_with(&self, event: &Event<'_>) -> bool {
        self.response.ends_with(event)
    }

    fn write(&mut self, chunk: &mut BytesMut, response: Value, _: Option<&Position>) {
        chunk.put_slice(response.to_string().as_bytes());
    }

    fn is_over(&self) -> bool {
        self.is_over
    }
}
