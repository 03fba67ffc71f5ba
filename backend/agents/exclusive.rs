//! [`Locks`]: serialises tool calls that share a resource, across all runs of this process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use tokio::sync::{Mutex as Lock, OwnedMutexGuard};

/// One lock for each shared resource, kept while it is held or waited for. Clones share the locks.
#[derive(Clone, Default)]
pub struct Locks(Arc<Mutex<HashMap<String, Weak<Lock<()>>>>>);

impl Locks {
    /// Waits for exclusive use; waiters are served in order.
    pub async fn lock(&self, shared: &str) -> OwnedMutexGuard<()> {
        self.of(shared).lock_owned().await
    }

    fn of(&self, shared: &str) -> Arc<Lock<()>> {
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = locks.get(shared).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        locks.insert(shared.to_owned(), Arc::downgrade(&lock));
        lock
    }
}
