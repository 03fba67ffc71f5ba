//! Runs of agents that end otherwise: cancelled, failed, or not begun.

use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use runreel::{
    agents::runtime::LocalHost,
    domain::{
        event::{EventKind, NewEvent},
        json::Json,
    },
    emitters::host::RunHost as _,
};
use serde_json::{Value, json};

use super::{answer, ask, kinds, log, of, questions, response, stands, with};
use crate::support::{api::Api, patiently, until};

#[tokio::test]
async fn a_cancel_reaches_an_agent_that_is_at_work() {
    let script = "[[turns]]\ntext = \"late\"\ndelay_ms = 600000\n";
    let server = with("[agents.slow]\nmodel = \"script:slow.toml\"\n", &[("slow.toml", script)]).start().await;
    let run = ask(&server, "slow", "go", json!({ "thread_id": "t" })).await;
    let behind = ask(&server, "slow", "go", json!({ "thread_id": "t" })).await;
    until("the model to be asked", || async { kinds(&log(&server, &run).await).contains(&"step.started") }).await;
    server.post(&format!("/api/runs/{run}/cancel"), json!({ "reason": "enough" })).await.expect(202);
    stands(&server, &run, "cancelled").await;
    until("the next in line", || async { kinds(&log(&server, &behind).await).contains(&"step.started") }).await;
    assert_eq!(kinds(&log(&server, &run).await).last(), Some(&"run.cancelled"), "it says nothing after its end");
    // A stop gives back what is under way and does not wait for it.
    let db = std::sync::Arc::clone(&server.db);
    server.stop().await;
    assert_eq!(db.number("select count(*) from store.job where lease_id is not null").await, 0);
}

#[tokio::test]
async fn what_an_agent_emits_while_its_server_stops_is_not_tried_until_the_server_gives_up() {
    let server = with("[agents.echo]\nmodel = \"echo\"\n", &[]).start().await;
    let run = ask(&server, "nobody", "go", json!({})).await;
    let (timeline, threads) = (server.inner.timeline.clone(), server.inner.threads.clone());
    let context = timeline.any_context(run.parse().unwrap()).await.unwrap().unwrap();
    server.stop().await;
    let host = LocalHost::new(timeline, threads, Arc::new(context));
    let emitted = patiently("the refusal", host.emit(vec![NewEvent::new(EventKind::LogInfo, Json::empty())])).await;
    assert!(emitted.unwrap_err().is_retryable, "another process may emit it");
}

/// Puts a newer checkpoint onto a thread, with another last step.
async fn forge(api: &Api, thread: &str, ended: Value) {
    let path = format!("/api/threads/{thread}/checkpoints");
    let latest = api.get(&format!("{path}/latest")).await.expect(200);
    let bytes = STANDARD.decode(latest["checkpoint"]["b"].as_str().unwrap()).unwrap();
    let mut head: Value = serde_json::from_slice(&bytes).unwrap();
    head["ended"] = ended;
    let forged = json!({
        "ns": "", "parent_id": latest["checkpoint_id"], "run_id": latest["run_id"], "metadata": latest["metadata"],
        "checkpoint": { "t": "json", "b": STANDARD.encode(head.to_string()) }, "versions": latest["versions"], "blobs": {},
    });
    let put = api.request(reqwest::Method::PUT, &format!("{path}/ffffffff-0000-7000-8000-000000000000")).json(&forged);
    assert!(api.send(put).await.status < 300);
}

#[tokio::test]
async fn a_checkpoint_that_somebody_forged_fails_his_own_run_and_holds_nobody_up() {
    let config = "[tools.gate]\nkind = \"files\"\nroot = \"work\"\napproval = true\n[agents.echo]\nmodel = \"echo\"\n\
                  [agents.asker]\nmodel = \"script:asker.toml\"\ntools = [\"gate\"]\n";
    let script = "[[turns]]\ntool_calls = [{ name = \"gate_list\" }]\n[[turns]]\ntext = \"done\"\n";
    let server = with(config, &[("asker.toml", script)]).start().await;
    let took = json!({ "secs": 0, "nanos": 1 });
    for (n, (name, why)) in
        [("bad\u{0}node".to_owned(), "a node badnode"), ("A".repeat(6_000), "a node AAAA")].into_iter().enumerate()
    {
        let thread = format!("t{n}");
        let run = ask(&server, "asker", "go", json!({ "thread_id": thread })).await;
        let asked = questions(&server, &run).await;
        forge(&server, &thread, json!([name, took])).await;
        answer(&server, &run, &asked[0], "approve", Value::Null).await;
        stands(&server, &run, "failed").await;
        let error = server.run(&run).await["error"]["message"].as_str().unwrap().to_owned();
        assert!(error.contains(why), "{error}");
    }
    let other = ask(&server, "echo", "hello", json!({})).await;
    response(&server, &other).await;
    server.db.until_number("no job", super::JOBS, 0).await;
}

#[tokio::test]
async fn a_run_of_an_agent_that_nobody_knows_stays_queued_and_holds_nobody_up() {
    let server = with("[agents.echo]\nmodel = \"echo\"\n", &[]).start().await;
    let unknown = ask(&server, "nobody", "hello", json!({})).await;
    let known = ask(&server, "echo", "hello", json!({})).await;
    response(&server, &known).await;
    assert_eq!(server.run(&unknown).await["status"], "queued");
    assert_eq!(kinds(&log(&server, &unknown).await), ["run.created"]);
}

/// The events of a run that failed, and why.
async fn failure(config: &str, script: &str) -> (Vec<Value>, String) {
    let server = with(config, &[("script.toml", script)]).start().await;
    let run = ask(&server, "a", "go", json!({})).await;
    stands(&server, &run, "failed").await;
    server.db.until_number("no job", super::JOBS, 0).await;
    let error = server.run(&run).await["error"]["message"].as_str().unwrap().to_owned();
    (log(&server, &run).await, error)
}

const SCRIPTED: &str = "[agents.a]\nmodel = \"script:script.toml\"\ntools = [\"files\"]\n";

#[tokio::test]
async fn a_model_that_fails_fails_its_run_with_the_reason() {
    let script =
        "[[turns]]\ntext = \"half a\"\nerror = { kind = \"context_too_long\", message = \"too much to read\" }\n";
    let (events, error) = failure(SCRIPTED, script).await;
    assert!(error.starts_with("model: ") && error.contains("too much to read"), "{error}");
    let last: Vec<&str> = kinds(&events).into_iter().rev().take(2).collect();
    assert_eq!(last, ["run.failed", "step.failed"]);
}

#[tokio::test]
async fn a_run_that_never_comes_to_an_end_fails_after_its_steps() {
    let script = "repeat = true\n[[turns]]\ntool_calls = [{ name = \"files_list\" }]\n";
    let (events, error) = failure(&format!("{SCRIPTED}max_steps = 3\n"), script).await;
    assert!(error.contains("steps"), "{error}");
    assert_eq!((of(&events, "tool.completed").len(), of(&events, "step.completed").len()), (3, 6));
}

#[tokio::test]
async fn a_run_that_is_at_work_too_long_fails() {
    let script = "[[turns]]\ntext = \"late\"\ndelay_ms = 600000\n";
    let (_, error) = failure(&format!("{SCRIPTED}timeout_s = 1\n"), script).await;
    assert!(error.contains("longer than 1s"), "{error}");
}
