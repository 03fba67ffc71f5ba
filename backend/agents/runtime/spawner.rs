//! [`LocalSpawner`]: worker runs, straight into this process's timeline.

use std::str::FromStr as _;

use futures::future::BoxFuture;

use crate::{
    agents::spawner::{Child, SpawnError, Spawner},
    clock::IdSource,
    domain::{
        context::{Role, RunContext},
        id::{RunId, Title},
        json::Json,
        run::Spec,
    },
    timeline::Timeline,
};

/// Creates runs below a run of this process's. The same child asked for again is the same run.
#[derive(Clone, Debug)]
pub struct LocalSpawner {
    timeline: Timeline,
    ids: IdSource,
}

impl LocalSpawner {
    pub fn new(timeline: Timeline) -> Self {
        Self { ids: timeline.ids().clone(), timeline }
    }
}

impl Spawner for LocalSpawner {
    fn spawn<'a>(&'a self, parent: &'a RunContext, child: Child) -> BoxFuture<'a, Result<RunContext, SpawnError>> {
        Box::pin(async move {
            let run_id = child.run_id.unwrap_or_else(|| RunId::trusted(self.ids.uuid()));
            let context = RunContext {
                run_id,
                root_run_id: parent.root_run_id,
                parent_run_id: Some(parent.run_id),
                owner_id: parent.owner_id.clone(),
                thread_id: child.thread_id.or_else(|| parent.thread_id.clone()),
                session_id: parent.session_id.clone(),
                role: Role::Worker,
                agent: Some(child.agent),
                origin: parent.origin.clone(),
                trace_id: parent.trace_id.clone(),
            };
            let spec = Spec {
                context: context.clone(),
                title: Title::from_str(&child.title).ok(),
                input: Some(Json::of(&child.input)),
                metadata: Json::empty(),
                tags: Vec::new(),
                lease_ms: None,
                start: child.start,
            };
            let hash = spec.content_hash();
            let opened = self.timeline.open_run(spec, hash).await;
            opened.map_err(|error| SpawnError { is_passing: error.is_passing(), reason: error.to_string() })?;
            Ok(context)
        })
    }
}
