//! Messages for agents that nobody serves.

use std::time::Duration;

use serde_json::{Value, json};

use super::{agents, claim, claimer};
use crate::support::server::{manual_clock, setup};

#[tokio::test]
async fn a_message_for_an_agent_that_nobody_serves_fails_and_its_conversation_goes_on() {
    let clock = manual_clock();
    let server = setup().clock(&clock).config("[channels.web]\nagent = \"nobody\"\n").start().await;
    let dispatch = server.inner.runners.dispatch();
    let say = async |text: &str| -> String {
        let message = json!({ "chat_id": "5", "user_id": "5", "text": text });
        let said: Value = server.post("/api/channels/web/messages", message).await.expect(202);
        said["run_id"].as_str().unwrap().to_owned()
    };
    let first = say("is anybody there?").await;
    // A run that no message started waits for its runner as long as that takes.
    let queued = server.create(json!({ "agent": "nobody", "start": false })).await;
    server.pass(Duration::from_secs(119));
    dispatch.sweep_once(None).await.unwrap();
    assert_eq!(server.run(&first).await["status"], "queued", "a runner may still come");
    server.pass(Duration::from_secs(2));
    dispatch.sweep_once(None).await.unwrap();
    let failed = server.run(&first).await;
    assert_eq!((&failed["status"], &failed["error"]["code"]), (&json!("failed"), &json!("agent_unserved")));
    assert!(failed["error"]["message"].as_str().unwrap().contains("the agent nobody"), "{failed}");
    assert_eq!(server.run(&queued).await["status"], "queued");

    // Somebody serves it now: the next message is carried out, however long it waits for its turn.
    assert_eq!(claim(dispatch, "nobody", 9).await.len(), 1, "the run that waited");
    let second = say("and now?").await;
    server.pass(Duration::from_secs(121));
    dispatch.claim(&claimer("busy"), &agents(&["nobody"]), 0).await.unwrap();
    dispatch.sweep_once(None).await.unwrap();
    assert_eq!(server.run(&second).await["status"], "queued", "whoever serves it is busy");
}
