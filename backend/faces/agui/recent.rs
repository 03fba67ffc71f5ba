//! Bounded memory of the newest names in a run.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, RandomState},
};

use crate::domain::limits::CHAT_RECENT_MAX;

/// The newest names, each with a value. A name is kept as a hash of eight bytes.
#[derive(Debug)]
pub(super) struct Recent<V = ()> {
    hasher: RandomState,
    kept: VecDeque<(u64, V)>,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { hasher: RandomState::new(), kept: VecDeque::new() }
    }
}

impl<V> Recent<V> {
    /// Adds a name; false and no change if it is known.
    pub(super) fn insert(&mut self, name: &str, value: V) -> bool {
        let hash = self.hasher.hash_one(name);
        if self.kept.iter().any(|(kept, _)| *kept == hash) {
            return false;
        }
        if self.kept.len() >= CHAT_RECENT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((hash, value));
        true
    }

    /// Adds a name, or replaces its value.
    pub(super) fn put(&mut self, name: &str, value: V) {
        self.remove(name);
        self.insert(name, value);
    }

    pub(super) fn get(&self, name: &str) -> Option<&V> {
        let hash = self.hasher.hash_one(name);
        self.kept.iter().find(|(kept, _)| *kept == hash).map(|(_, value)| value)
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<V> {
        let hash = self.hasher.hash_one(name);
        let at = self.kept.iter().position(|(kept, _)| *kept == hash)?;
        self.kept.remove(at).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_names_are_known_and_no_more_are_kept() {
        let mut recent = Recent::default();
        for n in 0..3 * CHAT_RECENT_MAX {
            assert!(recent.insert(&n.to_string(), n));
            assert!(!recent.insert(&n.to_string(), 0), "it is there");
        }
        assert_eq!(recent.kept.len(), CHAT_RECENT_MAX);
        assert_eq!(recent.get("0"), None);
        let last = 3 * CHAT_RECENT_MAX - 1;
        recent.put(&last.to_string(), last);
        assert_eq!(recent.get(&last.to_string()), Some(&last));
        assert_eq!((recent.remove(&last.to_string()), recent.remove(&last.to_string())), (Some(last), None));
    }
}
