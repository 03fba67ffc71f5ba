//! Append-only lists, stored in segments: an append changes the last segment or adds one; the others stay the same.
//!
//! A list named `messages` is the channel `messages` while it is short; the rest is in `messages.1`, `messages.2` and
//! so on. Where a segment ends depends only on what precedes it, so the same list is always split in the same way.

use serde_json::Value;

use super::{
    checkpoint::{Blob, Bytes64, Channel, Checkpoint, ValueType},
    limits::{SEGMENT_BYTES, SEGMENT_PART},
};

/// The channel of a segment, counted from 0.
pub fn channel(list: &str, segment: usize) -> String {
    if segment == 0 { list.to_owned() } else { format!("{list}.{segment}") }
}

/// The segment of the list that a channel holds, if any.
pub fn segment(list: &str, channel: &str) -> Option<usize> {
    match channel.strip_prefix(list)? {
        "" => Some(0),
        rest => rest.strip_prefix('.')?.parse().ok().filter(|segment| *segment > 0),
    }
}

/// The segments of a list, each the JSON of an array. An empty list is one empty segment.
pub fn split(items: &[Value]) -> Vec<String> {
    let (mut segments, mut open, mut before) = (Vec::new(), String::from("["), 0);
    for item in items {
        // The longer the list, the longer its segments, to limit their number.
        if open.len() >= SEGMENT_BYTES.max(before / SEGMENT_PART) {
            before += open.len();
            segments.push(std::mem::replace(&mut open, String::from("[")) + "]");
        }
        if open.len() > 1 {
            open.push(',');
        }
        open.push_str(&item.to_string());
    }
    segments.push(open + "]");
    segments
}

/// The list in these segments; `None` if one is missing or not an array.
pub fn join(mut segments: Vec<(usize, Value)>) -> Option<Vec<Value>> {
    segments.sort_by_key(|(segment, _)| *segment);
    let is_whole = segments.iter().enumerate().all(|(n, (segment, _))| n == *segment);
    let mut items = Vec::new();
    for (_, part) in segments {
        let Value::Array(part) = part else { return None };
        items.extend(part);
    }
    is_whole.then_some(items)
}

/// The checkpoint with the segments of `list` joined into one channel, for readers that do not know segments.
#[must_use]
pub fn joined(checkpoint: Checkpoint, list: &str) -> Checkpoint {
    let of_list = |(channel, blob): &(Channel, Blob)| {
        let segment = segment(list, channel.as_str())?;
        Some((segment, serde_json::from_slice(&blob.b.0).ok().filter(|_| blob.t.as_str() == "json")?))
    };
    let found: Vec<(usize, Value)> = checkpoint.blobs.0.iter().filter_map(of_list).collect();
    let newest = found.iter().map(|(segment, _)| *segment).max().filter(|newest| *newest > 0);
    let (Some(newest), Some(items)) = (newest, join(found)) else { return checkpoint };
    let (mut blobs, mut versions) = (checkpoint.blobs.clone(), checkpoint.versions.clone());
    // It changed when its last segment did.
    let changed = versions.0.iter().find(|(name, _)| name.as_str() == channel(list, newest)).map(|(_, v)| v.clone());
    versions.0.retain(|(name, _)| segment(list, name.as_str()).is_none());
    blobs.0.retain(|(name, _)| segment(list, name.as_str()).is_none());
    if let Some(version) = changed {
        let b = Bytes64(Value::Array(items).to_string().into_bytes());
        versions.0.push((Channel::trusted(list), version.clone()));
        blobs.0.push((Channel::trusted(list), Blob { version, t: ValueType::trusted("json"), b }));
    }
    Checkpoint { versions, blobs, ..checkpoint }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_that_grows_changes_its_last_segment_only() {
        let items: Vec<Value> = (0..400).map(|n| json!({"n": n, "text": "x".repeat(n % 700)})).collect();
        let mut before: Vec<String> = Vec::new();
        for n in 0..items.len() {
            let segments = split(&items[..n]);
            let same = before.len().saturating_sub(1);
            assert_eq!(segments[..same], before[..same], "{n} items");
            let read = segments.iter().map(|text| serde_json::from_str(text).unwrap()).enumerate().collect();
            assert_eq!(join(read).unwrap(), items[..n]);
            before = segments;
        }
        assert!(before.len() > 30, "{}", before.len());
    }

    #[test]
    fn however_long_a_list_is_its_segments_are_countable() {
        let items = vec![json!("x".repeat(1_000)); 32_000];
        assert!(split(&items).len() < 2_000, "{}", split(&items).len());
    }

    #[test]
    fn a_segment_is_known_by_its_channel_and_a_missing_one_is_noticed() {
        assert_eq!([channel("m", 0), channel("m", 12)], ["m", "m.12"]);
        let found = ["m", "m.12", "m.0", "m.x", "mm", "n", "m.-1"].map(|name| segment("m", name));
        assert_eq!(found, [Some(0), Some(12), None, None, None, None, None]);
        assert_eq!(join(vec![(0, json!([1])), (2, json!([3]))]), None);
        assert_eq!(join(vec![(1, json!([2])), (0, json!([1]))]), Some(vec![json!(1), json!(2)]));
    }
}
