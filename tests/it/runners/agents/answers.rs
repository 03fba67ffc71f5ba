//! Questions to people that a runner's agents ask.

use crate::support::{api::Api, shared::shared};

use super::*;
use crate::agents::{answer, questions};

#[tokio::test]
async fn the_answer_to_a_runners_question_finds_the_next_runner_and_the_call_is_made_once() {
    let config = "[tools.shell]\nroot = \"work\"\n[agents.admin]\nmodel = \"script:admin.toml\"\ntools = [\"shell\"]\n";
    let script = r#"
        [[turns]]
        tool_calls = [{ name = "shell", args = { command = "echo once >> did; echo done" } }]
        [[turns]]
        text = "{tool}"
    "#;
    let agents = with(config, &[("admin.toml", script)]);
    let did = || std::fs::read_to_string(agents.folder().path().join("work/did")).unwrap_or_default();
    let server = Server::start().await;
    let first = Hands::of(&agents, &server);
    let run = ask(&server, "admin", "do it", json!({})).await;
    let asked = questions(&server, &run).await;
    first.stop().await;
    answer(&server, &run, &asked[0], "approve", Value::Null).await;
    assert_eq!((did().as_str(), server.run(&run).await["status"].as_str()), ("", Some("running")));
    let _second = Hands::of(&agents, &server);
    assert!(response(&server, &run).await.contains("done"));
    assert_eq!(did(), "once\n");
    assert_once(&log(&server, &run).await);
    server.db.until_number("no state", "select count(*) from store.checkpoint", 0).await;
}

#[tokio::test]
async fn an_answer_that_comes_while_a_runners_run_looks_for_it_is_not_lost() {
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
    let server = setup().flags(&["--db-connections", "8"]).start().await;
    let _hands = Hands::of(&with(config, &[("two.toml", script)]), &server);
    for _ in 0..12 {
        let run = ask(&server, "two", "go", json!({})).await;
        let asked = questions(&server, &run).await;
        answer(&server, &run, &asked[0], "approve", Value::Null).await;
        // The run is at work on the first answer and says again that it waits for the second.
        answer(&server, &run, &asked[1], "approve", Value::Null).await;
        response(&server, &run).await;
        assert_once(&log(&server, &run).await);
    }
}

/// Asks, and is told the answer.
async fn asked_and_answered(server: &Api, runner: &mut crate::support::runner::Wire) -> String {
    let run = job(server).await;
    assert_eq!(runner.assigned().await, run);
    let ask = json!([{ "type": "interrupt.requested", "span_id": "i1" }, { "type": "run.interrupted" }]);
    runner.event(&run, 1, ask).await;
    runner.expect("ack").await;
    let answer = json!({ "interrupt_id": "i1", "decision": "approve" });
    server.post(&format!("/api/runs/{run}/resume"), answer).await.expect(202);
    run
}

#[tokio::test]
async fn a_run_that_is_given_back_while_its_answer_comes_is_not_taken_for_done() {
    let server = shared().await;
    let mut runner = server.runner(&["a"], 1).await;
    let run = asked_and_answered(&server, &mut runner).await;
    runner.expect("run.resume").await;
    // It was on its way before the answer was heard.
    runner.done(&run).await;
    runner.expect("ack").await;
    let assign = runner.expect("run.assign").await;
    assert_eq!((&assign["run_id"], &assign["context"]["attempt"]), (&json!(run), &json!(2)));
    runner.expect("run.resume").await;
    assert_eq!(server.run(&run).await["status"], "running");
    runner.done(&run).await;
    runner.expect("ack").await;
    assert_eq!(server.run(&run).await["status"], "completed");
}

#[tokio::test]
async fn a_run_that_is_given_back_by_a_runner_that_was_away_for_the_answer_is_not_taken_for_done() {
    let server = shared().await;
    let mut runner = server.runner(&["a"], 1).await;
    let run = asked_and_answered(&server, &mut runner).await;
    let lease = runner.lease_id.clone();
    drop(runner);
    let mut runner = server.back(&lease, json!({ &run: 1 })).await;
    runner.expect("run.resume").await;
    runner.done(&run).await;
    runner.expect("ack").await;
    assert_eq!(runner.assigned().await, run);
    runner.expect("run.resume").await;
    // Whoever acts on the answer and says no more has finished.
    runner.event(&run, 1, json!([{ "type": "log.info" }])).await;
    runner.expect("ack").await;
    runner.done(&run).await;
    runner.expect("ack").await;
    assert_eq!(server.run(&run).await["status"], "completed");
}
