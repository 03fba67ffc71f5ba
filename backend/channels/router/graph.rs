//! The router's graph: what is known of a message on its way, and where it goes next.
//!
//! ```text
//! identity → (has to give a code?) → code → identity
//!          → reset → trigger → empty → session → format → log → start → end
//! ```
//!
//! A message that goes no further (its user is refused, it asks for a new session, it says nothing …) ends at that node,
//! and the state says why.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    nodes::{self, Work},
    outcome::Outcome,
};
use crate::{
    domain::session::Reason,
    engine::{Graph, Next, State, Stop, Visit, graph::Flaw},
    sessions::steps::Identity,
    store::sessions::Settled,
};

/// The agent name of the router's runs, and the name of the graph.
pub(super) const ROUTER: &str = "router";

/// What is known of a message so far. The message itself lies in the inbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Passage {
    /// Who the user is to the channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// What was said to the agent, without the trigger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled: Option<Settled>,
    /// The agent's input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// Once the message is through, or goes no further.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The place in the inbox of the message that waited for the code which this one was.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_no: Option<i64>,
}

/// What a node found out.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Found {
    /// Nothing that stands in the message's way.
    Nothing,
    User(Identity),
    Text(String),
    Session(Settled),
    Input(Value),
    /// It was a code, and a good one; this message waited for it.
    Code {
        held_no: Option<i64>,
    },
    /// It goes no further.
    Ends(Outcome),
}

impl Found {
    pub(super) fn filtered(reason: Reason) -> Self {
        Self::Ends(Outcome::Filtered { reason })
    }
}

impl State for Passage {
    type Update = Found;

    fn apply(&mut self, found: Found) {
        match found {
            Found::Nothing => {}
            Found::User(identity) => self.identity = Some(identity),
            Found::Text(text) => self.text = Some(text),
            Found::Session(settled) => self.settled = Some(settled),
            Found::Input(input) => self.input = Some(input),
            Found::Code { held_no } => {
                self.held_no = held_no;
                self.outcome = Some(Outcome::Filtered { reason: Reason::CodeAccepted });
            }
            Found::Ends(outcome) => self.outcome = Some(outcome),
        }
    }
}

/// The graph of one message.
pub(super) fn graph(work: &Arc<Work>) -> Result<Graph<Passage>, Flaw> {
    let known = |passage: &Passage| match (&passage.outcome, passage.identity) {
        (Some(_), _) => Next::End,
        (None, Some(Identity::Unproven { .. })) => Next::To("code"),
        (None, _) => Next::To("reset"),
    };
    Graph::new(ROUTER, "identity")
        .node("identity", at(work, nodes::identity))
        .choice("identity", &["code", "reset"], known)
        .node("code", at(work, nodes::code))
        // Whoever answered the question: it is the channel that knows the user, and it is asked again.
        .choice("code", &["identity"], unless_over("identity"))
        .node("reset", at(work, nodes::reset))
        .choice("reset", &["trigger"], unless_over("trigger"))
        .node("trigger", at(work, nodes::trigger))
        .choice("trigger", &["empty"], unless_over("empty"))
        .node("empty", at(work, nodes::empty))
        .choice("empty", &["session"], unless_over("session"))
        .node("session", at(work, nodes::session))
        .edge("session", Next::To("format"))
        .node("format", at(work, nodes::format))
        .edge("format", Next::To("log"))
        .node("log", at(work, nodes::log))
        .edge("log", Next::To("start"))
        .node("start", at(work, nodes::start))
        .edge("start", Next::End)
        .build()
}

/// A node that works on this message.
fn at<F>(
    work: &Arc<Work>,
    node: fn(Arc<Work>, Visit<Passage>) -> F,
) -> impl Fn(Visit<Passage>) -> F + Send + Sync + 'static
where
    F: Future<Output = Result<Found, Stop>> + Send + 'static,
{
    let work = Arc::clone(work);
    move |visit| node(Arc::clone(&work), visit)
}

fn unless_over(next: &'static str) -> impl Fn(&Passage) -> Next {
    move |passage| if passage.outcome.is_some() { Next::End } else { Next::To(next) }
}
