//! Agents of the kind `agui`: an endpoint elsewhere, whose stream becomes the log.

mod cuts;
mod hostile;
mod large;
mod questions;

use serde_json::{Value, json};

use crate::{
    agents::{ask, kinds, log, of, response, said, stands},
    support::{
        api::Api,
        models::{Answer, ModelServer, events, stream_of},
        server::{Server, setup},
    },
};

/// A server with an agent `far` behind an endpoint that gives these answers, one to each request.
pub async fn before(answers: Vec<Answer>, more: &str) -> (Server, ModelServer) {
    let endpoint = ModelServer::start(answers).await;
    let config = format!("[agents.far]\nkind = \"agui\"\nurl = \"{}/agent\"\n{more}\n", endpoint.base);
    (setup().config(&config).start().await, endpoint)
}

/// A whole answer: these events between the start and the end of a run.
pub fn whole(said: &[Value]) -> Answer {
    stream_of("text/event-stream", begun(said) + &events(&[finished(&Value::Null)]))
}

/// The beginning of an answer.
pub fn begun(said: &[Value]) -> String {
    events(&[&[json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})], said].concat())
}

pub fn finished(outcome: &Value) -> Value {
    json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": outcome})
}

fn text(id: &str, pieces: &[&str]) -> Vec<Value> {
    let delta = |piece: &&str| json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": piece});
    let mut said = vec![json!({"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"})];
    said.extend(pieces.iter().map(delta));
    said.push(json!({"type": "TEXT_MESSAGE_END", "messageId": id}));
    said
}

fn call(id: &str, name: &str, args: &[&str], parent: &str) -> Vec<Value> {
    let mut said =
        vec![json!({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": name, "parentMessageId": parent})];
    said.extend(args.iter().map(|args| json!({"type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": args})));
    said.push(json!({"type": "TOOL_CALL_END", "toolCallId": id}));
    said
}

fn result(call: &str, message: &str, content: &str) -> Value {
    json!({"type": "TOOL_CALL_RESULT", "messageId": message, "toolCallId": call, "content": content})
}

/// The error of a run that failed.
async fn error(api: &Api, run: &str) -> Value {
    stands(api, run, "failed").await;
    api.run(run).await["error"].clone()
}

/// Something of every kind.
fn everything() -> Vec<Value> {
    [
        vec![json!({"type": "STEP_STARTED", "stepName": "plan"})],
        vec![
            json!({"type": "REASONING_START", "messageId": "think"}),
            json!({"type": "REASONING_MESSAGE_START", "messageId": "think", "role": "reasoning"}),
            json!({"type": "REASONING_MESSAGE_CONTENT", "messageId": "think", "delta": "hm"}),
            json!({"type": "REASONING_MESSAGE_END", "messageId": "think"}),
            json!({"type": "REASONING_END", "messageId": "think"}),
        ],
        text("m1", &["I will ", "look"]),
        call("c1", "search", &["{\"q\":", "\"x\"}"], "m1"),
        vec![result("c1", "r1", "3 hits"), json!({"type": "STEP_FINISHED", "stepName": "plan"})],
        vec![
            json!({"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}}),
            json!({"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/n", "value": 2}]}),
            json!({"type": "CUSTOM", "name": "progress", "value": 0.5}),
            json!({"type": "ACTIVITY_SNAPSHOT", "messageId": "a", "activityType": "plan", "content": {}}),
            json!({"type": "BRAND_NEW", "of": "tomorrow"}),
        ],
        vec![
            json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m2", "delta": "do"}),
            json!({"type": "TEXT_MESSAGE_CHUNK", "delta": "ne"}),
            json!({"type": "TOOL_CALL_CHUNK", "toolCallId": "c2", "toolCallName": "beep", "delta": "not JSON"}),
        ],
        vec![result("c2", "r2", "")],
    ]
    .concat()
}

#[tokio::test]
async fn everything_an_endpoint_says_is_in_the_log_under_its_own_ids() {
    let (server, endpoint) = before(vec![whole(&everything())], "").await;
    let run = ask(&server, "far", "hello", json!({"thread_id": "talk"})).await;
    assert_eq!(response(&server, &run).await, "done");
    let events = log(&server, &run).await;
    assert_eq!(
        kinds(&events),
        [
            "run.created",
            "run.started",
            "message.completed",
            "step.started",
            "reasoning.completed",
            "message.completed",
            "tool.started",
            "tool.completed",
            "step.completed",
            "agui.state_snapshot",
            "agui.state_delta",
            "agui.custom",
            "agui.activity_snapshot",
            "agui.raw",
            "message.completed",
            "tool.started",
            "tool.completed",
            "run.completed",
        ]
    );
    assert_eq!(events[3]["span_id"], events[8]["span_id"]);
    assert_eq!((&events[4]["span_id"], &events[4]["payload"]), (&json!("think"), &json!({"text": "hm"})));
    let words = json!({"role": "assistant", "content": [{"type": "text", "text": "I will look"}]});
    assert_eq!((&events[5]["span_id"], &events[5]["payload"]), (&json!("m1"), &words));
    assert_eq!((&events[6]["span_id"], &events[6]["parent_span_id"]), (&json!("c1"), &json!("m1")));
    assert_eq!(events[6]["payload"], json!({"tool_call_id": "c1", "name": "search", "args": {"q": "x"}}));
    let returned = json!({"tool_call_id": "c1", "name": "search", "result": "3 hits", "message_id": "r1"});
    assert_eq!(events[7]["payload"], returned);
    assert_eq!(events[9]["payload"], json!({"snapshot": {"n": 1}}));
    assert_eq!(events[11]["payload"], json!({"name": "progress", "value": 0.5}));
    assert_eq!(events[12]["payload"], json!({"message_id": "a", "activity_type": "plan", "content": {}}));
    assert_eq!(events[13]["payload"], json!({"event": {"type": "BRAND_NEW", "of": "tomorrow"}}));
    assert_eq!(events[15]["payload"]["args"], "not JSON");
    let asked = &endpoint.asked()[0];
    assert_eq!((asked.path.as_str(), asked.headers["accept"].to_str().unwrap()), ("/agent", "text/event-stream"));
    assert_eq!((&asked.body["threadId"], &asked.body["runId"]), (&json!("talk"), &json!(run)));
    assert_eq!(asked.body["messages"][0]["content"], "hello");
}

#[tokio::test]
async fn the_next_run_of_a_thread_sends_the_conversation_and_the_state_so_far() {
    let first = [
        call("c1", "search", &["{}"], "m0"),
        vec![result("c1", "r1", "hit"), json!({"type": "STATE_SNAPSHOT", "snapshot": {"n": 1}})],
        vec![json!({"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/m", "value": 2}]})],
        text("m1", &["one"]),
    ]
    .concat();
    // An endpoint may count its messages anew in every run.
    let (server, endpoint) = before(vec![whole(&first), whole(&text("m1", &["two"]))], "").await;
    let one = ask(&server, "far", "a", json!({"thread_id": "t"})).await;
    assert_eq!(response(&server, &one).await, "one");
    let two = ask(&server, "far", "b", json!({"thread_id": "t"})).await;
    assert_eq!(response(&server, &two).await, "two");
    let asked = &endpoint.asked()[1].body;
    let roles: Vec<&str> =
        asked["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant", "user"]);
    assert_eq!(asked["messages"][1]["toolCalls"][0]["function"], json!({"name": "search", "arguments": "{}"}));
    assert_eq!(asked["messages"][2]["toolCallId"], "c1");
    assert_eq!(asked["state"], json!({"n": 1, "m": 2}));
    let alone = ask(&server, "far", "c", json!({})).await;
    assert_eq!(error(&server, &alone).await["code"], "agui_unreachable", "no third answer was prepared");
}

#[tokio::test]
async fn an_input_of_ag_ui_goes_through_as_it_is_and_a_client_makes_the_calls_of_its_tools() {
    let calls = [text("m1", &["look:"]), call("c1", "paint", &["{\"color\":\"red\"}"], "m1")].concat();
    let (server, endpoint) = before(vec![whole(&calls), whole(&text("m2", &["it is red"]))], "").await;
    let tools = json!([{"name": "paint", "description": "paints", "parameters": {"type": "object"}}]);
    let user = json!({"id": "u1", "role": "user", "content": "paint it"});
    let input = json!({
        "threadId": "theirs", "runId": "run-1", "messages": [user], "tools": tools, "context": [{"description": "d",
        "value": "v"}], "forwardedProps": {"a": 1}, "state": {"s": 1},
    });
    let run = server.create(json!({"agent": "far", "start": false, "input": input, "thread_id": "ours"})).await;
    assert_eq!(response(&server, &run).await, "look:");
    let output = server.run(&run).await["output"].clone();
    assert_eq!(output["tool_calls"], json!([{"id": "c1", "name": "paint", "args": {"color": "red"}}]));
    let events = log(&server, &run).await;
    assert_eq!(of(&events, "tool.started")[0]["payload"]["client"], true);
    assert_eq!(of(&events, "message.completed")[0]["span_id"], "u1");
    let asked = endpoint.asked()[0].body.clone();
    assert_eq!(asked, {
        let mut expected = input.clone();
        expected["threadId"] = json!("ours");
        expected
    });
    let next = json!({
        "threadId": "theirs", "runId": "run-2", "tools": tools, "state": {}, "context": [], "forwardedProps": {},
        "messages": [user, {"id": "m1", "role": "assistant", "content": "look:", "toolCalls": [{"id": "c1", "type":
        "function", "function": {"name": "paint", "arguments": "{\"color\":\"red\"}"}}]}, {"id": "r1", "role": "tool",
        "toolCallId": "c1", "content": "painted"}],
    });
    let run = server.create(json!({"agent": "far", "start": false, "input": next, "thread_id": "ours"})).await;
    assert_eq!(response(&server, &run).await, "it is red");
    let events = log(&server, &run).await;
    let pair = |role: &str, text: &str| (role.to_owned(), text.to_owned());
    assert_eq!(said(&events), [pair("tool", "painted"), pair("assistant", "it is red")]);
    assert_eq!(of(&events, "message.completed")[0]["payload"]["tool_call_id"], "c1");
    assert_eq!(endpoint.asked()[1].body["messages"], next["messages"]);
}

#[tokio::test]
async fn the_response_is_the_last_text_of_the_run_also_if_it_came_with_the_whole_conversation() {
    let message = |id: &str, role: &str, content: &str| json!({"id": id, "role": role, "content": content});
    let snapshot = |messages: &[Value]| json!({"type": "MESSAGES_SNAPSHOT", "messages": messages});
    let before_it = [message("u1", "user", "a"), message("x1", "assistant", "one")];
    // The first streams its text and then gives it another id; the second has it in the snapshot only; the third says
    // nothing new.
    let chunk = json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m1", "role": "assistant", "delta": "one"});
    let second = [&before_it[..], &[message("u2", "user", "b"), message("x2", "assistant", "two")]].concat();
    let third = [&second[..], &[message("u3", "user", "c")]].concat();
    let answers = vec![
        whole(&[chunk, snapshot(&before_it)]),
        whole(&[snapshot(&second), json!({"type": "STATE_SNAPSHOT", "snapshot": {}})]),
        whole(&[snapshot(&third)]),
    ];
    let (server, _endpoint) = before(answers, "").await;
    for (input, expected) in [("a", "one"), ("b", "two"), ("c", "")] {
        let run = ask(&server, "far", input, json!({"thread_id": "t"})).await;
        assert_eq!(response(&server, &run).await, expected);
    }
}

#[tokio::test]
async fn an_error_and_a_result_of_the_endpoint_are_those_of_the_run() {
    let wrong = begun(&text("m1", &["so far"])[..2])
        + &events(&[json!({"type": "RUN_ERROR", "message": "no more money", "code": "billing"})]);
    let brought = events(&[json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "result": {"sum": 7}})]);
    let answers = vec![stream_of("text/event-stream", wrong), stream_of("text/event-stream; charset=utf-8", brought)];
    let (server, endpoint) = before(answers, "").await;
    let run = ask(&server, "far", "go", json!({})).await;
    assert_eq!(error(&server, &run).await, json!({"message": "no more money", "code": "billing"}));
    let lost = of(&log(&server, &run).await, "agui.failed")[0].clone();
    assert_eq!((&lost["span_id"], &lost["payload"]["text"]), (&json!("m1"), &json!("so far")));
    let run = ask(&server, "far", "go", json!({})).await;
    stands(&server, &run, "completed").await;
    assert_eq!(server.run(&run).await["output"], json!({"sum": 7}));
    assert_eq!(endpoint.asked().len(), 2, "an error is the run's end");
}
