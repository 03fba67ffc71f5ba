//! The `OpenAPI` document is generated from the handlers; clients are generated from its snapshot.

use std::path::Path;

use serde_json::Value;

fn document() -> Value {
    serde_json::to_value(runreel::http::openapi()).unwrap()
}

#[test]
fn the_snapshot_is_the_document_the_server_serves() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/snapshots/openapi.json");
    let fresh = runreel::http::openapi().to_pretty_json().unwrap() + "\n";
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, &fresh).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == fresh,
        "the API changed: UPDATE_SNAPSHOTS=1 cargo test --test it -- openapi, then look at the diff"
    );
}

#[test]
fn the_document_is_openapi_3_1_and_describes_every_answer() {
    let document = document();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1"), "{}", document["openapi"]);
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            assert!(!responses.is_empty(), "{method} {path} has no answers");
            let summary = operation["summary"].as_str().unwrap_or_default();
            assert!(!summary.is_empty(), "{method} {path} has no summary");
            let id = operation["operationId"].as_str().unwrap_or_default();
            assert!(!id.is_empty(), "{method} {path} has no operationId");
        }
    }
}

#[test]
fn operation_ids_are_unique() {
    let document = document();
    let paths = document["paths"].as_object().unwrap().values();
    let mut ids: Vec<&str> = paths
        .flat_map(|methods| methods.as_object().unwrap().values())
        .filter_map(|o| o["operationId"].as_str())
        .collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all, "{ids:?}");
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    fn walk(value: &Value, document: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                    let pointer = reference.trim_start_matches('#');
                    assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
                }
                members.values().for_each(|value| walk(value, document));
            }
            Value::Array(values) => values.iter().for_each(|value| walk(value, document)),
            _ => {}
        }
    }
    let document = document();
    walk(&document, &document);
}
