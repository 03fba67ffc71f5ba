use std::{
    collections::BTreeMap,
    fs,
    str::FromStr as _,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{source::Limits as Bounds, *};
use crate::{
    agents::{agent::Desk, spawner::SpawnError},
    clock::{Clock, IdSource, monotonic},
    domain::{
        context::Role,
        id::{RunId, ThreadId},
        run::Status,
    },
    emitters::{
        emitter::Emitter,
        identity::{SupervisorEmitter, WorkerEmitter},
        testing::context,
    },
    engine::{
        Ended,
        drive::DriveError,
        testing::{Log, Thread, World},
        visit::{ChildEnd, Facts},
    },
};

/// Remembers what it was asked for; refuses the worker of one title.
#[derive(Default)]
struct Local {
    asked: Mutex<BTreeMap<RunId, Child>>,
    refuses: Option<&'static str>,
}

impl Spawner for Local {
    fn spawn<'a>(&'a self, _: &'a RunContext, child: Child) -> BoxFuture<'a, Result<RunContext, SpawnError>> {
        if self.refuses == Some(child.title.as_str()) {
            return Box::pin(async { Err(SpawnError::refused("no room")) });
        }
        let run_id = child.run_id.unwrap();
        let made = RunContext { run_id, ..context(2, Role::Worker, child.agent.as_str()) };
        if let Some(before) = self.asked.lock().unwrap().insert(run_id, child.clone()) {
            assert_eq!(before, child, "the same run is asked for again");
        }
        Box::pin(async move { Ok(made) })
    }
}

static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

/// A process that surveys one folder.
struct Process {
    survey: Survey,
    spawner: Arc<Local>,
    cancel: CancellationToken,
}

impl Process {
    fn of(dir: &tempfile::TempDir, refuses: Option<&'static str>) -> Self {
        let spawner = Arc::new(Local { refuses, ..Local::default() });
        let survey = Survey::new(source(dir), spawner.clone(), monotonic(), Duration::ZERO);
        Self { survey, spawner, cancel: CancellationToken::new() }
    }

    /// Works on a run for as long as its world lasts.
    async fn work(&self, world: &Arc<World>, context: RunContext, input: Value) -> Result<Ended<Value>, DriveError> {
        let hired = self.survey.resolve(&context.agent.clone().unwrap(), &context).await.unwrap();
        let (prefix, sink) =
            (format!("a{}", ATTEMPTS.fetch_add(1, Ordering::SeqCst)), Arc::new(Log(Arc::clone(world))));
        let emitter: Arc<dyn Emitter> = match context.role {
            Role::Worker => Arc::new(WorkerEmitter::new(context.clone(), &prefix, sink).unwrap().repeatable()),
            _ => Arc::new(SupervisorEmitter::new(context.clone(), &prefix, sink).unwrap().repeatable()),
        };
        let desk = Desk {
            context: Arc::new(context),
            emitter,
            journal: Arc::new(Thread(Arc::clone(world), ThreadId::from_str("t").unwrap())),
            facts: Arc::clone(world) as Arc<dyn Facts>,
            ids: IdSource::random(Clock::System),
            stopwatch: monotonic(),
            cancel: self.cancel.clone(),
            input,
        };
        hired.work(desk).await
    }

    async fn lead(&self, world: &Arc<World>, dir: &tempfile::TempDir) -> Result<Ended<Value>, DriveError> {
        self.work(world, context(1, Role::Supervisor, LEAD), Survey::run(&source(dir)).input).await
    }

    /// Has every worker that was asked for work to its end; `fate` may change how it ended.
    async fn workers(&self, fate: impl Fn(&Child, ChildEnd) -> ChildEnd) -> Vec<ChildEnd> {
        let asked = self.spawner.asked.lock().unwrap().clone();
        let mut ends = Vec::new();
        for (run_id, child) in asked {
            let context = RunContext { run_id, ..context(2, Role::Worker, SURVEYOR) };
            let ended = self.work(&World::lasting(usize::MAX), context, child.input.clone()).await;
            let Ok(Ended::Completed(output)) = ended else { panic!("{ended:?}") };
            let (status, took) = (Status::Completed, Duration::ZERO);
            ends.push(fate(&child, ChildEnd { run_id, status, output: Some(output), error: None, took }));
        }
        ends
    }
}

fn source(dir: &tempfile::TempDir) -> Source {
    Source::open(dir.path(), Bounds::default()).unwrap()
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

fn kinds(world: &World) -> Vec<String> {
    let durable = |kind: &String| kind != "message.delta" && kind != "state.checkpointed";
    world.story().into_iter().map(|(kind, _, _)| kind).filter(durable).collect()
}

/// Tools that work side by side may be told in any order.
fn sorted(world: &World) -> Vec<String> {
    let mut kinds = kinds(world);
    kinds.sort();
    kinds
}

fn add(world: &World, ends: Vec<ChildEnd>) {
    world.kept.lock().unwrap().ends.extend(ends);
}

/// A whole survey, with workers that end as they are told to.
async fn surveyed(
    process: &Process,
    dir: &tempfile::TempDir,
    fate: impl Fn(&Child, ChildEnd) -> ChildEnd,
) -> (Ended<Value>, Arc<World>) {
    let world = World::lasting(usize::MAX);
    let Ok(Ended::Suspended { waits, .. }) = process.lead(&world, dir).await else { panic!("it waits") };
    assert_eq!(waits[0].1.len(), process.spawner.asked.lock().unwrap().len());
    add(&world, process.workers(fate).await);
    (process.lead(&world, dir).await.unwrap(), world)
}

#[tokio::test]
async fn a_survey_is_one_supervisor_that_waits_for_its_workers_and_writes_down_what_they_found() {
    let dir = tree();
    let (ended, world) = surveyed(&Process::of(&dir, None), &dir, |_, end| end).await;
    let Ended::Completed(output) = ended else { panic!("{ended:?}") };
    assert_eq!((&output["files"], &output["duplicates"]["copied_files"]), (&json!(4), &json!(1)));
    assert_eq!((output["longest_functions"].as_array().unwrap().len(), &output["missing"]), (3, &json!([])));
    let call = ["step.started", "tool.started", "tool.completed"];
    let spawned = ["step.completed", "step.started", "worker.spawned", "worker.spawned", "worker.spawned"];
    let ends = ["worker.completed", "worker.completed", "worker.completed", "step.completed"];
    let written = ["step.completed", "step.started", "message.completed", "custom.table", "step.completed"];
    assert_eq!(kinds(&world), [&call[..], &["log.info"], &spawned, &ends, &call, &written].concat());
}

#[tokio::test]
async fn a_worker_counts_to_its_milestones_and_ends_the_same_wherever_it_was_killed() {
    let dir = tree();
    let process = Process::of(&dir, None);
    let Ok(Ended::Suspended { .. }) = process.lead(&World::lasting(usize::MAX), &dir).await else { panic!("it waits") };
    let child = process.spawner.asked.lock().unwrap().values().next().unwrap().clone();
    let work = |world: Arc<World>| {
        let (process, input) = (&process, child.input.clone());
        async move { process.work(&world, context(2, Role::Worker, SURVEYOR), input).await }
    };
    let whole = World::lasting(usize::MAX);
    let Ok(Ended::Completed(expected)) = work(Arc::clone(&whole)).await else { panic!("it completes") };
    let ends = kinds(&whole).into_iter().filter(|kind| matches!(kind.as_str(), "step.completed" | "tool.completed"));
    assert_eq!(ends.count() as u64, MILESTONES);
    let story = whole.story();
    let pieces = story.iter().filter(|(kind, _, _)| kind == "message.delta");
    let streamed: String = pieces.map(|(_, _, payload)| payload["text"].as_str().unwrap()).collect();
    let kept = story.iter().find(|(kind, _, _)| kind == "message.completed").unwrap();
    assert_eq!(kept.2["content"][0]["text"], streamed);
    let told = sorted(&whole);
    for killed_after in 0..whole.done.load(Ordering::SeqCst) {
        let world = World::lasting(killed_after);
        assert!(!matches!(work(Arc::clone(&world)).await, Ok(Ended::Completed(_))), "killed after {killed_after}");
        let world = world.again(usize::MAX);
        let Ok(Ended::Completed(output)) = work(Arc::clone(&world)).await else { panic!("it completes") };
        assert_eq!((output, sorted(&world)), (expected.clone(), told.clone()), "killed after {killed_after}");
    }
}

#[tokio::test]
async fn a_survey_that_is_killed_between_any_two_operations_leaves_the_same_table_and_the_same_log() {
    let dir = tree();
    let (ended, whole) = surveyed(&Process::of(&dir, None), &dir, |_, end| end).await;
    let Ended::Completed(expected) = ended else { panic!("{ended:?}") };
    let (told, operations) = (sorted(&whole), whole.done.load(Ordering::SeqCst));
    assert!(operations > 30, "{operations}");
    for (killed_after, lost_answer) in (0..operations).flat_map(|n| [(n, false), (n, true)]) {
        let (process, mut world) = (Process::of(&dir, None), World::lasting(killed_after));
        world.lost_answer.store(lost_answer, Ordering::SeqCst);
        let output = loop {
            match process.lead(&world, &dir).await {
                Ok(Ended::Completed(output)) => break output,
                Ok(Ended::Suspended { .. }) => add(&world, process.workers(|_, end| end).await),
                Ok(other) => panic!("{other:?}"),
                Err(_) => world = world.again(usize::MAX),
            }
        };
        assert_eq!(output, expected, "killed after {killed_after}");
        assert_eq!(sorted(&world), told, "killed after {killed_after}");
        assert_eq!(process.spawner.asked.lock().unwrap().len(), 3, "one run for each part");
    }
}

#[tokio::test]
async fn a_worker_that_fails_costs_its_part_and_the_summary_says_so() {
    let (dir, process) = (tree(), |dir| Process::of(dir, Some("Survey a")));
    let failing = |child: &Child, end: ChildEnd| match child.title.as_str() {
        "Survey b" => {
            ChildEnd { status: Status::Failed, error: Some(json!({"message": "out of luck"})), output: None, ..end }
        }
        _ => end,
    };
    let (ended, world) = surveyed(&process(&dir), &dir, failing).await;
    let Ended::Completed(output) = ended else { panic!("{ended:?}") };
    assert_eq!((&output["files"], output["missing"].as_array().unwrap().len()), (&json!(2), 2), "{output}");
    let kinds = kinds(&world);
    assert_eq!(kinds.iter().filter(|kind| *kind == "worker.failed").count(), 1);
    let said = world.story().into_iter().find(|(kind, _, _)| kind == "message.completed").unwrap().2.to_string();
    assert!(said.contains("out of luck") && said.contains("no room"), "{said}");
    let nonsense = |_: &Child, end: ChildEnd| ChildEnd { output: Some(json!({"measured": 1})), ..end };
    let (ended, _) = surveyed(&process(&dir), &dir, nonsense).await;
    let Ended::Failed { node: Some("survey"), error } = ended else { panic!("{ended:?}") };
    assert_eq!(error, "no part of the tree could be surveyed");
}

#[tokio::test]
async fn a_survey_of_an_empty_tree_waits_for_nobody_and_a_cancelled_one_stops() {
    let (dir, world) = (tempfile::tempdir().unwrap(), World::lasting(usize::MAX));
    let process = Process::of(&dir, None);
    let Ok(Ended::Completed(output)) = process.lead(&world, &dir).await else { panic!("it completes") };
    assert_eq!(output["files"], 0);
    process.cancel.cancel();
    let ended = process.lead(&World::lasting(usize::MAX), &dir).await;
    assert!(matches!(ended, Ok(Ended::Cancelled)));
}

#[tokio::test]
async fn a_process_reads_no_folder_but_its_own() {
    let (dir, other, world) = (tree(), tree(), World::lasting(usize::MAX));
    let ended = Process::of(&dir, None).lead(&world, &other).await;
    let Ok(Ended::Failed { node: None, error }) = ended else { panic!("{ended:?}") };
    assert!(error.contains("the run is about"), "{error}");
    assert_eq!(kinds(&world), [""; 0]);
}
