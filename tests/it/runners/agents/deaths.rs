//! Runners as processes of their own, one of which is killed.

use tokio::process::Child;

use super::*;
use crate::{agents::children, support::server::Setup};

const CONFIG: &str = r#"
[tools.files]
root = "work"
[agents.chief]
model = "script:chief.toml"
workers = ["worker"]
[agents.worker]
model = "script:worker.toml"
tools = ["files"]
"#;

const CHIEF: &str = r#"
[[turns]]
tool_calls = [
    { name = "spawn_worker", args = { agent = "worker", task = "one" } },
    { name = "spawn_worker", args = { agent = "worker", task = "two" } },
    { name = "spawn_worker", args = { agent = "worker", task = "three" } },
]
[[turns]]
text = "all of it: {tool}"
"#;

const WORKER: &str = r#"
[[turns]]
delay_ms = 150
tool_calls = [{ name = "files_list" }]
[[turns]]
delay_ms = 150
tool_calls = [{ name = "files_list" }]
[[turns]]
delay_ms = 150
text = "{user} is done"
"#;

fn start(agents: &Setup, base: &str, name: &str) -> Child {
    let folder = agents.folder();
    let (config, data) = (folder.path().join("runreel.toml"), folder.path().join("data"));
    let (config, data) = (config.to_str().unwrap(), data.to_str().unwrap());
    let words = ["runner", "--config", config, "--data-dir", data, "--url", base, "--name", name, "--capacity", "4"];
    process::program(&words).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
}

/// Nothing is told twice: a type of event happens once in a span.
fn assert_told_once(events: &[Value]) {
    let mut spans: Vec<(&str, &str)> =
        events.iter().filter_map(|event| Some((event["type"].as_str()?, event["span_id"].as_str()?))).collect();
    let all = spans.len();
    spans.sort_unstable();
    spans.dedup();
    assert_eq!(spans.len(), all, "{:?}", kinds(events));
    let ended = of(events, "tool.completed").len() + of(events, "tool.failed").len();
    assert_eq!(of(events, "tool.started").len(), ended, "{:?}", kinds(events));
    for once in ["run.started", "run.completed"] {
        assert_eq!(of(events, once).len(), 1, "{once}: {:?}", kinds(events));
    }
}

#[tokio::test]
async fn of_two_runners_that_serve_a_supervisor_and_its_workers_one_is_killed_and_nothing_is_lost_or_told_twice() {
    let agents = with(CONFIG, &[("chief.toml", CHIEF), ("worker.toml", WORKER)]);
    std::fs::create_dir_all(agents.folder().path().join("work")).unwrap();
    let server = setup().flags(&["--lease-ms", "1500", "--db-connections", "6"]).start().await;
    let mut chiefs = Vec::new();
    for _ in 0..3 {
        chiefs.push(ask(&server, "chief", "everything", json!({})).await);
    }
    let mut doomed = start(&agents, &server.base, "doomed");
    let at_work = "select least(count(*), 2) from store.job where runner = 'doomed' and agent = 'worker'";
    server.db.until_number("the doomed one to have workers at work", at_work, 2).await;
    let _survivor = start(&agents, &server.base, "survivor");
    doomed.kill().await.unwrap();
    let taken =
        server.db.number("select count(*) from store.job where runner = 'doomed' and lease_id is not null").await;
    assert!(taken > 0, "it had work when it was killed");
    for chief in &chiefs {
        let answer = response(&server, chief).await;
        assert!(answer.starts_with("all of it: ") && answer.ends_with("three is done"), "{answer}");
        let events = log(&server, chief).await;
        assert_told_once(&events);
        assert_eq!((of(&events, "worker.spawned").len(), of(&events, "worker.completed").len()), (3, 3));
        for worker in children(&server, chief).await {
            assert_eq!(server.run(&worker).await["status"], "completed");
            assert_told_once(&log(&server, &worker).await);
        }
    }
    assert_eq!(server.db.number("select count(*) from store.run").await, 12, "no worker was made twice");
    server.db.until_number("no job", JOBS, 0).await;
    server.db.until_number("no state", "select count(*) from store.checkpoint", 0).await;
}
