//! An id of a model is taken for an id of a question.

use serde_json::{Value, json};

use crate::support::{api::Api, shared::shared};

fn asked(id: &str, args: &str) -> Value {
    let payload = json!({"kind": "approval", "tool": "danger", "args": {"what": args}});
    json!([{"type": "interrupt.requested", "span_id": id, "payload": payload}, {"type": "run.interrupted"}])
}

async fn approve(api: &Api, run: &str, id: &str) {
    let body = json!({"interrupt_id": id, "decision": "approve"});
    api.post(&format!("/api/runs/{run}/resume"), body).await.expect(202);
}

async fn open(api: &Api) -> Vec<Value> {
    let list = api.get("/api/interrupts").await.expect(200);
    list["interrupts"].as_array().unwrap().iter().map(|open| open["interrupt_id"].clone()).collect()
}

#[tokio::test]
async fn an_answer_is_the_answer_to_one_question() {
    let server = shared().await;
    let run = server.start_run().await;
    server.emit(&run, asked("approval:c0", "first")).await;
    // While it is open, and after it was answered.
    for _ in 0..2 {
        let before = server.run(&run).await;
        let problem = server.try_emit(&run, asked("approval:c0", "second")).await.expect(409);
        assert_eq!((&problem["code"], &problem["field"]), (&json!("interrupt_exists"), &json!("span_id")), "{problem}");
        let after = server.run(&run).await;
        assert_eq!((&after["last_seq"], &after["status"]), (&before["last_seq"], &before["status"]));
        if before["status"] == "interrupted" {
            assert_eq!(open(&server).await, ["approval:c0"]);
            approve(&server, &run, "approval:c0").await;
        }
    }
    assert_eq!(server.run(&run).await["status"], "running", "a run that could not ask does not wait");
    server.emit(&run, asked("approval:c0#2", "second")).await;
    assert_eq!(open(&server).await, ["approval:c0#2"]);
    approve(&server, &run, "approval:c0").await;
    assert_eq!(open(&server).await, ["approval:c0#2"], "the first answer again is not one to the second question");
    approve(&server, &run, "approval:c0#2").await;
    assert_eq!((open(&server).await.len(), server.run(&run).await["status"].clone()), (0, json!("running")));
}

#[tokio::test]
async fn a_question_may_be_repeated_under_its_event_id_and_asked_by_another_run() {
    let server = shared().await;
    let (run, other) = (server.start_run().await, server.start_run().await);
    let request = json!({"type": "interrupt.requested", "span_id": "i", "event_id": "i:asked"});
    let first = server.emit(&run, json!([request])).await;
    let again = server.emit(&run, json!([request])).await;
    assert_eq!(
        (&again["events"][0]["seq"], &again["events"][0]["duplicate"]),
        (&first["events"][0]["seq"], &json!(true))
    );
    server.emit(&other, json!([request])).await;
    let longest = "x".repeat(128);
    let twice = json!([{"type": "interrupt.requested", "span_id": longest}, {"type": "interrupt.requested", "span_id": longest}]);
    server.try_emit(&run, twice.clone()).await.expect(409);
    server.emit(&run, json!([twice[0]])).await;
    approve(&server, &run, &longest).await;
}

#[cfg(feature = "agents")]
#[tokio::test]
async fn an_agent_asks_about_each_call_although_its_model_repeats_the_id() {
    use crate::{
        agents::{answer, ask, log, of, questions, stands, with},
        support::models::{ModelServer, chat},
    };
    let call = |command: &str| chat(&[], &[("danger:0", "shell", &[&json!({"command": command}).to_string()])]);
    let model = ModelServer::start(vec![call("echo one"), call("echo two"), chat(&["done"], &[])]).await;
    let config = format!(
        "[tools.shell]\nroot = \"work\"\n[models.m]\nmodel = \"openai:m\"\nbase_url = \"{}\"\napi_key_file = \"key\"\n\
         [agents.admin]\nmodel = \"m\"\ntools = [\"shell\"]\n",
        model.base
    );
    let server = with(&config, &[("key", "sk-x\n")]).start().await;
    let run = ask(&server, "admin", "do it", json!({})).await;
    let first = questions(&server, &run).await;
    answer(&server, &run, &first[0], "approve", Value::Null).await;
    crate::support::until("the second question", || async {
        of(&log(&server, &run).await, "interrupt.requested").len() == 2
    })
    .await;
    let second = questions(&server, &run).await;
    assert_ne!(second[0]["span_id"], second[1]["span_id"]);
    assert_eq!(second[1]["payload"]["args"], json!({"command": "echo two"}));
    answer(&server, &run, &second[1], "reject", Value::Null).await;
    stands(&server, &run, "completed").await;
    let events = log(&server, &run).await;
    assert_eq!((of(&events, "tool.completed").len(), of(&events, "tool.failed").len()), (1, 1));
}
