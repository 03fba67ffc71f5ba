//! Agents of a configuration file at work: in a real server, with models that play back, tools that are real.

mod approvals;
mod client_tools;
mod conversations;
mod crashes;
mod ends;
mod memory;
mod tools;
mod workers;

use serde_json::{Value, json};

use crate::support::{
    api::{Api, stream_of},
    runs::{assert_contiguous, parsed},
    server::{Setup, setup},
    until,
};

pub const JOBS: &str = "select count(*) from store.job";

/// A server with this configuration, and with scripts that lie beside it.
pub fn with(config: &str, scripts: &[(&str, &str)]) -> Setup {
    let setup = setup().config(config);
    for (name, script) in scripts {
        std::fs::write(setup.folder().path().join(name), script).unwrap();
    }
    setup
}

/// Gives an agent something to do; `more` are members of the request, such as a thread.
pub async fn ask(api: &Api, agent: &str, input: &str, more: Value) -> String {
    let mut body = json!({ "agent": agent, "start": false, "input": input });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    api.create(body).await
}

/// Waits until a run stands there.
pub async fn stands(api: &Api, run: &str, status: &str) {
    until(&format!("the run to be {status}"), || async {
        let now = api.run(run).await;
        let ended = now["ended_at"].is_string() && now["status"] != status;
        assert!(!ended, "wanted {status}: {now}");
        now["status"] == status
    })
    .await;
}

/// Waits until a run is completed, and gives what it answered.
pub async fn response(api: &Api, run: &str) -> String {
    stands(api, run, "completed").await;
    api.run(run).await["output"]["response"].as_str().unwrap().to_owned()
}

/// The log of a run, which has no holes.
pub async fn log(api: &Api, run: &str) -> Vec<Value> {
    let events = api.events(run).await;
    assert_contiguous(&events, i64::try_from(events.len()).unwrap());
    events.iter().map(parsed).collect()
}

pub fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// The events of a type.
pub fn of<'a>(events: &'a [Value], kind: &str) -> Vec<&'a Value> {
    events.iter().filter(|event| event["type"] == kind).collect()
}

/// What was said, as role and text; answers that only call tools have none.
pub fn said(events: &[Value]) -> Vec<(String, String)> {
    let message = |event: &&Value| {
        let text = event["payload"]["content"][0]["text"].as_str().unwrap_or_default();
        (event["payload"]["role"].as_str().unwrap().to_owned(), text.to_owned())
    };
    of(events, "message.completed").iter().map(message).collect()
}

/// The open questions of a run that waits for answers.
pub async fn questions(api: &Api, run: &str) -> Vec<Value> {
    stands(api, run, "interrupted").await;
    of(&log(api, run).await, "interrupt.requested").into_iter().cloned().collect()
}

pub async fn answer(api: &Api, run: &str, question: &Value, decision: &str, value: Value) {
    let body = json!({ "interrupt_id": question["span_id"], "decision": decision, "value": value });
    api.post(&format!("/api/runs/{run}/resume"), body).await.expect(202);
}

/// A step begins and ends once, and so does a call; nothing is told twice.
#[track_caller]
pub fn assert_once(events: &[Value]) {
    let mut spans: Vec<(&str, &str)> =
        events.iter().filter_map(|event| Some((event["type"].as_str().unwrap(), event["span_id"].as_str()?))).collect();
    let all = spans.len();
    spans.sort_unstable();
    spans.dedup();
    assert_eq!(spans.len(), all, "{:?}", kinds(events));
    for (begun, ended) in [("step.started", "step.completed"), ("tool.started", "tool.completed")] {
        assert_eq!(of(events, begun).len(), of(events, ended).len(), "{:?}", kinds(events));
    }
}

/// The runs below one, as they were made.
pub async fn children(api: &Api, run: &str) -> Vec<String> {
    let events = log(api, run).await;
    of(&events, "worker.spawned").iter().map(|event| event["payload"]["run_id"].as_str().unwrap().to_owned()).collect()
}

pub fn tree_of(run: &str) -> String {
    format!("{}?tree=true", stream_of(run))
}
