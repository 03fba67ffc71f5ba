//! Converts the result of a server's tool into one of ours.

use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

use crate::agents::tools::ToolError;

/// Characters kept of a failure.
const FAILURE_CHARS_MAX: usize = 4_000;

pub(super) fn of(given: CallToolResult) -> Result<Value, ToolError> {
    let parts: Vec<Value> = given.content.into_iter().map(part).collect();
    if given.is_error == Some(true) {
        let texts: Vec<&str> = parts.iter().filter_map(|part| part["text"].as_str()).collect();
        let text: String = texts.join("\n").chars().take(FAILURE_CHARS_MAX).collect();
        return Err(ToolError::Failed(if text.is_empty() {
            "the tool failed without a message".to_owned()
        } else {
            text
        }));
    }
    match (parts.as_slice(), given.structured_content) {
        ([], Some(structured)) => Ok(structured),
        ([only], None) if only["type"] == "text" => Ok(only["text"].clone()),
        (_, Some(structured)) => Ok(json!({"content": parts, "structured": structured})),
        (_, None) => Ok(json!({"content": parts})),
    }
}

fn part(block: ContentBlock) -> Value {
    match block {
        ContentBlock::Text(text) => json!({"type": "text", "text": text.text}),
        ContentBlock::Image(image) => json!({"type": "image", "media_type": image.mime_type, "data": image.data}),
        ContentBlock::Audio(audio) => left_out(&audio.mime_type, audio.data.len()),
        ContentBlock::ResourceLink(link) => json!({"type": "text", "text": format!("{} ({})", link.uri, link.name)}),
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                json!({"type": "text", "text": format!("{uri}:\n{text}")})
            }
            ResourceContents::BlobResourceContents { mime_type, blob, .. } => match mime_type {
                Some(media_type) if media_type.starts_with("image/") => {
                    json!({"type": "image", "media_type": media_type, "data": blob})
                }
                media_type => left_out(media_type.as_deref().unwrap_or("bytes"), blob.len()),
            },
            _ => unknown(),
        },
        // A block of a later protocol version.
        _ => unknown(),
    }
}

fn unknown() -> Value {
    json!({"type": "text", "text": "[content of an unknown type was left out]"})
}

fn left_out(what: &str, base64_chars: usize) -> Value {
    json!({"type": "text", "text": format!("[{what}, {} bytes, was left out]", base64_chars / 4 * 3)})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(value: Value) -> Result<Value, ToolError> {
        of(serde_json::from_value(value).unwrap())
    }

    #[test]
    fn results_become_text_parts_or_failures() {
        let text = json!({"type": "text", "text": "hello"});
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        assert_eq!(given(json!({"content": [text]})), Ok(json!("hello")));
        assert_eq!(
            given(json!({"content": [text, image]})),
            Ok(json!({"content": [text, {"type": "image", "media_type": "image/png", "data": "aGk="}]}))
        );
        assert_eq!(given(json!({"content": [], "structuredContent": {"a": 1}})), Ok(json!({"a": 1})));
        assert_eq!(
            given(json!({"content": [text], "structuredContent": {"a": 1}})),
            Ok(json!({"content": [text], "structured": {"a": 1}}))
        );
        assert_eq!(given(json!({"content": [text], "isError": true})), Err(ToolError::Failed("hello".to_owned())));
        assert!(given(json!({"content": [], "isError": true})).is_err());
    }
}
