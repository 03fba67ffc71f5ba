//! A runner played by a test: the socket, message by message.

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{
        Error, Message,
        client::IntoClientRequest,
        handshake::client::Request,
        protocol::{CloseFrame, frame::coding::CloseCode},
    },
};

use super::{api::Api, patiently};

pub struct Wire {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    /// From the `welcome`.
    pub lease_id: String,
}

impl Api {
    /// The request that opens a runner's socket.
    pub fn runner_request(&self) -> Request {
        let url = format!("{}/api/runners/connect", self.base.replace("http://", "ws://"));
        let mut request = url.into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", "runreel.runner.v1".parse().unwrap());
        if let Some(token) = &self.token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        request
    }

    /// An open socket that has sent nothing.
    pub async fn runner_socket(&self) -> Wire {
        let (socket, response) = patiently("a socket", connect_async(self.runner_request())).await.unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], "runreel.runner.v1");
        Wire { socket, lease_id: String::new() }
    }

    /// The response if a socket is not opened: status and body.
    pub async fn no_runner(&self, request: Request) -> (u16, Value) {
        match patiently("a refusal", connect_async(request)).await {
            Err(Error::Http(response)) => {
                let body = response.body().as_deref().unwrap_or_default();
                (response.status().as_u16(), serde_json::from_slice(body).unwrap_or(Value::Null))
            }
            other => panic!("not refused: {:?}", other.map(|_| ())),
        }
    }

    /// A runner that has received its `welcome`.
    pub async fn runner(&self, agents: &[&str], capacity: u16) -> Wire {
        self.runner_with(json!({ "agents": agents, "capacity": capacity })).await
    }

    /// The same with more members in its hello.
    pub async fn runner_with(&self, mut hello: Value) -> Wire {
        let mut wire = self.runner_socket().await;
        hello["type"] = json!("hello");
        hello["runner"] = json!("r1");
        wire.say(hello).await;
        let welcome = wire.expect("welcome").await;
        welcome["lease_id"].as_str().unwrap().clone_into(&mut wire.lease_id);
        wire
    }

    /// A runner that resumes its session.
    pub async fn back(&self, lease_id: &str, acked: Value) -> Wire {
        let resume = json!({ "lease_id": lease_id, "last_acked": acked });
        self.runner_with(json!({ "agents": ["a"], "capacity": 4, "resume": resume })).await
    }
}

impl Wire {
    pub async fn say(&mut self, message: Value) {
        self.say_text(message.to_string()).await;
    }

    pub async fn say_text(&mut self, text: String) {
        self.send(Message::text(text)).await;
    }

    pub async fn send(&mut self, message: Message) {
        // A socket closed by the other side accepts nothing; the test notices that when it reads.
        let _ = patiently("a message to be sent", self.socket.send(message)).await;
    }

    pub async fn event(&mut self, run: &str, n: u64, events: Value) {
        self.say(json!({ "type": "event", "run_id": run, "n": n, "events": events })).await;
    }

    pub async fn done(&mut self, run: &str) {
        self.say(json!({ "type": "run.done", "run_id": run })).await;
    }

    /// The next message of the server; `Err` with its close code, or `None` if it was just cut.
    pub async fn next(&mut self) -> Result<Value, Option<u16>> {
        loop {
            match patiently("a message", self.socket.next()).await {
                Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(text.as_str()).unwrap()),
                Some(Ok(Message::Close(frame))) => return Err(frame.map(|frame| frame.code.into())),
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// The next message, which must be of this type.
    #[track_caller]
    pub fn expect<'a>(&'a mut self, kind: &'a str) -> impl Future<Output = Value> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let message = self.next().await.unwrap_or_else(|code| panic!("{caller}: closed with {code:?}, not {kind}"));
            assert_eq!(message["type"], kind, "{caller}: {message}");
            message
        }
    }

    /// The next message, which must be an error with this code.
    #[track_caller]
    pub fn refused<'a>(&'a mut self, code: &'a str) -> impl Future<Output = Value> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let message = self.next().await.unwrap_or_else(|close| panic!("{caller}: closed with {close:?}"));
            assert_eq!((&message["type"], &message["code"]), (&json!("error"), &json!(code)), "{caller}: {message}");
            assert!(!message["detail"].as_str().unwrap().is_empty());
            message
        }
    }

    /// The run of the next message, which must assign one.
    #[track_caller]
    pub fn assigned(&mut self) -> impl Future<Output = String> + '_ {
        let caller = std::panic::Location::caller();
        async move {
            let message = self.next().await.unwrap_or_else(|code| panic!("{caller}: closed with {code:?}"));
            assert_eq!(message["type"], "run.assign", "{caller}: {message}");
            message["run_id"].as_str().unwrap().to_owned()
        }
    }

    /// Proves that nothing was sent to this runner so far: the answer to a request comes first.
    pub async fn silent(&mut self) {
        let nobody = super::runs::new_run_id();
        self.done(&nobody).await;
        let error = self.refused("not_assigned").await;
        assert_eq!(error["run_id"], nobody);
    }

    pub async fn closed(&mut self) -> Option<u16> {
        self.next().await.unwrap_err()
    }

    pub async fn close(&mut self, code: u16) {
        let frame = CloseFrame { code: CloseCode::from(code), reason: "".into() };
        let _ = self.socket.close(Some(frame)).await;
        while self.socket.next().await.is_some_and(|message| message.is_ok()) {}
    }
}
