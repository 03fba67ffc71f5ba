//! Every route meets a credential: where it belongs, and everywhere it does not.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::search::{Needles, Tally};
use crate::support::{
    api::{Api, Reply},
    patiently,
    runs::new_run_id,
    threads::{encoded, encoded_throughout, value},
};

const IMPORT_ARTIFACT: &str = "put /api/runs/{run_id}/artifacts/{artifact_id}";

/// The body of each route that takes one; a new route without one here fails the test.
fn body(route: &str) -> Option<Value> {
    let blobs = json!({ "c": { "version": "1", "t": "x", "b": STANDARD.encode("y") } });
    let checkpoint = json!({ "ns": "", "parent_id": "0", "run_id": "r", "checkpoint": value(b"x"),
        "metadata": { "a": "b" }, "versions": { "c": "1" }, "blobs": blobs });
    let mut state = checkpoint.clone();
    state["thread_id"] = json!("t");
    state["checkpoint_id"] = json!("1");
    state["writes"] = json!([]);
    state["created_at"] = json!("2026-06-01T10:00:00Z");
    Some(match route {
        "post /api/runs" => json!({ "thread_id": "t", "session_id": "s", "agent": "a", "title": "x", "tags": ["y"],
            "input": { "deep": ["text"] }, "metadata": { "a": "b" } }),
        "put /api/runs/by-external-id/{external_id}" => json!({ "title": "x", "input": ["text"] }),
        "post /api/runs/{run_id}/cancel" => json!({ "reason": "x" }),
        "post /api/runs/{run_id}/resume" => json!({ "interrupt_id": "i", "decision": "approve", "value": "x" }),
        "post /api/runs/{run_id}/events" => {
            json!([{ "type": "custom.x", "span_id": "s", "event_id": "e", "payload": { "a": ["b"] } }])
        }
        "post /api/agui/agents/{agent}" => json!({ "threadId": "t", "runId": "r", "messages": [], "state": ["x"] }),
        "post /api/runs/{run_id}/import" => json!({ "run": { "run_id": "x" } }),
        "post /api/runs/{run_id}/artifacts" | IMPORT_ARTIFACT => json!({ "any": "bytes" }),
        "put /api/threads/{thread_id}" => json!({ "metadata": { "a": "b" }, "ttl_s": 5 }),
        "post /api/threads/{thread_id}/copy" => json!({ "to": new_run_id() }),
        "put /api/threads/{thread_id}/checkpoints/{checkpoint_id}" => checkpoint,
        "put /api/threads/{thread_id}/checkpoints/{checkpoint_id}/writes" => json!({ "ns": "", "task_id": "a",
            "task_path": "p", "writes": [{ "idx": 0, "channel": "c", "t": "x", "b": STANDARD.encode("z") }] }),
        "post /api/threads/prune" => json!({ "thread_ids": ["nobody"], "strategy": "delete" }),
        "post /api/channels/{channel}/messages" => json!({ "chat_id": "5", "user_id": "5", "text": "x" }),
        "post /api/channels/telegram/webhook" => json!({ "update_id": 1, "poll": { "question": "x" } }),
        // The thread is the one that the runs of this table are on.
        "post /api/saved-sessions" => json!({ "name": "kept", "thread_id": "t", "description": "x" }),
        "put /api/saved-sessions/{name}" => json!({ "description": "x",
            "thread": { "messages": [{ "role": "user", "content": ["x"] }], "metadata": { "state": state } } }),
        "post /api/channels/{channel}/codes" | "post /api/saved-sessions/{name}/restore" => json!({}),
        "post /api/stream" => json!({ "subscriptions": [{ "name": "a", "stream": "thread", "thread_id": "t" }] }),
        "post /api/sql" => json!({ "query": "select 'x' as x" }),
        "post /api/tokens" => json!({ "name": "ci", "scopes": ["read"], "ttl_s": 60 }),
        "post /api/runs/{run_id}/tokens" => json!({ "ttl_s": 60, "tree": true }),
        "post /api/threads/{thread_id}/tokens" => json!({ "ttl_s": 60 }),
        "post /api/ai-sdk/agents/{agent}" => json!({ "id": "chat", "trigger": "submit-message",
            "messages": [{ "id": "m", "role": "user", "parts": [{ "type": "text", "text": "x" }] }] }),
        "post /v1/responses" => json!({ "model": "a", "input": "x", "background": true, "metadata": { "a": "b" } }),
        "post /api/checkpoints/delete-for-runs" => json!({ "run_ids": ["nobody"] }),
        _ => return None,
    })
}

/// An error in the form of the route.
#[track_caller]
fn refused(reply: &Reply, route: &str, status: u16, code: &str) {
    if route.starts_with("/v1/") {
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (status, &json!(code)), "{}", reply.text);
    } else {
        reply.refused(status, code);
    }
}

struct Driver<'a> {
    api: &'a Api,
    secret: &'a str,
    /// The token of somebody else, good at this server too.
    forwarded: &'a str,
    tally: &'a mut Tally,
    needles: &'a Needles,
    session: String,
}

/// Uses and abuses every route of the server's own document; says how many there are.
pub async fn everything(api: &Api, (secret, forwarded): (&str, &str), tally: &mut Tally, needles: &Needles) -> usize {
    let document = api.get("/openapi.json").await.expect(200);
    let mut driver = Driver { api, secret, forwarded, tally, needles, session: String::new() };
    let mut count = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let route = format!("{method} {path}");
            let body = body(&route);
            let takes_one = operation.get("requestBody").is_some();
            assert_eq!(body.is_some(), takes_one, "{route}: say in `body` what it takes");
            driver.route(&method.to_uppercase().parse().unwrap(), path, body.as_ref()).await;
            count += 1;
        }
    }
    driver.strangers().await;
    count
}

impl Driver<'_> {
    /// A path with what stands in it, and the parameter that an upload needs.
    async fn filled(&self, path: &str, run: &str) -> String {
        let right = path.replace("{run_id}", run).replace("{thread_id}", run).replace("{checkpoint_id}", "1");
        if path.ends_with("{external_id}") {
            self.api.post("/api/runs", json!({ "external_id": run })).await;
            return right.replace("{external_id}", run);
        }
        let right = right
            .replace("{channel}", "web")
            .replace("{session_id}", &self.session)
            .replace("{user_id}", "5")
            .replace("{agent}", "a")
            .replace("{chat_id}", run)
            .replace("{response_id}", &format!("resp_{run}"))
            .replace("{token_id}", run);
        if path.contains("{name}") {
            self.api.post("/api/saved-sessions", json!({ "name": "kept", "thread_id": run })).await;
            return right.replace("{name}", "kept");
        }
        if IMPORT_ARTIFACT.ends_with(path) {
            let sha256 = hex::encode(Sha256::digest(json!({ "any": "bytes" }).to_string()));
            let right = right.replace("{artifact_id}", &new_run_id());
            return format!("{right}?name=a&event_id=e&sha256={sha256}");
        }
        if path.contains("{artifact_id}") {
            let artifact = self.api.upload(run, "a", "bytes").await;
            return right.replace("{artifact_id}", artifact["artifact_id"].as_str().unwrap());
        }
        if path.ends_with("/search") {
            return format!("{right}?q=x");
        }
        // Also what is listed and fetched takes it, and passes it over.
        if path.ends_with("/artifacts") { format!("{right}?name=a") } else { right }
    }

    async fn route(&mut self, method: &Method, path: &str, body: Option<&Value>) {
        let run = self.prepare().await;
        let right = self.filled(path, &run).await;
        let reply = self.send(self.request(method, &right, body)).await;
        // The webhook wants another secret than the request's own.
        let may_be_refused = method == Method::DELETE
            && ["/api/runs/{run_id}", "/v1/responses/{response_id}"].contains(&path)
            || ["/api/channels/telegram/webhook", "/api/runners/connect"].contains(&path)
            || path == "/api/tokens/{token_id}"
            // Nobody has given the channel a code.
            || path.ends_with("/users/{user_id}")
            // It takes lines, which a body of this test's is not.
            || path.ends_with("/import");
        assert!(reply.status < 300 || may_be_refused, "{method} {right}: {} {}", reply.status, reply.text);
        let run = self.prepare().await;
        let right = self.filled(path, &run).await;
        if path.starts_with("/api/") || path.starts_with("/v1/") {
            self.in_the_url(method, path, &right, &run, body).await;
            self.in_headers(method, &right, body).await;
        }
        // Of a webhook that has not proved itself no body is read.
        if let Some(body) = body.filter(|_| path != "/api/channels/telegram/webhook") {
            for held in [self.secret.to_owned(), self.forwarded.to_owned()] {
                self.in_the_body(method, &right, body, &held).await;
            }
        }
        // Where no body is wanted, none is kept; and a method that is none says so.
        for request in [
            self.request(method, &right, None)
                .header("content-type", "application/json")
                .body(format!("\"{}\"", self.secret)),
            self.request(&Method::PATCH, &right, Some(&json!(self.secret))),
        ] {
            self.send(request).await;
        }
    }

    /// A run that waits in a thread of its name, which has a checkpoint.
    async fn prepare(&mut self) -> String {
        let id = new_run_id();
        let run = self.api.create(json!({ "run_id": id, "thread_id": id })).await;
        let ask = json!([{ "type": "interrupt.requested", "span_id": "i" }, { "type": "run.interrupted" }]);
        self.api.emit(&run, ask).await;
        self.api.put_checkpoint(&run, "1", json!({ "checkpoint": value(b"x") })).await;
        let message = json!({ "chat_id": "5", "user_id": "5", "text": "hello" });
        let said = self.api.post("/api/channels/web/messages", message).await.expect(202);
        said["session_id"].as_str().unwrap().clone_into(&mut self.session);
        run
    }

    /// The path with what [`Driver::prepare`] made.
    fn request(&self, method: &Method, path: &str, body: Option<&Value>) -> RequestBuilder {
        let request = self.api.request(method.clone(), path);
        if let Some(body) = body { request.json(body) } else { request }
    }

    /// Sends, and searches the whole answer; of a stream that opens what it says first.
    async fn send(&mut self, request: RequestBuilder) -> Reply {
        let (response, first) = patiently("an answer", async {
            let mut response = request.send().await.unwrap();
            let is_stream = response.headers().get("content-type").is_some_and(|kind| kind == "text/event-stream");
            let first = if is_stream { response.chunk().await.unwrap().unwrap_or_default() } else { "".into() };
            (response, (is_stream, first))
        })
        .await;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let (is_stream, first) = first;
        let text = String::from_utf8_lossy(&first).into_owned();
        let text = if is_stream { text } else { text + &patiently("an answer", response.text()).await.unwrap() };
        self.tally.answers("an answer", format!("{headers:?}{text}").as_bytes(), self.needles);
        assert!(status < 500 && status != 429, "{status}: {text}");
        Reply { status, headers, text }
    }

    async fn in_the_url(&mut self, method: &Method, path: &str, right: &str, run: &str, body: Option<&Value>) {
        let secret = encoded(self.secret);
        for query in ["token=", "access_token=", "x=", "q=", "cursor=", "after=", "ns=", "run_id=", "%74oken="] {
            let reply = self.send(self.request(method, &format!("{right}?{query}{secret}"), body)).await;
            refused(&reply, right, 400, "token_in_url");
        }
        let filter = encoded(&json!({ "a": self.secret }).to_string());
        self.send(self.request(method, &format!("{right}?filter={filter}"), body)).await;
        let every = encoded_throughout(self.secret);
        let chosen = "run_id thread_id checkpoint_id channel session_id user_id agent chat_id response_id";
        for place in chosen.split(' ').map(|name| format!("{{{name}}}")) {
            if !path.contains(&place) {
                continue;
            }
            for held in [&secret, &every, &format!("x{secret}"), &format!("{secret}.y")] {
                let path = path.replacen(&place, held, 1);
                let path = self.filled(&path, run).await;
                let reply = self.send(self.request(method, &path, body)).await;
                refused(&reply, right, 400, "token_in_url");
            }
        }
    }

    async fn in_headers(&mut self, method: &Method, right: &str, body: Option<&Value>) {
        for header in [
            "last-event-id",
            "user-agent",
            "cookie",
            "x-request-id",
            "traceparent",
            "origin",
            "accept",
            "x-forwarded-for",
        ] {
            self.send(self.request(method, right, body).header(header, self.secret)).await;
        }
        let bare = Api { token: None, ..self.api.clone() };
        let (half, _) = self.secret.split_at(self.secret.len() / 2);
        for authorization in [
            self.secret.to_owned(),
            format!("Basic {}", self.secret),
            format!("Token {}", self.secret),
            format!("Bearer {}x", self.secret),
            format!("Bearer x{}", self.secret),
            format!("Bearer {half}"),
            format!("Bearer {0} {0}", self.secret),
        ] {
            let request = bare.request(method.clone(), right).header("authorization", authorization);
            let request = if let Some(body) = body { request.json(body) } else { request };
            let reply = self.send(request).await;
            refused(&reply, right, 401, "unauthorized");
        }
    }

    async fn in_the_body(&mut self, method: &Method, right: &str, body: &Value, secret: &str) {
        let mut bodies = Vec::new();
        for leaf in 0..leaves(body) {
            for held in [secret.to_owned(), format!("see {secret} here")] {
                bodies.push(with_leaf(body, leaf, &held).to_string());
            }
        }
        bodies.push(json!({ secret: 1 }).to_string());
        bodies.push(json!([[{ "a": { secret: [] } }]]).to_string());
        bodies.push(json!(secret).to_string());
        bodies.push(format!("{{\"a\":\"{secret}"));
        bodies.push(format!("{secret}{body}"));
        bodies.push(format!("{body}\n{secret}"));
        // JSON has many ways to write a character.
        let plain = bodies[0].clone();
        let escape = |which: &dyn Fn(usize, char) -> bool, capital: bool| -> String {
            let spell = |(at, c): (usize, char)| match (which(at, c), capital) {
                (false, _) => c.to_string(),
                (true, false) => format!("\\u{:04x}", u32::from(c)),
                (true, true) => format!("\\u{:04X}", u32::from(c)),
            };
            plain.replace(secret, &secret.chars().enumerate().map(spell).collect::<String>())
        };
        bodies.push(escape(&|_, _| true, false));
        bodies.push(escape(&|_, _| true, true));
        bodies.push(escape(&|_, c| matches!(c, '.' | '_' | '-'), true));
        bodies.push(escape(&|at, _| at % 7 == 0, false));
        bodies.push(escape(&|at, _| at == 0, false));
        let last = secret.len() - 1;
        bodies.push(escape(&|at, _| at == last, false));
        for body in bodies {
            for media_type in ["application/json", "application/merge-patch+json", "application/x-ndjson"] {
                let request = self.request(method, right, None).header("content-type", media_type).body(body.clone());
                let reply = self.send(request).await;
                refused(&reply, right, 400, "credential_in_body");
            }
            let request = self.request(method, right, None).header("content-type", "text/plain").body(body);
            assert!(matches!(self.send(request).await.status, 400 | 415));
        }
        let is_file = *method == Method::PUT && right.contains("/saved-sessions/");
        let keeps_values = *method == Method::PUT && right.contains("/checkpoints/");
        if keeps_values || is_file {
            self.in_values(method, right, body, secret).await;
        }
        // An upload has a bound far beyond, and is looked through to its end. What is too large is not looked at at all.
        let is_upload = right.contains("/artifacts?") || right.contains("&sha256=");
        if is_upload || secret == self.secret {
            let most = if keeps_values || is_file { 32 * 1024 * 1024 } else { 8 * 1024 * 1024 };
            let large = format!("\"{}{secret}\"", "x".repeat(most - secret.len() - 1));
            let request = self.request(method, right, None).header("content-type", "application/json").body(large);
            let (status, code) = if is_upload { (400, "credential_in_body") } else { (413, "too_large") };
            let reply = self.send(request).await;
            refused(&reply, right, status, code);
        }
    }

    /// Inside the encoding that a checkpoint's values come in.
    async fn in_values(&mut self, method: &Method, right: &str, body: &Value, secret: &str) {
        let mut tried = 0;
        for leaf in 0..leaves(body) {
            for (before, after) in [("", ""), ("x", ""), ("xy", "z"), ("{\"token\":\"", "\"}"), ("\u{80}pickle", "\n")]
            {
                let held = STANDARD.encode(format!("{before}{secret}{after}"));
                let poisoned = with_leaf(body, leaf, &held);
                // Only a value is decoded; elsewhere it is a text like any other.
                if poisoned.to_string().contains(&format!("\"b\":\"{held}\"")) {
                    tried += 1;
                    let reply = self.send(self.request(method, right, Some(&poisoned))).await;
                    refused(&reply, right, 400, "credential_in_body");
                }
            }
        }
        assert!(tried >= 5, "no value was found in {body}");
    }

    /// Paths that are none, and requests that are none.
    async fn strangers(&mut self) {
        let secret = self.secret.to_owned();
        for path in
            [format!("/api/{secret}"), format!("/{secret}"), format!("/runs/{secret}"), format!("/assets/{secret}.js")]
        {
            self.send(self.request(&Method::GET, &path, None)).await;
            self.send(self.request(&Method::POST, &path, Some(&json!(secret)))).await;
        }
        for path in ["/metrics", "/livez", "/readyz", "/openapi.json", "/docs"] {
            self.send(self.request(&Method::GET, path, None).header("cookie", &secret)).await;
        }
        for (method, path, body) in [
            ("G\u{7f}T", "/api/runs", ""),
            ("GET", "/api runs", ""),
            (secret.as_str(), "/api/runs", ""),
            ("POST", "/api/runs", "{"),
        ] {
            let (_, answer) = self.api.raw(method, path, body).await;
            self.tally.answers("an answer", answer.as_bytes(), self.needles);
        }
    }
}

/// How many strings stand in a value.
fn leaves(value: &Value) -> usize {
    match value {
        Value::String(_) => 1,
        Value::Array(values) => values.iter().map(leaves).sum(),
        Value::Object(members) => members.values().map(leaves).sum(),
        _ => 0,
    }
}

/// The value with another text in the place of its string of this number.
fn with_leaf(value: &Value, leaf: usize, text: &str) -> Value {
    fn walk(value: &mut Value, leaf: &mut usize, text: &str) {
        match value {
            Value::String(held) => {
                if *leaf == 0 {
                    text.clone_into(held);
                }
                *leaf = leaf.wrapping_sub(1);
            }
            Value::Array(values) => values.iter_mut().for_each(|value| walk(value, leaf, text)),
            Value::Object(members) => members.values_mut().for_each(|value| walk(value, leaf, text)),
            _ => {}
        }
    }
    let (mut value, mut leaf) = (value.clone(), leaf);
    walk(&mut value, &mut leaf, text);
    value
}
