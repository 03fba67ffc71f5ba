//! The worker: it surveys one part of the tree and writes a note about it.
//!
//! ```text
//! list → measure → write
//! ```

use std::sync::Arc;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    findings::{Counted, PartReport},
    kit::{Kit, read},
    parts::Part,
    report,
};
use crate::{
    agents::agent::{Agent, Desk},
    emitters::emitter::Level,
    engine::{Ended, Graph, Limits, Next, State, Stop, Visit, drive::DriveError, graph::Flaw},
};

/// Steps and tool calls of a worker that finishes: what a progress bar counts to.
pub const MILESTONES: u64 = 8;

/// The agent.
pub(super) struct Surveyor(pub Arc<Kit>);

/// One part, and what was counted in it once it was.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Surveyed {
    part: Part,
    counted: Option<Counted>,
}

impl State for Surveyed {
    type Update = Option<Counted>;

    fn apply(&mut self, counted: Option<Counted>) {
        self.counted = counted.or(self.counted.take());
    }
}

impl Agent for Surveyor {
    fn work(self: Arc<Self>, desk: Desk, limits: Limits) -> BoxFuture<'static, Result<Ended<Value>, DriveError>> {
        Box::pin(async move {
            let part = self.0.check(&desk.input).and_then(|()| {
                let part = desk.input["part"].clone();
                serde_json::from_value::<Part>(part).map_err(|error| format!("the input names no part: {error}"))
            });
            let begun = part.and_then(|part| Ok((part, graph(&self.0).map_err(|flaw| flaw.to_string())?)));
            let (part, graph) = match begun {
                Ok(begun) => begun,
                Err(error) => return Ok(Ended::Failed { node: None, error }),
            };
            let ended = desk.drive(&graph, limits, |_| Surveyed { part, counted: None }).await?;
            // What the supervisor adds up.
            Ok(ended.map(|Surveyed { counted, .. }| json!(counted)))
        })
    }
}

fn graph(kit: &Arc<Kit>) -> Result<Graph<Surveyed>, Flaw> {
    let (listing, measuring, writing) = (Arc::clone(kit), Arc::clone(kit), Arc::clone(kit));
    Graph::new("surveyor", "list")
        .node("list", move |visit| list(Arc::clone(&listing), visit))
        .node("measure", move |visit| measure(Arc::clone(&measuring), visit))
        .node("write", move |visit| write(Arc::clone(&writing), visit))
        .edge("list", Next::To("measure"))
        .edge("measure", Next::To("write"))
        .edge("write", Next::End)
        .build()
}

async fn list(kit: Arc<Kit>, visit: Visit<Surveyed>) -> Result<Option<Counted>, Stop> {
    kit.call(&visit, &["walk_tree"], &visit.state.part.scopes).await?;
    Ok(None)
}

async fn measure(kit: Arc<Kit>, visit: Visit<Surveyed>) -> Result<Option<Counted>, Stop> {
    let tools = ["measure_files", "find_long_functions", "find_todos", "find_duplicates"];
    let mut answers = kit.call(&visit, &tools, &visit.state.part.scopes).await?.into_iter();
    let counted = Counted {
        measured: read(tools[0], answers.next())?,
        functions: read(tools[1], answers.next())?,
        markers: read(tools[2], answers.next())?,
        duplicates: read(tools[3], answers.next())?,
    };
    let unreadable = counted.measured.skipped.unreadable;
    if unreadable > 0 {
        let (span, text) = (visit.sub_span("unreadable"), format!("{unreadable} files could not be read"));
        visit.emitter.log_in(&span, Level::Warn, &text).await?;
    }
    Ok(Some(counted.within_bounds()))
}

async fn write(kit: Arc<Kit>, visit: Visit<Surveyed>) -> Result<Option<Counted>, Stop> {
    let Surveyed { part, counted } = (*visit.state).clone();
    let report = PartReport { part, counted: counted.unwrap_or_default() };
    kit.say(&visit, &report::note(&report)).await?;
    Ok(None)
}
