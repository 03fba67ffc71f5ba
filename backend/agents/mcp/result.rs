//! Converts the result of a server's tool into one of ours. It is read leniently: a block of an unknown kind becomes a
//! note, a result of a wrong shape is shown unchanged.

use serde_json::{Value, json};

use crate::agents::tools::ToolError;

/// Characters kept of a failure.
const FAILURE_CHARS_MAX: usize = 4_000;

pub(super) fn of(given: Value) -> Result<Value, ToolError> {
    if given["resultType"].as_str().is_some_and(|kind| kind != "complete") {
        return Err(ToolError::Failed("the server asked for input, which is not supported".to_owned()));
    }
    let structured = given.get("structuredContent").filter(|structured| !structured.is_null());
    let parts: Option<Vec<Value>> = match &given["content"] {
        Value::Array(blocks) => Some(blocks.iter().map(part).collect()),
        Value::Null => structured.map(|_| Vec::new()),
        // A single block without a list.
        block => Some(vec![part(block)]),
    };
    if given["isError"] == true {
        let texts: Vec<&str> = parts.iter().flatten().filter_map(|part| part["text"].as_str()).collect();
        let text: String = texts.join("\n").chars().take(FAILURE_CHARS_MAX).collect();
        return Err(ToolError::Failed(if text.is_empty() {
            "the tool failed without a message".to_owned()
        } else {
            text
        }));
    }
    // Without content, the model is shown the whole result.
    let Some(parts) = parts else { return Ok(given) };
    Ok(match (parts.as_slice(), structured) {
        ([], Some(structured)) => structured.clone(),
        ([only], None) if only["type"] == "text" => only["text"].clone(),
        (_, Some(structured)) => json!({"content": parts, "structured": structured}),
        (_, None) => json!({"content": parts}),
    })
}

fn part(block: &Value) -> Value {
    let word = |name: &str| block[name].as_str();
    let text = |text: &str| json!({"type": "text", "text": text});
    let bytes = |media_type: Option<&str>, base64: &str| match media_type {
        Some(media_type) if media_type.starts_with("image/") => {
            json!({"type": "image", "media_type": media_type, "data": base64})
        }
        media_type => {
            text(&format!("[{}, {} bytes, was left out]", media_type.unwrap_or("bytes"), base64.len() / 4 * 3))
        }
    };
    let read = match (word("type"), block) {
        (_, Value::String(plain)) => Some(text(plain)),
        (Some("text") | None, _) => word("text").map(text),
        (Some("image"), _) => word("data").map(|data| bytes(Some(word("mimeType").unwrap_or("image/png")), data)),
        (Some("audio"), _) => word("data").map(|data| bytes(word("mimeType"), data)),
        (Some("resource_link"), _) => {
            word("uri").map(|uri| text(&format!("{uri} ({})", word("name").unwrap_or("unnamed"))))
        }
        (Some("resource"), _) => {
            let resource = &block["resource"];
            let (uri, media_type) = (resource["uri"].as_str().unwrap_or("resource"), resource["mimeType"].as_str());
            let inline = resource["text"].as_str().map(|plain| text(&format!("{uri}:\n{plain}")));
            inline.or_else(|| resource["blob"].as_str().map(|blob| bytes(media_type, blob)))
        }
        // A block of a later protocol version.
        (Some(_), _) => None,
    };
    read.unwrap_or_else(|| text("[content of an unknown type was left out]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_become_text_parts_or_failures() {
        let text = json!({"type": "text", "text": "hello"});
        let image = json!({"type": "image", "data": "aGk=", "mimeType": "image/png"});
        assert_eq!(of(json!({"content": [text]})), Ok(json!("hello")));
        assert_eq!(
            of(json!({"content": [text, image]})),
            Ok(json!({"content": [text, {"type": "image", "media_type": "image/png", "data": "aGk="}]}))
        );
        assert_eq!(of(json!({"content": [], "structuredContent": {"a": 1}})), Ok(json!({"a": 1})));
        assert_eq!(
            of(json!({"content": [text], "structuredContent": {"a": 1}})),
            Ok(json!({"content": [text], "structured": {"a": 1}}))
        );
        assert_eq!(of(json!({"content": [text], "isError": true})), Err(ToolError::Failed("hello".to_owned())));
        assert!(of(json!({"content": [], "isError": true})).is_err());
        assert!(of(json!({"resultType": "input_required", "inputRequests": {}})).is_err());
    }

    #[test]
    fn a_block_that_cannot_be_used_is_named_and_takes_no_other_away() {
        let text = json!({"type": "text", "text": "hello"});
        let left_out = json!({"type": "text", "text": "[content of an unknown type was left out]"});
        for odd in [
            json!({"type": "video"}),
            json!({"type": "text"}),
            json!({"type": "text", "text": 3}),
            json!({"type": "image", "mimeType": "image/png"}),
            json!({"type": "resource"}),
            json!({"type": 3}),
            json!(null),
            json!([]),
        ] {
            assert_eq!(of(json!({"content": [odd, text]})), Ok(json!({"content": [left_out, text]})), "{odd}");
        }
        assert_eq!(of(json!({"content": [{"text": "no type"}]})), Ok(json!("no type")));
        let audio = json!({"type": "audio", "data": "aGkh", "mimeType": "audio/wav"});
        assert_eq!(of(json!({"content": [audio]})), Ok(json!("[audio/wav, 3 bytes, was left out]")));
    }

    #[test]
    fn a_result_of_a_wrong_shape_is_shown_as_it_is() {
        for odd in [json!("text"), json!(null), json!([1]), json!({"toolResult": 3}), json!({"content": null})] {
            assert_eq!(of(odd.clone()), Ok(odd));
        }
        assert_eq!(of(json!({"content": "plain"})), Ok(json!("plain")));
        assert_eq!(of(json!({"content": {"type": "text", "text": "one"}})), Ok(json!("one")));
        assert_eq!(of(json!({"structuredContent": {"a": 1}})), Ok(json!({"a": 1})));
    }
}
