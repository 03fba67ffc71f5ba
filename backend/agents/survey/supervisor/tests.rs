use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;

use super::*;
use crate::{
    agents::{
        spawner::{SpawnError, Spawner},
        survey::source::{Limits, Source},
    },
    clock::monotonic,
    domain::{
        context::Role,
        event::{NewEvent, Recorded},
        run::{Status, decide},
    },
    emitters::{
        sink::{Sink, SinkError},
        testing::{Recording, context, run_id},
    },
};

/// Makes worker contexts from run 2 on; refuses the one that is named.
#[derive(Default)]
struct Local {
    spawned: AtomicU32,
    refuses: Option<u32>,
}

impl Spawner for Local {
    fn spawn<'a>(&'a self, _: &'a RunContext, child: Child) -> BoxFuture<'a, Result<RunContext, SpawnError>> {
        let n = self.spawned.fetch_add(1, Ordering::SeqCst) + 2;
        let refused = self.refuses == Some(n);
        let made = context(n, Role::Worker, child.agent.as_str());
        Box::pin(async move { if refused { Err(SpawnError("no room".to_owned())) } else { Ok(made) } })
    }
}

/// Takes everything but the events of one run.
struct Deaf {
    kept: Arc<Recording>,
    to: RunId,
}

impl Sink for Deaf {
    fn emit<'a>(&'a self, context: &'a RunContext, events: Vec<NewEvent>) -> BoxFuture<'a, Result<(), SinkError>> {
        if context.run_id == self.to {
            return Box::pin(async { Err(SinkError::new("the run has ended (cancelled)")) });
        }
        self.kept.emit(context, events)
    }
}

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let body = "// note\nfn long(x: u8) {\n    one(x);\n    two(x);\n    three(x);\n    four(x);\n    five(x);\n}\n";
    for (path, text) in
        [("a/one.rs", body), ("b/two.rs", body), ("c/three.py", "def f():\n    pass\n"), ("top.md", "# Top\n")]
    {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

fn survey(dir: &tempfile::TempDir, sink: Arc<dyn Sink>, spawner: Local) -> Survey {
    Survey {
        source: Arc::new(Source::open(dir.path(), Limits::default()).unwrap()),
        sink,
        spawner: Arc::new(spawner),
        stopwatch: monotonic(),
        pace: Duration::ZERO,
        event_id_prefix: "test".to_owned(),
    }
}

/// Every run's own log is a life the server would take, and its streamed text is the text it keeps.
fn assert_lives(events: &[Recorded], runs: u32) {
    for n in 1..=runs {
        let of_run: Vec<&Recorded> = events.iter().filter(|event| event.run_id == run_id(n)).collect();
        let durable = of_run.iter().filter(|event| !event.event_type.is_ephemeral());
        let end = decide(Status::Running, durable.clone().map(|event| &event.event_type));
        assert_eq!(end, Ok(Status::Completed), "run {n}");
        let streamed: String = of_run.iter().filter_map(|event| event.payload.member::<String>("text")).collect();
        let kept = durable.clone().find(|event| event.event_type.as_str() == "message.completed").unwrap();
        let content: Vec<serde_json::Value> = kept.payload.member("content").unwrap();
        assert_eq!(content[0]["text"], streamed);
        assert!(of_run.iter().all(|event| event.role == if n == 1 { Role::Supervisor } else { Role::Worker }));
    }
}

#[tokio::test]
async fn a_survey_is_one_supervisor_that_waits_for_its_workers_and_writes_down_what_they_found() {
    let (dir, sink) = (tree(), Arc::new(Recording::default()));
    let (survey, lead) = (survey(&dir, sink.clone(), Local::default()), context(1, Role::Supervisor, "lead"));
    let findings = supervise(&survey, &lead).await.unwrap();
    assert_eq!((findings.parts.len(), findings.total.files, findings.functions.count), (3, 4, 3));
    assert_eq!((findings.duplicates.copied_files, findings.missing.len()), (1, 0));
    assert_eq!(
        sink.types(run_id(1)),
        [
            "step.started",
            "tool.started",
            "tool.completed",
            "log.info",
            "step.completed",
            "step.started",
            "worker.spawned",
            "worker.spawned",
            "worker.spawned",
            "step.completed",
            "run.waiting",
            "worker.completed",
            "worker.completed",
            "worker.completed",
            "run.resumed",
            "step.started",
            "tool.started",
            "tool.completed",
            "step.completed",
            "step.started",
            "message.completed",
            "custom.table",
            "step.completed",
            "run.completed",
        ]
    );
    let ends =
        sink.types(run_id(2)).into_iter().filter(|event| matches!(event.as_str(), "step.completed" | "tool.completed"));
    assert_eq!(ends.count() as u64, worker::WORKER_MILESTONES);
    assert_lives(&sink.events(), 4);
}

#[tokio::test]
async fn a_worker_that_fails_costs_its_part_and_the_summary_says_so() {
    let (dir, kept) = (tree(), Arc::new(Recording::default()));
    let sink = Arc::new(Deaf { kept: kept.clone(), to: run_id(3) });
    let spawner = Local { refuses: Some(4), ..Local::default() };
    let findings = supervise(&survey(&dir, sink, spawner), &context(1, Role::Supervisor, "lead")).await.unwrap();
    assert_eq!((findings.parts.len(), findings.missing.len()), (1, 2));
    let types = kept.types(run_id(1));
    assert_eq!(types.iter().filter(|event| *event == "worker.failed").count(), 1);
    assert_eq!(types.last().unwrap(), "run.completed");
    let events = kept.events();
    let said =
        events.iter().find(|event| event.event_type.as_str() == "message.completed" && event.run_id == run_id(1));
    let said = said.unwrap().payload.to_string();
    assert!(said.contains("(cancelled)") && said.contains("no room"), "{said}");
}

#[tokio::test]
async fn a_survey_without_any_part_fails_and_one_of_an_empty_tree_does_not() {
    let (dir, kept) = (tree(), Arc::new(Recording::refusing("tool.started")));
    let lead = context(1, Role::Supervisor, "lead");
    let lost = supervise(&survey(&dir, kept, Local::default()), &lead).await;
    assert!(matches!(lost, Err(SurveyError::Log(_))));
    let (empty, kept) = (tempfile::tempdir().unwrap(), Arc::new(Recording::default()));
    let findings = supervise(&survey(&empty, kept.clone(), Local::default()), &lead).await.unwrap();
    assert_eq!(findings.total.files, 0);
    assert!(!kept.types(run_id(1)).contains(&"run.waiting".to_owned()));
    assert_eq!(kept.types(run_id(1)).last().unwrap(), "run.completed");
}
