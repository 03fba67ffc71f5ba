//! Every interleaving in a small model, and random walks in a larger one.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

/// A writer, a log, a ring of live frames and one reader.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// Remaining attempts of the writer: `true` is a durable event, `false` a delta.
    plan: Vec<bool>,
    /// Durable events committed so far (their seqs are 1..=committed).
    committed: i64,
    /// Durable events published so far (their seqs are 1..=published).
    published: i64,
    /// The tail of the last page, which must be published before the reader may go live.
    floor: i64,
    /// Committed or streamed but not yet published: `Some(seq)` durable, `None` a delta.
    unpublished: Vec<Option<i64>>,
    /// Frames in the bus for this reader.
    ring: Vec<Option<i64>>,
    ring_max: usize,
    lagged: bool,
    /// Deltas published since the last durable event: the open text.
    open: u32,
    splice: Splice,
    /// A page in flight: the position it starts after and the tail it saw.
    page: Option<(i64, i64)>,
    page_rows: i64,
    settling: bool,
    delivered: Vec<i64>,
    /// Deltas of the open text the reader has seen since the last durable event.
    text: u32,
    live: bool,
}

impl World {
    fn new(plan: &[bool], after: i64, ring_max: usize, page_rows: i64) -> Self {
        let mut world = Self {
            plan: plan.iter().rev().copied().collect(),
            committed: 0,
            published: 0,
            floor: 0,
            unpublished: Vec::new(),
            ring: Vec::new(),
            ring_max,
            lagged: false,
            open: 0,
            splice: Splice::new(ReadPosition::Run(Seq::new(after).unwrap())),
            page: None,
            page_rows,
            settling: false,
            delivered: Vec::new(),
            text: 0,
            live: false,
        };
        world.query();
        world
    }

    fn query(&mut self) {
        let ReadPosition::Run(after) = self.splice.track() else { unreachable!() };
        self.page = Some((after.get(), self.committed));
        self.settling = false;
        self.live = false;
    }

    /// All possible next states.
    fn moves(&self) -> Vec<Self> {
        let mut next = Vec::new();
        if !self.plan.is_empty() {
            next.push(self.with(Self::commit));
        }
        if !self.unpublished.is_empty() {
            next.push(self.with(Self::publish));
        }
        if self.page.is_some() {
            next.push(self.with(Self::page_arrives));
        } else if self.lagged || !self.ring.is_empty() {
            next.push(self.with(Self::take_live));
        } else if self.settling && self.published >= self.floor {
            next.push(self.with(Self::settle));
        }
        next
    }

    fn with(&self, act: fn(&mut Self)) -> Self {
        let mut world = self.clone();
        act(&mut world);
        world
    }

    fn commit(&mut self) {
        let durable = self.plan.pop() == Some(true);
        self.committed += i64::from(durable);
        self.unpublished.push(durable.then_some(self.committed));
    }

    fn publish(&mut self) {
        let frame = self.unpublished.remove(0);
        self.published += i64::from(frame.is_some());
        self.open = if frame.is_some() { 0 } else { self.open + 1 };
        self.ring.push(frame);
        if self.ring.len() > self.ring_max {
            self.ring.remove(0);
            self.lagged = true;
        }
    }

    fn page_arrives(&mut self) {
        let (after, tail) = self.page.take().unwrap();
        self.floor = tail;
        let end = tail.min(after + self.page_rows);
        let events = (after + 1..=end).map(|seq| (place(seq), Some(seq))).collect();
        let steps = self.splice.step(Input::Page { events, tail: None, complete: end == tail });
        self.apply(steps);
    }

    fn take_live(&mut self) {
        let input = if std::mem::take(&mut self.lagged) {
            Input::Lagged
        } else {
            match self.ring.remove(0) {
                Some(seq) => Input::Durable(place(seq), Some(seq)),
                None => Input::Ephemeral(None),
            }
        };
        let steps = self.splice.step(input);
        self.apply(steps);
    }

    fn settle(&mut self) {
        self.settling = false;
        let steps = self.splice.step(Input::WentLive);
        self.apply(steps);
    }

    fn apply(&mut self, steps: Vec<Step<Option<i64>>>) {
        for step in steps {
            match step {
                Step::Query => self.query(),
                Step::GoLive => self.settling = true,
                Step::Deliver(Some(seq)) => {
                    self.delivered.push(seq);
                    self.text = 0;
                }
                Step::Deliver(None) => self.text += 1,
                Step::CaughtUp { .. } => {
                    self.live = true;
                    self.text = self.open;
                }
                Step::Gap { .. } => panic!("nothing was removed in this world"),
            }
        }
    }

    fn check(&self, after: i64) {
        let expected: Vec<i64> = (after + 1..=after + self.delivered.len() as i64).collect();
        assert_eq!(self.delivered, expected, "not contiguous: {self:?}");
        assert!(self.delivered.last().is_none_or(|&last| last <= self.committed), "not durable: {self:?}");
        if self.moves().is_empty() {
            assert_eq!(after + self.delivered.len() as i64, self.committed.max(after), "not at the tail: {self:?}");
            assert!(self.live, "not live: {self:?}");
            assert_eq!(self.text, self.open, "text not whole exactly once: {self:?}");
        }
    }
}

fn place(seq: i64) -> LogPosition {
    LogPosition { seq: Seq::new(seq).unwrap(), lane: 0, position: seq * 10 }
}

/// Visits every reachable state and returns their number.
fn explore(plan: &[bool], after: i64, ring_max: usize, page_rows: i64) -> usize {
    let start = World::new(plan, after, ring_max, page_rows);
    let (mut seen, mut todo) = (HashSet::from([start.clone()]), vec![start]);
    while let Some(world) = todo.pop() {
        world.check(after);
        for next in world.moves() {
            if seen.insert(next.clone()) {
                todo.push(next);
            }
        }
    }
    seen.len()
}

#[test]
fn every_interleaving_of_a_small_world_delivers_each_seq_once_in_order_and_the_whole_text() {
    let mut states = 0;
    for length in 0..=6u32 {
        for bits in 0..1u32 << length {
            let plan: Vec<bool> = (0..length).map(|i| bits >> i & 1 == 1).collect();
            for ring_max in 1..=3 {
                for page_rows in 1..=2 {
                    states += explore(&plan, 0, ring_max, page_rows);
                }
            }
        }
    }
    assert!(states > 50_000, "the exploration visited only {states} states");
}

#[test]
fn a_page_that_starts_later_than_asked_is_an_explicit_gap() {
    let mut splice = Splice::new(ReadPosition::Run(Seq::new(2).unwrap()));
    let steps = splice.step(Input::Page { events: vec![(place(5), 5)], tail: None, complete: true });
    let (requested_after, first_seq) = (Seq::new(2).unwrap(), Seq::new(5).unwrap());
    assert_eq!(steps, vec![Step::Gap { requested_after, first_seq }, Step::Deliver(5), Step::GoLive]);
}

#[test]
fn a_feed_takes_each_lane_forward_only() {
    let mut splice = Splice::new(ReadPosition::Feed(FeedCursor::of(vec![10, 5])));
    let at = |lane, position| LogPosition { seq: Seq::new(1).unwrap(), lane, position };
    let page = Input::Page { events: vec![(at(0, 11), 'a')], tail: Some(FeedCursor::of(vec![20, 5])), complete: true };
    assert_eq!(splice.step(page), vec![Step::Deliver('a'), Step::GoLive]);
    assert_eq!(splice.step(Input::Durable(at(0, 15), 'b')), vec![]);
    assert_eq!(splice.step(Input::Durable(at(1, 6), 'c')), vec![Step::Deliver('c')]);
    assert_eq!(splice.step(Input::<char>::WentLive), vec![Step::CaughtUp { first_time: true }]);
    assert_eq!(splice.track(), &ReadPosition::Feed(FeedCursor::of(vec![20, 6])));
}

proptest! {
    #[test]
    fn random_walks_through_a_larger_world_lose_and_repeat_nothing(
        plan in proptest::collection::vec(any::<bool>(), 0..60),
        ring_max in 1usize..8,
        page_rows in 1i64..9,
        choices in proptest::collection::vec(0usize..3, 400),
    ) {
        let mut world = World::new(&plan, 0, ring_max, page_rows);
        for choice in choices.iter().cycle().take(5_000) {
            world.check(0);
            let mut moves = world.moves();
            if moves.is_empty() {
                break;
            }
            world = moves.swap_remove(choice % moves.len());
        }
    }
}
