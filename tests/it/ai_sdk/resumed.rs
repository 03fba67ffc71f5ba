//! A chat whose connection breaks in the middle, and which comes back.

use crate::support::shared::shared;

use serde_json::{Value, json};

use super::{parts, peer::Peer, run_of, spoken};
use crate::{
    agents::with,
    support::{
        api::Api,
        cluster::Db,
        process::serve_again,
        server::{Server, setup},
        until,
    },
};

/// The run that every chat here follows, an emission at a time.
fn story() -> Vec<Value> {
    let begun =
        json!([{"type": "run.started"}, {"type": "step.started", "span_id": "s1", "payload": {"name": "model"}}]);
    let called = json!([
        {"type": "tool.started", "span_id": "c", "payload": {"name": "weather", "args": {"city": "Rome"}}},
        {"type": "tool.completed", "span_id": "c", "payload": {"name": "weather", "result": "sun"}},
        {"type": "step.completed", "span_id": "s1", "payload": {"name": "model"}},
    ]);
    let singly = |events: Value| events.as_array().unwrap().iter().map(|event| json!([event])).collect::<Vec<_>>();
    let mut story = vec![begun];
    story.extend(singly(spoken("t", "reasoning", &["Rome", " or ", "Paris?"])));
    story.extend(singly(spoken("m1", "message", &["Let ", "me ", "loök ", "😀."])));
    story.push(called);
    story.extend(singly(spoken("m2", "message", &["It ", "is ", "sunny ", "in ", "Rome."])));
    story
}

/// How many chunks of a message there are after so many emissions. Each piece of a text is a chunk, and so are its start,
/// its end, and each other part.
const CHUNKS: [usize; 17] = [2, 4, 5, 6, 7, 9, 10, 11, 12, 13, 16, 18, 19, 20, 21, 22, 23];

/// Follows the story with a connection that breaks after so many chunks; returns the message.
async fn follow(server: &Api, peer: &mut Peer, chat: &str, cut: Option<usize>) -> Vec<Value> {
    peer.open(server, "helper", json!({"id": chat})).await;
    if let Some(cut) = cut {
        peer.order(json!({"do": "cut", "chunks": cut})).await;
    }
    peer.order(json!({"do": "send", "text": "weather?"})).await;
    let run = run_of(server, chat).await;
    let mut is_cut = cut.is_none();
    for (events, chunks) in story().into_iter().zip(CHUNKS) {
        server.emit(&run, events).await;
        if let Some(cut) = cut.filter(|_| !is_cut) {
            peer.order(json!({"do": "chunks", "count": chunks.min(cut)})).await;
            is_cut = cut <= chunks;
            if is_cut {
                let state = peer.order(json!({"do": "rest"})).await;
                assert_eq!((&state["status"], &state["error"]), (&json!("error"), &json!("network error")), "{state}");
                peer.order(json!({"do": "resume"})).await;
                // It is back before the run goes on, and so before its end.
                peer.order(json!({"do": "chunks", "count": cut + 1})).await;
            }
        } else if cut.is_none() {
            peer.order(json!({"do": "chunks", "count": chunks})).await;
        }
    }
    assert!(is_cut, "the story has more than {cut:?} chunks");
    server.emit(&run, json!([{"type": "run.completed", "payload": {"output": "sunny"}}])).await;
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!(
        (&state["status"], state["messages"].as_array().unwrap().len()),
        (&json!("ready"), 2),
        "{cut:?}: {state}"
    );
    assert_eq!(state["messages"][1]["id"], json!(run));
    // The ids of calls begin with that of their run.
    serde_json::from_str(&json!(parts(&state)).to_string().replace(&run, "run")).unwrap()
}

#[tokio::test]
async fn a_chat_that_is_cut_anywhere_has_the_same_message_when_it_has_come_back() {
    let server = shared().await;
    let mut peer = Peer::start();
    let whole = follow(&server, &mut peer, "whole", None).await;
    let texts: Vec<_> = whole.iter().filter_map(|part| part["text"].as_str()).collect();
    assert_eq!(texts, ["Rome or Paris?", "Let me loök 😀.", "It is sunny in Rome."]);
    for cut in 1..=23 {
        let message = follow(&server, &mut peer, &format!("cut-{cut}"), Some(cut)).await;
        assert_eq!(message, whole, "cut after {cut} chunks");
    }
}

#[tokio::test]
async fn a_server_that_stops_says_so_and_the_chat_comes_back_to_the_next() {
    let first = Server::start().await;
    let second = setup().on(&first.db).start().await;
    let mut peer = Peer::start();
    peer.open(&first, "helper", json!({"id": "c"})).await;
    peer.order(json!({"do": "send", "text": "go"})).await;
    let run = run_of(&first, "c").await;
    first.emit(&run, json!([{"type": "run.started"}])).await;
    first.emit(&run, spoken("m1", "message", &["One."])).await;
    peer.order(json!({"do": "chunks", "count": 4})).await;
    first.stop().await;
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!(state["status"], "error");
    assert!(state["error"].as_str().unwrap().contains("resume it"), "{state}");
    peer.open(&second, "helper", json!({"id": "c", "messages": state["messages"]})).await;
    peer.order(json!({"do": "resume"})).await;
    peer.order(json!({"do": "chunks", "count": 4})).await;
    second.emit(&run, spoken("m2", "message", &["Two."])).await;
    second.emit(&run, json!([{"type": "run.completed", "payload": {"output": "Two."}}])).await;
    let state = peer.order(json!({"do": "rest"})).await;
    let texts: Vec<_> = parts(&state).iter().map(|part| part["text"].clone()).collect();
    assert_eq!((texts, state["messages"].as_array().unwrap().len()), (vec![json!("One."), json!("Two.")], 2));
}

#[tokio::test]
async fn a_tool_of_the_client_goes_there_and_back_and_the_message_is_one_wherever_it_is_cut() {
    let server = shared().await;
    let mut peer = Peer::start();
    let tools = json!({"locate": {"description": "where the user is", "parameters": {"type": "object"}}});
    peer.open(&server, "helper", json!({"id": "c", "auto": true, "tools": tools})).await;
    peer.order(json!({"do": "send", "text": "weather here?"})).await;
    let first = run_of(&server, "c").await;
    assert_eq!(server.run(&first).await["input"]["tools"][0]["name"], "locate");
    server.emit(&first, json!([{"type": "run.started"}])).await;
    server.emit(&first, spoken("m1", "message", &["Where ", "are you?"])).await;
    let call = json!({"name": "locate", "args": {"exactly": true}, "client": true});
    let output = json!({"response": "Where are you?", "tool_calls": [{"id": "call-1", "name": "locate"}]});
    let asked = json!([
        {"type": "tool.started", "span_id": "call-1", "payload": call},
        {"type": "run.completed", "payload": {"output": output}},
    ]);
    server.emit(&first, asked).await;
    let state = peer.order(json!({"do": "rest"})).await;
    let (message, call) = (parts(&state), parts(&state).pop().unwrap());
    assert_eq!(message.len(), 2, "{state}");
    assert_eq!((&call["type"], &call["state"]), (&json!("tool-locate"), &json!("input-available")));
    assert_eq!(call["input"], json!({"exactly": true}));
    peer.order(json!({"do": "cut", "chunks": 3})).await;
    let output =
        json!({"do": "output", "tool": "locate", "toolCallId": format!("{first}/call-1"), "output": {"city": "Rome"}});
    peer.order(output).await;
    crate::support::until("the second run", || async { run_of(&server, "c").await != first }).await;
    let second = run_of(&server, "c").await;
    let input = server.run(&second).await["input"]["messages"].clone();
    assert_eq!(input, json!([{"role": "tool", "tool_call_id": "call-1", "content": "{\"city\":\"Rome\"}"}]));
    server.emit(&second, json!([{"type": "run.started"}])).await;
    server.emit(&second, json!([spoken("m2", "message", &["It ", "is sunny."])[0]])).await;
    // start, text-start and a delta have come: the connection breaks.
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!(state["error"], "network error", "{state}");
    peer.order(json!({"do": "resume"})).await;
    let back = state["chunks"].as_array().unwrap().len() + 1;
    peer.order(json!({"do": "chunks", "count": back})).await;
    server.emit(&second, json!([spoken("m2", "message", &["It ", "is sunny."])[1]])).await;
    server.emit(&second, json!([spoken("m2", "message", &["It ", "is sunny."])[2]])).await;
    server.emit(&second, json!([{"type": "run.completed", "payload": {"output": "sunny"}}])).await;
    let state = peer.order(json!({"do": "rest"})).await;
    assert_eq!((&state["status"], state["messages"].as_array().unwrap().len()), (&json!("ready"), 2), "{state}");
    assert_eq!(
        (&state["messages"][1]["id"], &state["messages"][1]["metadata"]["runId"]),
        (&json!(first), &json!(second))
    );
    let texts: Vec<_> = parts(&state).iter().map(|part| part["text"].clone()).collect();
    assert_eq!(texts, [json!("Where are you?"), Value::Null, json!("It is sunny.")]);
    let replay = server.get(&format!("{}/c/stream?ended=true", super::route("helper"))).await.text;
    assert_eq!(replay.matches("\"type\":\"start\"").count(), 2);
    assert_eq!((replay.matches("\"type\":\"finish\"").count(), replay.matches("[DONE]").count()), (1, 1));
}

#[tokio::test]
async fn a_chat_that_comes_back_before_a_killed_servers_answer_begins_again_has_the_answer_once() {
    let script =
        "pace_ms = 40\n[[turns]]\ntext = \"An answer that takes its time, as its words are told one by one.\"\n";
    let config = "[agents.slow]\nmodel = \"script:slow.toml\"\n";
    let (db, folder) = (Db::new().await, with(config, &[("slow.toml", script)]).folder());
    let (file, data) = (folder.path().join("runreel.toml"), folder.path().join("data"));
    let mut first = serve_again(&db.url(), &file, &data).await;
    let mut peer = Peer::start();
    peer.open(&Api::new(first.base.clone()), "slow", json!({"id": "c"})).await;
    peer.order(json!({"do": "send", "text": "go"})).await;
    until("the text to be saved", || async { db.number("select count(*) from store.open_text").await == 1 }).await;
    first.child.kill().await.unwrap();
    let state = peer.order(json!({"do": "rest"})).await;
    let second = serve_again(&db.url(), &file, &data).await;
    peer.open(&Api::new(second.base.clone()), "slow", json!({"id": "c", "messages": state["messages"]})).await;
    peer.order(json!({"do": "resume"})).await;
    let state = peer.order(json!({"do": "rest"})).await;
    let parts = parts(&state);
    let texts: Vec<_> = parts.iter().filter(|part| part["type"] == "text").map(|part| &part["text"]).collect();
    assert_eq!(texts, ["An answer that takes its time, as its words are told one by one."], "{state}");
    assert_eq!(state["messages"].as_array().unwrap().len(), 2);
}
