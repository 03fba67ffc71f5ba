//! A job to watch: a supervisor and its workers survey a source tree, side by side, and write down what they measured.
//!
//! No model takes part and none is imitated. The agents' plan is a program, their tools measure, and their messages
//! are sentences from a template with the measured numbers in them, streamed at the pace of a reader.
//!
//! Both agents are graphs, so a survey goes on where it was when its process or its server is killed. Invariants kept
//! here: a number that is shown was counted in this run; what a bound or an error kept from being counted is told
//! beside it; and a process reads no folder but the one it was started for.
//!
//! Functions of text and numbers are apart from everything that reads, waits or emits: [`lexer`], [`count`],
//! [`functions`], [`markers`], [`duplicates`], [`parts`] and [`report`] are pure; [`source`] reads files; the rest
//! acts. Start reading at `lead`, then `surveyor`.

pub mod count;
pub mod duplicates;
pub mod findings;
pub mod functions;
mod header;
mod kit;
pub mod language;
mod lead;
pub mod lexer;
pub mod markers;
pub mod parts;
pub mod report;
pub mod scope;
pub mod source;
mod surveyor;
pub mod tools;

use std::{str::FromStr as _, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use serde_json::json;

pub use self::surveyor::MILESTONES;
use self::{kit::Kit, source::Source};
use super::{
    agent::{Agent, Hired, Roster},
    spawner::{Child, Spawner},
};
use crate::{
    clock::Stopwatch,
    domain::{context::RunContext, id::Name},
    engine::Limits,
};

/// Who divides the tree and puts the findings together.
const LEAD: &str = "survey-lead";
/// Who surveys a part of it.
const SURVEYOR: &str = "surveyor";
/// Longest time of one run at work.
const RUN_TIME_MAX: Duration = Duration::from_mins(30);
/// Characters kept of a run's title; folder names may be long.
const TITLE_CHARS: usize = 120;

/// The two agents, for surveys of one folder.
pub struct Survey {
    kit: Arc<Kit>,
}

impl Survey {
    /// `pace` is the time between two words of a message; zero sends them as fast as they are taken.
    pub fn new(source: Source, spawner: Arc<dyn Spawner>, stopwatch: Stopwatch, pace: Duration) -> Self {
        let source = Arc::new(source);
        let tools = tools::toolbox(&source);
        Self { kit: Arc::new(Kit { source, tools, spawner, stopwatch, pace }) }
    }

    pub fn agents() -> Vec<Name> {
        vec![name(LEAD), name(SURVEYOR)]
    }

    /// The run to create for a survey; it waits for whoever serves these agents.
    pub fn run(source: &Source) -> Child {
        Child {
            run_id: None,
            thread_id: None,
            start: false,
            agent: name(LEAD),
            title: title(&format!("Survey of {}", source.name())),
            input: json!({"folder": source.name(), "tree": source.key()}),
        }
    }
}

impl Roster for Survey {
    fn names(&self) -> Vec<Name> {
        Self::agents()
    }

    fn resolve<'a>(&'a self, agent: &'a Name, _: &'a RunContext) -> BoxFuture<'a, Result<Hired, String>> {
        let kit = Arc::clone(&self.kit);
        let agent: Result<Arc<dyn Agent>, String> = match agent.as_str() {
            LEAD => Ok(Arc::new(lead::Lead(kit))),
            SURVEYOR => Ok(Arc::new(surveyor::Surveyor(kit))),
            other => Err(format!("no survey has an agent {other}")),
        };
        let hired = agent.map(|agent| Hired { agent, limits: Limits::default(), time_max: RUN_TIME_MAX });
        Box::pin(std::future::ready(hired))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }
}

fn name(agent: &str) -> Name {
    Name::from_str(agent).expect("agent names written in the code are well-formed")
}

fn title(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(TITLE_CHARS).collect()
}

#[cfg(test)]
mod tests;
