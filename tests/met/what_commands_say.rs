//! What a command tells a person is so.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{
    process::{program, run},
    server::Server,
};

fn to(server: &Server, words: &[&str]) -> Command {
    let mut command = program(words);
    command.env("RUNREEL_URL", &server.base);
    command
}

#[tokio::test]
async fn a_run_that_stays_open_is_said_to_and_one_that_ended_is_not() {
    let server = Server::start().await;
    let hint = "the run stays open; end it with: runreel emit ";
    let said = run(to(&server, &["emit", "--type", "log.info"]), "").await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let told = said.stderr.lines().find_map(|line| line.strip_prefix(hint)).expect("a hint").to_owned();
    // The words do what they say.
    let words: Vec<&str> = ["emit"].into_iter().chain(told.split(' ')).collect();
    let said = run(to(&server, &words), "").await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    let run_id = words[1];
    assert_eq!(server.run(run_id).await["status"], "completed");
    for (words, stdin) in [
        (["emit", "--end", "completed"].as_slice(), "{\"type\":\"log.info\"}"),
        (&["emit"], "{\"type\":\"log.info\"}\n{\"type\":\"run.failed\"}"),
        (&["emit", &server.start_run().await, "--type", "log.info"], ""),
    ] {
        let said = run(to(&server, words), stdin).await;
        assert_eq!(said.code, Some(0), "{}", said.stderr);
        assert!(!said.stderr.contains(hint), "{words:?}: {}", said.stderr);
    }
}

#[tokio::test]
async fn the_details_of_a_run_have_the_address_of_its_page() {
    let server = Server::start().await;
    let run_id = server.start_run().await;
    let said = run(to(&server, &["runs", "show", &run_id]), "").await;
    let page = format!("page      {}/runs/{run_id}\n", server.base);
    assert!(said.stdout.ends_with(&page), "{}", said.stdout);
}

#[tokio::test]
async fn a_server_that_finds_another_at_its_address_names_it() {
    let server = Server::start().await;
    let address = server.base.trim_start_matches("http://");
    let folder = tempfile::tempdir().unwrap();
    let mut command = program(&["serve", "--listen", address, "--data-dir"]);
    command.arg(folder.path());
    let said = run(command, "").await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""));
    for words in [address, "a Runreel server (version ", "stop it", "--listen"] {
        assert!(said.stderr.contains(words), "{words}: {}", said.stderr);
    }
    // Anything else that listens there is not said to be one.
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap().to_string();
    let mut command = program(&["serve", "--listen", &address, "--data-dir"]);
    command.arg(folder.path());
    let said = run(command, "").await;
    assert!(said.code == Some(1) && !said.stderr.contains("Runreel server"), "{}", said.stderr);
}

/// JSON that is nested this deeply.
fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| json!([inner]))
}

#[tokio::test]
async fn commands_read_the_deepest_json_that_a_run_may_have() {
    let server = Server::start().await;
    let run_id = server.create(json!({ "title": "Deep", "input": nested(64) })).await;
    let asked = json!({"type": "interrupt.requested", "span_id": "i", "payload": nested(64)});
    server.emit(&run_id, json!([asked, {"type": "run.interrupted"}])).await;
    for words in [&["runs"][..], &["runs", "--json"], &["runs", "show", &run_id], &["approve"]] {
        let said = run(to(&server, words), "").await;
        assert!(said.code == Some(0) && said.stdout.contains(&run_id), "{words:?}: {said:?}");
    }
    let refused = run(to(&server, &["runs", "answer", &run_id, "respond", r#"{"a":"\u0000"}"#]), "").await;
    assert!(refused.code == Some(2) && refused.stderr.contains("\\u0000"), "{refused:?}");
    let said = run(to(&server, &["runs", "answer", &run_id, "respond", "no JSON", "--json"]), "").await;
    let answered: Value = serde_json::from_str(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    assert_eq!((&answered["run_id"], &answered["status"]), (&json!(run_id), &json!("running")));
    server.complete(&run_id).await;
}

#[tokio::test]
async fn a_chat_whose_messages_are_nested_too_deeply_starts_no_run() {
    let server = Server::start().await;
    let part = json!({"type": "data-x", "data": nested(80)});
    let chat = json!({"id": "c", "messages": [{"id": "m", "role": "user", "parts": [part]}]});
    server.post("/api/ai-sdk/agents/x", chat).await.refused(400, "invalid_request");
    let tool = json!({"type": "function", "name": "f", "parameters": {"a": nested(80)}});
    let ask = json!({"model": "x", "input": "hi", "tools": [tool]});
    assert_eq!(server.post("/v1/responses", ask).await.status, 400);
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"], json!([]));
}
