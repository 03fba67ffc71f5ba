//! Threads, checkpoints and writes in tests.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use super::{
    api::{Api, Reply},
    patiently,
};

impl Api {
    pub async fn put(&self, path: &str, body: Value) -> Reply {
        self.put_text(path, body.to_string()).await
    }

    /// A body sent unchanged.
    pub async fn put_text(&self, path: &str, body: impl Into<reqwest::Body>) -> Reply {
        self.send(self.request(Method::PUT, path).header("content-type", "application/json").body(body)).await
    }

    pub async fn try_checkpoint(&self, thread: &str, id: &str, body: Value) -> Reply {
        self.put(&checkpoint_of(thread, id), body).await
    }

    /// Puts a checkpoint, new or not.
    pub async fn put_checkpoint(&self, thread: &str, id: &str, body: Value) -> Value {
        let reply = self.try_checkpoint(thread, id, body).await;
        assert!(matches!(reply.status, 200 | 201), "{} {}", reply.status, reply.text);
        reply.json()
    }

    /// Puts writes of one task and returns how many were stored.
    pub async fn put_writes(&self, thread: &str, id: &str, body: Value) -> i64 {
        let stored = self.put(&writes_of(thread, id), body).await.expect(200);
        stored["stored"].as_i64().unwrap()
    }

    /// A checkpoint of the root namespace.
    pub async fn checkpoint(&self, thread: &str, id: &str) -> Value {
        self.get(&checkpoint_of(thread, id)).await.expect(200)
    }

    pub async fn thread(&self, thread: &str) -> Value {
        self.get(&format!("/api/threads/{thread}")).await.expect(200)
    }

    /// Every row of a list, read page by page.
    pub async fn pages(&self, path: &str, member: &str) -> Vec<Value> {
        self.pages_from(path, path.to_owned(), member).await
    }

    /// Every row after a page that returned this cursor.
    pub async fn pages_after(&self, path: &str, cursor: &Value, member: &str) -> Vec<Value> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let first = format!("{path}{sign}cursor={}", encoded(cursor.as_str().expect("there is a next page")));
        self.pages_from(path, first, member).await
    }

    async fn pages_from(&self, path: &str, first: String, member: &str) -> Vec<Value> {
        let (mut rows, mut next_page) = (Vec::new(), first);
        let sign = if path.contains('?') { '&' } else { '?' };
        loop {
            let page = self.get(&next_page).await.expect(200);
            let before = rows.len();
            rows.extend(page[member].as_array().unwrap().iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else {
                assert!(page["next_cursor"].is_null(), "{page}");
                return rows;
            };
            assert!(rows.len() > before, "a page that is not the last one has rows");
            next_page = format!("{path}{sign}cursor={}", encoded(next));
        }
    }

    /// A request whose path is not normalized on the way, and its status and body.
    pub async fn raw(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        let authority = self.base.trim_start_matches("http://");
        let bearer = self.token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {authority}\r\n{bearer}content-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let mut connection = TcpStream::connect(authority).await.unwrap();
        connection.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        patiently("an answer", connection.read_to_end(&mut answer)).await.unwrap();
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{answer}"));
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

/// The path of a checkpoint.
pub fn checkpoint_of(thread: &str, id: &str) -> String {
    format!("/api/threads/{thread}/checkpoints/{id}")
}

pub fn writes_of(thread: &str, id: &str) -> String {
    format!("{}/writes", checkpoint_of(thread, id))
}

/// A value of these bytes.
pub fn value(bytes: &[u8]) -> Value {
    json!({ "t": "bytes", "b": STANDARD.encode(bytes) })
}

/// The bytes of a value.
pub fn bytes_of(value: &Value) -> Vec<u8> {
    STANDARD.decode(value["b"].as_str().unwrap()).unwrap()
}

/// The value of a channel at a version.
pub fn blob(version: impl Into<Value>, bytes: &[u8]) -> Value {
    json!({ "version": version.into(), "t": "bytes", "b": STANDARD.encode(bytes) })
}

pub fn write(idx: i64, channel: &str, bytes: &[u8]) -> Value {
    json!({ "idx": idx, "channel": channel, "t": "bytes", "b": STANDARD.encode(bytes) })
}

/// A checkpoint with only this content.
pub fn state(text: &str) -> Value {
    json!({ "checkpoint": value(text.as_bytes()) })
}

/// The same with more members.
pub fn state_with(text: &str, more: Value) -> Value {
    let mut state = state(text);
    let Value::Object(more) = more else { panic!("{more} is not an object") };
    state.as_object_mut().unwrap().extend(more);
    state
}

/// Text as one part of a path or a query.
pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// The same with every byte encoded, whether necessary or not.
pub fn encoded_throughout(text: &str) -> String {
    text.bytes().flat_map(|byte| ['%'].into_iter().chain(hex::encode([byte]).chars().collect::<Vec<_>>())).collect()
}

/// One member of each row.
pub fn column<'a>(rows: &'a [Value], member: &str) -> Vec<&'a str> {
    rows.iter().map(|row| row[member].as_str().unwrap_or_else(|| panic!("no {member} in {row}"))).collect()
}
