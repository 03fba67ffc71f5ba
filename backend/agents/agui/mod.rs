//! [`Proxy`]: an agent that is an AG-UI endpoint elsewhere. Its stream becomes the run's log.
//!
//! ```text
//! post → (it asks?) → ask → post → … → end
//! ```
//!
//! An endpoint keeps nothing between two requests: what it needs comes with each of them. So a run that lost its process,
//! or a stream that was cut, continues by a request with the messages that were complete. Invariants kept here: what is
//! recorded is stored first, in the journal of its step ([`post`]), and then emitted under ids that follow from its place
//! there, so nothing is recorded twice; and what was lost is in the log.
//!
//! Start reading at [`graph`], then [`post`] (a request and its stream), [`live`] (events as they come) and [`talk`] (what
//! they add up to). [`endpoint`] speaks HTTP, [`input`] makes the request.

mod ask;
mod endpoint;
mod entry;
mod input;
mod live;
mod post;
mod reading;
mod spans;
mod talk;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

pub(super) use self::endpoint::Endpoint;
use self::{
    input::Given,
    talk::{End, Talk},
};
use super::agent::Agent;
use crate::{
    domain::limits::AGUI_REQUESTS_MAX,
    emitters::{emitter::Emitter, host::HostError, identity::NullEmitter},
    engine::{Ended, Graph, Limits, Next, RunEnv, graph::InvalidGraph},
};

/// The graph's name in checkpoints.
const GRAPH: &str = "agui";

/// An agent behind an AG-UI endpoint.
pub(super) struct Proxy {
    pub(super) endpoint: Arc<Endpoint>,
}

/// What the nodes share.
struct Work {
    endpoint: Arc<Endpoint>,
    given: Given,
    /// Emits what the endpoint says. The graph's own steps are not the agent's, and are emitted by nobody.
    emitter: Arc<dyn Emitter>,
}

impl Agent for Proxy {
    fn work(self: Arc<Self>, env: RunEnv, input: Value) -> BoxFuture<'static, Result<Ended<Value>, HostError>> {
        Box::pin(async move {
            let given = match Given::of(&*env.host, input).await {
                Ok(given) => given,
                Err(error) => {
                    return Ok(Ended::Failed { node: None, code: Some("agui_input".to_owned()), error });
                }
            };
            for (span, payload) in given.told() {
                env.emitter.message(&span, &payload, None).await?;
            }
            let time_max = self.time_max();
            let limits = Limits { steps_max: AGUI_REQUESTS_MAX * 2, node_time_max: time_max };
            let work = Arc::new(Work { endpoint: Arc::clone(&self.endpoint), given, emitter: env.emitter.clone() });
            let graph = match graph(&work) {
                Ok(graph) => graph,
                Err(flaw) => return Ok(Ended::Failed { node: None, code: None, error: flaw.to_string() }),
            };
            let env = RunEnv { emitter: Arc::new(NullEmitter), ..env };
            let begin = |before: Option<Talk>| work.given.begun(before);
            let ended = env.drive(&graph, limits, begin).await?;
            Ok(match ended {
                Ended::Completed(talk) => match talk.turn.end {
                    Some(End::Finished { output }) => Ended::Completed(output),
                    Some(End::Failed { code, message }) => {
                        Ended::Failed { node: None, code: Some(code), error: message }
                    }
                    None => Ended::Completed(Value::Null),
                },
                other => other.map(|_| Value::Null),
            })
        })
    }

    fn time_max(&self) -> std::time::Duration {
        self.endpoint.time_max
    }
}

/// The graph of one run.
fn graph(work: &Arc<Work>) -> Result<Graph<Talk>, InvalidGraph> {
    let posting = Arc::clone(work);
    let asks = |talk: &Talk| if talk.turn.asked.is_empty() { Next::End } else { Next::To("ask") };
    Graph::new(GRAPH, "post")
        .node("post", move |visit| post::post(Arc::clone(&posting), visit))
        .node("ask", ask::ask)
        .choice("post", &["ask"], asks)
        .edge("ask", Next::To("post"))
        .build()
}

#[cfg(test)]
mod tests;
