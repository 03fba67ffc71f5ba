//! Frames queued for slow readers, bounded in bytes for all readers of a principal together.
//!
//! A topic's channel keeps a frame until its last reader has taken it. This module sums up what is kept, oldest first;
//! over the bound the oldest frames are removed before their readers took them, and those readers page the database.

use std::{
    collections::VecDeque,
    sync::{
        Arc, PoisonError, RwLock, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use super::Frame;

/// Entries of read frames are removed when there are this many, plus as many as there are live ones.
const READ_MAX: usize = 64;

/// A frame in a channel.
#[derive(Debug)]
pub(super) struct QueuedFrame {
    /// `None` once it was removed.
    frame: RwLock<Option<Arc<Frame>>>,
    bytes: usize,
    sum: Arc<AtomicUsize>,
}

impl QueuedFrame {
    /// The frame, unless it was removed.
    pub(super) fn frame(&self) -> Option<Arc<Frame>> {
        self.frame.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn take_out(&self) {
        if self.frame.write().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for QueuedFrame {
    fn drop(&mut self) {
        self.take_out();
    }
}

/// The frames queued in a principal's channels.
#[derive(Debug, Default)]
pub(super) struct OwnerQueue {
    sum: Arc<AtomicUsize>,
    kept: VecDeque<Weak<QueuedFrame>>,
    /// The length of `kept` at which the entries of read frames are removed.
    sweep_at: usize,
}

impl OwnerQueue {
    /// Bytes queued for some reader.
    pub(super) fn sum(&self) -> usize {
        self.sum.load(Ordering::Relaxed)
    }

    /// Makes room for a frame and counts it until it is read.
    pub(super) fn keep(&mut self, frame: Arc<Frame>, bytes_max: usize) -> Arc<QueuedFrame> {
        let bytes = frame.bytes();
        self.sum.fetch_add(bytes, Ordering::Relaxed);
        while self.sum() > bytes_max {
            let Some(oldest) = self.kept.pop_front() else { break };
            if let Some(oldest) = oldest.upgrade() {
                oldest.take_out();
            }
        }
        if self.kept.len() >= self.sweep_at {
            self.kept.retain(|kept| kept.strong_count() > 0);
            self.sweep_at = 2 * self.kept.len() + READ_MAX;
        }
        let kept = Arc::new(QueuedFrame { frame: RwLock::new(Some(frame)), bytes, sum: Arc::clone(&self.sum) });
        self.kept.push_back(Arc::downgrade(&kept));
        kept
    }
}
