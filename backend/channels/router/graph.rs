//! The router's graph: *identify* (who wrote), *resolve* (to which session), *start* (the agent's run).
//!
//! A message that is filtered ends at the node that determined why. On an open channel no sender is identified: the
//! graph begins with *resolve*.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    ROUTER, RoutedMessage,
    nodes::{identify, resolve, start},
    outcome::Outcome,
};
use crate::{
    engine::{Graph, Next, NodeContext, State, Stop, graph::InvalidGraph},
    store::sessions::MessageSession,
};

/// What is known about a message so far. The message itself is in the inbox.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct RouteState {
    /// Whether its user may use the channel.
    pub identified: bool,
    /// Its session, and the agent's input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Resolved>,
    /// Set once it is accepted or goes no further.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
}

/// The session of a message, and what the agent receives.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Resolved {
    pub session: MessageSession,
    /// The message's text without the trigger.
    pub text: String,
    /// The agent's input.
    pub input: Value,
}

impl RouteState {
    pub(super) fn ends(outcome: Outcome) -> Self {
        Self { outcome: Some(outcome), ..Self::default() }
    }
}

impl State for RouteState {
    type Update = Self;

    fn apply(&mut self, update: Self) {
        *self = update;
    }
}

/// The graph of one message.
pub(super) fn graph(routing: &RoutedMessage) -> Result<Graph<RouteState>, InvalidGraph> {
    let identified = |state: &RouteState| match state {
        RouteState { outcome: Some(_), .. } => Next::End,
        RouteState { identified: true, .. } => Next::To("resolve"),
        // Its question was answered, but the user is not verified yet.
        RouteState { .. } => Next::To("identify"),
    };
    let resolved = |state: &RouteState| if state.outcome.is_some() { Next::End } else { Next::To("start") };
    Graph::new(ROUTER, if routing.message.config.is_open() { "resolve" } else { "identify" })
        .node("identify", of(routing, identify))
        .choice("identify", &["identify", "resolve"], identified)
        .node("resolve", of(routing, resolve))
        .choice("resolve", &["start"], resolved)
        .node("start", of(routing, start))
        .edge("start", Next::End)
        .build()
}

/// Makes a node that works on this message.
fn of<F>(
    routing: &RoutedMessage,
    node: fn(RoutedMessage, NodeContext<RouteState>) -> F,
) -> impl Fn(NodeContext<RouteState>) -> F + Send + Sync + 'static
where
    F: Future<Output = Result<RouteState, Stop>> + Send + 'static,
{
    let routing = routing.clone();
    move |context| node(routing.clone(), context)
}
