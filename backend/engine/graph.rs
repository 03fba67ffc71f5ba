//! [`Graph`]: the nodes and the edges between them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use futures::future::BoxFuture;

use super::{NodeContext, State, Stop};

/// What follows a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// The graph ends here, unless another node of the same step continues.
    End,
    To(&'static str),
    /// Several nodes, run concurrently.
    All(Vec<&'static str>),
}

impl Next {
    fn nodes(&self) -> &[&'static str] {
        match self {
            Self::End => &[],
            Self::To(node) => std::slice::from_ref(node),
            Self::All(nodes) => nodes,
        }
    }
}

pub(super) type Work<S> =
    Arc<dyn Fn(NodeContext<S>) -> BoxFuture<'static, Result<<S as State>::Update, Stop>> + Send + Sync>;
type Choice<S> = Arc<dyn Fn(&S) -> Next + Send + Sync>;

enum Edge<S> {
    Always(Next),
    /// Decided from the state after the step; may only name these.
    Choice(Vec<&'static str>, Choice<S>),
}

/// Why a graph is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidGraph {
    #[error("two nodes are named {0}")]
    Twice(&'static str),
    #[error("{from} leads to {to}, which does not exist")]
    Nowhere { from: &'static str, to: &'static str },
    #[error("no edge leaves {0}; a node that ends the graph says so")]
    Loose(&'static str),
    #[error("a node's name is 1 to 64 characters of a-z, 0-9, _ and -, not {0}")]
    Name(&'static str),
}

/// Named nodes and the edges between them. Built once, shared by every run.
pub struct Graph<S: State> {
    name: &'static str,
    entry: &'static str,
    nodes: BTreeMap<&'static str, Work<S>>,
    edges: BTreeMap<&'static str, Edge<S>>,
    flaw: Option<InvalidGraph>,
}

impl<S: State> Graph<S> {
    /// A graph that begins with the node `entry`.
    pub fn new(name: &'static str, entry: &'static str) -> Self {
        Self { name, entry, nodes: BTreeMap::new(), edges: BTreeMap::new(), flaw: None }
    }

    /// Adds a node. It may run more than once for one step (after a crash), so what must happen once belongs in
    /// [`NodeContext::once`].
    #[must_use]
    pub fn node<F>(mut self, name: &'static str, work: impl Fn(NodeContext<S>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<S::Update, Stop>> + Send + 'static,
    {
        let work: Work<S> = Arc::new(move |context| Box::pin(work(context)));
        let well_named = (1..=64).contains(&name.len())
            && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-'));
        if !well_named {
            self.flaw = self.flaw.or(Some(InvalidGraph::Name(name)));
        } else if self.nodes.insert(name, work).is_some() {
            self.flaw = self.flaw.or(Some(InvalidGraph::Twice(name)));
        }
        self
    }

    /// Adds an unconditional edge.
    #[must_use]
    pub fn edge(mut self, from: &'static str, next: Next) -> Self {
        self.edges.insert(from, Edge::Always(next));
        self
    }

    /// Adds a conditional edge, decided from the state after the step; `choose` may name only `among`.
    #[must_use]
    pub fn choice(
        mut self,
        from: &'static str,
        among: &[&'static str],
        choose: impl Fn(&S) -> Next + Send + Sync + 'static,
    ) -> Self {
        self.edges.insert(from, Edge::Choice(among.to_vec(), Arc::new(choose)));
        self
    }

    /// Checks that every edge leads to a node and every node has an edge.
    pub fn build(self) -> Result<Self, InvalidGraph> {
        if let Some(flaw) = self.flaw {
            return Err(flaw);
        }
        let missing = |node: &&'static str| !self.nodes.contains_key(*node);
        if missing(&self.entry) {
            return Err(InvalidGraph::Nowhere { from: self.name, to: self.entry });
        }
        for (from, edge) in &self.edges {
            let targets = match edge {
                Edge::Always(next) => next.nodes(),
                Edge::Choice(among, _) => among,
            };
            if let Some(to) = std::iter::once(from).chain(targets).find(|node| missing(node)) {
                return Err(InvalidGraph::Nowhere { from, to });
            }
        }
        match self.nodes.keys().find(|node| !self.edges.contains_key(*node)) {
            Some(loose) => Err(InvalidGraph::Loose(loose)),
            None => Ok(self),
        }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn entry(&self) -> &'static str {
        self.entry
    }

    pub(super) fn work(&self, node: &str) -> Option<(&'static str, Work<S>)> {
        self.nodes.get_key_value(node).map(|(name, work)| (*name, Arc::clone(work)))
    }

    /// The nodes that follow these, sorted by name, without duplicates.
    pub(super) fn after(&self, done: &[String], state: &S) -> Result<Vec<String>, String> {
        let mut next = std::collections::BTreeSet::new();
        for node in done {
            match self.edges.get(node.as_str()) {
                Some(Edge::Always(always)) => next.extend(always.nodes().iter().copied()),
                Some(Edge::Choice(among, choose)) => {
                    let chosen = choose(state);
                    if let Some(odd) = chosen.nodes().iter().find(|node| !among.contains(node)) {
                        return Err(format!("{node} chose {odd}, which is not among its choices"));
                    }
                    next.extend(chosen.nodes().iter().copied());
                }
                None => return Err(format!("this graph has no node {node}")),
            }
        }
        Ok(next.into_iter().map(str::to_owned).collect())
    }
}

impl<S: State> fmt::Debug for Graph<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph").field("name", &self.name).field("nodes", &self.nodes.keys()).finish_non_exhaustive()
    }
}
