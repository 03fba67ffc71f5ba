//! Shared by the requests of several protocols: invalid members, and the tools that a client executes.

use serde_json::{Map, Value, json};

use crate::domain::{
    id::{RunId, SpanId},
    limits::{CLIENT_TOOLS_BYTES_MAX, CLIENT_TOOLS_MAX, TOOL_NAME_CHARS_MAX},
};

/// What is wrong with a request: the member, and the rule it breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidMember {
    /// Path of the member, such as `messages[2].parts[0]`.
    pub field: String,
    pub rule: String,
}

impl InvalidMember {
    pub fn new(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self { field: field.into(), rule: rule.into() }
    }
}

/// A person's decision on a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Decided {
    /// The run that asked, if the client's id has it.
    pub run_id: Option<RunId>,
    pub interrupt_id: SpanId,
    pub approved: bool,
    pub reason: Option<String>,
}

/// Splits a client's id, `{run_id}/{id}`; one without a run id stays as it is.
pub fn id_of_run(id: &str) -> (Option<RunId>, &str) {
    let parts = id.split_once('/').and_then(|(run, id)| Some((run.parse().ok()?, id)));
    parts.map_or((None, id), |(run, id)| (Some(run), id))
}

/// Tools that the client itself executes, as a run's input has them: `[{name, description, parameters}]`.
///
/// Takes a list of `{name, description?, parameters?}` or an object of the same by name; a schema may also be called
/// `inputSchema`.
pub fn client_tools(field: &str, tools: &Value) -> Result<Vec<Value>, InvalidMember> {
    let specs: Vec<Result<Value, InvalidMember>> = match tools {
        Value::Null => Vec::new(),
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(n, tool)| client_tool(&format!("{field}[{n}]"), tool["name"].as_str(), tool))
            .collect(),
        Value::Object(by_name) => {
            by_name.iter().map(|(name, tool)| client_tool(&format!("{field}.{name}"), Some(name), tool)).collect()
        }
        _ => return Err(InvalidMember::new(field, "tools are a list, or an object by name")),
    };
    let specs: Vec<Value> = specs.into_iter().collect::<Result<_, _>>()?;
    if specs.len() > CLIENT_TOOLS_MAX || json!(specs).to_string().len() > CLIENT_TOOLS_BYTES_MAX {
        let rule = format!("there may be at most {CLIENT_TOOLS_MAX} tools of {CLIENT_TOOLS_BYTES_MAX} bytes together");
        return Err(InvalidMember::new(field, rule));
    }
    Ok(specs)
}

/// One tool that the client executes.
pub fn client_tool(field: &str, name: Option<&str>, tool: &Value) -> Result<Value, InvalidMember> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name = name.filter(|name| (1..=TOOL_NAME_CHARS_MAX).contains(&name.len()) && name.chars().all(fits));
    let rule =
        || InvalidMember::new(field, format!("a tool's name is 1 to {TOOL_NAME_CHARS_MAX} of A-Z, a-z, 0-9, _ and -"));
    let name = name.ok_or_else(rule)?;
    let schema = [&tool["parameters"], &tool["inputSchema"]].into_iter().find(|schema| schema.is_object());
    let parameters = schema.cloned().unwrap_or_else(|| json!({"type": "object", "properties": Map::new()}));
    let description = tool["description"].as_str().unwrap_or_default();
    Ok(json!({"name": name, "description": description, "parameters": parameters}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_come_as_a_list_or_by_name_and_are_the_same_afterwards() {
        let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let list = json!([{"name": "weather", "description": "now", "parameters": schema}]);
        let by_name = json!({"weather": {"description": "now", "inputSchema": schema}});
        assert_eq!(client_tools("tools", &list).unwrap(), *list.as_array().unwrap());
        assert_eq!(client_tools("tools", &by_name), client_tools("tools", &list));
        assert_eq!(client_tools("tools", &Value::Null), Ok(Vec::new()));
    }

    #[test]
    fn a_tool_without_a_name_that_models_take_is_refused_and_named() {
        for bad in [json!([{"description": "x"}]), json!([{"name": "two words"}]), json!([{"name": ""}])] {
            assert_eq!(client_tools("tools", &bad).unwrap_err().field, "tools[0]");
        }
        assert_eq!(client_tools("tools", &json!("x")).unwrap_err().field, "tools");
        let many: Vec<Value> = (0..=CLIENT_TOOLS_MAX).map(|n| json!({"name": format!("t{n}")})).collect();
        assert!(client_tools("tools", &json!(many)).is_err());
    }
}
