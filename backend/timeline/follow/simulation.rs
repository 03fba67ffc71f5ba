//! Property test of the follower: random orders of commits, publications, late or failed pages, lag and reconnects.
//!
//! The follower, the splice, the gate and the bus are real; the log and the writer are simulated. In each case a reader
//! gets each event of its runs once and in order, each token where it belongs, one `caught_up` per connection, and the
//! end after everything else.
//!
//! There is one thread, and a reader is polled whether or not it was woken: races inside the gate, and lost wake-ups,
//! are left to the fault harness.

mod log;
mod reader;
mod writer;

use std::{cell::RefCell, sync::Arc};

use proptest::{
    prelude::*,
    test_runner::{RngSeed, TestRunner},
};
use uuid::Uuid;

use self::{
    log::{Chance, Log},
    reader::{Reader, Tally},
    writer::Writer,
};
use super::{PAUSE, Scope};
use crate::{
    domain::{
        context::{Role, RunContext},
        cursor::FeedCursor,
        history::Histories,
        id::RunId,
        principal::OwnerId,
    },
    store::feed,
    timeline::publish::Gate,
};

const CASES: u32 = 2_000;
/// A root, its child, and a run that belongs to neither.
const RUNS: usize = 3;
const LANES: usize = 2;
/// Most polls that a reader needs to finish once everything has ended.
const POLLS_MAX: usize = 10_000;

/// A step of the simulation.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// A run commits this many events; they are published later.
    Commit(usize, u8),
    /// A token of a run's open message.
    Token(usize),
    /// The message is completed.
    Complete(usize),
    /// A run ends.
    End(usize),
    /// This many of the waiting publications are made, one by one.
    Publish(u8),
    /// This many of the waiting publications are skipped: readers have to read the log.
    Skip(u8),
    /// The reader is polled this many times.
    Read(u8),
    /// Time passes.
    Wait,
    /// The reader's call is dropped, and made again.
    Drop,
    /// The reader is cut off, and resumes after the last id it has.
    Cut,
}

#[derive(Clone, Debug)]
struct Plan {
    /// Follows the first run (0), its tree (1), or everything (2).
    reader: usize,
    bus_frames: usize,
    acts: Vec<Act>,
    chances: Vec<Chance>,
}

fn act() -> impl Strategy<Value = Act> {
    let run = 0..RUNS;
    prop_oneof![
        12 => (run.clone(), 1..4_u8).prop_map(|(run, count)| Act::Commit(run, count)),
        24 => run.clone().prop_map(Act::Token),
        4 => run.clone().prop_map(Act::Complete),
        1 => run.prop_map(Act::End),
        20 => (1..6_u8).prop_map(Act::Publish),
        1 => (1..6_u8).prop_map(Act::Skip),
        30 => (1..6_u8).prop_map(Act::Read),
        4 => Just(Act::Wait),
        2 => Just(Act::Drop),
        1 => Just(Act::Cut),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let chance = (0..4_u8, 0..4_u8, prop::bool::weighted(0.1));
    let acts = prop::collection::vec(act(), 1..120);
    let parts = (0..3_usize, 1..6_usize, acts, prop::collection::vec(chance, 1..20));
    parts.prop_map(|(reader, bus_frames, acts, chances)| Plan { reader, bus_frames, acts, chances })
}

fn context(run: usize) -> Arc<RunContext> {
    let id = |n: usize| RunId::trusted(Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0000 + n as u128));
    let parent = (run == 1).then(|| id(0));
    Arc::new(RunContext {
        run_id: id(run),
        root_run_id: parent.unwrap_or_else(|| id(run)),
        parent_run_id: parent,
        owner_id: OwnerId::trusted("owner"),
        thread_id: None,
        session_id: None,
        role: Role::Agent,
        agent: None,
        origin: None,
        trace_id: None,
    })
}

async fn simulate(plan: &Plan) -> Tally {
    let log = Arc::new(Log::new((0..RUNS).map(context).collect(), &plan.chances));
    let scope = match plan.reader {
        0 => Scope::Run(Arc::clone(&log.runs[0])),
        1 => Scope::Feed(feed::Scope::Tree(log.runs[0].run_id)),
        _ => Scope::Feed(feed::Scope::Everything),
    };
    let (tail, first_text) = (FeedCursor::of(vec![0; LANES]), Uuid::from_u128(1));
    let gate = Gate::new(plan.bus_frames, &tail, Histories::of(Vec::new()), first_text);
    let mut writer = Writer::new(Arc::clone(&log), gate.clone());
    let mut reader = Reader::new(Arc::clone(&log), gate, scope);
    for act in &plan.acts {
        match *act {
            Act::Commit(run, count) => writer.lines(run, count),
            Act::Token(run) => writer.token(run),
            Act::Complete(run) => writer.complete(run),
            Act::End(run) => writer.end(run),
            Act::Publish(count) => writer.publish(count).await,
            Act::Skip(count) => {
                writer.skip(count).await;
                reader.note_skip();
            }
            Act::Read(count) => {
                for _ in 0..count {
                    reader.read().await;
                }
            }
            Act::Wait => tokio::time::advance(PAUSE).await,
            Act::Drop => reader.drop_call(),
            Act::Cut => reader.reconnect(),
        }
    }
    // Everything ends and is published, pages no longer fail, and the reader reads until it has everything.
    (0..RUNS).for_each(|run| writer.end(run));
    log.heal();
    while writer.has_waiting() {
        writer.publish(3).await;
        reader.read().await;
    }
    for _ in 0..POLLS_MAX {
        if reader.is_done() {
            reader.has_all();
            return reader.tally;
        }
        reader.read().await;
        tokio::time::advance(PAUSE).await;
    }
    panic!("the reader waits for ever");
}

#[test]
fn whatever_happens_a_reader_gets_each_event_once_in_order_and_each_token_where_it_belongs() {
    let config = ProptestConfig { cases: CASES, failure_persistence: None, ..ProptestConfig::default() };
    let config = ProptestConfig { rng_seed: RngSeed::Fixed(20_261_126), ..config };
    let sum = RefCell::new(Tally::default());
    let cases = TestRunner::new(config).run(&plan(), |plan| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let tally = runtime.block_on(simulate(&plan));
        let mut sum = sum.borrow_mut();
        sum.snapshots += tally.snapshots;
        sum.tokens += tally.tokens;
        sum.cuts += tally.cuts;
        sum.returns += tally.returns;
        Ok(())
    });
    cases.unwrap_or_else(|error| panic!("{error}"));
    let sum = sum.into_inner();
    let least = [sum.snapshots, sum.tokens, sum.cuts, sum.returns].into_iter().min();
    assert!(least > Some(1_000), "what readers are to survive happened: {sum:?}");
}
