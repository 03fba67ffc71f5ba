//! A text in pieces.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{domain::limits::OPEN_PIECE_BYTES, quota::Share};

/// A text that only grows, in pieces of at most [`OPEN_PIECE_BYTES`], and its share of the quota.
#[derive(Debug)]
pub(super) struct Text(Mutex<(Vec<String>, Share)>);

impl Text {
    pub(super) fn new(share: Share) -> Self {
        Self(Mutex::new((Vec::new(), share)))
    }

    pub(super) fn of(pieces: Vec<String>, share: Share) -> Self {
        Self(Mutex::new((pieces, share)))
    }

    fn kept(&self) -> MutexGuard<'_, (Vec<String>, Share)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends to the last piece, and then adds pieces.
    pub(super) fn push(&self, mut text: &str, more: Option<Share>) {
        let mut kept = self.kept();
        let (pieces, share) = &mut *kept;
        if let Some(more) = more {
            share.join(more);
        }
        while !text.is_empty() {
            let room = pieces.last().map_or(0, |last| OPEN_PIECE_BYTES - last.len());
            let (fits, rest) = text.split_at(text.floor_char_boundary(room));
            match pieces.last_mut() {
                Some(last) if !fits.is_empty() => last.push_str(fits),
                _ => pieces.push(String::new()),
            }
            text = rest;
        }
    }

    /// A piece, cut to the `left` bytes that remain of the text from there on.
    pub(super) fn piece(&self, index: usize, left: usize) -> Option<String> {
        if left == 0 {
            return None;
        }
        self.kept().0.get(index).map(|piece| piece[..piece.len().min(left)].to_owned())
    }

    pub(super) fn piece_count(&self) -> usize {
        self.kept().0.len()
    }

    /// The pieces from `first` on: at least one, otherwise up to `bytes_max`.
    pub(super) fn pieces_from(&self, first: usize, bytes_max: usize) -> Vec<String> {
        let (kept, mut bytes) = (self.kept(), 0);
        let pieces = kept.0.iter().skip(first).take_while(|piece| {
            bytes += piece.len();
            bytes == piece.len() || bytes <= bytes_max
        });
        pieces.cloned().collect()
    }
}
