//! The list of agents: who executes what, what waits, and who holds which run.

use chrono::TimeDelta;
use runreel::domain::event::timestamp;
use serde_json::{Value, json};

use crate::support::{
    server::{manual_clock, setup},
    until,
};

/// The lease of the tests' servers.
const LEASE: TimeDelta = TimeDelta::seconds(30);

const AGENTS: &str = "[agents.helper]\nmodel = \"echo\"\ntools = [\"files\"]\nworkers = [\"reader\"]\n\
                      [agents.reader]\nmodel = \"echo\"\nallow = [\"ann\"]\n";

#[tokio::test]
async fn the_configured_agents_are_those_that_the_principal_may_use() {
    let server = setup().jwt().config(AGENTS).start().await;
    let names = |listed: Value| -> Vec<Value> {
        listed["agents"].as_array().unwrap().iter().map(|agent| agent["name"].clone()).collect()
    };
    let listed = server.as_subject("ann").get("/api/agents").await.expect(200);
    let helper = json!({ "name": "helper", "kind": "assistant", "model": "echo", "tools": ["files"],
                         "workers": ["reader"] });
    assert_eq!(listed["agents"][0], helper);
    assert_eq!(names(listed), ["helper", "reader"]);
    assert_eq!(names(server.as_subject("bob").get("/api/agents").await.expect(200)), ["helper"]);
}

#[tokio::test]
async fn runners_queues_and_leases_are_the_principals_own() {
    let clock = manual_clock();
    let server = setup().jwt().clock(&clock).start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let mut runner = ann.runner(&["a", "b"], 1).await;
    let connected_at = timestamp(clock.now());
    let held = ann.create(json!({ "agent": "a", "start": false, "title": "First" })).await;
    runner.expect("run.assign").await;
    let lease_until = timestamp(clock.now() + LEASE);
    ann.create(json!({ "agent": "a", "start": false })).await;
    ann.create(json!({ "agent": "c", "start": false })).await;
    let listed = ann.get("/api/agents").await.expect(200);
    assert_eq!(
        listed["runners"],
        json!([{ "name": "r1", "agents": ["a", "b"], "capacity": 1, "connected_at": connected_at }])
    );
    assert_eq!(
        listed["queues"],
        json!([{ "agent": "a", "status": "queued", "runs": 2 }, { "agent": "c", "status": "queued", "runs": 1 }])
    );
    assert_eq!(
        listed["held"],
        json!([{ "run_id": held, "title": "First", "agent": "a", "runner": "r1", "lease_until": lease_until,
                 "attempt": 1 }])
    );
    assert_eq!(listed["is_partial"], false);
    let none = json!({ "agents": [], "runners": [], "queues": [], "is_partial": false, "held": [] });
    assert_eq!(bob.get("/api/agents").await.expect(200), none);
    drop(runner);
    until("the runner to be gone", || async { ann.get("/api/agents").await.expect(200)["runners"] == json!([]) }).await;
}
