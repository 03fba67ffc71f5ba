//! The index of a folder: what a listing shows of each session without reading its file.
//!
//! It is only a cache: an entry is valid only while the file has the stamp it was made from. So the index may be
//! damaged, stale or missing, and files may be added to and removed from the folder by hand.

use std::{collections::HashMap, io};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::folder::{Folder, Stamp};
use crate::domain::{
    event::as_timestamp,
    transcript::{SavedName, SavedSession, Unreadable},
};

const INDEX: &str = "index.json";

/// A session in a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub name: SavedName,
    pub description: Option<String>,
    #[serde(serialize_with = "as_timestamp")]
    pub created_at: DateTime<Utc>,
    #[serde(serialize_with = "as_timestamp")]
    pub updated_at: DateTime<Utc>,
    pub message_count: usize,
    pub first_message: Option<String>,
    pub fallback: bool,
    #[serde(flatten)]
    stamp: Stamp,
}

/// The sessions of a folder by name, and the files that are not sessions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    pub sessions: Vec<Entry>,
    /// By the names they would have as sessions.
    pub unreadable: Vec<(String, Unreadable)>,
}

#[derive(Serialize, Deserialize, PartialEq)]
struct Index {
    sessions: Vec<Entry>,
}

/// Lists the folder, and returns whether the index is up to date.
pub(super) fn look(folder: &Folder) -> io::Result<(Listing, bool)> {
    let index = folder.bytes(INDEX)?;
    let known: Option<Index> = index.and_then(|index| serde_json::from_slice(index.as_bytes()).ok());
    let is_whole = known.is_some();
    let before = known.map(|index| index.sessions).unwrap_or_default();
    let mut old: HashMap<SavedName, Entry> = before.iter().map(|entry| (entry.name.clone(), entry.clone())).collect();
    let mut files = folder.files()?;
    files.sort();
    let mut listing = Listing::default();
    for file in files.iter().filter(|file| !is_own(file)) {
        let stem = file.strip_suffix(".json").unwrap_or(file);
        let name: SavedName = match stem.parse() {
            Ok(name) => name,
            Err(rule) => {
                let reason = format!("the file cannot have this name: {rule}");
                listing.unreadable.push((stem.to_owned(), Unreadable { line: 1, column: 1, reason }));
                continue;
            }
        };
        let Some(stamp) = folder.stamp(file)? else { continue };
        if let Some(entry) = old.remove(&name).filter(|entry| entry.stamp == stamp) {
            listing.sessions.push(entry);
            continue;
        }
        match folder.read(&name) {
            Ok(None) => {}
            Ok(Some(found)) => match found.session(name) {
                Ok(session) => listing.sessions.push(Entry::of(session, found.stamp)),
                Err(unreadable) => listing.unreadable.push((stem.to_owned(), unreadable)),
            },
            Err(error) => {
                let told = stamp.told();
                tracing::warn!(error = &error as &dyn std::error::Error, file, told, "saved session not readable");
                let reason = "the operating system does not allow reading it".to_owned();
                listing.unreadable.push((stem.to_owned(), Unreadable { line: 1, column: 1, reason }));
            }
        }
    }
    listing.sessions.sort_by(|one, other| one.name.cmp(&other.name));
    let is_fresh = is_whole && before == listing.sessions;
    Ok((listing, is_fresh))
}

/// Updates the index after a change. A failure is only logged, since the next listing repairs the index. The caller
/// must hold the lock.
pub(super) fn follow(folder: &Folder) {
    if let Err(error) = heal(folder) {
        tracing::warn!(error = &error as &dyn std::error::Error, "index of saved sessions not updated");
    }
}

/// Updates the index. The caller must hold the lock.
pub(super) fn heal(folder: &Folder) -> io::Result<()> {
    let (listing, is_fresh) = look(folder)?;
    if is_fresh {
        return Ok(());
    }
    let mut text = serde_json::to_string_pretty(&Index { sessions: listing.sessions })?;
    text.push('\n');
    folder.write_lightly(INDEX, text.as_bytes())
}

/// Whether this is a file of the folder itself, in upper or lower case; `metadata` is reserved for a later version.
fn is_own(file: &str) -> bool {
    ["index.json", "metadata.json"].iter().any(|own| file.eq_ignore_ascii_case(own))
}

impl Entry {
    fn of(session: SavedSession, stamp: Stamp) -> Self {
        let fallback = session.thread.is_fallback();
        let SavedSession { name, description, created_at, updated_at, message_count, first_message, .. } = session;
        Self { name, description, created_at, updated_at, message_count, first_message, fallback, stamp }
    }
}
