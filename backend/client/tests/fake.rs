//! A server that answers one connection after the other from a script.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::JoinHandle,
};

/// What happens after a request was read.
pub(crate) enum Answer {
    /// These bytes, then a clean close.
    Close(Vec<u8>),
    /// These bytes, each chunk a separate write, then an end that HTTP does not allow.
    Chunks(Vec<Vec<u8>>),
    /// These bytes, then silence.
    Hold(Vec<u8>),
}

impl Answer {
    pub(crate) fn close(media_type: &str, body: &str) -> Self {
        Self::Close(full("200 OK", media_type, "", body))
    }

    pub(crate) fn status(status: &str, headers: &str) -> Self {
        Self::Close(full(status, "text/plain", headers, ""))
    }

    pub(crate) fn json(body: &Value) -> Self {
        Self::close("application/json", &body.to_string())
    }

    pub(crate) fn problem(status: u16, title: &str, body: &Value) -> Self {
        Self::Close(full(&format!("{status} {title}"), "application/problem+json", "", &body.to_string()))
    }

    /// An event stream that ends cleanly.
    pub(crate) fn stream(body: &str) -> Self {
        Self::Close(format!("{STREAM}\r\n{body}").into_bytes())
    }

    pub(crate) fn held_stream(body: &str) -> Self {
        Self::Hold(format!("{STREAM}\r\n{body}").into_bytes())
    }

    /// An event stream in chunks of `chunk_bytes`, without the terminating chunk.
    pub(crate) fn cut_stream(body: &str, chunk_bytes: usize) -> Self {
        let head = format!("{STREAM}transfer-encoding: chunked\r\n\r\n").into_bytes();
        let chunks = body
            .as_bytes()
            .chunks(chunk_bytes)
            .map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        Self::Chunks(std::iter::once(head).chain(chunks).collect())
    }
}

const STREAM: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n";

fn full(status: &str, media_type: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: {media_type}\r\n{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

pub(crate) struct Fake {
    pub(crate) url: String,
    requests: mpsc::UnboundedReceiver<String>,
    task: JoinHandle<()>,
}

impl Fake {
    pub(crate) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = mpsc::unbounded_channel();
        let answers: Vec<Answer> = answers.into_iter().collect();
        let task = tokio::spawn(async move {
            let held = Arc::new(Mutex::new(Vec::new()));
            for answer in answers {
                let (mut socket, _) = listener.accept().await.unwrap();
                let request = read_request(&mut socket).await;
                let _ = sender.send(request);
                write_answer(socket, answer, &held).await;
            }
            // After its script the server accepts no connection, but closes none either.
            std::future::pending::<()>().await;
        });
        Self { url, requests, task }
    }

    /// The next request as text, head and body.
    pub(crate) async fn request(&mut self) -> String {
        self.requests.recv().await.unwrap()
    }

    /// Closes the listener.
    pub(crate) async fn stop(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

async fn write_answer(mut socket: TcpStream, answer: Answer, held: &Arc<Mutex<Vec<TcpStream>>>) {
    match answer {
        Answer::Close(bytes) => {
            let _ = socket.write_all(&bytes).await;
            let _ = socket.shutdown().await;
        }
        Answer::Chunks(chunks) => {
            for chunk in chunks {
                let _ = socket.write_all(&chunk).await;
            }
            let _ = socket.shutdown().await;
        }
        Answer::Hold(bytes) => {
            let _ = socket.write_all(&bytes).await;
            held.lock().unwrap().push(socket);
        }
    }
}

/// Reads a head and as much body as it announces.
async fn read_request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let announced = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= announced.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        assert!(socket.read_buf(&mut bytes).await.unwrap() > 0, "a request was cut off");
    }
}

/// The run of [`sample_run`].
pub(crate) const RUN: &str = "0198c0de-0000-7000-8000-000000000001";

/// A run, as a server answers.
pub(crate) fn sample_run() -> Value {
    json!({"run_id": RUN, "root_run_id": RUN, "owner_id": "00", "status": "running", "stalled": true, "role": "agent",
        "agent": "coder", "title": "Fix the\nbuild", "created_at": "2025-11-13T01:55:00Z", "last_seq": 12,
        "started_at": "2025-11-13T01:55:10Z", "ended_at": null, "last_event_at": "2025-11-13T01:56:00Z",
        "input": {"n": 1}, "output": null, "tags": ["a", "b"], "metadata": {}, "stream_url": format!("/api/stream/runs/{RUN}"),
        "usage": {"calls": 2, "input_tokens": 1200, "cached_tokens": 200, "cache_write_tokens": 0,
        "output_tokens": 300, "reasoning_tokens": 0, "cost_usd": 0.0055, "is_partial": true}})
}
