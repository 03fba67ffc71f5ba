//! A Telegram Bot API on its own port: it accepts messages, serves files, and can misbehave.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{api::Reply, server::Server, until};

pub const BOT_TOKEN: &str = "42:a-token-that-nobody-may-see";
pub const WEBHOOK_SECRET: &str = "the-secret-of-the-webhook";

/// What the API does with the next call of `sendMessage` instead of accepting it.
#[derive(Clone, Copy, Debug)]
pub enum Mood {
    TooMany {
        retry_after: i64,
    },
    Broken,
    Blocked,
    /// The group is a supergroup with this id.
    Moved(i64),
    /// The topic was deleted.
    TopicGone,
    /// It accepts the message and the answer is lost.
    Silent,
    /// It accepts the message when [`Telegram::go_on`] allows it.
    Slow,
}

#[derive(Default)]
struct Inner {
    sent: Vec<Value>,
    calls: usize,
    moods: VecDeque<Mood>,
    files: Vec<(String, Vec<u8>)>,
}

#[derive(Clone)]
pub struct Telegram {
    inner: Arc<Mutex<Inner>>,
    going: Arc<Semaphore>,
    pub base: String,
}

impl Telegram {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let telegram = Self { inner: Arc::default(), going: Arc::new(Semaphore::new(0)), base };
        let router = Router::new()
            .route("/{bot}/{method}", post(method))
            .route("/file/{bot}/{*path}", get(file))
            .with_state(telegram.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        telegram
    }

    pub fn next(&self, mood: Mood) {
        self.inner.lock().unwrap().moods.push_back(mood);
    }

    /// Lets one slow call continue.
    pub fn go_on(&self) {
        self.going.add_permits(1);
    }

    pub fn holds(&self, path: &str, bytes: &[u8]) {
        self.inner.lock().unwrap().files.push((path.to_owned(), bytes.to_vec()));
    }

    /// Records a call; returns whether it is to be slow.
    fn is_slow(&self) -> bool {
        let mut inner = self.inner.lock().unwrap();
        inner.calls += 1;
        let is_slow = matches!(inner.moods.front(), Some(Mood::Slow));
        if is_slow {
            inner.moods.pop_front();
        }
        is_slow
    }

    /// How many calls of `sendMessage` came, accepted or not.
    pub fn calls(&self) -> usize {
        self.inner.lock().unwrap().calls
    }

    /// The messages it has accepted.
    pub fn sent(&self) -> Vec<Value> {
        self.inner.lock().unwrap().sent.clone()
    }

    /// Their texts, once there are this many.
    pub async fn texts(&self, count: usize) -> Vec<String> {
        until("messages at Telegram", || async { self.sent().len() >= count }).await;
        self.sent().iter().map(|message| message["text"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until this many calls of `sendMessage` came, accepted or not.
    pub async fn until_calls(&self, count: usize) {
        until("calls of Telegram", || async { self.calls() >= count }).await;
    }
}

async fn method(
    State(telegram): State<Telegram>,
    Path((bot, method)): Path<(String, String)>,
    Json(body): Json<Value>,
) -> Response {
    assert_eq!(bot, format!("bot{BOT_TOKEN}"));
    let refuse = |code: u16, text: &str, parameters: Value| {
        let answer = json!({ "ok": false, "error_code": code, "description": text, "parameters": parameters });
        (StatusCode::from_u16(code).unwrap(), Json(answer)).into_response()
    };
    if method == "sendMessage" && telegram.is_slow() {
        telegram.going.acquire().await.unwrap().forget();
    }
    let mut inner = telegram.inner.lock().unwrap();
    match method.as_str() {
        "getFile" => {
            let path = body["file_id"].as_str().unwrap();
            let known = inner.files.iter().any(|(name, _)| name == path);
            if !known {
                return refuse(400, "Bad Request: invalid file_id", Value::Null);
            }
            Json(json!({ "ok": true, "result": { "file_id": path, "file_path": path } })).into_response()
        }
        "sendMessage" => {
            assert!(body["text"].as_str().unwrap().encode_utf16().count() <= 4_096);
            match inner.moods.pop_front() {
                Some(Mood::TooMany { retry_after }) => {
                    return refuse(429, "Too Many Requests", json!({ "retry_after": retry_after }));
                }
                Some(Mood::Broken) => return (StatusCode::BAD_GATEWAY, "<html>").into_response(),
                Some(Mood::Blocked) => return refuse(403, "Forbidden: bot was blocked by the user", Value::Null),
                Some(Mood::Moved(chat_id)) => {
                    let told = "Bad Request: group chat was upgraded to a supergroup chat";
                    return refuse(400, told, json!({ "migrate_to_chat_id": chat_id }));
                }
                Some(Mood::TopicGone) => return refuse(400, "Bad Request: message thread not found", Value::Null),
                Some(Mood::Silent) => {
                    inner.sent.push(body);
                    return (StatusCode::GATEWAY_TIMEOUT, "").into_response();
                }
                Some(Mood::Slow) | None => {}
            }
            inner.sent.push(body.clone());
            Json(json!({ "ok": true, "result": { "message_id": inner.sent.len() } })).into_response()
        }
        other => panic!("nobody calls {other}"),
    }
}

async fn file(State(telegram): State<Telegram>, Path((bot, path)): Path<(String, String)>) -> Response {
    assert_eq!(bot, format!("bot{BOT_TOKEN}"));
    let inner = telegram.inner.lock().unwrap();
    match inner.files.iter().find(|(name, _)| *name == path) {
        Some((_, bytes)) => bytes.clone().into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

impl Server {
    /// Delivers an update as Telegram does.
    pub async fn update(&self, update: Value) -> Reply {
        self.update_as(update, WEBHOOK_SECRET).await
    }

    pub async fn update_as(&self, update: Value, secret: &str) -> Reply {
        let request = self.request(reqwest::Method::POST, "/api/channels/telegram/webhook");
        self.send(request.header("x-telegram-bot-api-secret-token", secret).json(&update)).await
    }
}

/// An update with a private text of user 5.
pub fn private(update_id: i64, text: &str) -> Value {
    json!({ "update_id": update_id, "message": {
        "message_id": update_id, "date": 1_780_000_000, "text": text, "chat": { "id": 5, "type": "private" },
        "from": { "id": 5, "is_bot": false, "first_name": "Ann", "username": "ann" } } })
}
