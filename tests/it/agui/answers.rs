//! Questions to people: a run of AG-UI ends with them, and another one brings the answers.

use crate::support::{api::Api, shared::shared};

use serde_json::{Value, json};

use super::{Client, Stream, request, texts, user};
use crate::{
    agents::{log, of, with},
    support::server::{Server, Setup},
};

const CONFIG: &str =
    "[tools.shell]\nroot = \"work\"\n[agents.admin]\nmodel = \"script:admin.toml\"\ntools = [\"shell\"]\n";

/// An agent that asks before it runs a command.
fn asker() -> Setup {
    let script = r#"
        [[turns]]
        text = "I would like to run it."
        tool_calls = [{ name = "shell", args = { command = "echo done" } }]
        [[turns]]
        text = "It said: {tool}"
    "#;
    with(CONFIG, &[("admin.toml", script)])
}

#[tokio::test]
async fn each_of_several_answers_begins_one_run_of_ag_ui() {
    let script = r#"
        [[turns]]
        tool_calls = [{ name = "shell", args = { command = "echo one" } }]
        [[turns]]
        tool_calls = [{ name = "shell", args = { command = "echo two" } }]
        [[turns]]
        text = "Done."
    "#;
    let server = with(CONFIG, &[("admin.toml", script)]).start().await;
    let mut client = Client::start().await;
    let order = json!({"agent": "admin", "threadId": "t", "runId": "r-1", "messages": [user("u", "do it")]});
    let mut state = client.run(&server, order).await;
    for name in ["r-2", "r-3"] {
        let interrupt = state["interrupts"][0]["id"].clone();
        let resume = json!([{"interruptId": interrupt, "status": "resolved", "payload": {"approved": true}}]);
        let order = json!({"agent": "admin", "threadId": "t", "runId": name, "messages": state["messages"],
                           "pendingInterrupts": state["interrupts"], "resume": resume});
        state = client.run(&server, order).await;
        assert_eq!(state["error"], Value::Null, "{name}: {state}");
        let begun = state["events"].as_array().unwrap().iter().filter(|event| event["type"] == "RUN_STARTED");
        assert_eq!(begun.count(), 1, "{name}: {state}");
    }
    assert_eq!(texts(&state["messages"]).last().unwrap().1, "Done.");
}

#[tokio::test]
async fn an_answer_begins_another_run_of_ag_ui_which_continues_the_same_one() {
    let server = asker().start().await;
    let mut client = Client::start().await;
    let order = json!({"agent": "admin", "threadId": "t", "runId": "r-1", "messages": [user("u", "do it")]});
    let asked = client.run(&server, order.clone()).await;
    let interrupt = asked["interrupts"][0].clone();
    assert_eq!(interrupt["reason"], "tool_call", "{asked}");
    let calls: Vec<&Value> =
        asked["messages"].as_array().unwrap().iter().filter(|m| m["toolCalls"].is_array()).collect();
    assert_eq!(calls[0]["toolCalls"][0]["id"], interrupt["toolCallId"], "what is asked about was shown");
    // Asking again changes nothing.
    let again = client.run(&server, order).await;
    assert_eq!(again["interrupts"], asked["interrupts"]);
    let resume = json!([{"interruptId": interrupt["id"], "status": "resolved", "payload": {"approved": true}}]);
    let order = json!({"agent": "admin", "threadId": "t", "runId": "r-2", "messages": asked["messages"],
                       "pendingInterrupts": asked["interrupts"], "resume": resume});
    let answered = client.run(&server, order.clone()).await;
    assert_eq!((&answered["error"], &answered["interrupts"]), (&Value::Null, &json!([])), "{answered}");
    let said = texts(&answered["messages"]);
    assert!(said.last().unwrap().1.contains("done"), "{said:?}");
    let kinds: Vec<&str> = said.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(kinds, ["user", "assistant", "tool", "assistant"]);
    // One run, one log, and two names of it.
    let run = server.get("/api/runs/by-external-id/r-1").await.expect(200)["run_id"].as_str().unwrap().to_owned();
    let events = log(&server, &run).await;
    assert_eq!((of(&events, "interrupt.resolved").len(), of(&events, "tool.completed").len()), (1, 1));
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"].as_array().unwrap().len(), 1);
    // The second name is durable: the request again joins, and so does a reader.
    let rejoined = client.run(&server, order).await;
    assert_eq!(texts(&rejoined["messages"]), said);
    let joined = Stream::join(&server, "r-2", None).await.rest().await;
    assert_eq!(joined.last().unwrap().event["outcome"], json!({"type": "success"}));
    assert_eq!(joined[0].event["runId"], "r-2");
    // With the run, its names go.
    server.delete(&format!("/api/runs/{run}")).await.expect(204);
    server.get("/api/agui/runs/r-2").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_refusal_is_told_to_the_agent_and_another_answer_is_refused() {
    let server = asker().start().await;
    let mut client = Client::start().await;
    let order = json!({"agent": "admin", "threadId": "t", "runId": "r-1", "messages": [user("u", "do it")]});
    let asked = client.run(&server, order).await;
    let entry = |payload: Value| json!([{"interruptId": asked["interrupts"][0]["id"], "status": "resolved", "payload": payload}]);
    let order = json!({"agent": "admin", "threadId": "t", "runId": "r-2", "messages": asked["messages"],
                       "resume": entry(json!({"approved": false, "reason": "too risky"}))});
    let refused = client.run(&server, order).await;
    assert!(texts(&refused["messages"]).iter().any(|(role, text)| role == "tool" && text.contains("too risky")));
    let mut other = request("t", "r-3", &[]);
    other["resume"] = entry(json!({"approved": true}));
    server.post("/api/agui/agents/admin", other).await.refused(409, "interrupt_closed");
}

#[tokio::test]
async fn a_request_without_answers_on_a_thread_with_a_question_fails_and_changes_nothing() {
    let server = asker().start().await;
    let mut client = Client::start().await;
    let order = json!({"agent": "admin", "threadId": "t", "runId": "r-1", "messages": [user("u", "do it")]});
    let asked = client.run(&server, order).await;
    let id = asked["interrupts"][0]["id"].as_str().unwrap();
    let next = json!({"agent": "admin", "threadId": "t", "runId": "r-2", "messages": [user("u2", "and?")]});
    let refused = client.run(&server, next.clone()).await;
    assert_eq!(refused["error"]["code"], "interrupt_open", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains(id), "{refused}");
    assert_eq!(refused["messages"], json!([user("u2", "and?")]));
    server.get("/api/runs/by-external-id/r-2").await.refused(404, "not_found");
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"].as_array().unwrap().len(), 1);
    // Another thread is free, and so is this one after the answer.
    let other = json!({"agent": "admin", "threadId": "other", "runId": "r-3", "messages": [user("u", "do it")]});
    assert_eq!(client.run(&server, other).await["error"], Value::Null);
    let mut answer = request("t", "r-4", &[]);
    answer["resume"] = json!([{"interruptId": id, "status": "resolved", "payload": {"approved": true}}]);
    Stream::post(&server, "admin", &answer).await.rest().await;
    assert_eq!(client.run(&server, next).await["error"], Value::Null);
}

#[tokio::test]
async fn questions_that_are_answered_elsewhere_let_the_reader_go_on() {
    let server = shared().await;
    let mut stream = Stream::post(&server, "elsewhere", &request("t", "r", &[])).await;
    let run = server.get("/api/runs/by-external-id/r").await.expect(200)["run_id"].as_str().unwrap().to_owned();
    let question = json!({"kind": "question", "prompt": "Which colour?"});
    server
        .emit(
            &run,
            json!([{"type": "run.started"}, {"type": "interrupt.requested", "span_id": "q", "payload": question},
                   {"type": "run.interrupted"}]),
        )
        .await;
    stream.expect("RUN_STARTED").await;
    let finished = stream.expect("RUN_FINISHED").await;
    let interrupts = &finished.event["outcome"]["interrupts"];
    assert_eq!(*interrupts, json!([{"id": "q", "reason": "input_required", "message": "Which colour?"}]));
    assert!(stream.next().await.is_none(), "a run of AG-UI ends with a question");
    let answer = json!({"interrupt_id": "q", "decision": "respond", "value": "blue"});
    server.post(&format!("/api/runs/{run}/resume"), answer).await.expect(202);
    let mut back = Stream::join(&server, "r", finished.id.as_deref()).await;
    server.emit(&run, json!({"type": "run.completed"})).await;
    back.expect("RUN_STARTED").await;
    assert_eq!(back.expect("RUN_FINISHED").await.event["outcome"], json!({"type": "success"}));
}

#[tokio::test]
async fn an_answer_over_64_kib_is_refused_in_every_protocol_and_changes_nothing() {
    let server = asker().start().await;
    let order = request("t", "r-1", &[user("u", "do it")]);
    let asked = Stream::post(&server, "admin", &order).await.rest().await;
    let id = asked.last().unwrap().event["outcome"]["interrupts"][0]["id"].clone();
    let run = server.get("/api/runs/by-external-id/r-1").await.expect(200)["run_id"].as_str().unwrap().to_owned();
    let long = "x".repeat(64 * 1024);
    let mut resume = request("t", "r-2", &[]);
    resume["resume"] =
        json!([{"interruptId": id, "status": "resolved", "payload": {"approved": false, "reason": long}}]);
    let part = json!({"type": "dynamic-tool", "toolName": "shell", "toolCallId": "c", "state": "approval-responded",
        "approval": {"id": id, "approved": false, "reason": long}});
    let chat = json!({"id": "t", "messages": [{"id": run, "role": "assistant", "parts": [part]}]});
    for (path, body) in [
        ("/api/agui/agents/admin", resume),
        ("/api/ai-sdk/agents/admin", chat),
        (&format!("/api/runs/{run}/resume"), json!({"interrupt_id": id, "decision": "reject", "value": long})),
    ] {
        server.post(path, body).await.refused(413, "too_large");
    }
    let id = format!("{run}/{}", id.as_str().unwrap());
    let item = json!({"type": "mcp_approval_response", "approval_request_id": id, "approve": false, "reason": long});
    let body = json!({"model": "admin", "previous_response_id": format!("resp_{run}"), "input": [item]});
    assert_eq!(server.post("/v1/responses", body).await.expect(413)["error"]["code"], "too_large");
    assert_eq!(server.run(&run).await["status"], "interrupted");
    server.get("/api/agui/runs/r-2").await.refused(404, "not_found");
}

/// A run that waits for the answers to `a` and `b`.
async fn with_two_questions(server: &Api, thread: &str, name: &str) -> String {
    let _stream = Stream::post(server, "elsewhere", &request(thread, name, &[])).await;
    let run = server.get(&format!("/api/runs/by-external-id/{name}")).await.expect(200)["run_id"].clone();
    let run = run.as_str().unwrap().to_owned();
    let asked = |id: &str| json!({"type": "interrupt.requested", "span_id": id, "payload": {"kind": "question"}});
    server.emit(&run, json!([{"type": "run.started"}, asked("a"), asked("b"), {"type": "run.interrupted"}])).await;
    run
}

fn resume(thread: &str, run: &str, answers: &[(&str, &str)]) -> Value {
    let entry = |(id, payload): &(&str, &str)| json!({"interruptId": id, "status": "resolved", "payload": payload});
    let mut input = request(thread, run, &[]);
    input["resume"] = answers.iter().map(entry).collect();
    input
}

#[tokio::test]
async fn the_answers_of_a_request_are_accepted_together_with_its_name_or_not_at_all() {
    let server = Server::start().await;
    let run = with_two_questions(&server, "t", "r-1").await;
    let path = "/api/agui/agents/elsewhere";
    server.post(path, resume("t", "r-2", &[("a", "1"), ("none", "2")])).await.refused(404, "not_found");
    server.post(path, resume("t", "r-2", &[("a", "1"), ("a", "2")])).await.refused(409, "interrupt_closed");
    assert_eq!(of(&log(&server, &run).await, "interrupt.resolved"), Vec::<&Value>::new());
    server
        .post(&format!("/api/runs/{run}/resume"), json!({"interrupt_id": "b", "decision": "respond", "value": "x"}))
        .await;
    server.emit(&run, json!({"type": "run.interrupted"})).await;
    server.post(path, resume("t", "r-2", &[("a", "1"), ("b", "2")])).await.refused(409, "interrupt_closed");
    let events = log(&server, &run).await;
    assert_eq!(of(&events, "interrupt.resolved").len(), 1, "of the two answers none was stored");
    server.get("/api/agui/runs/r-2").await.refused(404, "not_found");
    let other = with_two_questions(&server, "t2", "r-3").await;
    let mut stream = Stream::post(&server, "elsewhere", &resume("t2", "r-4", &[("b", "2"), ("a", "1")])).await;
    stream.expect("RUN_STARTED").await;
    let kinds: Vec<String> =
        log(&server, &other).await[5..].iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds, ["interrupt.resolved", "interrupt.resolved", "run.resumed"]);
    let after = server.db.number("select after_seq from store.run_alias where alias = 'r-4'").await;
    assert_eq!(after, 7, "the name counts from the last answer");
    // What was answered elsewhere can be answered again, and gives the run another name.
    let joined = Stream::post(&server, "elsewhere", &resume("t2", "r-5", &[("a", "1")])).await;
    server.emit(&other, json!({"type": "run.completed"})).await;
    assert_eq!(joined.rest().await.last().unwrap().event["runId"], "r-5");
    assert_eq!(server.db.number("select count(*) from store.run_alias").await, 2);
}

#[tokio::test]
async fn a_name_of_a_run_is_no_other_runs() {
    let server = shared().await;
    let run = with_two_questions(&server, "t", "r-1").await;
    drop(Stream::post(&server, "elsewhere", &resume("t", "r-2", &[("a", "1"), ("b", "2")])).await);
    let body = json!({"external_id": "r-2"});
    let problem = server.post("/api/runs", body).await.refused(409, "external_id_taken");
    assert!(problem["detail"].as_str().unwrap().contains(&run), "{problem}");
    server.put("/api/runs/by-external-id/r-2", json!({})).await.refused(409, "external_id_taken");
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn the_run_that_waits_is_answered_and_a_question_can_be_named_with_its_run() {
    let server = shared().await;
    let waiting = with_two_questions(&server, "t", "r-1").await;
    let newer = server.create(json!({"agent": "elsewhere", "thread_id": "t"})).await;
    let asked = json!([{"type": "interrupt.requested", "span_id": "a"}, {"type": "run.interrupted"}]);
    server.emit(&newer, asked.clone()).await;
    let answer = json!({"interrupt_id": "a", "decision": "respond", "value": "done"});
    server.post(&format!("/api/runs/{newer}/resume"), answer).await.expect(202);
    drop(Stream::post(&server, "elsewhere", &resume("t", "r-2", &[("a", "1")])).await);
    assert_eq!(of(&log(&server, &waiting).await, "interrupt.resolved")[0]["payload"]["value"], "1");
    // Two that wait: the newer one, unless the other is named.
    let third = with_two_questions_beside(&server).await;
    server.emit(&waiting, json!({"type": "run.interrupted"})).await;
    let of_first = format!("{waiting}/b");
    drop(Stream::post(&server, "elsewhere", &resume("t", "r-4", &[(&of_first, "2")])).await);
    assert_eq!(of(&log(&server, &waiting).await, "interrupt.resolved")[1]["payload"]["interrupt_id"], "b");
    drop(Stream::post(&server, "elsewhere", &resume("t", "r-5", &[("b", "3")])).await);
    assert_eq!(of(&log(&server, &third).await, "interrupt.resolved")[0]["payload"]["value"], "3");
    let foreign = format!("{third}/none");
    server.post("/api/agui/agents/elsewhere", resume("t", "r-6", &[(&foreign, "4")])).await.refused(404, "not_found");
}

/// The same as a run that was not begun by AG-UI, which would refuse it.
async fn with_two_questions_beside(server: &Api) -> String {
    let run = server.create(json!({"agent": "elsewhere", "thread_id": "t"})).await;
    let asked = |id: &str| json!({"type": "interrupt.requested", "span_id": id});
    server.emit(&run, json!([asked("a"), asked("b"), {"type": "run.interrupted"}])).await;
    run
}

#[tokio::test]
async fn a_run_is_joined_and_answered_at_its_own_agent() {
    let server = shared().await;
    let run = with_two_questions(&server, "t", "r-1").await;
    let path = "/api/agui/agents/other";
    let problem = server.post(path, request("t", "r-1", &[])).await.refused(409, "external_id_taken");
    assert_eq!(problem["field"], "runId");
    server.post(path, resume("t", "r-2", &[("a", "1")])).await.refused(404, "not_found");
    assert_eq!(of(&log(&server, &run).await, "interrupt.resolved"), Vec::<&Value>::new());
}
