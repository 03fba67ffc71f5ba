//! What a follower reads besides the bus: pages of the log as frames, trees, and the texts of other processes.

use std::{fmt, sync::Arc};

use futures::{FutureExt as _, future::BoxFuture};

use super::{Timeline, follow::Scope};
use crate::{
    bus::Frame,
    domain::{
        cursor::FeedCursor,
        history::Histories,
        id::RunId,
        principal::OwnerId,
        splice::{Input, LogPosition, ReadPosition},
    },
    store::{self, events::PositionedEvent},
};

/// The result of one read of the database for a follower.
pub(super) struct Page {
    pub input: Input<Arc<Frame>>,
    /// What must have been published before the reader may go live, and the history of the page.
    pub floor: FeedCursor,
    /// Bytes of the page, to choose the size of the next one.
    pub bytes: usize,
    pub rows: usize,
}

/// What a follower reads from: the timeline, or a simulated log.
pub(super) trait Source: fmt::Debug + Send + Sync {
    /// A page after `track` for a reader admitted under these histories; `None` if the run no longer exists.
    fn page<'a>(
        &'a self,
        owner: &'a OwnerId,
        scope: &'a Scope,
        track: &'a ReadPosition,
        limit: i64,
        histories: &'a Histories,
    ) -> BoxFuture<'a, Result<Option<Page>, store::Error>>;

    /// The runs of a tree, and whether each has ended.
    fn tree<'a>(&'a self, owner: &'a OwnerId, root: RunId) -> BoxFuture<'a, Result<Vec<(RunId, bool)>, store::Error>>;

    /// Waits, for a bounded time, until the texts that other processes have saved are known here.
    fn ask<'a>(&'a self, owner: &'a OwnerId, run: Option<RunId>) -> BoxFuture<'a, ()>;
}

impl Source for Timeline {
    fn page<'a>(
        &'a self,
        owner: &'a OwnerId,
        scope: &'a Scope,
        track: &'a ReadPosition,
        limit: i64,
        histories: &'a Histories,
    ) -> BoxFuture<'a, Result<Option<Page>, store::Error>> {
        self.read_page(owner, scope, track, limit, histories).boxed()
    }

    fn tree<'a>(&'a self, owner: &'a OwnerId, root: RunId) -> BoxFuture<'a, Result<Vec<(RunId, bool)>, store::Error>> {
        async move { self.store().feeds().tree(owner, root).await }.boxed()
    }

    fn ask<'a>(&'a self, owner: &'a OwnerId, run: Option<RunId>) -> BoxFuture<'a, ()> {
        self.shared.texts.ask(owner, run).boxed()
    }
}

impl Timeline {
    async fn read_page(
        &self,
        owner: &OwnerId,
        scope: &Scope,
        track: &ReadPosition,
        limit: i64,
        histories: &Histories,
    ) -> Result<Option<Page>, store::Error> {
        match (scope, track) {
            (Scope::Run(context), ReadPosition::Run(after)) => {
                let page = self.store().events().page(owner, context.run_id, *after, limit).await?;
                let Some(page) = page else { return Ok(None) };
                let mut floor = FeedCursor::start().of_history(page.history);
                floor.advance(page.lane, page.lane_position);
                let events = page.events.into_iter();
                let frames =
                    events.map(|(place, event)| frame(Arc::clone(context), place, &event, histories)).collect();
                Ok(Some(Page::new(frames, None, floor, page.complete)))
            }
            (Scope::Feed(scope), ReadPosition::Feed(after)) => {
                let page = self.store().feeds().page(owner, scope, after, limit).await?;
                let frames = self.frames(page.events, histories).await?;
                Ok(Some(Page::new(frames, Some(page.tail.clone()), page.tail, page.complete)))
            }
            _ => unreachable!("a run is followed by seq and a feed by cursor"),
        }
    }

    async fn frames(
        &self,
        events: Vec<PositionedEvent>,
        histories: &Histories,
    ) -> Result<Vec<(LogPosition, Arc<Frame>)>, store::Error> {
        let contexts = &self.shared.contexts;
        contexts.learn(events.iter().map(|(_, event)| (event.run_id, &*event.owner_id))).await?;
        let known = events.into_iter().filter_map(|(place, event)| {
            // A run without a context was deleted between the two reads, with its events.
            let context = contexts.known(event.run_id, &event.owner_id)?;
            Some(frame(context, place, &event, histories))
        });
        Ok(known.collect())
    }
}

impl Page {
    pub(super) fn new(
        events: Vec<(LogPosition, Arc<Frame>)>,
        tail: Option<FeedCursor>,
        floor: FeedCursor,
        complete: bool,
    ) -> Self {
        let bytes = events.iter().map(|(_, frame)| frame.block().len()).sum();
        Self { rows: events.len(), bytes, floor, input: Input::Page { events, tail, complete } }
    }
}

fn frame(
    context: Arc<crate::domain::context::RunContext>,
    place: LogPosition,
    event: &crate::domain::event::Recorded,
    histories: &Histories,
) -> (LogPosition, Arc<Frame>) {
    let history = histories.of_position(place.lane, place.position);
    (place, Arc::new(Frame::new(context, event, Some(place), history)))
}
