//! A graph of ten nodes: a line, a choice that loops, a fork of three and a join, a node that memoizes two values, and
//! a node with an external effect.

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::Arc,
};

use futures::future::BoxFuture;
use runreel::{
    domain::id::SpanId,
    engine::{Graph, Next, NodeContext, State, Stop, graph::InvalidGraph},
};
use serde::{Deserialize, Serialize};

use super::child::Places;

/// Steps from the first node to the last.
pub(crate) const STEPS: u32 = 12;

/// The graph's state. Each member shows the order of the visits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trail {
    seen: Vec<String>,
    total: u64,
    /// What the memoizing node memoized.
    remembered: Vec<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Mark {
    node: String,
    points: u64,
    remembered: Vec<u64>,
}

impl State for Trail {
    type Update = Mark;

    fn apply(&mut self, mark: Mark) {
        self.seen.push(mark.node);
        self.total = (self.total * 31 + mark.points) % 1_000_000_007;
        self.remembered.extend(mark.remembered);
    }
}

/// Where nodes record what they do: a line per visit and per computation, in a file that outlives the process.
#[derive(Debug)]
pub(crate) struct Desk {
    ledger: File,
    attempt: u32,
    places: Arc<Places>,
}

impl Desk {
    pub(crate) fn open(ledger: &Path, attempt: u32, places: Arc<Places>) -> std::io::Result<Self> {
        Ok(Self { ledger: OpenOptions::new().create(true).append(true).open(ledger)?, attempt, places })
    }

    /// One line, one write: it is in the file whole or not at all, and stays there when the process is killed.
    async fn note(&self, span: &SpanId, what: &str) -> Result<(), Stop> {
        let line = format!("{} {span} {what}\n", self.attempt);
        (&self.ledger).write_all(line.as_bytes()).map_err(Stop::failed)?;
        self.places.at(&format!("at {span} {what}")).await;
        Ok(())
    }

    /// A value that is computed, and the line that records it.
    async fn compute(&self, span: &SpanId, key: &str, value: u64) -> Result<u64, Stop> {
        self.note(span, key).await?;
        Ok(value)
    }
}

type Work = Box<dyn Fn(NodeContext<Trail>) -> BoxFuture<'static, Result<Mark, Stop>> + Send + Sync>;

fn mark(desk: &Arc<Desk>, node: &'static str) -> Work {
    let desk = Arc::clone(desk);
    Box::new(move |visit| {
        let desk = Arc::clone(&desk);
        Box::pin(async move {
            desk.note(&visit.span, "visit").await?;
            Ok(Mark { node: node.to_owned(), points: visit.state.total + 1, remembered: Vec::new() })
        })
    })
}

/// A node that memoizes one value after the other; the later ones are computed from the earlier.
fn remembering(desk: &Arc<Desk>, node: &'static str, keys: &'static [&'static str]) -> Work {
    let desk = Arc::clone(desk);
    Box::new(move |visit| {
        let desk = Arc::clone(&desk);
        Box::pin(async move {
            desk.note(&visit.span, "visit").await?;
            let (mut remembered, mut value) = (Vec::new(), visit.state.total);
            for key in keys {
                value = visit.once(key, || desk.compute(&visit.span, key, value % 1_000 + 7)).await?;
                remembered.push(value);
            }
            Ok(Mark { node: node.to_owned(), points: value, remembered })
        })
    })
}

/// Creates the graph. `i` is the node with the external effect: the line `charge` of the ledger.
pub(crate) fn ten(desk: &Arc<Desk>) -> Result<Graph<Trail>, InvalidGraph> {
    let again = |trail: &Trail| if trail.seen.len() < 6 { Next::To("b") } else { Next::To("d") };
    let mut graph = Graph::new("ten", "a");
    for node in ["a", "b", "c", "d", "e", "f", "g", "j"] {
        graph = graph.node(node, mark(desk, node));
    }
    graph
        .node("h", remembering(desk, "h", &["first", "second"]))
        .node("i", remembering(desk, "i", &["charge"]))
        .edge("a", Next::To("b"))
        .edge("b", Next::To("c"))
        .choice("c", &["b", "d"], again)
        .edge("d", Next::All(vec!["e", "f", "g"]))
        .edge("e", Next::To("h"))
        .edge("f", Next::To("h"))
        .edge("g", Next::To("h"))
        .edge("h", Next::To("i"))
        .edge("i", Next::To("j"))
        .edge("j", Next::End)
        .build()
}
