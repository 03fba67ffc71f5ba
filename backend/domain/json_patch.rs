//! JSON Patch (RFC 6902), in which AG-UI sends changes of a state.

use serde_json::Value;

/// Why a patch was not applied; no operation was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {at} of the patch: {what}")]
pub struct PatchError {
    /// The operation, counted from 0.
    pub at: usize,
    pub what: &'static str,
}

/// Applies all operations of a patch, or none. `bytes_max` bounds the document with all additions, as JSON.
pub fn apply(document: &Value, patch: &Value, bytes_max: usize) -> Result<Value, PatchError> {
    let operations = patch.as_array().ok_or(PatchError { at: 0, what: "a patch is a list" })?;
    let (mut patched, mut bytes) = (document.clone(), document.to_string().len());
    for (at, operation) in operations.iter().enumerate() {
        bytes += apply_one(&mut patched, operation).map_err(|what| PatchError { at, what })?;
        if bytes > bytes_max {
            return Err(PatchError { at, what: "the result would be too large" });
        }
    }
    Ok(patched)
}

/// Applies one operation and returns the most bytes that it added.
fn apply_one(document: &mut Value, operation: &Value) -> Result<usize, &'static str> {
    let path = operation["path"].as_str().ok_or("it has no path")?;
    let given = || operation.get("value").cloned().ok_or("it has no value");
    let from = || operation["from"].as_str().ok_or("it has no from");
    match operation["op"].as_str().unwrap_or_default() {
        "add" => add(document, path, given()?),
        "remove" => remove(document, path).map(|_| 0),
        "replace" => {
            let value = given()?;
            let bytes = value.to_string().len();
            *at_mut(document, path)? = value;
            Ok(bytes)
        }
        "move" => {
            let from = from()?;
            if path.strip_prefix(from).is_some_and(|rest| rest.starts_with('/')) {
                return Err("a value cannot be moved into itself");
            }
            let moved = remove(document, from)?;
            add(document, path, moved)
        }
        "copy" => {
            let copied = at_mut(document, from()?)?.clone();
            add(document, path, copied)
        }
        "test" if *at_mut(document, path)? == given()? => Ok(0),
        "test" => Err("the test fails"),
        _ => Err("there is no such operation"),
    }
}

fn at_mut<'a>(document: &'a mut Value, path: &str) -> Result<&'a mut Value, &'static str> {
    document.pointer_mut(path).ok_or("there is nothing at the path")
}

/// The parent of a path, and the unescaped key in it.
fn split(path: &str) -> Result<(&str, String), &'static str> {
    let (parent, key) = path.rsplit_once('/').ok_or("a path begins with a slash")?;
    Ok((parent, key.replace("~1", "/").replace("~0", "~")))
}

/// Parses a list position below `count`.
fn index(key: &str, count: usize) -> Result<usize, &'static str> {
    let is_plain = key == "0" || !key.starts_with('0') && key.bytes().all(|b| b.is_ascii_digit());
    key.parse().ok().filter(|at| is_plain && *at < count).ok_or("the list has no such position")
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<usize, &'static str> {
    let bytes = value.to_string().len() + path.len();
    if path.is_empty() {
        *document = value;
        return Ok(bytes);
    }
    let (parent, key) = split(path)?;
    match at_mut(document, parent)? {
        Value::Object(members) => _ = members.insert(key, value),
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let at = index(&key, items.len() + 1)?;
            items.insert(at, value);
        }
        _ => return Err("the path leads into a value that holds no others"),
    }
    Ok(bytes)
}

fn remove(document: &mut Value, path: &str) -> Result<Value, &'static str> {
    if path.is_empty() {
        return Ok(document.take());
    }
    let (parent, key) = split(path)?;
    match at_mut(document, parent)? {
        Value::Object(members) => members.shift_remove(&key).ok_or("there is nothing at the path"),
        Value::Array(items) => {
            let at = index(&key, items.len())?;
            Ok(items.remove(at))
        }
        _ => Err("there is nothing at the path"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn patched(document: &Value, patch: &Value) -> Result<Value, &'static str> {
        apply(document, patch, 1_000).map_err(|error| error.what)
    }

    #[test]
    fn the_operations_do_what_the_standard_says() {
        let document = json!({"a": [1, 2], "b": {"c~/d": 3}});
        for (patch, expected) in [
            (json!([{"op": "add", "path": "/a/1", "value": 9}]), json!({"a": [1, 9, 2], "b": {"c~/d": 3}})),
            (json!([{"op": "add", "path": "/a/-", "value": 9}]), json!({"a": [1, 2, 9], "b": {"c~/d": 3}})),
            (json!([{"op": "remove", "path": "/b/c~0~1d"}]), json!({"a": [1, 2], "b": {}})),
            (json!([{"op": "replace", "path": "/a", "value": null}]), json!({"a": null, "b": {"c~/d": 3}})),
            (json!([{"op": "move", "from": "/a/0", "path": "/x"}]), json!({"a": [2], "b": {"c~/d": 3}, "x": 1})),
            (json!([{"op": "copy", "from": "/b", "path": ""}]), json!({"c~/d": 3})),
            (json!([{"op": "test", "path": "/a/0", "value": 1}]), document.clone()),
            (json!([]), document.clone()),
        ] {
            assert_eq!(patched(&document, &patch), Ok(expected), "{patch}");
        }
    }

    #[test]
    fn a_patch_that_does_not_fit_changes_nothing() {
        let document = json!({"a": [1], "t": "text"});
        for patch in [
            json!({"op": "remove", "path": "/a"}),
            json!([{"op": "add", "path": "/a/2", "value": 1}]),
            json!([{"op": "add", "path": "/a/00", "value": 1}]),
            json!([{"op": "add", "path": "/a/-1", "value": 1}]),
            json!([{"op": "add", "path": "/t/x", "value": 1}]),
            json!([{"op": "add", "path": "x", "value": 1}]),
            json!([{"op": "add", "path": "/x"}]),
            json!([{"op": "remove", "path": "/none"}]),
            json!([{"op": "move", "from": "/a", "path": "/a/0"}]),
            json!([{"op": "test", "path": "/a/0", "value": 2}]),
            json!([{"op": "jump", "path": ""}]),
            json!([1]),
        ] {
            assert!(patched(&document, &patch).is_err(), "{patch}");
        }
        let double = json!({"op": "copy", "from": "", "path": "/x"});
        assert_eq!(patched(&document, &json!(vec![double; 12])), Err("the result would be too large"));
    }
}
