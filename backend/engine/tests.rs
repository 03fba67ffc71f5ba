mod durability;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use chrono::DateTime;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{graph::InvalidGraph, *};
use crate::{
    clock::{Clock, IdSource, monotonic},
    domain::{
        context::{Role, RunContext},
        id::ThreadId,
        interrupt::Decision,
        run::Status,
    },
    emitters::{
        host::{Answered, ChildEnd, HostError},
        identity::SupervisorEmitter,
        testing::{World, context, run_id},
    },
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Trail {
    seen: Vec<String>,
    total: u32,
}

#[derive(Serialize, Deserialize)]
struct Mark(String, u32);

impl State for Trail {
    type Update = Mark;

    fn apply(&mut self, Mark(name, points): Mark) {
        self.seen.push(name);
        self.total += points;
    }
}

static ATTEMPTS: AtomicU32 = AtomicU32::new(0);

async fn drive_with(
    graph: &Graph<Trail>,
    world: &Arc<World>,
    run: u32,
    cancel: &CancellationToken,
    durability: Durability,
) -> Result<Ended<Trail>, HostError> {
    // All runs share one thread.
    let context =
        RunContext { thread_id: Some(ThreadId::trusted("t")), parent_run_id: None, ..context(run, Role::Agent, "a") };
    let prefix = format!("a{}", ATTEMPTS.fetch_add(1, Ordering::SeqCst));
    let host = world.host(context);
    let emitter = SupervisorEmitter::new(Arc::clone(&host), &prefix).unwrap();
    let env = RunEnv {
        host,
        emitter: Arc::new(emitter.repeatable()),
        ids: IdSource::random(Clock::manual(DateTime::UNIX_EPOCH)),
        stopwatch: monotonic(),
        cancel: cancel.clone(),
        durability,
    };
    let limits = Limits { steps_max: 20, node_time_max: Duration::from_secs(5) };
    env.drive(graph, limits, Option::unwrap_or_default).await
}

async fn drive(
    graph: &Graph<Trail>,
    world: &Arc<World>,
    run: u32,
    cancel: &CancellationToken,
) -> Result<Ended<Trail>, HostError> {
    drive_with(graph, world, run, cancel, Durability::EveryStep).await
}

async fn driven(graph: &Graph<Trail>, world: &Arc<World>) -> Ended<Trail> {
    drive(graph, world, 1, &CancellationToken::new()).await.unwrap()
}

fn mark(name: &'static str) -> impl Fn(NodeContext<Trail>) -> BoxFuture<'static, Result<Mark, Stop>> + Send + Sync {
    move |context| Box::pin(async move { Ok(Mark(name.to_owned(), context.state.total + 1)) })
}

/// Ten nodes: a sequence, a choice that loops once, a fork and a join, and one that memoizes two values.
fn ten() -> Graph<Trail> {
    let again = |trail: &Trail| if trail.seen.len() < 6 { Next::To("b") } else { Next::To("d") };
    let remembering = |context: NodeContext<Trail>| async move {
        let first: u32 = context.once("first", || async { Ok(3) }).await?;
        let second: u32 = context.once("second", || async { Ok(4) }).await?;
        Ok(Mark("h".to_owned(), first + second))
    };
    Graph::new("ten", "a")
        .node("a", mark("a"))
        .node("b", mark("b"))
        .node("c", mark("c"))
        .node("d", mark("d"))
        .node("e", mark("e"))
        .node("f", mark("f"))
        .node("g", mark("g"))
        .node("h", remembering)
        .node("i", mark("i"))
        .node("j", mark("j"))
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
        .unwrap()
}

#[tokio::test]
async fn a_graph_that_is_killed_between_any_two_operations_ends_as_if_it_had_not_been() {
    let graph = ten();
    let whole = World::lasting(usize::MAX);
    let Ended::Completed(expected) = driven(&graph, &whole).await else { panic!("it completes") };
    assert_eq!(expected.seen, ["a", "b", "c", "b", "c", "b", "c", "d", "e", "f", "g", "h", "i", "j"]);
    let mut expected_story = whole.story();
    let operations = whole.done.load(Ordering::SeqCst);
    assert!(operations > 30, "{operations}");
    for (killed_after, lost_answer) in (0..operations).flat_map(|n| [(n, false), (n, true)]) {
        let world = World::lasting(killed_after);
        world.lost_answer.store(lost_answer, Ordering::SeqCst);
        assert!(drive(&graph, &world, 1, &CancellationToken::new()).await.is_err(), "killed after {killed_after}");
        let world = world.again(usize::MAX);
        let Ended::Completed(state) = driven(&graph, &world).await else { panic!("it completes") };
        assert_eq!(state, expected, "killed after {killed_after}");
        // Events of concurrent nodes may come in any order.
        let mut story = world.story();
        for story in [&mut story, &mut expected_story] {
            story.sort_by_key(|(kind, span, payload)| (kind.clone(), span.clone(), payload.to_string()));
        }
        assert_eq!(story, expected_story, "killed after {killed_after}");
    }
}

#[tokio::test]
async fn a_step_of_one_node_costs_one_checkpoint_and_one_emission() {
    let graph = Graph::new("g", "a").node("a", mark("a")).node("b", mark("b"));
    let graph = graph.edge("a", Next::To("b")).edge("b", Next::End).build().unwrap();
    let world = World::lasting(usize::MAX);
    assert!(matches!(driven(&graph, &world).await, Ended::Completed(_)));
    assert_eq!(world.done.load(Ordering::SeqCst), 1 + 2 + 2 * 2, "the look, the first checkpoint, two steps");
    let story: Vec<String> = world.story().into_iter().map(|(kind, _, _)| kind).collect();
    let step = ["step.started", "step.completed"];
    assert_eq!(story, [&step, &["state.checkpointed"][..], &step].concat(), "told is what is kept between two steps");
}

#[tokio::test]
async fn a_choice_nobody_foresaw_fails_the_step_that_made_it() {
    let graph = Graph::new("g", "a").node("a", mark("a")).node("b", mark("b")).edge("b", Next::End);
    let graph = graph.choice("a", &["a"], |_| Next::To("b")).build().unwrap();
    let world = World::lasting(usize::MAX);
    let Ended::Failed { node: None, error, .. } = driven(&graph, &world).await else { panic!("it fails") };
    assert_eq!(error, "a chose b, which is not among its choices");
    let story: Vec<String> = world.story().into_iter().map(|(kind, _, _)| kind).collect();
    assert_eq!(story, ["step.started", "step.failed"]);
}

#[tokio::test]
async fn what_a_node_has_given_or_remembered_is_not_asked_for_again() {
    let (executions, firsts) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (counted, once) = (Arc::clone(&executions), Arc::clone(&firsts));
    let graph = Graph::new("g", "quick")
        .node("quick", mark("quick"))
        .node("left", mark("left"))
        .node("right", move |context: NodeContext<Trail>| {
            let (counted, once) = (Arc::clone(&counted), Arc::clone(&once));
            async move {
                let paid: u32 = context.once("pay", || async move { Ok(once.fetch_add(1, Ordering::SeqCst)) }).await?;
                if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                    context.ask("sure", json!({"kind": "approval", "prompt": "sure?"})).await?;
                }
                Ok(Mark("right".to_owned(), paid))
            }
        })
        .edge("quick", Next::All(vec!["left", "right"]))
        .edge("left", Next::End)
        .edge("right", Next::End)
        .build()
        .unwrap();
    let world = World::lasting(usize::MAX);
    let Ended::Suspended { questions, waits } = driven(&graph, &world).await else { panic!("it asks") };
    assert_eq!((questions.len(), waits.len()), (1, 0));
    let Ended::Completed(state) = driven(&graph, &world).await else { panic!("it goes on") };
    assert_eq!(state.seen, ["quick", "left", "right"]);
    assert_eq!((executions.load(Ordering::SeqCst), firsts.load(Ordering::SeqCst)), (2, 1));
    let lefts = world.story().into_iter().filter(|(_, span, _)| span.as_deref() == Some("s2.left")).count();
    assert_eq!(lefts, 2, "one start and one end");
}

#[tokio::test]
async fn an_answer_reaches_the_node_that_asked() {
    let graph = Graph::new("g", "ask")
        .node("ask", |context: NodeContext<Trail>| async move {
            let answered = context.ask("name", json!({"kind": "question", "prompt": "who?"})).await?;
            let name = answered.value.as_ref().and_then(Value::as_str).unwrap_or("nobody").to_owned();
            Ok(Mark(name, 1))
        })
        .edge("ask", Next::End)
        .build()
        .unwrap();
    let world = World::lasting(usize::MAX);
    let Ended::Suspended { questions, .. } = driven(&graph, &world).await else { panic!("it asks") };
    let Ended::Suspended { questions: again, .. } = driven(&graph, &world).await else { panic!("still open") };
    assert_eq!(questions, again, "the same question keeps its id");
    let answered = Answered { decision: Decision::Respond, value: Some(json!("ada")), asked: Vec::new() };
    world.held.lock().unwrap().answers.insert(questions[0].interrupt_id.to_string(), answered);
    let Ended::Completed(state) = driven(&graph, &world).await else { panic!("answered") };
    assert_eq!(state.seen, ["ada"]);
}

#[tokio::test]
async fn a_node_waits_for_runs_and_sees_how_they_ended() {
    let graph = Graph::new("g", "wait")
        .node("wait", |context: NodeContext<Trail>| async move {
            let ends = context.wait_for("workers", &[run_id(7), run_id(8)]).await?;
            Ok(Mark(format!("{:?}", ends.iter().map(|end| end.status).collect::<Vec<_>>()), 0))
        })
        .edge("wait", Next::End)
        .build()
        .unwrap();
    let world = World::lasting(usize::MAX);
    let ended = |n, status| ChildEnd { run_id: run_id(n), status, output: None, error: None, took: Duration::ZERO };
    world.held.lock().unwrap().ends.push(ended(8, Status::Failed));
    let Ended::Suspended { waits, .. } = driven(&graph, &world).await else { panic!("one is still at work") };
    assert_eq!(waits, [("workers".to_owned(), vec![run_id(7), run_id(8)])]);
    world.held.lock().unwrap().ends.push(ended(7, Status::Completed));
    let Ended::Completed(state) = driven(&graph, &world).await else { panic!("both ended") };
    assert_eq!(state.seen, ["[Completed, Failed]"]);
}

#[tokio::test]
async fn the_next_run_of_a_thread_begins_where_the_last_one_ended() {
    let graph = Graph::new("g", "a").node("a", mark("a")).edge("a", Next::End).build().unwrap();
    let world = World::lasting(usize::MAX);
    assert!(matches!(driven(&graph, &world).await, Ended::Completed(_)));
    let second = drive(&graph, &world, 2, &CancellationToken::new()).await.unwrap();
    let Ended::Completed(state) = second else { panic!("it completes") };
    assert_eq!(state, Trail { seen: vec!["a".to_owned(), "a".to_owned()], total: 3 });
    let kept = world.held.lock().unwrap();
    let parents = kept.checkpoints.iter().filter(|new| new.parent_id.is_some()).count();
    assert_eq!((kept.checkpoints.len(), parents), (4, 3), "one chain");
}

#[tokio::test]
async fn a_channel_is_kept_anew_only_when_it_changed() {
    #[derive(Clone, Default, Serialize, Deserialize)]
    struct Two {
        big: Vec<u8>,
        count: u32,
    }
    impl State for Two {
        type Update = u32;
        fn apply(&mut self, by: u32) {
            self.count += by;
        }
    }
    let first = checkpointer::Snapshot {
        run_id: run_id(1),
        graph: "g".to_owned(),
        step: 0,
        next: vec![],
        ended: None,
        state: Two::default(),
    };
    let (one, two) = (
        checkpointer::id_after(uuid::Uuid::from_u128(1), None).unwrap(),
        checkpointer::id_after(uuid::Uuid::from_u128(2), None).unwrap(),
    );
    let (new, kept) = checkpointer::encode(&first, one.clone(), None, &BTreeMap::new()).unwrap();
    assert_eq!(new.blobs.0.len(), 2);
    let second = checkpointer::Snapshot { state: Two { count: 1, ..first.state.clone() }, ..first };
    let (new, _) = checkpointer::encode(&second, two, Some(one), &kept).unwrap();
    let changed: Vec<&str> = new.blobs.0.iter().map(|(channel, _)| channel.as_str()).collect();
    assert_eq!((changed, new.versions.0.len()), (vec!["count"], 2));
}

#[tokio::test]
async fn a_node_that_fails_panics_or_is_late_fails_the_graph_and_says_which() {
    async fn fate(work: impl Fn() -> BoxFuture<'static, Result<Mark, Stop>> + Send + Sync + 'static) -> String {
        let graph = Graph::new("g", "bad").node("bad", move |_| work()).edge("bad", Next::End).build().unwrap();
        let world = World::lasting(usize::MAX);
        let Ended::Failed { node: Some("bad"), error, .. } = driven(&graph, &world).await else { panic!("it fails") };
        assert!(world.story().iter().any(|(kind, span, _)| kind == "step.failed" && span.as_deref() == Some("s1.bad")));
        error
    }
    assert_eq!(fate(|| Box::pin(async { Err(Stop::failed("no luck")) })).await, "no luck");
    assert_eq!(fate(|| Box::pin(async { panic!("oh") })).await, "the node panicked: oh");
    tokio::time::pause();
    assert_eq!(fate(|| Box::pin(std::future::pending())).await, "the node took longer than 5s");
}

#[tokio::test]
async fn a_node_that_cannot_reach_what_it_needs_fails_nothing_and_is_visited_again() {
    let away = Arc::new(AtomicBool::new(true));
    let inside = Arc::clone(&away);
    let graph = Graph::new("g", "a")
        .node("a", mark("a"))
        .edge("a", Next::To("far"))
        .node("far", move |_: NodeContext<Trail>| {
            let is_away = inside.swap(false, Ordering::SeqCst);
            async move {
                if is_away { Err(HostError::unavailable("no line").into()) } else { Ok(Mark("far".to_owned(), 1)) }
            }
        })
        .edge("far", Next::End)
        .build()
        .unwrap();
    let world = World::lasting(usize::MAX);
    let later = drive(&graph, &world, 1, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(later, HostError::unavailable("no line"));
    let Ended::Completed(state) = driven(&graph, &world).await else { panic!("it completes") };
    assert_eq!(state.seen, ["a", "far"]);
    let of_far = world.story().into_iter().filter(|(_, span, _)| span.as_deref() == Some("s2.far"));
    assert_eq!(of_far.map(|(kind, ..)| kind).collect::<Vec<_>>(), ["step.started", "step.completed"]);
}

#[tokio::test]
async fn a_cancelled_graph_drops_its_nodes_and_takes_no_further_step() {
    let cancel = CancellationToken::new();
    let inside = cancel.clone();
    let graph = Graph::new("g", "long")
        .node("long", move |_: NodeContext<Trail>| {
            inside.cancel();
            std::future::pending()
        })
        .edge("long", Next::End)
        .build()
        .unwrap();
    let world = World::lasting(usize::MAX);
    assert!(matches!(drive(&graph, &world, 1, &cancel).await.unwrap(), Ended::Cancelled));
    assert!(matches!(drive(&graph, &world, 1, &cancel).await.unwrap(), Ended::Cancelled));
    assert_eq!(world.held.lock().unwrap().checkpoints.len(), 1);
}

#[tokio::test]
async fn a_graph_that_never_ends_is_stopped_at_its_bound() {
    let graph = Graph::new("g", "a").node("a", mark("a")).edge("a", Next::To("a")).build().unwrap();
    let world = World::lasting(usize::MAX);
    let Ended::Failed { node: None, error, .. } = driven(&graph, &world).await else { panic!("it fails") };
    assert_eq!(error, "the graph took more than 20 steps");
}

#[test]
fn a_graph_with_a_flaw_is_not_built() {
    let graph = || Graph::new("g", "a").node("a", mark("a"));
    assert_eq!(graph().build().err(), Some(InvalidGraph::Loose("a")));
    assert_eq!(graph().edge("a", Next::To("b")).build().err(), Some(InvalidGraph::Nowhere { from: "a", to: "b" }));
    assert_eq!(graph().edge("b", Next::End).build().err(), Some(InvalidGraph::Nowhere { from: "b", to: "b" }));
    assert_eq!(graph().node("a", mark("a")).edge("a", Next::End).build().err(), Some(InvalidGraph::Twice("a")));
    assert_eq!(graph().node("A", mark("A")).build().err(), Some(InvalidGraph::Name("A")));
    let lost: Graph<Trail> = Graph::new("g", "x");
    assert_eq!(lost.build().err(), Some(InvalidGraph::Nowhere { from: "g", to: "x" }));
}

#[test]
fn an_id_comes_after_its_parent_whatever_the_clock_says() {
    let late = checkpointer::id_after(uuid::Uuid::from_u128(9), None).unwrap();
    let next = checkpointer::id_after(uuid::Uuid::from_u128(5), Some(&late)).unwrap();
    assert!(next > late, "{next} {late}");
    let strange =
        checkpointer::id_after(uuid::Uuid::from_u128(5), Some(&crate::domain::checkpoint::CheckpointId::trusted("zz")));
    assert!(strange.is_err_and(|error| !error.is_retryable));
}
