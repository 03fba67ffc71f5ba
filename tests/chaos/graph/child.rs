//! The process that is killed: one graph on the real store, timeline and checkpointer, told where to halt, if at all.
//!
//! It prints each place it reaches on its standard output (`<number> <step> <what>`), and `done` at the end. Told to
//! halt at a place, it stops there until it is killed. External effects of its nodes are written into the ledger, a
//! file that outlives it.

use std::{
    io::{Read as _, Write as _},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clap::{Parser, ValueEnum};
use runreel::{
    agents::runtime::LocalHost,
    app::App,
    clock::monotonic,
    config::{Secrets, ServeArgs},
    domain::{
        checkpoint::Checkpoint,
        context::{Role, RunContext},
        event::NewEvent,
        id::{Name, RunId, SpanId, ThreadId},
        json::Json,
        principal::OwnerId,
        run::{RunFields, Spec, Status},
    },
    emitters::{
        emitter::Emitter,
        host::{Answered, ArtifactRef, Child, ChildEnd, Hosted, Piece, RunHost},
        identity::SupervisorEmitter,
    },
    engine::{Durability, Ended, Limits, RunEnv},
    store::checkpoints::{NewCheckpoint, NewWrites},
    timeline::Timeline,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::ten::{Desk, Trail, ten};

/// How long an emission is retried.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much later a lying checkpointer stores what it reported as stored: after the kill, however busy the machine is.
const LATE: Duration = Duration::from_secs(30);

/// A fault planted into the program, to show that the judge sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Plant {
    Nothing,
    /// Event ids are counted from the start in each process instead of following from the spans.
    CountsIds,
    /// The checkpointer does not return what was memoized inside a step.
    ForgetsMemos,
    /// The checkpointer does not return checkpoints at all.
    ForgetsSteps,
    /// The checkpointer reports "stored" and stores a moment later.
    KeepsLate,
}

/// A child's command line.
#[derive(Debug, Parser)]
pub(crate) struct Orders {
    #[arg(long)]
    run_id: RunId,
    /// The number of this process among those of the run, from 1.
    #[arg(long)]
    attempt: u32,
    #[arg(long)]
    ledger: PathBuf,
    /// The place at which it halts.
    #[arg(long)]
    halt_at: Option<u32>,
    #[arg(long, value_enum)]
    plant: Plant,
    #[command(flatten)]
    serve: ServeArgs,
}

/// The thread in which a run stores its state.
pub(crate) fn thread_of(run_id: &str) -> String {
    format!("thread-{run_id}")
}

/// The places a child reaches.
#[derive(Debug)]
pub(crate) struct Places {
    last: AtomicU32,
    step: AtomicU32,
    halt_at: Option<u32>,
}

impl Places {
    /// Reports that it is here, and halts if it was told to.
    pub(crate) async fn at(&self, what: &str) {
        let number = {
            let mut out = std::io::stdout().lock();
            let number = self.last.fetch_add(1, Ordering::SeqCst) + 1;
            // The pipe is closed: the parent is gone, and standard input shows that as well.
            let _ = writeln!(out, "{number} {} {what}", self.step.load(Ordering::SeqCst));
            number
        };
        if self.halt_at == Some(number) {
            std::future::pending::<()>().await;
        }
    }

    /// The step whose checkpoint was just read or stored; the next one is in progress now.
    fn stands(&self, metadata: &Json) {
        let step = metadata.member::<u32>("step").unwrap_or_default();
        self.step.store(step + 1, Ordering::SeqCst);
    }
}

/// The run's host, with a place before and after each call.
#[derive(Clone)]
struct Watched {
    host: LocalHost,
    places: Arc<Places>,
    plant: Plant,
}

impl RunHost for Watched {
    fn context(&self) -> &Arc<RunContext> {
        self.host.context()
    }

    fn emit(&self, events: Vec<NewEvent>) -> Hosted<'_, ()> {
        Box::pin(async move {
            let names: Vec<&str> = events.iter().map(|event| event.event_type.as_str()).collect();
            let (what, run_ends) = (names.join("+"), names.contains(&"run.completed"));
            self.places.at(&format!("telling {what}")).await;
            self.host.emit(events).await?;
            // Nothing is left to be killed once the end is emitted.
            if !run_ends {
                self.places.at(&format!("told {what}")).await;
            }
            Ok(())
        })
    }

    fn latest_checkpoint(&self) -> Hosted<'_, Option<Checkpoint>> {
        Box::pin(async move {
            self.places.at("opening").await;
            let mut latest = self.host.latest_checkpoint().await?.filter(|_| self.plant != Plant::ForgetsSteps);
            if let Some(latest) = &mut latest {
                self.places.stands(&latest.metadata);
                if self.plant == Plant::ForgetsMemos {
                    latest.writes.clear();
                }
            }
            self.places.at("opened").await;
            Ok(latest)
        })
    }

    fn put_checkpoint(&self, new: NewCheckpoint) -> Hosted<'_, ()> {
        Box::pin(async move {
            let metadata = new.metadata.clone();
            self.places.at("keeping-step").await;
            self.host.put_checkpoint(new).await?;
            self.places.at("kept-step").await;
            self.places.stands(&metadata);
            Ok(())
        })
    }

    fn put_writes(&self, new: NewWrites) -> Hosted<'_, ()> {
        Box::pin(async move {
            let what = new.task_id.clone();
            self.places.at(&format!("keeping {what}")).await;
            if self.plant == Plant::KeepsLate {
                let host = self.host.clone();
                // It ends with the process, and that is the fault.
                drop(tokio::spawn(async move {
                    tokio::time::sleep(LATE).await;
                    host.put_writes(new).await
                }));
            } else {
                self.host.put_writes(new).await?;
            }
            self.places.at(&format!("kept {what}")).await;
            Ok(())
        })
    }

    fn status(&self) -> Hosted<'_, Option<Status>> {
        self.host.status()
    }

    fn answer<'a>(&'a self, interrupt: &'a SpanId) -> Hosted<'a, Option<Answered>> {
        self.host.answer(interrupt)
    }

    fn spawn(&self, child: Child) -> Hosted<'_, RunContext> {
        self.host.spawn(child)
    }

    fn ends<'a>(&'a self, runs: &'a [RunId]) -> Hosted<'a, Vec<ChildEnd>> {
        self.host.ends(runs)
    }

    fn cancel_below<'a>(&'a self, reason: &'a str) -> Hosted<'a, ()> {
        self.host.cancel_below(reason)
    }

    fn hold_state(&self) -> Hosted<'_, ()> {
        self.host.hold_state()
    }

    fn drop_state(&self) -> Hosted<'_, ()> {
        self.host.drop_state()
    }

    fn keep_artifact<'a>(&'a self, name: &'a str, media_type: &'a str, bytes: Bytes) -> Hosted<'a, ArtifactRef> {
        self.host.keep_artifact(name, media_type, bytes)
    }

    fn read_artifact<'a>(&'a self, artifact_id: &'a str, from: u64, bytes_max: usize) -> Hosted<'a, Option<Piece>> {
        self.host.read_artifact(artifact_id, from, bytes_max)
    }
}

/// Whether this process was started to be killed; then it never returns.
pub(crate) fn is_wanted() -> bool {
    std::env::args().nth(1).is_some_and(|word| word == super::CHILD)
}

/// Executes the run as far as it gets.
pub(crate) fn main() -> anyhow::Result<()> {
    let orders = Orders::parse_from(std::env::args().skip(1));
    // The parent holds the other end; when it closes, this process exits.
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let said = runtime.block_on(carry_out(&orders))?;
    writeln!(std::io::stdout(), "{said}")?;
    // The process exits immediately, like a killed one: no shutdown does the work of a restart.
    std::process::exit(0)
}

fn context(run_id: RunId) -> RunContext {
    RunContext {
        run_id,
        root_run_id: run_id,
        parent_run_id: None,
        owner_id: OwnerId::derive(b"a pepper", "chaos", "graphs"),
        thread_id: Some(ThreadId::trusted(&thread_of(&run_id.to_string()))),
        session_id: None,
        role: Role::Agent,
        agent: Some(Name::trusted("ten")),
        origin: None,
        trace_id: None,
    }
}

async fn open(timeline: &Timeline, context: &RunContext) -> anyhow::Result<()> {
    let spec = Spec { context: context.clone(), fields: RunFields::default(), start: true };
    let hash = spec.content_hash();
    timeline.open_run(spec, hash).await?;
    Ok(())
}

async fn carry_out(orders: &Orders) -> anyhow::Result<&'static str> {
    let app = App::start(&orders.serve, &Secrets::default()).await?;
    let timeline = app.server().timeline.clone();
    let context = Arc::new(context(orders.run_id));
    open(&timeline, &context).await?;
    let record = timeline.run(&context.owner_id, context.run_id).await?;
    if record.is_some_and(|record| record.head.status.is_terminal()) {
        return Ok("done");
    }
    let places = Arc::new(Places { last: AtomicU32::default(), step: AtomicU32::default(), halt_at: orders.halt_at });
    let host = LocalHost::new(timeline.clone(), app.server().threads.clone(), Arc::clone(&context)).patient(PATIENCE);
    let host = Arc::new(Watched { host, places: Arc::clone(&places), plant: orders.plant });
    let prefix = format!("attempt{}", orders.attempt);
    let emitter = SupervisorEmitter::new(Arc::clone(&host) as Arc<dyn RunHost>, &prefix)?;
    let emitter: Arc<dyn Emitter> =
        Arc::new(if orders.plant == Plant::CountsIds { emitter } else { emitter.repeatable() });
    let desk = Desk::open(&orders.ledger, orders.attempt, places)?;
    let graph = ten(&Arc::new(desk))?;
    let env = RunEnv {
        host,
        emitter: Arc::clone(&emitter),
        ids: timeline.ids().clone(),
        stopwatch: monotonic(),
        cancel: CancellationToken::new(),
        durability: Durability::EveryStep,
    };
    match env.drive(&graph, Limits::default(), |_: Option<Trail>| Trail::default()).await? {
        Ended::Completed(state) => {
            let output: Value = json!({ "state": state });
            emitter.run_completed(output).await?;
            Ok("done")
        }
        other => anyhow::bail!("the graph did not complete: {other:?}"),
    }
}
