//! What a reader holds in memory until it is written: a page of the log, or live frames. More than a few small frames
//! take one of its principal's places, so that slow readers together hold a bounded amount.

use crate::{
    domain::{
        limits::{STREAM_CHUNK_BYTES, STREAM_FREE_BYTES},
        principal::OwnerId,
    },
    quota::{Quota, Share},
};

/// What one reader holds.
#[derive(Debug, Default)]
pub(super) struct Holding {
    place: Option<Share>,
    /// Live frames, bytes.
    frames: usize,
}

impl Holding {
    /// Waits for a place for a page.
    pub(super) async fn page(&mut self, places: &Quota, owner: &OwnerId) {
        if self.place.is_none() {
            self.place = places.take(owner, 1).await.ok();
        }
    }

    /// Counts a live frame; returns whether it may be held.
    pub(super) fn frame(&mut self, bytes: usize, places: &Quota, owner: &OwnerId) -> bool {
        self.frames += bytes;
        self.frames <= STREAM_FREE_BYTES || self.has_place(places, owner)
    }

    /// Whether more frames may follow in the same chunk.
    pub(super) fn has_room(&mut self, places: &Quota, owner: &OwnerId) -> bool {
        self.frames < STREAM_FREE_BYTES / 2 || self.frames < STREAM_CHUNK_BYTES && self.has_place(places, owner)
    }

    fn has_place(&mut self, places: &Quota, owner: &OwnerId) -> bool {
        if self.place.is_none() {
            self.place = places.try_take(owner, 1).ok();
        }
        self.place.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_small_frames_need_no_place_and_large_ones_take_one_until_they_are_written() {
        let (places, owner) = (Quota::new(2, 1), OwnerId::trusted("a"));
        let (mut first, mut second) = (Holding::default(), Holding::default());
        assert!(first.frame(STREAM_FREE_BYTES, &places, &owner));
        assert!(first.frame(1, &places, &owner), "it takes the only place");
        assert!(first.has_room(&places, &owner));
        assert!(second.frame(STREAM_FREE_BYTES / 2, &places, &owner));
        assert!(!second.has_room(&places, &owner), "what is on the bus stays there");
        assert!(!second.frame(STREAM_FREE_BYTES, &places, &owner));
        assert!(Holding::default().frame(STREAM_FREE_BYTES + 1, &places, &OwnerId::trusted("b")));
        drop(first);
        assert!(second.frame(1, &places, &owner));
        assert!(second.frame(STREAM_CHUNK_BYTES, &places, &owner));
        assert!(!second.has_room(&places, &owner), "a chunk is full");
    }
}
