//! Calls that need a person's word.

use std::{path::Path, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{answer, ask, assert_once, kinds, log, of, questions, response, stands, with};
use crate::support::{
    server::{Setup, setup},
    until,
};

/// An agent that runs a command; it can be seen how often.
fn runs_a_command() -> (Setup, impl Fn() -> String) {
    let config = "[tools.shell]\nroot = \"work\"\n[agents.admin]\nmodel = \"script:admin.toml\"\ntools = [\"shell\"]\n";
    let script = r#"
        [[turns]]
        tool_calls = [{ name = "shell", args = { command = "echo once >> did; echo done" } }]
        [[turns]]
        text = "{tool}"
    "#;
    let setup = with(config, &[("admin.toml", script)]);
    let folder = setup.folder();
    (setup, move || read(folder.path()))
}

fn read(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("work/did")).unwrap_or_default()
}

#[tokio::test]
async fn a_call_that_needs_approval_is_made_when_a_person_approves_and_not_before() {
    let (setup, did) = runs_a_command();
    let server = setup.start().await;
    let run = ask(&server, "admin", "do it", json!({})).await;
    let asked = questions(&server, &run).await;
    assert_eq!(asked.len(), 1);
    let payload = &asked[0]["payload"];
    assert_eq!(
        (&payload["kind"], &payload["tool"], &payload["args"]["command"]),
        (&json!("approval"), &json!("shell"), &json!("echo once >> did; echo done"))
    );
    assert_eq!(did(), "");
    answer(&server, &run, &asked[0], "approve", Value::Null).await;
    assert!(response(&server, &run).await.contains("done"));
    assert_eq!(did(), "once\n");
    let events = log(&server, &run).await;
    assert_once(&events);
    let at = |kind: &str| kinds(&events).iter().position(|other| *other == kind).unwrap();
    let order = [
        "interrupt.requested",
        "run.interrupted",
        "interrupt.resolved",
        "run.resumed",
        "tool.started",
        "tool.completed",
    ];
    assert!(order.map(at).is_sorted(), "{:?}", kinds(&events));
    assert_eq!(payload["tool_call_id"], of(&events, "tool.started")[0]["span_id"]);
}

#[tokio::test]
async fn a_call_that_a_person_refuses_is_not_made_and_the_model_is_told() {
    let (setup, did) = runs_a_command();
    let server = setup.start().await;
    for (decision, value, expected) in [
        ("reject", json!("too risky"), "a person refused this call: too risky"),
        ("respond", json!("I did it myself"), "I did it myself"),
    ] {
        let run = ask(&server, "admin", "do it", json!({})).await;
        let asked = questions(&server, &run).await;
        answer(&server, &run, &asked[0], decision, value).await;
        let told = response(&server, &run).await;
        assert!(told.contains(expected), "{told}");
        let events = log(&server, &run).await;
        assert_eq!(of(&events, "tool.failed").len(), usize::from(decision == "reject"));
        assert_eq!(of(&events, "tool.started").len(), 1);
    }
    assert_eq!(did(), "");
}

#[tokio::test]
async fn a_call_is_made_with_the_arguments_that_a_person_changed_and_the_model_is_told() {
    let (setup, did) = runs_a_command();
    let server = setup.start().await;
    let run = ask(&server, "admin", "do it", json!({})).await;
    let asked = questions(&server, &run).await;
    assert_eq!(asked[0]["payload"]["allowed_decisions"], json!(["approve", "reject", "respond", "edit"]));
    let args = json!({ "command": "echo changed >> did; echo done" });
    answer(&server, &run, &asked[0], "approve", json!({ "args": args })).await;
    let told = response(&server, &run).await;
    assert!(told.contains("A person changed the arguments to") && told.contains("done"), "{told}");
    assert_eq!(did(), "changed\n");
    assert_eq!(of(&log(&server, &run).await, "tool.started")[0]["payload"]["args"], args);
    let run = ask(&server, "admin", "do it", json!({})).await;
    let asked = questions(&server, &run).await;
    answer(&server, &run, &asked[0], "approve", json!({ "args": { "cmd": 1 } })).await;
    response(&server, &run).await;
    assert_eq!(of(&log(&server, &run).await, "tool.failed").len(), 1, "the tool checks what a person changed");
    assert_eq!(did(), "changed\n");
}

#[tokio::test]
async fn the_answer_of_a_person_outlives_restarts_before_and_after_it() {
    let (agents, did) = runs_a_command();
    let server = agents.clone().start().await;
    let run = ask(&server, "admin", "do it", json!({ "thread_id": "t" })).await;
    let asked = questions(&server, &run).await;
    let db = Arc::clone(&server.db);
    server.stop().await;
    // A server without agents takes the answer; nobody acts on it.
    let server = setup().on(&db).start().await;
    answer(&server, &run, &asked[0], "approve", Value::Null).await;
    server.stop().await;
    assert_eq!(did(), "");
    let server = agents.on(&db).start().await;
    assert!(response(&server, &run).await.contains("done"));
    assert_eq!(did(), "once\n");
    assert_once(&log(&server, &run).await);
}

/// An agent that asks two questions at once.
fn asks_twice() -> Setup {
    let config = "[tools.gate]\nkind = \"files\"\nroot = \"work\"\napproval = true\n\
        [agents.two]\nmodel = \"script:two.toml\"\ntools = [\"gate\"]\n";
    let script = r#"
        [[turns]]
        tool_calls = [
            { name = "gate_write", args = { path = "a", text = "a", mode = "replace" } },
            { name = "gate_write", args = { path = "b", text = "b", mode = "replace" } },
        ]
        [[turns]]
        text = "{tool}"
    "#;
    with(config, &[("two.toml", script)])
}

#[tokio::test]
async fn questions_of_one_answer_are_asked_at_once_and_no_call_is_made_before_the_last_is_answered() {
    let setup = asks_twice();
    let folder = setup.folder();
    let server = setup.start().await;
    let run = ask(&server, "two", "go", json!({})).await;
    let asked = questions(&server, &run).await;
    assert_eq!(asked.len(), 2);
    answer(&server, &run, &asked[0], "approve", Value::Null).await;
    until("the run to wait again", || async { of(&log(&server, &run).await, "run.interrupted").len() == 2 }).await;
    assert!(!folder.path().join("work/a").exists());
    answer(&server, &run, &asked[1], "reject", Value::Null).await;
    assert!(response(&server, &run).await.contains("refused"), "the last result is the second call's");
    assert!(folder.path().join("work/a").exists() && !folder.path().join("work/b").exists());
    let events = log(&server, &run).await;
    assert_eq!(of(&events, "interrupt.requested").len(), 2, "each is asked once");
    assert_eq!((of(&events, "tool.completed").len(), of(&events, "tool.failed").len()), (1, 1));
}

#[tokio::test]
async fn an_answer_that_comes_while_the_run_looks_for_it_is_not_lost() {
    let server = asks_twice().flags(&["--db-connections", "8"]).start().await;
    for _ in 0..12 {
        let run = ask(&server, "two", "go", json!({})).await;
        let asked = questions(&server, &run).await;
        answer(&server, &run, &asked[0], "approve", Value::Null).await;
        // The run is at work on the first answer and says again that it waits for the second.
        answer(&server, &run, &asked[1], "approve", Value::Null).await;
        response(&server, &run).await;
    }
}

#[tokio::test]
async fn an_approval_is_for_the_call_that_was_asked_about_whoever_changes_the_thread_meanwhile() {
    let (setup, did) = runs_a_command();
    let server = setup.start().await;
    let run = ask(&server, "admin", "do it", json!({ "thread_id": "t" })).await;
    let asked = questions(&server, &run).await;
    // Whoever started the run may write to its thread.
    let mut latest = server.get("/api/threads/t/checkpoints/latest").await.expect(200);
    let id = latest["checkpoint_id"].as_str().unwrap().to_owned();
    let mut blob = latest["blobs"]["messages"].take();
    let messages = STANDARD.decode(blob["b"].as_str().unwrap()).unwrap();
    let changed = String::from_utf8(messages).unwrap().replace("echo once", "echo twice");
    assert!(changed.contains("echo twice"));
    (blob["b"], blob["version"]) = (json!(STANDARD.encode(changed)), json!("changed"));
    let body = json!({
        "parent_id": latest["parent_id"], "run_id": latest["run_id"], "checkpoint": latest["checkpoint"],
        "metadata": latest["metadata"], "blobs": { "messages": blob },
        "versions": { "messages": "changed" },
    });
    server.put_checkpoint("t", &id, body).await;
    answer(&server, &run, &asked[0], "approve", Value::Null).await;
    stands(&server, &run, "failed").await;
    assert_eq!(did(), "");
    assert!(server.run(&run).await["error"].to_string().contains("changed after it was asked"));
}
