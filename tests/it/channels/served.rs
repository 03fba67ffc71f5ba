//! Who answers on a channel, by what the configuration says of agents.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{accepted, id};
use crate::support::{cluster::Db, patiently, process::program, runs::parsed, server::setup};

#[tokio::test]
async fn the_run_of_an_agent_with_workers_is_a_supervisors() {
    let config = "[channels.web]\nagent = \"lead\"\n[agents.lead]\nmodel = \"echo\"\nworkers = [\"hand\"]\n\
                  [agents.hand]\nmodel = \"echo\"\n[channels.plain]\nagent = \"hand\"\n";
    let server = setup().config(config).start().await;
    for (channel, role) in [("web", "supervisor"), ("plain", "agent")] {
        let message = json!({ "chat_id": "5", "user_id": "5", "text": "hello" });
        let path = format!("/api/channels/{channel}/messages?wait=true");
        let body = server.post(&path, message).await.expect(202);
        assert_eq!(body["status"], "completed", "{body}");
        assert_eq!(server.run(&id(&body, "run_id")).await["role"], role);
        let events: Vec<Value> = server.events(&id(&body, "run_id")).await.iter().map(parsed).collect();
        assert!(events.iter().all(|event| event["role"] == role), "{events:?}");
    }
}

#[tokio::test]
async fn a_channel_that_names_nobody_has_the_only_agent() {
    let server = setup().config("[channels.web]\ntrigger = \"\"\n[agents.helper]\nmodel = \"echo\"\n").start().await;
    let body = accepted(&server, "hello").await;
    assert_eq!(server.run(&id(&body, "run_id")).await["agent"], "helper");
    let message = json!({ "chat_id": "g", "user_id": "5", "text": "hello", "is_private": false });
    let (status, body) = super::say(&server, "web", message).await;
    assert_eq!(status, 202, "an empty trigger is none: {body}");
}

#[tokio::test]
async fn a_server_says_at_its_start_which_channel_nobody_answers_on() {
    let (db, folder) = (Db::new().await, tempfile::tempdir().unwrap());
    let file = folder.path().join("runreel.toml");
    std::fs::write(&file, "[channels.web]\nagent = \"ghost\"\n[channels.mail]\n[agents.assistant]\nmodel = \"echo\"\n")
        .unwrap();
    let data = folder.path().join("data");
    let mut serve = program(&["serve", "--listen", "127.0.0.1:0", "--config", file.to_str().unwrap()]);
    serve.args(["--data-dir", data.to_str().unwrap()]).env("DATABASE_URL", db.url()).stderr(Stdio::piped());
    let mut child = serve.spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let told = patiently("the warning", async {
        loop {
            let line = lines.next_line().await.unwrap().expect("a warning before the end");
            if line.contains("no agent on this server serves") {
                return line;
            }
        }
    })
    .await;
    assert!(told.contains("[agents.ghost]") && told.contains("[channels.web]") && told.contains("WARN"), "{told}");
    assert!(!told.contains("mail"), "{told}");
    child.kill().await.unwrap();
}
