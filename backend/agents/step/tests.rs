use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
};

use serde_json::json;

use super::*;
use crate::{
    agents::tools::Called,
    clock::{Clock, IdSource, monotonic},
    domain::{context::Role, event::Recorded},
    emitters::{
        emitter::Emitter,
        identity::{NullEmitter, SupervisorEmitter, WorkerEmitter},
        testing::{World, context},
    },
    engine::Durability,
};

/// A tool with configurable behaviour. It returns the run it was called for.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a way a tool may behave")]
struct Fake {
    name: &'static str,
    exclusive: Option<&'static str>,
    blocking: bool,
    panics: bool,
    hangs: bool,
    cleans_up: bool,
    says: Option<Value>,
    at_work: AtomicUsize,
    at_work_max: AtomicUsize,
}

impl Tool for Fake {
    fn name(&self) -> &str {
        self.name
    }

    fn description(&self) -> &'static str {
        "for tests"
    }

    fn schema(&self) -> Value {
        json!({"type": "object", "properties": {"n": {"type": "integer"}}})
    }

    fn exclusive(&self, _: &RunContext) -> Option<String> {
        self.exclusive.map(str::to_owned)
    }

    fn blocking(&self) -> bool {
        self.blocking
    }

    fn call<'a>(&'a self, context: &'a RunContext, args: Value, cancel: &'a CancellationToken) -> Called<'a> {
        let at_work = self.at_work.fetch_add(1, Ordering::SeqCst) + 1;
        self.at_work_max.fetch_max(at_work, Ordering::SeqCst);
        assert!(!self.panics, "out of {}", "order");
        Box::pin(async move {
            if self.hangs {
                std::future::pending::<()>().await;
            }
            if self.cleans_up {
                cancel.cancelled().await;
                self.at_work.fetch_sub(1, Ordering::SeqCst);
                return Ok(json!("cleaned up"));
            }
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            self.at_work.fetch_sub(1, Ordering::SeqCst);
            if let Some(value) = &self.says {
                return Ok(value.clone());
            }
            let thread = std::thread::current().name().unwrap_or_default().to_owned();
            Ok(json!({"run_id": context.run_id, "n": args["n"], "thread": thread}))
        })
    }
}

fn calls(prefix: &str, tools: &[&str], count: usize) -> Vec<Call> {
    let call = |n: usize| Call {
        span: format!("{prefix}-{n}").parse().unwrap(),
        tool: tools[n % tools.len()].to_owned(),
        args: json!({"n": n}),
    };
    (0..count).map(call).collect()
}

/// The environment of a run, with its emitter.
fn env(world: &Arc<World>, run: &RunContext, prefix: &str) -> RunEnv {
    let host = world.host(run.clone());
    let emitter: Arc<dyn Emitter> = match run.role {
        Role::Worker => Arc::new(WorkerEmitter::new(Arc::clone(&host), prefix).unwrap()),
        _ => Arc::new(SupervisorEmitter::new(Arc::clone(&host), prefix).unwrap()),
    };
    let (ids, stopwatch) = (IdSource::random(Clock::manual(chrono::DateTime::UNIX_EPOCH)), monotonic());
    RunEnv { host, emitter, ids, stopwatch, cancel: CancellationToken::new(), durability: Durability::Never }
}

/// The same with an emitter that discards events.
fn silent(run: &RunContext) -> RunEnv {
    RunEnv { emitter: Arc::new(NullEmitter), ..env(&World::endless(), run, "p") }
}

fn step<'a>(env: &'a RunEnv, tools: &'a Toolbox) -> Step<'a> {
    let call_time_max = Duration::from_secs(5);
    Step {
        env,
        tools,
        parent: None,
        parallel_max: 16,
        call_time_max,
        output_bytes_max: 1_000,
        memory: None,
        locks: Locks::default(),
    }
}

fn fake(name: &'static str) -> Fake {
    Fake { name, ..Fake::default() }
}

/// Checks one run's events: right role, agent and prefix, and every span opened once and then closed once.
fn assert_all_of(run: &RunContext, prefix: &str, events: &[Recorded], count: usize) {
    let mut spans: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut ids = BTreeSet::new();
    for event in events.iter().filter(|event| event.run_id == run.run_id) {
        assert_eq!(event.role, run.role);
        assert_eq!(event.agent.as_deref(), run.agent.as_ref().map(crate::domain::id::Name::as_str));
        assert_eq!(event.parent_span_id.as_ref().unwrap().as_str(), format!("{prefix}-step"));
        let (span, id) = (event.span_id.as_ref().unwrap(), event.event_id.as_ref().unwrap());
        assert!(span.as_str().starts_with(prefix), "{span} in the run of {prefix}");
        assert!(id.as_str().starts_with(&format!("id-{prefix}-")) && ids.insert(id.clone()), "{id}");
        if event.event_type.as_str() == "tool.completed" {
            let result: Value = event.payload.member("result").unwrap();
            assert_eq!(result["run_id"], json!(run.run_id));
            assert_eq!(span.as_str(), format!("{prefix}-{}", result["n"]));
        }
        spans.entry(span.to_string()).or_default().push(event.event_type.to_string());
    }
    assert_eq!(spans.len(), count);
    for (span, types) in spans {
        assert_eq!(types, ["tool.started", "tool.completed"], "{span}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_parallel_tools_of_a_supervisor_and_of_a_worker_are_never_misattributed() {
    let world = World::endless();
    let tools = Toolbox::new([
        Arc::new(fake("plain")) as Arc<dyn Tool>,
        Arc::new(Fake { exclusive: Some("it"), ..fake("exclusive") }),
        Arc::new(Fake { blocking: true, ..fake("blocking") }),
    ]);
    let (lead, worker) = (context(1, Role::Supervisor, "lead"), context(2, Role::Worker, "worker-1"));
    let (env_lead, env_worker) = (env(&world, &lead, "id-lead"), env(&world, &worker, "id-worker"));
    let names = ["plain", "exclusive", "blocking"];
    let (lead_step, worker_step) = ("lead-step".parse().unwrap(), "worker-step".parse().unwrap());
    let of_lead = Step { parent: Some(&lead_step), ..step(&env_lead, &tools) };
    let of_worker = Step { parent: Some(&worker_step), ..step(&env_worker, &tools) };
    let (a, b) = tokio::join!(
        run_step(&of_lead, calls("lead", &names, 200)),
        run_step(&of_worker, calls("worker", &names, 200)),
    );
    assert!(a.unwrap().iter().chain(&b.unwrap()).all(|outcome| outcome.result.is_ok()));
    let events = world.events();
    assert_eq!(events.len(), 800);
    assert_all_of(&lead, "lead", &events, 200);
    assert_all_of(&worker, "worker", &events, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn exclusive_tools_work_one_at_a_time_and_others_up_to_the_bound() {
    let (alone, free) = (Arc::new(Fake { exclusive: Some("it"), ..fake("alone") }), Arc::new(fake("free")));
    let tools = Toolbox::new([alone.clone() as Arc<dyn Tool>, free.clone()]);
    let env = silent(&context(1, Role::Supervisor, "lead"));
    let bounded = Step { parallel_max: 3, ..step(&env, &tools) };
    let outcomes = run_step(&bounded, calls("x", &["alone", "free"], 60)).await.unwrap();
    assert_eq!(outcomes.len(), 60);
    assert_eq!(alone.at_work_max.load(Ordering::SeqCst), 1);
    assert_eq!(free.at_work_max.load(Ordering::SeqCst), 3);
    let order: Vec<_> =
        outcomes.iter().map(|outcome| outcome.result.as_ref().unwrap()["n"].as_u64().unwrap()).collect();
    assert!(order.is_sorted(), "outcomes come in the order of the calls");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_two_runs_the_calls_that_share_something_are_made_one_at_a_time() {
    let shares = |what| Arc::new(Fake { exclusive: Some(what), ..fake("writes") });
    let (one, same, other) = (shares("folder a"), shares("folder a"), shares("folder b"));
    let env = silent(&context(1, Role::Agent, "a"));
    let locks = Locks::default();
    let at_once = async |first: &Arc<Fake>, second: &Arc<Fake>| {
        let boxes = [first, second].map(|tool| Toolbox::new([Arc::clone(tool) as Arc<dyn Tool>]));
        let [a, b] = boxes.each_ref().map(|tools| Step { locks: locks.clone(), ..step(&env, tools) });
        let (a, b) = tokio::join!(run_step(&a, calls("a", &["writes"], 50)), run_step(&b, calls("b", &["writes"], 50)));
        assert_eq!(a.unwrap().len() + b.unwrap().len(), 100);
    };
    at_once(&one, &one).await;
    assert_eq!(one.at_work_max.load(Ordering::SeqCst), 1, "one tool in two runs");
    let held = locks.lock("folder a").await;
    let both = async { at_once(&same, &other).await };
    let freed = async {
        while other.at_work_max.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(same.at_work_max.load(Ordering::SeqCst), 0, "what is held by another is waited for");
        drop(held);
    };
    tokio::join!(both, freed);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_hangs_or_does_not_exist_is_a_failed_call_and_the_others_go_on() {
    let world = World::endless();
    let tools = Toolbox::new([
        Arc::new(fake("good")) as Arc<dyn Tool>,
        Arc::new(Fake { panics: true, ..fake("panics") }),
        Arc::new(Fake { panics: true, blocking: true, ..fake("panics_blocking") }),
        Arc::new(Fake { hangs: true, ..fake("hangs") }),
    ]);
    let lead = context(1, Role::Supervisor, "lead");
    let env = env(&world, &lead, "p");
    let names = ["panics", "panics_blocking", "hangs", "absent", "good", "good"];
    let mut calls = calls("x", &names, 6);
    calls[5].args = json!({"n": "five"});
    let outcomes = run_step(&step(&env, &tools), calls).await.unwrap();
    let results: Vec<_> = outcomes.into_iter().map(|outcome| outcome.result).collect();
    assert_eq!(results[0], Err(ToolError::Panicked("out of order".to_owned())));
    assert_eq!(results[1], Err(ToolError::Panicked("out of order".to_owned())));
    assert_eq!(results[2], Err(ToolError::TimedOut(Duration::from_secs(5))));
    assert_eq!(results[3], Err(ToolError::Unknown("absent".to_owned())));
    assert!(results[4].is_ok());
    assert_eq!(results[5], Err(ToolError::Arguments("arguments.n: value is not of type \"integer\"".to_owned())));
    let types = world.types(lead.run_id);
    let count = |wanted: &str| types.iter().filter(|found| *found == wanted).count();
    assert_eq!((count("tool.started"), count("tool.failed"), count("tool.completed")), (6, 5, 1));
}

#[tokio::test]
async fn a_blocking_tool_leaves_the_async_thread_and_takes_its_context_along() {
    let tools =
        Toolbox::new([Arc::new(Fake { blocking: true, ..fake("blocking") }) as Arc<dyn Tool>, Arc::new(fake("plain"))]);
    let worker = context(7, Role::Worker, "w");
    let (env, calls) = (silent(&worker), calls("x", &["blocking", "plain"], 2));
    let outcomes = run_step(&step(&env, &tools), calls).await.unwrap();
    let [away, here] = [0, 1].map(|n: usize| outcomes[n].result.clone().unwrap());
    assert_eq!(away["run_id"], json!(worker.run_id));
    assert_ne!(away["thread"], here["thread"]);
}

#[tokio::test]
async fn a_log_that_takes_no_more_events_ends_the_step() {
    let tools = Toolbox::new([Arc::new(fake("plain")) as Arc<dyn Tool>]);
    let env = env(&World::refusing("tool.completed"), &context(1, Role::Supervisor, "lead"), "p");
    let refused = run_step(&step(&env, &tools), calls("x", &["plain"], 2)).await;
    assert_eq!(refused, Err(HostError::refused("refused on purpose")));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_step_lets_tools_clean_up_and_begins_no_more_calls() {
    let world = World::endless();
    let tools = Toolbox::new([
        Arc::new(Fake { cleans_up: true, ..fake("polite") }) as Arc<dyn Tool>,
        Arc::new(Fake { hangs: true, ..fake("deaf") }),
    ]);
    let lead = context(1, Role::Supervisor, "lead");
    let env = env(&world, &lead, "p");
    let two = Step { parallel_max: 2, ..step(&env, &tools) };
    let soon = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        env.cancel.cancel();
    };
    let (outcomes, ()) = tokio::join!(run_step(&two, calls("x", &["polite", "deaf", "polite"], 3)), soon);
    let results: Vec<_> = outcomes.unwrap().into_iter().map(|outcome| outcome.result).collect();
    assert_eq!(results, [Ok(json!("cleaned up")), Err(ToolError::Cancelled), Err(ToolError::Cancelled)]);
    // Every call that began has its end; the third never began.
    assert_eq!(world.types(lead.run_id), ["tool.started", "tool.started", "tool.completed", "tool.failed"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_tool_is_told_so() {
    let polite = Arc::new(Fake { cleans_up: true, ..fake("polite") });
    let tools = Toolbox::new([polite.clone() as Arc<dyn Tool>]);
    let env = silent(&context(1, Role::Supervisor, "lead"));
    let outcomes = run_step(&step(&env, &tools), calls("x", &["polite"], 1)).await.unwrap();
    assert_eq!(outcomes[0].result, Err(ToolError::TimedOut(Duration::from_secs(5))));
    assert_eq!(polite.at_work.load(Ordering::SeqCst), 0, "it noticed and cleaned up");
}

#[tokio::test]
async fn a_result_that_is_too_large_becomes_a_pointer_and_both_its_ends() {
    let image = json!({"type": "image", "media_type": "image/png", "data": "aGVs".repeat(1_000)});
    let says = |name, value| Arc::new(Fake { says: Some(value), ..fake(name) }) as Arc<dyn Tool>;
    let tools = Toolbox::new([
        says("text", json!(format!("begin{}end", "é".repeat(50_000)))),
        says("small", json!({"ok": true})),
        says("picture", json!({"content": [{"type": "text", "text": "look"}, image]})),
    ]);
    let (world, names) = (World::endless(), ["text", "small", "picture"]);
    world.held.lock().unwrap().artifacts = Some(Vec::new());
    let env = env(&world, &context(1, Role::Supervisor, "lead"), "p");
    let results = run_step(&step(&env, &tools), calls("x", &names, 3)).await.unwrap();
    let [text, small, picture] = [0, 1, 2].map(|n: usize| results[n].result.clone().unwrap());
    assert_eq!(text["$artifact"]["size"], 100_008);
    let preview = text["preview"].as_str().unwrap();
    assert!(preview.starts_with("beginé") && preview.ends_with("éend") && preview.len() < 10_400, "{preview}");
    assert!(preview.contains("of 100008 bytes left out; read_artifact reads and searches them"), "{preview}");
    assert_eq!(small, json!({"ok": true}));
    assert_eq!(picture["content"][1], json!({"type": "image", "media_type": "image/png", "artifact_id": "a2"}));
    let kept = world.held.lock().unwrap().artifacts.take().unwrap();
    assert_eq!(
        (kept[0].0.as_str(), kept[0].1.as_str(), kept[0].2.len()),
        ("text.txt", "text/plain; charset=utf-8", 100_008)
    );
    // If it cannot be stored, a preview stays, marked truncated.
    let results = run_step(&step(&env, &tools), calls("y", &names, 3)).await.unwrap();
    let text = results[0].result.clone().unwrap();
    assert_eq!((&text["truncated"], &text["bytes"]), (&json!(true), &json!(100_008)));
    let shown = crate::agents::tools::parts(&results[2].result);
    assert_eq!(shown.len(), 2, "{shown:?}");
}
