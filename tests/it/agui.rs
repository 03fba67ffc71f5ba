//! AG-UI, read by its own client: `@ag-ui/client` from npm, which verifies every event. `./just peers` installs it.

mod answers;
mod changed;
mod joined;
mod long;
mod said;
mod tools;

use std::{path::Path, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::support::{api::Api, patiently, sse::Parser};

/// The client as a program: takes orders, and tells what it has in the end.
struct Client {
    orders: ChildStdin,
    results: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Client {
    async fn start() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
        assert!(folder.join("node_modules/@ag-ui/client").exists(), "the client is not installed: run ./just peers");
        let mut node = Command::new("node");
        let node = node.arg(folder.join("agui.mjs")).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = node.spawn().unwrap();
        let (orders, results) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut results = BufReader::new(results).lines();
        assert_eq!(patiently("the client", results.next_line()).await.unwrap().as_deref(), Some("ready"));
        Self { orders, results, _child: child }
    }

    async fn order(&mut self, api: &Api, mut order: Value) {
        order["base"] = json!(api.base);
        order["token"] = json!(api.token);
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    /// What the client has, which it got without a warning.
    async fn result(&mut self) -> Value {
        let line = patiently("the client's result", self.results.next_line()).await.unwrap().unwrap();
        let result: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(result["warnings"], json!([]), "{result}");
        result
    }

    async fn run(&mut self, api: &Api, order: Value) -> Value {
        self.order(api, order).await;
        self.result().await
    }
}

fn user(id: &str, content: &str) -> Value {
    json!({"id": id, "role": "user", "content": content})
}

/// A request as clients make it.
fn request(thread: &str, run: &str, messages: &[Value]) -> Value {
    json!({"threadId": thread, "runId": run, "messages": messages, "tools": [], "context": []})
}

/// One event of AG-UI, and its id.
#[derive(Clone, Debug, PartialEq)]
struct Said {
    id: Option<String>,
    event: Value,
}

/// An open stream of AG-UI.
struct Stream {
    response: reqwest::Response,
    parser: Parser,
    waiting: std::collections::VecDeque<Said>,
}

impl Stream {
    async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = patiently("a stream", request.send()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, parser: Parser::without_names(), waiting: std::collections::VecDeque::new() }
    }

    /// Joins a run, or comes back to it.
    async fn join(api: &Api, run: &str, last: Option<&str>) -> Self {
        let request = api.request(reqwest::Method::GET, &format!("/api/agui/runs/{run}"));
        Self::of(match last {
            Some(last) => request.header("last-event-id", last),
            None => request,
        })
        .await
    }

    async fn post(api: &Api, agent: &str, input: &Value) -> Self {
        Self::of(api.request(reqwest::Method::POST, &format!("/api/agui/agents/{agent}")).json(input)).await
    }

    /// The next event; pings do not count.
    async fn next(&mut self) -> Option<Said> {
        patiently("an event", self.read()).await
    }

    async fn read(&mut self) -> Option<Said> {
        loop {
            if let Some(said) = self.waiting.pop_front() {
                return Some(said);
            }
            let chunk = self.response.chunk().await.unwrap()?;
            let items = self.parser.push(&chunk).into_iter();
            self.waiting.extend(items.filter_map(|item| match item {
                crate::support::sse::Item::Frame(frame) => Some(Said { id: frame.id.clone(), event: frame.json() }),
                _ => None,
            }));
        }
    }

    /// The next event, which is of this type.
    #[track_caller]
    fn expect(&mut self, kind: &'static str) -> impl Future<Output = Said> {
        let at = std::panic::Location::caller();
        async move {
            let said = self.next().await.unwrap_or_else(|| panic!("{at}: the stream ended before {kind}"));
            assert_eq!(said.event["type"], kind, "{at}: {said:?}");
            said
        }
    }

    async fn rest(mut self) -> Vec<Said> {
        let mut rest = Vec::new();
        while let Some(said) = self.next().await {
            rest.push(said);
        }
        rest
    }
}

/// The types of events.
fn kinds(said: &[Said]) -> Vec<&str> {
    said.iter().map(|said| said.event["type"].as_str().unwrap()).collect()
}

/// Role and text of messages that have text.
fn texts(messages: &Value) -> Vec<(String, String)> {
    let text = |message: &Value| {
        let content = message["content"].as_str().filter(|content| !content.is_empty())?;
        Some((message["role"].as_str().unwrap().to_owned(), content.to_owned()))
    };
    messages.as_array().unwrap().iter().filter_map(text).collect()
}
