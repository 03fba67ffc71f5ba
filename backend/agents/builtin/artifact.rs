//! `read_artifact`: reads a tool's result that is too long for the conversation, in parts or by a search.

use std::sync::Arc;

use memchr::memmem;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{failed, number, text};
use crate::{
    agents::tools::{Called, Tool, ToolError},
    domain::{
        context::RunContext,
        limits::{ARTIFACT_MATCHES_MAX, ARTIFACT_READ_BYTES_MAX, ARTIFACT_SEARCH_BYTES_MAX},
    },
    emitters::host::{Piece, RunHost},
};

/// The tool's name; offloaded results refer to it.
pub const READ_ARTIFACT: &str = "read_artifact";

/// Bytes searched at a time.
const CHUNK_BYTES: usize = 1024 * 1024;
/// Bytes shown before and after a match.
const AROUND_BYTES: usize = 200;

/// Reads artifacts of the run's owner.
pub struct ReadArtifact(pub Arc<dyn RunHost>);

impl Tool for ReadArtifact {
    fn name(&self) -> &'static str {
        READ_ARTIFACT
    }

    fn description(&self) -> &'static str {
        "Reads a part of an artifact, such as a tool's result that was too long, or searches it for a text."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object", "required": ["artifact_id"], "additionalProperties": false,
            "properties": {
                "artifact_id": {"type": "string", "minLength": 1, "maxLength": 64},
                "offset": {"type": "integer", "minimum": 0, "description": "from this byte on"},
                "limit": {"type": "integer", "minimum": 1, "maximum": ARTIFACT_READ_BYTES_MAX, "description": "bytes to read"},
                "search": {"type": "string", "minLength": 1, "maxLength": 1000, "description": "a text to find instead of reading"},
            },
        })
    }

    fn call<'a>(&'a self, _: &'a RunContext, args: Value, _: &'a CancellationToken) -> Called<'a> {
        Box::pin(async move {
            let offset = args["offset"].as_u64().unwrap_or(0);
            if let Some(wanted) = args["search"].as_str() {
                return self.search(text(&args, "artifact_id"), offset, wanted.as_bytes()).await;
            }
            let limit = usize::try_from(number(&args, "limit", u64::MAX))
                .map_or(ARTIFACT_READ_BYTES_MAX, |limit| limit.min(ARTIFACT_READ_BYTES_MAX));
            let piece = self.piece(text(&args, "artifact_id"), offset, limit).await?;
            let end = offset + piece.bytes.len() as u64;
            let next = (end < piece.size).then_some(end);
            let shown = String::from_utf8_lossy(&piece.bytes);
            Ok(json!({"text": shown, "offset": offset, "next_offset": next, "bytes": piece.size}))
        })
    }
}

impl ReadArtifact {
    async fn piece(&self, artifact: &str, from: u64, bytes_max: usize) -> Result<Piece, ToolError> {
        let piece = self.0.read_artifact(artifact, from, bytes_max).await.map_err(failed)?;
        piece.ok_or_else(|| ToolError::Failed("there is no such artifact".to_owned()))
    }

    /// Searches the artifact in chunks. They overlap by one byte less than the text, so that no match is missed.
    async fn search(&self, artifact: &str, offset: u64, wanted: &[u8]) -> Result<Value, ToolError> {
        let (mut matches, mut from) = (Vec::new(), offset);
        let finder = memmem::Finder::new(wanted);
        let (size, next) = loop {
            let Piece { bytes, size, .. } = self.piece(artifact, from, CHUNK_BYTES).await?;
            let end = from + bytes.len() as u64;
            for at in finder.find_iter(&bytes).take(ARTIFACT_MATCHES_MAX - matches.len()) {
                let (begin, until) = (at.saturating_sub(AROUND_BYTES), at + wanted.len() + AROUND_BYTES);
                let around = String::from_utf8_lossy(&bytes[begin..until.min(bytes.len())]);
                matches.push((from + at as u64, json!({"offset": from + at as u64, "text": around})));
            }
            if let Some((last, _)) = matches.last().filter(|_| matches.len() == ARTIFACT_MATCHES_MAX) {
                break (size, Some(last + 1));
            }
            if end >= size || bytes.is_empty() {
                break (size, None);
            }
            from = end - (wanted.len() as u64 - 1).min(bytes.len() as u64 - 1);
            if from - offset >= ARTIFACT_SEARCH_BYTES_MAX {
                break (size, Some(from));
            }
        };
        let matches: Vec<Value> = matches.into_iter().map(|(_, found)| found).collect();
        Ok(json!({"matches": matches, "next_offset": next, "bytes": size}))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        domain::context::Role,
        emitters::testing::{World, context},
    };

    async fn called(bytes: Vec<u8>, args: Value) -> Result<Value, ToolError> {
        let (world, run) = (World::endless(), context(1, Role::Agent, "a"));
        world.held.lock().unwrap().artifacts =
            Some(vec![("x".to_owned(), "text/plain".to_owned(), Bytes::from(bytes))]);
        ReadArtifact(world.host(run.clone())).call(&run, args, &CancellationToken::new()).await
    }

    #[tokio::test]
    async fn a_long_artifact_is_read_part_by_part() {
        let bytes: Vec<u8> = (b'a'..=b'z').cycle().take(40_000).collect();
        let mut read = String::new();
        let mut offset = json!(0);
        while !offset.is_null() {
            let part = called(bytes.clone(), json!({"artifact_id": "a1", "offset": offset})).await.unwrap();
            read.push_str(part["text"].as_str().unwrap());
            assert_eq!(part["bytes"], 40_000);
            offset = part["next_offset"].clone();
        }
        assert_eq!(read.as_bytes(), bytes);
        let some = called(bytes, json!({"artifact_id": "a1", "offset": 26, "limit": 3})).await.unwrap();
        assert_eq!((&some["text"], &some["next_offset"]), (&json!("abc"), &json!(29)));
        let absent = called(Vec::new(), json!({"artifact_id": "a2"})).await;
        assert_eq!(absent, Err(ToolError::Failed("there is no such artifact".to_owned())));
    }

    #[tokio::test]
    async fn a_text_is_found_wherever_it_lies_and_a_search_is_bounded() {
        let mut bytes = vec![b'.'; 3 * CHUNK_BYTES];
        // Inside a chunk, across two chunks, and at the end.
        for at in [500, CHUNK_BYTES - 3, 3 * CHUNK_BYTES - 6] {
            bytes[at..at + 6].copy_from_slice(b"needle");
        }
        let found = called(bytes, json!({"artifact_id": "a1", "search": "needle"})).await.unwrap();
        let places: Vec<u64> =
            found["matches"].as_array().unwrap().iter().map(|m| m["offset"].as_u64().unwrap()).collect();
        assert_eq!(places, [500, CHUNK_BYTES as u64 - 3, 3 * CHUNK_BYTES as u64 - 6]);
        assert_eq!(found["matches"][0]["text"].as_str().unwrap().len(), 406);
        assert_eq!(found["next_offset"], Value::Null);
        let many = called(b"ab".repeat(1_000), json!({"artifact_id": "a1", "search": "ab"})).await.unwrap();
        assert_eq!((many["matches"].as_array().unwrap().len(), &many["next_offset"]), (20, &json!(39)));
        let long = vec![b'.'; 12 * 1024 * 1024];
        let some = called(long, json!({"artifact_id": "a1", "search": "x"})).await.unwrap();
        assert_eq!(some["next_offset"], 8 * 1024 * 1024);
    }
}
