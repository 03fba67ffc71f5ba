//! Stores a tool's result that is too large for the run as an artifact, and replaces it with a pointer.

use bytes::Bytes;
use serde_json::{Value, json};

use super::builtin::artifact::READ_ARTIFACT;
use crate::{
    domain::limits::{TOOL_HEAD_BYTES, TOOL_TAIL_BYTES},
    emitters::host::{ArtifactRef, RunHost},
};

/// The result if it fits, or a pointer with its beginning and end.
///
/// Images are offloaded first, each as its own artifact. If storing fails, only a preview stays, marked truncated.
pub(super) async fn within(host: &dyn RunHost, tool: &str, mut result: Value, bytes_max: usize) -> Value {
    if bytes_of(&result) <= bytes_max {
        return result;
    }
    for part in result.get_mut("content").and_then(Value::as_array_mut).into_iter().flatten() {
        if part["type"] == "image" {
            keep_image(host, tool, part).await;
        }
    }
    if bytes_of(&result) <= bytes_max {
        return result;
    }
    let (text, media_type, ending) = match result {
        Value::String(text) => (text, "text/plain; charset=utf-8", "txt"),
        other => (other.to_string(), "application/json", "json"),
    };
    let size = text.len();
    let preview = preview(&text);
    match keep(host, &format!("{tool}.{ending}"), media_type, text.into()).await {
        Some(kept) => json!({"$artifact": kept, "preview": preview}),
        None => json!({"truncated": true, "bytes": size, "preview": preview}),
    }
}

/// The beginning and the end of a text, and between them how much was left out.
fn preview(text: &str) -> String {
    let (head, tail) = (
        text.floor_char_boundary(TOOL_HEAD_BYTES),
        text.ceil_char_boundary(text.len().saturating_sub(TOOL_TAIL_BYTES)),
    );
    if head >= tail {
        return text.to_owned();
    }
    let (left_out, all) = (tail - head, text.len());
    format!(
        "{}\n[{left_out} of {all} bytes left out; {READ_ARTIFACT} reads and searches them]\n{}",
        &text[..head],
        &text[tail..]
    )
}

/// The length of a value as JSON, bytes.
fn bytes_of(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and every key of a value is a string.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

async fn keep_image(host: &dyn RunHost, tool: &str, part: &mut Value) {
    use base64::Engine as _;
    let media_type = part["media_type"].as_str().unwrap_or("application/octet-stream").to_owned();
    let bytes = part["data"].as_str().map(|data| base64::engine::general_purpose::STANDARD.decode(data));
    let Some(Ok(bytes)) = bytes else { return };
    let size = bytes.len();
    *part = match keep(host, &format!("{tool}-image"), &media_type, bytes.into()).await {
        Some(kept) => json!({"type": "image", "media_type": media_type, "artifact_id": kept.artifact_id}),
        None => json!({"type": "text", "text": format!("[an image of {size} bytes was left out]")}),
    };
}

async fn keep(host: &dyn RunHost, name: &str, media_type: &str, bytes: Bytes) -> Option<ArtifactRef> {
    match host.keep_artifact(name, media_type, bytes).await {
        Ok(kept) => Some(kept),
        Err(error) => {
            tracing::warn!(run_id = %host.context().run_id, %error, "tool result truncated: full result not stored");
            None
        }
    }
}
