//! Servers that imitate models' providers, over real sockets, one prepared response after the other.
#![cfg_attr(not(feature = "agents"), expect(dead_code, reason = "some of it is for models of providers"))]

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use futures::stream;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// What the server does with the next request.
pub enum Answer {
    /// Sends a complete body.
    Body { status: u16, headers: Vec<(&'static str, String)>, body: String },
    /// Sends a body in pieces.
    Pieces(Vec<Vec<u8>>),
    /// Sends the beginning and breaks the connection.
    Cut(String),
    /// Sends the beginning and then nothing more.
    Silent(String),
}

/// A request as received.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

#[derive(Default)]
struct Shared {
    answers: Mutex<VecDeque<Answer>>,
    asked: Mutex<Vec<Asked>>,
}

/// A provider of models.
pub struct ModelServer {
    pub base: String,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl ModelServer {
    pub async fn start(answers: Vec<Answer>) -> Self {
        let shared = Arc::new(Shared { answers: Mutex::new(answers.into()), ..Shared::default() });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let router = Router::new().fallback(serve).with_state(Arc::clone(&shared));
        let task = tokio::spawn(async move { axum_serve(listener, router).await });
        Self { base, shared, task }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().unwrap().clone()
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Connections one by one; each may be cut without the others.
pub async fn axum_serve(listener: tokio::net::TcpListener, router: Router) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((socket, _)) = listener.accept().await {
        let service = hyper_util::service::TowerToHyperService::new(router.clone());
        connections.spawn(async move {
            let io = hyper_util::rt::TokioIo::new(socket);
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
        });
    }
}

async fn serve(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let path = parts.uri.path_and_query().unwrap().to_string();
    let body = serde_json::from_slice(&body).unwrap_or_default();
    shared.asked.lock().unwrap().push(Asked { path, headers: parts.headers, body });
    let answer = shared.answers.lock().unwrap().pop_front();
    let streamed = |body: Body| Response::builder().header("content-type", "text/event-stream").body(body).unwrap();
    let first = |text: String| stream::iter([Ok::<_, std::io::Error>(Bytes::from(text))]);
    match answer {
        Some(Answer::Body { status, headers, body }) => {
            let mut response = Response::builder().status(StatusCode::from_u16(status).unwrap());
            for (name, value) in headers {
                response = response.header(name, value);
            }
            response.body(Body::from(body)).unwrap()
        }
        Some(Answer::Pieces(pieces)) => {
            let pieces = stream::iter(pieces.into_iter().map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece))));
            streamed(Body::from_stream(pieces))
        }
        Some(Answer::Cut(text)) => {
            // The pause lets the beginning be sent before the connection breaks.
            let cut = stream::once(async {
                tokio::task::yield_now().await;
                Err(std::io::Error::other("cut on purpose"))
            });
            streamed(Body::from_stream(futures::StreamExt::chain(first(text), cut)))
        }
        Some(Answer::Silent(text)) => {
            streamed(Body::from_stream(futures::StreamExt::chain(first(text), stream::pending())))
        }
        None => Response::builder().status(500).body(Body::from("no answer was prepared")).unwrap(),
    }
}

/// An error in the providers' format.
pub fn refusal(status: u16, headers: &[(&'static str, &str)], body: &Value) -> Answer {
    let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Answer::Body { status, headers, body: body.to_string() }
}

/// Server-sent events of JSON, without an end.
pub fn events(chunks: &[Value]) -> String {
    let frames: Vec<String> = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
    frames.concat()
}

/// The same with names, as Anthropic sends them.
pub fn named_events(chunks: &[Value]) -> Answer {
    let frame = |chunk: &Value| format!("event: {}\ndata: {chunk}\n\n", chunk["type"].as_str().unwrap());
    stream_of("text/event-stream", chunks.iter().map(frame).collect())
}

pub fn stream_of(media_type: &str, body: String) -> Answer {
    Answer::Body { status: 200, headers: vec![("content-type", media_type.to_owned())], body }
}

/// A complete response of chat completions: its text in pieces, then its calls with their arguments in pieces.
pub fn chat(texts: &[&str], calls: &[(&str, &str, &[&str])]) -> Answer {
    let mut chunks: Vec<Value> = texts.iter().map(|text| delta(&json!({"content": text}))).collect();
    for (index, (id, name, args)) in calls.iter().enumerate() {
        let begun = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}});
        chunks.push(delta(&json!({"tool_calls": [begun]})));
        let more = args.iter().map(|args| json!({"index": index, "function": {"arguments": args}}));
        chunks.extend(more.map(|more| delta(&json!({"tool_calls": [more]}))));
    }
    let reason = if calls.is_empty() { "stop" } else { "tool_calls" };
    chunks.push(json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}));
    let usage = json!({
        "prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 3},
    });
    chunks.push(json!({"choices": [], "usage": usage}));
    stream_of("text/event-stream", format!("{}data: [DONE]\n\n", events(&chunks)))
}

pub fn delta(delta: &Value) -> Value {
    json!({"id": "x", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]})
}
