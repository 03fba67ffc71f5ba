//! Checks a tool call's arguments against the tool's JSON Schema.
//!
//! Looked at: `type`, `required`, `properties`, `additionalProperties: false`, `items`, `enum`, `minimum`, `maximum`,
//! `maxItems`. Everything else in a schema is for the caller to read. A full validator is a large dependency for
//! objects of three members.

use serde_json::Value;

use super::tools::ToolError;

/// Deepest value that is looked into, levels; schemas are the program's own, arguments are not.
const DEPTH_MAX: usize = 16;

/// Whether the arguments fit; the error names the first one that does not.
pub fn check(schema: &Value, args: &Value) -> Result<(), ToolError> {
    check_at(schema, args, "arguments", 0).map_err(ToolError::Arguments)
}

fn check_at(schema: &Value, value: &Value, at: &str, depth: usize) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("{at} is nested deeper than {DEPTH_MAX} levels"));
    }
    if let Some(expected) = schema["type"].as_str()
        && !is_of(expected, value)
    {
        return Err(format!("{at} must be of type {expected}"));
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!("{at} must be one of {}", schema["enum"]));
    }
    check_number(schema, value, at)?;
    check_members(schema, value, at, depth)?;
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        for (index, item) in values.iter().enumerate() {
            check_at(items, item, &format!("{at}[{index}]"), depth + 1)?;
        }
    }
    Ok(())
}

fn check_number(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if let Some(number) = value.as_f64() {
        if schema["minimum"].as_f64().is_some_and(|least| number < least) {
            return Err(format!("{at} must be at least {}", schema["minimum"]));
        }
        if schema["maximum"].as_f64().is_some_and(|most| number > most) {
            return Err(format!("{at} must be at most {}", schema["maximum"]));
        }
    }
    let items = value.as_array().and_then(|values| u64::try_from(values.len()).ok());
    match (schema["maxItems"].as_u64(), items) {
        (Some(most), Some(items)) if items > most => Err(format!("{at} must have at most {most} items")),
        _ => Ok(()),
    }
}

fn check_members(schema: &Value, value: &Value, at: &str, depth: usize) -> Result<(), String> {
    let Some(members) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !members.contains_key(name) {
            return Err(format!("{at}.{name} is missing"));
        }
    }
    for (name, member) in members {
        match schema["properties"].get(name) {
            Some(expected) => check_at(expected, member, &format!("{at}.{name}"), depth + 1)?,
            None if schema["additionalProperties"] == false => return Err(format!("{at}.{name} is not known")),
            None => {}
        }
    }
    Ok(())
}

fn is_of(expected: &str, value: &Value) -> bool {
    match expected {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn arguments_that_do_not_fit_are_refused_by_name() {
        let schema = json!({
            "type": "object", "required": ["paths"], "additionalProperties": false,
            "properties": {
                "paths": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
                "top": {"type": "integer", "minimum": 1, "maximum": 50},
                "order": {"enum": ["lines", "bytes"]},
            },
        });
        assert_eq!(check(&schema, &json!({"paths": ["a"], "top": 3, "order": "bytes"})), Ok(()));
        for (args, expected) in [
            (json!([]), "arguments must be of type object"),
            (json!({}), "arguments.paths is missing"),
            (json!({"paths": "a"}), "arguments.paths must be of type array"),
            (json!({"paths": ["a", 1]}), "arguments.paths[1] must be of type string"),
            (json!({"paths": ["a", "b", "c"]}), "arguments.paths must have at most 2 items"),
            (json!({"paths": [], "top": 0}), "arguments.top must be at least 1"),
            (json!({"paths": [], "top": 1.5}), "arguments.top must be of type integer"),
            (json!({"paths": [], "order": "age"}), "arguments.order must be one of [\"lines\",\"bytes\"]"),
            (json!({"paths": [], "extra": 1}), "arguments.extra is not known"),
        ] {
            assert_eq!(check(&schema, &args), Err(ToolError::Arguments(expected.to_owned())), "{args}");
        }
    }
}
