//! The splice: how a reader moves from the database to the live bus without gaps or repeats.
//!
//! A pure state machine. Its driver (`timeline::follow`) subscribes to the bus first, then feeds in inputs and executes
//! the returned steps; it makes no decisions. The rules:
//!
//! * While [`Phase::Paging`], only pages count. Live frames may pile up or be lost meanwhile: they are all in the
//!   table, and a later page will contain them.
//! * After the last page the machine asks to [`Step::GoLive`]: the driver empties the queue of live frames. Once, under
//!   the publisher's lock, the queue is empty and everything the page saw has been published, it hands over the texts
//!   open at that moment. (A page may be ahead of the bus: committed, but not published yet. Going live then would show
//!   a message as open whose end the reader already has.)
//! * While [`Phase::Live`], the next event is delivered, an old one dropped; a gap or a lagging bus leads back to
//!   paging from the current position. Lag is not loss.
//!
//! The tests explore every interleaving in a small model: commits, publications, an overflowing ring, pages.

use super::{cursor::FeedCursor, id::Seq};

/// The position of an event, for readers of runs and of feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    pub seq: Seq,
    pub lane: u8,
    pub position: i64,
}

/// A reader's position.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ReadPosition {
    /// One run: seqs are contiguous, so a gap is visible.
    Run(Seq),
    /// Many runs: positions only grow; the bus reports every gap by lagging.
    Feed(FeedCursor),
}

enum Fit {
    Old,
    Next,
    Hole,
}

impl ReadPosition {
    fn fit(&self, place: LogPosition) -> Fit {
        match self {
            Self::Run(seen) if place.seq <= *seen => Fit::Old,
            Self::Run(seen) if place.seq == seen.next() => Fit::Next,
            Self::Run(_) => Fit::Hole,
            Self::Feed(seen) if place.position <= seen.at(place.lane) => Fit::Old,
            Self::Feed(_) => Fit::Next,
        }
    }

    fn advance(&mut self, place: LogPosition) {
        match self {
            Self::Run(seen) => *seen = place.seq,
            Self::Feed(seen) => seen.advance(place.lane, place.position),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Paging,
    GoingLive,
    Live,
}

/// What happened, as reported by the driver.
#[derive(Debug)]
pub enum Input<F> {
    /// A page from the database after the reader's position, in order; `complete` when it reached the tail.
    Page { events: Vec<(LogPosition, F)>, tail: Option<FeedCursor>, complete: bool },
    /// A durable event from the bus.
    Durable(LogPosition, F),
    /// A delta from the bus.
    Ephemeral(F),
    /// The bus overwrote frames that this reader had not received.
    Lagged,
    /// Under the publisher's lock the queue was empty, and all that the last page saw had been published.
    WentLive,
}

/// A step for the driver, to be executed in order.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<F> {
    /// Read a page after the reader's position.
    Query,
    /// Empty the live queue, then report [`Input::WentLive`].
    GoLive,
    /// Hand an event to the reader.
    Deliver(F),
    /// Retention deleted events this reader asked for.
    Gap { requested_after: Seq, first_seq: Seq },
    /// The reader has everything so far (`first_time` once) and needs the texts open at this moment.
    CaughtUp { first_time: bool },
}

/// One reader's splice.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Splice {
    track: ReadPosition,
    phase: Phase,
    caught_up: bool,
    /// A live event or lag was seen while a page was being read, so the page may be older.
    stale: bool,
}

impl Splice {
    /// A reader that has seen everything up to `track`; its driver must start with a [`Step::Query`].
    pub fn new(track: ReadPosition) -> Self {
        Self { track, phase: Phase::Paging, caught_up: false, stale: false }
    }

    pub fn track(&self) -> &ReadPosition {
        &self.track
    }

    /// Processes one input and returns the resulting steps.
    pub fn step<F>(&mut self, input: Input<F>) -> Vec<Step<F>> {
        match input {
            Input::Page { events, tail, complete } => self.page(events, tail, complete),
            Input::Durable(place, frame) => self.durable(place, frame),
            Input::Ephemeral(frame) if self.phase == Phase::Live => vec![Step::Deliver(frame)],
            Input::Ephemeral(_) => Vec::new(),
            Input::Lagged if self.phase == Phase::Paging => {
                self.stale = true;
                Vec::new()
            }
            Input::Lagged => self.page_again(),
            Input::WentLive if self.phase == Phase::GoingLive => {
                self.phase = Phase::Live;
                let first_time = !std::mem::replace(&mut self.caught_up, true);
                vec![Step::CaughtUp { first_time }]
            }
            Input::WentLive => Vec::new(),
        }
    }

    fn page<F>(&mut self, events: Vec<(LogPosition, F)>, tail: Option<FeedCursor>, complete: bool) -> Vec<Step<F>> {
        assert!(self.phase == Phase::Paging, "a page arrives only when one was asked for");
        let mut steps = Vec::with_capacity(events.len() + 1);
        for (place, frame) in events {
            match self.track.fit(place) {
                Fit::Old => continue,
                Fit::Next => {}
                Fit::Hole => {
                    // A page is a snapshot of a contiguous log: missing events were deleted.
                    if let ReadPosition::Run(requested_after) = self.track {
                        steps.push(Step::Gap { requested_after, first_seq: place.seq });
                    }
                }
            }
            self.track.advance(place);
            steps.push(Step::Deliver(frame));
        }
        if let (ReadPosition::Feed(seen), Some(tail)) = (&mut self.track, tail) {
            // Other events up to the page's tail were read and skipped.
            *seen = tail;
        }
        if complete && !self.stale {
            self.phase = Phase::GoingLive;
            steps.push(Step::GoLive);
        } else {
            self.stale = false;
            steps.push(Step::Query);
        }
        steps
    }

    fn durable<F>(&mut self, place: LogPosition, frame: F) -> Vec<Step<F>> {
        match (self.phase, self.track.fit(place)) {
            (_, Fit::Old) => Vec::new(),
            (Phase::Paging, _) => {
                self.stale = true;
                Vec::new()
            }
            (_, Fit::Next) => {
                self.track.advance(place);
                vec![Step::Deliver(frame)]
            }
            (_, Fit::Hole) => self.page_again(),
        }
    }

    fn page_again<F>(&mut self) -> Vec<Step<F>> {
        self.phase = Phase::Paging;
        self.stale = false;
        vec![Step::Query]
    }
}

#[cfg(test)]
mod tests;
