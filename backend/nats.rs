//! Open texts between servers by way of NATS (`--live`): core subjects, at most once.
//!
//! NATS may come and go: meanwhile, readers get the texts as they are saved.

use std::time::Duration;

use async_nats::{Client, ConnectOptions, Event, Subject, Subscriber, connection::State};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use tokio::sync::Mutex;

use crate::timeline::live::Live;

const CONNECTED: &str = "runreel_live_connected";
/// Messages that wait to be sent, and those that wait to be read: a tenth of a second of what a busy server sends.
const WAITING_MAX: usize = 16;
/// Pause before connecting again, at most.
const PAUSE: Duration = Duration::from_secs(1);

/// A subject of a NATS server.
#[derive(Debug)]
pub struct Nats {
    client: Client,
    subject: Subject,
    messages: Mutex<Subscriber>,
}

impl Nats {
    /// Connects as soon as the server is there.
    pub async fn connect(url: &str, subject: String) -> anyhow::Result<Self> {
        metrics::describe_gauge!(CONNECTED, "Whether the server of --live is connected");
        metrics::gauge!(CONNECTED).set(0);
        let options = ConnectOptions::new()
            .name("runreel")
            .no_echo()
            .retry_on_initial_connect()
            .client_capacity(WAITING_MAX)
            .subscription_capacity(WAITING_MAX)
            .reconnect_delay_callback(|attempts| {
                PAUSE.min(Duration::from_millis(50) * u32::try_from(attempts).unwrap_or(20))
            })
            .event_callback(|event| async move { note(&event) });
        let client = options.connect(url).await?;
        let subject = Subject::from(subject);
        let messages = Mutex::new(client.subscribe(subject.clone()).await?);
        Ok(Self { client, subject, messages })
    }
}

fn note(event: &Event) {
    match event {
        Event::Connected => {
            metrics::gauge!(CONNECTED).set(1);
            tracing::info!("live texts: connected to NATS");
        }
        Event::Disconnected | Event::Closed => {
            metrics::gauge!(CONNECTED).set(0);
            tracing::warn!("live texts: not connected to NATS; other servers' readers get tokens five times a second");
        }
        other => tracing::debug!(event = %other, "live texts: NATS"),
    }
}

impl Live for Nats {
    fn send(&self, message: Bytes) -> BoxFuture<'_, ()> {
        async {
            // The client would keep messages for a server that comes back, when they are of no use any more.
            if self.client.connection_state() == State::Connected
                && let Err(error) = self.client.publish(self.subject.clone(), message).await
            {
                tracing::debug!(error = &error as &dyn std::error::Error, "live texts not sent");
            }
        }
        .boxed()
    }

    fn next(&self) -> BoxFuture<'_, Bytes> {
        async {
            match self.messages.lock().await.next().await {
                Some(message) => message.payload,
                // The client ended with its process.
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}
