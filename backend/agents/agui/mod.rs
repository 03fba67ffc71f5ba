//! [`Proxy`]: an agent behind a remote AG-UI endpoint, whose stream becomes the run's log.
//!
//! ```text
//! post → (it asks?) → ask → post → … → end
//! ```
//!
//! An endpoint keeps no state between requests: each request contains all it needs. So a run that lost its process, or
//! whose stream was cut, continues with a request that holds the complete messages. Invariants kept here: entries are
//! stored first, in the journal of their step ([`post`]), and then emitted under ids derived from their place in it, so
//! nothing is recorded twice; and what was lost is reported in the log.
//!
//! Start reading at [`graph`], then [`post`] (a request and its stream), [`live`] (reading events) and [`talk`] (the
//! conversation they add up to). [`endpoint`] is the HTTP client, [`input`] builds the requests.

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
    /// Emits the endpoint's events. The graph's own steps are not the agent's, so they are not emitted.
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
        .node("post", move |context| post::post(Arc::clone(&posting), context))
        .node("ask", ask::ask)
        .choice("post", &["ask"], asks)
        .edge("ask", Next::To("post"))
        .build()
}

#[cfg(test)]
mod tests;
