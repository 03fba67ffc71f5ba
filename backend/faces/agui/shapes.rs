//! Schemas of the `agui.*` events that producers write (`shapes.json`, after the schema of AG-UI 1.0). A client rejects
//! the whole stream if one event does not match.

use std::{collections::HashMap, sync::LazyLock};

use jsonschema::Validator;
use serde_json::{Value, json};

static SHAPES: LazyLock<HashMap<String, Validator>> = LazyLock::new(|| {
    let shapes: Value = serde_json::from_str(include_str!("shapes.json")).unwrap_or_default();
    let names = shapes.as_object().into_iter().flatten().filter(|(name, _)| *name != "$defs");
    let built = names.filter_map(|(name, shape)| {
        let event = if name == "usage" { json!({}) } else { json!({"$ref": "#/$defs/event"}) };
        let schema = json!({"allOf": [event, shape], "$defs": shapes["$defs"]});
        Some((name.clone(), jsonschema::options().offline().build(&schema).ok()?))
    });
    built.collect()
});

/// Whether a value matches the schema of this name; false if there is no such schema.
pub(super) fn fits(name: &str, value: &Value) -> bool {
    SHAPES.get(name).is_some_and(|shape| shape.is_valid(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shape_can_be_built_and_tells_what_fits_from_what_does_not() {
        let user = json!({"id": "u", "role": "user", "content": "x"});
        let picture = json!({"type": "image", "source": {"type": "data", "value": "QQ==", "mimeType": "image/png"}});
        let patch = json!([{"op": "add", "path": "/a~1b", "value": null}, {"op": "remove", "path": ""}]);
        for (name, good, bad) in [
            ("messages_snapshot", json!({"messages": [user]}), json!({"messages": {}})),
            ("message", json!({"id": "u", "role": "user", "content": [picture]}), json!({"id": "u", "role": "user"})),
            ("state_snapshot", json!({"snapshot": null}), json!({})),
            ("state_delta", json!({"delta": patch}), json!({"delta": [{"op": "add", "path": "a", "value": 1}]})),
            ("raw", json!({"event": null}), json!({"event": 1, "source": 2})),
            (
                "activity_snapshot",
                json!({"messageId": "a", "activityType": "x", "content": {}}),
                json!({"messageId": "a", "activityType": "x", "content": []}),
            ),
            (
                "activity_delta",
                json!({"messageId": "a", "activityType": "x", "patch": patch}),
                json!({"messageId": "a", "activityType": "x", "patch": [1]}),
            ),
            (
                "reasoning_encrypted_value",
                json!({"subtype": "message", "entityId": "m", "encryptedValue": "x"}),
                json!({"subtype": "other", "entityId": "m", "encryptedValue": "x"}),
            ),
            (
                "subagent_started",
                json!({"subagentRunId": "s", "name": "x"}),
                json!({"subagentRunId": null, "name": "x"}),
            ),
            ("subagent_finished", json!({"subagentRunId": "s"}), json!({"subagentRunId": "s", "outcome": "x"})),
            ("subagent_error", json!({"subagentRunId": "s", "message": "x"}), json!({"subagentRunId": "s"})),
            ("usage", json!([{"inputTokens": 1}]), json!([{"inputTokens": 1.5}])),
        ] {
            assert!(fits(name, &good), "{name}: {good}");
            assert!(!fits(name, &bad), "{name}: {bad}");
        }
        assert_eq!(SHAPES.len(), 12);
    }
}
