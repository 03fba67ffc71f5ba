//! Tokens between servers by way of NATS: sooner than the table has them, and no worse than the table without it.

use futures::StreamExt as _;
use serde_json::json;
use sqlx::Connection as _;

use crate::support::{
    api::stream_of,
    cluster::{Db, execute},
    nats_server::NatsServer,
    patiently,
    runs::token,
    server::{Server, setup},
    sse::Stream,
};

/// How soon a token that is lost would have come.
const SOON: std::time::Duration = std::time::Duration::from_millis(200);

/// Two servers that NATS connects.
async fn two(nats: &NatsServer) -> (Server, Server) {
    let (db, url) = (Db::new().await, nats.url());
    let flags = ["--live", url.as_str()];
    (setup().on(&db).flags(&flags).start().await, setup().on(&db).flags(&flags).start().await)
}

/// A reader of one message.
struct Reader {
    stream: Stream,
    text: String,
}

impl Reader {
    async fn of(server: &Server, run: &str) -> Self {
        let mut stream = server.stream(&stream_of(run)).await;
        stream.caught_up().await;
        Self { stream, text: String::new() }
    }

    /// Reads on until the message is this far; each delta follows the one before.
    async fn until(&mut self, text: &str) {
        while self.text != text {
            let frame = self.stream.next().await;
            assert_eq!(frame.event, "message.delta");
            let payload = frame.json()["payload"].clone();
            assert_eq!(payload["offset"], self.text.len());
            self.text.push_str(payload["text"].as_str().unwrap());
        }
    }
}

#[tokio::test]
async fn tokens_come_by_nats_while_nothing_can_be_saved_and_from_the_table_without_nats() {
    let mut nats = NatsServer::start().unwrap();
    let (a, b) = two(&nats).await;
    let run = a.start_run().await;
    let mut reader = Reader::of(&b, &run).await;
    let mut text = "one".to_owned();
    a.emit(&run, token("m", &text)).await;
    reader.until(&text).await;
    let mut locking = a.db.connect().await;
    for stands_still in [false, true, false] {
        execute(&mut locking, "begin; lock table store.open_text".to_owned()).await;
        patiently("a token that comes by NATS", async {
            // What is sent before both are connected is lost.
            loop {
                a.emit(&run, token("m", "+")).await;
                text.push('+');
                if tokio::time::timeout(SOON, reader.until(&text)).await.is_ok() {
                    return;
                }
            }
        })
        .await;
        if stands_still { nats.stand_still(true) } else { nats.kill() }.unwrap();
        a.emit(&run, token("m", "-")).await;
        text.push('-');
        execute(&mut locking, "commit".to_owned()).await;
        reader.until(&text).await;
        if stands_still { nats.stand_still(false) } else { nats.spawn() }.unwrap();
    }
    locking.close().await.unwrap();
}

#[tokio::test]
async fn a_message_that_no_server_sent_or_that_is_sent_again_changes_nothing() {
    let nats = NatsServer::start().unwrap();
    let (a, b) = two(&nats).await;
    // The client takes no credentials from a URL.
    let account = async_nats::ConnectOptions::with_user_and_password("user".to_owned(), "pa:ss".to_owned());
    let other = account.connect(nats.url()).await.unwrap();
    let mut messages = other.subscribe("runreel.live.>").await.unwrap();
    other.flush().await.unwrap();
    let run = a.start_run().await;
    let mut reader = Reader::of(&b, &run).await;
    let mut text = "one".to_owned();
    a.emit(&run, token("m", &text)).await;
    reader.until(&text).await;
    let sent = patiently("a message of a server", async {
        // Before it is connected, and before it knows that the text is saved, it sends none.
        loop {
            a.emit(&run, token("m", "+")).await;
            text.push('+');
            if let Ok(message) = tokio::time::timeout(SOON, messages.next()).await {
                return message.unwrap();
            }
        }
    })
    .await;
    let content = String::from_utf8_lossy(&sent.payload[32..]).into_owned();
    assert!(content.contains("+\"]"), "{content}");
    let forged = content.replace("+\"]", "+ and what nobody wrote\"]");
    let publish = async |payload: Vec<u8>| other.publish(sent.subject.clone(), payload.into()).await.unwrap();
    publish([&sent.payload[..32], forged.as_bytes()].concat()).await;
    publish([&[0; 32], forged.as_bytes()].concat()).await;
    publish(sent.payload[..40].to_vec()).await;
    publish(Vec::new()).await;
    publish(sent.payload.to_vec()).await;
    other.flush().await.unwrap();
    a.emit(&run, token("m", ".")).await;
    text.push('.');
    reader.until(&text).await;
    // What is over is not begun again: who joins later sees the other message only.
    a.emit(&run, json!({ "type": "message.completed", "span_id": "m", "payload": { "text": text } })).await;
    assert_eq!(reader.stream.next().await.event, "message.completed");
    publish(sent.payload.to_vec()).await;
    other.flush().await.unwrap();
    a.emit(&run, token("n", "another")).await;
    assert_eq!(reader.stream.next().await.json()["span_id"], "n");
    let mut late = b.stream(&stream_of(&run)).await;
    late.caught_up().await;
    assert_eq!(late.next().await.json()["span_id"], "n");
    a.complete(&run).await;
    let frames = late.rest().await;
    assert!(frames.iter().all(|frame| !frame.event.starts_with("message.")));
}
