//! A proxied run whose process crashes at each of its operations in turn.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::sync::CancellationToken;

use super::{Endpoint, Proxy};
use crate::{
    agents::{agent::Agent as _, models::Web},
    clock::{Clock, IdSource, monotonic},
    config,
    domain::{context::Role, interrupt::Decision},
    emitters::{
        host::{Answered, HostError},
        identity::SupervisorEmitter,
        testing::{World, context},
    },
    engine::{Durability, Ended, RunEnv},
};

/// A stateless endpoint: its events depend only on the messages and answers in the request. Its ids are new in every
/// request.
async fn serve(listener: TcpListener, asked: Arc<Mutex<Vec<Value>>>) {
    let requests = AtomicUsize::new(0);
    while let Ok((mut socket, _)) = listener.accept().await {
        let request = read(&mut socket).await;
        let n = requests.fetch_add(1, Ordering::SeqCst);
        let frames: Vec<String> = events(&request, n).iter().map(|event| format!("data: {event}\n\n")).collect();
        let body = frames.concat();
        asked.lock().unwrap().push(request);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
    }
}

async fn read(socket: &mut TcpStream) -> Value {
    let mut bytes = Vec::new();
    loop {
        let whole = bytes.windows(4).position(|window| window == b"\r\n\r\n").map(|at| &bytes[at + 4..]);
        if let Some(request) = whole.and_then(|body| serde_json::from_slice(body).ok()) {
            return request;
        }
        let mut piece = [0; 4096];
        let count = socket.read(&mut piece).await.unwrap();
        assert!(count > 0, "a request is whole");
        bytes.extend_from_slice(&piece[..count]);
    }
}

fn events(request: &Value, n: usize) -> Vec<Value> {
    let has =
        |content: &str| request["messages"].as_array().unwrap().iter().any(|message| message["content"] == content);
    let text = |words: &str| {
        let id = format!("{words}.{n}");
        vec![
            json!({"type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant"}),
            json!({"type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": words}),
            json!({"type": "TEXT_MESSAGE_END", "messageId": id}),
        ]
    };
    let mut events = vec![json!({"type": "RUN_STARTED", "threadId": "t", "runId": "r"})];
    for words in ["one", "two"] {
        if !has(words) {
            events.extend(text(words));
        }
    }
    if !has("hit") {
        let id = format!("call.{n}");
        events.extend([
            json!({"type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": "look"}),
            json!({"type": "TOOL_CALL_END", "toolCallId": id}),
            json!({"type": "TOOL_CALL_RESULT", "messageId": format!("result.{n}"), "toolCallId": id, "content": "hit"}),
        ]);
    }
    let is_answered = !request["resume"].is_null();
    if is_answered && !has("three") {
        events.extend(text("three"));
    }
    let asks = json!({"type": "interrupt", "interrupts": [{"id": "sure", "reason": "confirmation"}]});
    let outcome = if is_answered || has("three") { json!({"type": "success"}) } else { asks };
    events.push(json!({"type": "RUN_FINISHED", "threadId": "t", "runId": "r", "outcome": outcome}));
    events
}

async fn worked(world: &Arc<World>, url: &str, attempt: usize) -> Result<Ended<Value>, HostError> {
    let config = config::endpoint::Endpoint {
        url: url.parse().unwrap(),
        headers_env: BTreeMap::default(),
        silence_max: Duration::from_secs(10),
        time_max: Duration::from_mins(1),
        retries: 5,
        continues: true,
    };
    let endpoint = Arc::new(Endpoint::new(&config, &Web::new().unwrap()).unwrap());
    let host = world.host(context(1, Role::Agent, "far"));
    let emitter = SupervisorEmitter::new(Arc::clone(&host), &format!("attempt{attempt}")).unwrap().repeatable();
    let env = RunEnv {
        host,
        emitter: Arc::new(emitter),
        ids: IdSource::random(Clock::default()),
        stopwatch: monotonic(),
        cancel: CancellationToken::new(),
        durability: Durability::EveryStep,
    };
    Arc::new(Proxy { endpoint }).work(env, json!("go")).await
}

/// Executes the run to its end, in a new process after each crash, and answers its questions.
async fn through(mut world: Arc<World>, url: &str) -> (Arc<World>, Value) {
    for attempt in 0..8 {
        match worked(&world, url, attempt).await {
            Ok(Ended::Completed(output)) => return (world, output),
            Ok(Ended::Suspended { questions, .. }) => {
                let [question] = &questions[..] else { panic!("one question: {questions:?}") };
                let asked = vec![crate::domain::json::Json::of(&question.payload)];
                let answered = Answered { decision: Decision::Approve, value: None, asked };
                world.held.lock().unwrap().answers.insert(question.interrupt_id.to_string(), answered);
            }
            Ok(other) => panic!("{other:?}"),
            Err(error) => {
                assert!(error.is_retryable, "{error}");
                world = world.again(usize::MAX);
            }
        }
    }
    panic!("the run does not end");
}

#[tokio::test]
async fn a_process_that_dies_anywhere_records_nothing_twice_and_loses_nothing_that_was_complete() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (url, asked) = (format!("http://{}/", listener.local_addr().unwrap()), Arc::default());
    let serving = tokio::spawn(serve(listener, Arc::clone(&asked)));
    let (whole, _) = through(World::endless(), &url).await;
    let operations = whole.done.load(Ordering::SeqCst);
    assert!(operations > 10, "{operations} operations");
    for lost_answer in [false, true] {
        for operation in 0..operations {
            let world = World::lasting(operation);
            world.lost_answer.store(lost_answer, Ordering::SeqCst);
            let (world, output) = through(world, &url).await;
            let at = format!("operation {operation}, its answer lost: {lost_answer}");
            assert_eq!(output, json!({"response": "three"}), "{at}");
            let story = world.story();
            let texts = story.iter().filter(|(kind, _, _)| kind == "message.completed");
            let mut texts: Vec<&Value> = texts.map(|(_, _, payload)| &payload["content"][0]["text"]).collect();
            texts.sort_by_key(ToString::to_string);
            assert_eq!(texts, ["go", "one", "three", "two"], "{at}: {story:?}");
            let count = |kind: &str| story.iter().filter(|(found, _, _)| found == kind).count();
            assert_eq!((count("tool.started"), count("tool.completed"), count("tool.failed")), (1, 1, 0), "{at}");
            let mut spans: Vec<_> = story.iter().filter_map(|(kind, span, _)| Some((kind, span.as_ref()?))).collect();
            spans.retain(|(kind, _)| !kind.ends_with(".delta"));
            let all = spans.len();
            spans.sort_unstable();
            spans.dedup();
            assert_eq!(spans.len(), all, "{at}: {story:?}");
        }
    }
    serving.abort();
}
