//! Who may use an agent, who answers what its runs ask, and what becomes of those who may not.

use runreel::{config::Secrets, domain::principal::Scope};
use serde_json::{Value, json};

use crate::support::{
    api::Api,
    server::{JWT_SECRET, Server, serve_args, setup},
    until,
};

const CONFIG: &str = r#"
[channels.web]
agent = "mine"
[agents.mine]
model = "echo"
allow = ["alice"]
[agents.open]
model = "echo"
[agents.lead]
model = "script:lead.toml"
workers = ["mine"]
[agents.asked]
model = "echo"
approvers = ["boss", { sub = "ann", iss = "https://id.example" }]
"#;

async fn configured() -> Server {
    let setup = setup().jwt().config(CONFIG);
    let call = r#"{ name = "spawn_worker", args = { agent = "mine", task = "t", title = "t" } }"#;
    let script = format!("[[turns]]\ntool_calls = [{call}]\n[[turns]]\ntext = \"done\"\n");
    std::fs::write(setup.folder().path().join("lead.toml"), script).unwrap();
    setup.start().await
}

/// A run of the caller's own that waits for an answer.
async fn asking(api: &Api, agent: &str) -> String {
    let run = api.create(json!({ "agent": agent })).await;
    api.emit(&run, json!([{ "type": "interrupt.requested", "span_id": "i" }, { "type": "run.interrupted" }])).await;
    run
}

fn answer(run: &str) -> (String, Value) {
    (format!("/api/runs/{run}/resume"), json!({ "interrupt_id": "i", "decision": "approve" }))
}

#[tokio::test]
async fn an_agent_works_for_those_whom_it_names_whatever_way_a_run_was_made() {
    let server = configured().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let job = |agent: &str| json!({ "agent": agent, "start": false, "input": "hello" });
    let message = json!({ "chat_id": "1", "user_id": "1", "text": "hello" });
    bob.post("/api/runs", job("mine")).await.refused(403, "forbidden");
    bob.post("/api/channels/web/messages", message.clone()).await.refused(403, "forbidden");
    alice.post("/api/channels/web/messages", message).await.expect(202);
    for (api, agent) in [(&alice, "mine"), (&alice, "open"), (&bob, "open")] {
        let run = api.create(job(agent)).await;
        until("the run to end", || async { api.run(&run).await["status"] == "completed" }).await;
    }
    // Nor does it work for bob below an agent that does.
    for (api, status) in [(&bob, "failed"), (&alice, "completed")] {
        let lead = api.create(job("lead")).await;
        until("the supervisor to end", || async { api.run(&lead).await["status"] == "completed" }).await;
        let worker = api.get(&format!("/api/runs?parent_run_id={lead}")).await.json();
        assert_eq!(worker["runs"][0]["status"], status, "{worker}");
    }
}

#[tokio::test]
async fn what_a_run_asks_is_answered_by_the_approvers_of_its_agent_and_by_nobody_else() {
    let server = configured().await;
    let (alice, bob, boss) = (server.as_subject("alice"), server.as_subject("bob"), server.as_subject("boss"));
    let run = asking(&alice, "asked").await;
    let (path, body) = answer(&run);
    alice.post(&path, body.clone()).await.refused(403, "forbidden");
    let foreign = bob.post(&path, body.clone()).await.refused(404, "not_found");
    let absent = answer("0198c0de-0000-7000-8000-000000000001");
    assert_eq!(foreign, boss.post(&absent.0, absent.1).await.refused(404, "not_found"));
    boss.get(&format!("/api/runs/{run}")).await.refused(404, "not_found");
    boss.post(&path, body.clone()).await.expect(202);
    // Of an agent without approvers its owner is one, and the boss is a stranger.
    let own = asking(&alice, "open").await;
    let (path, body) = answer(&own);
    boss.post(&path, body.clone()).await.refused(404, "not_found");
    alice.post(&path, body).await.expect(202);
}

#[tokio::test]
async fn an_answer_takes_a_scope_of_its_own() {
    let server = setup().jwt().start().await;
    let alice = server.as_subject("alice");
    let run = asking(&alice, "other").await;
    let (path, body) = answer(&run);
    let emitter = server.api_token("alice", &[Scope::Read, Scope::Emit], None, None).await.0;
    emitter.post(&path, body.clone()).await.refused(403, "forbidden");
    let approver = server.api_token("alice", &[Scope::Approve], None, None).await.0;
    approver.post("/api/runs", json!({})).await.refused(403, "forbidden");
    approver.post(&path, body).await.expect(202);
    let metrics = server.get("/metrics").await.text;
    assert!(metrics.contains("runreel_refused_total{reason=\"forbidden\"}"), "{metrics}");
}

#[tokio::test]
async fn a_shell_that_is_for_everybody_with_a_credential_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("runreel.toml");
    let secrets = Secrets { jwt_secret: Some(JWT_SECRET.to_vec()), ..Secrets::default() };
    let check = |auth: &str, more: &str| {
        let text =
            format!("[tools.box]\nkind = \"shell\"\n[agents.admin]\nmodel = \"echo\"\ntools = [\"box\"]\n{more}");
        std::fs::write(&file, text).unwrap();
        let config = file.to_str().unwrap();
        serve_args(&["--auth", auth, "--config", config]).check(&secrets).map_err(|error| error.to_string())
    };
    let refused = check("jwt", "").unwrap_err();
    assert!(refused.contains("[agents.admin]") && refused.contains("allow = "), "{refused}");
    assert_eq!(check("jwt", "allow = [\"alice\"]\n"), Ok(()));
    assert_eq!(check("off", ""), Ok(()));
    assert!(check("off", "allow = [\"\"]\n").unwrap_err().contains("allow"));
    assert!(check("off", "allow = [{ sub = \"a\" }]\n").is_err());
}
