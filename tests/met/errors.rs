//! What went wrong is told by its type and its message, in whatever form a producer sent it, and never by the name of what
//! failed. An empty message is common: Python's `assert` has none.

use serde_json::{Value, json};

use crate::support::shared::shared;

/// A form that the contract allows, and what is told of it.
fn forms() -> Vec<(Value, &'static str)> {
    vec![
        (
            json!({ "type": "KeyError", "message": "'customer_id'", "stack": "  File \"a.py\", line 3" }),
            "KeyError: 'customer_id'",
        ),
        (json!({ "type": "AssertionError", "message": "" }), "AssertionError"),
        (json!({ "type": "AssertionError" }), "AssertionError"),
        (json!({ "message": "it broke" }), "it broke"),
        (json!({ "code": "lease_lost" }), "lease_lost"),
        (json!("it broke"), "it broke"),
        (json!(7), "7"),
        (json!({ "reasons": ["a"] }), r#"{"reasons":["a"]}"#),
    ]
}

#[tokio::test]
async fn an_error_in_any_form_is_told_by_type_and_message() {
    let server = shared().await;
    for (error, told) in forms() {
        let run = server.start_run().await;
        let failed = |event_type: &str| json!({ "type": event_type, "span_id": "s", "payload": { "name": "plan", "error": error } });
        server.emit(&run, json!([failed("tool.failed"), failed("step.failed"), failed("run.failed")])).await;
        let list = server.get("/api/runs?limit=1").await.expect(200);
        assert_eq!(list["runs"][0]["excerpt"], json!({ "kind": "error", "text": told }));
        let index = server.get(&format!("/api/runs/{run}/events?view=index&limit=3")).await.expect(200);
        let title = format!("plan error: {told}");
        assert_eq!(index["title"], json!([title, title, title]));
    }
    let guide = include_str!("../../docs/sql.md");
    let (_, after) = guide.split_once("**`insights_failures`").unwrap();
    let query = after.split("```").nth(1).unwrap().trim_start_matches("sql");
    let answer = server.post("/api/sql", json!({ "query": query })).await.expect(200);
    let mut seen: Vec<&str> = answer["rows"].as_array().unwrap().iter().map(|row| row[1].as_str().unwrap()).collect();
    seen.sort_unstable();
    let forms = forms();
    let mut expected: Vec<&str> = forms.iter().map(|(_, told)| *told).collect();
    expected.sort_unstable();
    expected.dedup();
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn a_failure_that_says_nothing_has_no_words_in_its_place() {
    let server = shared().await;
    for payload in [json!({}), json!({ "error": null }), json!({ "error": "" }), json!({ "error": {} })] {
        let run = server.start_run().await;
        let failed =
            json!({ "type": "tool.failed", "span_id": "s", "payload": { "name": "plan", "error": payload["error"] } });
        server.emit(&run, json!([failed, { "type": "run.failed", "payload": payload }])).await;
        let list = server.get("/api/runs?limit=1").await.expect(200);
        assert_eq!(list["runs"][0]["excerpt"], Value::Null, "{payload}");
        let index = server.get(&format!("/api/runs/{run}/events?view=index&limit=2")).await.expect(200);
        assert_eq!(index["title"], json!(["plan", ""]), "{payload}");
    }
}
