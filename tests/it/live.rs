//! Tokens between servers by way of NATS: sooner than the table has them, and no worse than the table without it.

use futures::StreamExt as _;
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
    for _ in 0..3 {
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
        nats.kill().unwrap();
        a.emit(&run, token("m", "-")).await;
        text.push('-');
        execute(&mut locking, "commit".to_owned()).await;
        reader.until(&text).await;
        nats.spawn().unwrap();
    }
    locking.close().await.unwrap();
}

#[tokio::test]
async fn a_message_that_no_server_sent_or_that_is_sent_again_changes_nothing() {
    let nats = NatsServer::start().unwrap();
    let (a, b) = two(&nats).await;
    let other = async_nats::connect(nats.url()).await.unwrap();
    let mut messages = other.subscribe("runreel.live.>").await.unwrap();
    other.flush().await.unwrap();
    let run = a.start_run().await;
    let mut reader = Reader::of(&b, &run).await;
    a.emit(&run, token("m", "one")).await;
    reader.until("one").await;
    a.emit(&run, token("m", "+")).await;
    let sent = patiently("a message of a server", messages.next()).await.unwrap();
    assert!(String::from_utf8_lossy(&sent.payload).contains("one+"), "what the table has begins it");
    for at in [0, 31, 32, sent.payload.len() - 1] {
        let mut forged = sent.payload.to_vec();
        forged[at] ^= 1;
        other.publish(sent.subject.clone(), forged.into()).await.unwrap();
    }
    for payload in [&b""[..], b"[]", &sent.payload[..40]] {
        other.publish(sent.subject.clone(), payload.to_vec().into()).await.unwrap();
    }
    other.publish(sent.subject.clone(), sent.payload.clone()).await.unwrap();
    other.flush().await.unwrap();
    a.emit(&run, token("m", ".")).await;
    reader.until("one+.").await;
    a.complete(&run).await;
    // What is over is not begun again.
    other.publish(sent.subject.clone(), sent.payload).await.unwrap();
    other.flush().await.unwrap();
    let frames = reader.stream.rest().await;
    assert_eq!(frames.last().unwrap().event, "stream.end");
    assert!(frames.iter().all(|frame| !frame.event.starts_with("message.")));
}
