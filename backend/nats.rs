//! Open texts between servers over NATS (`--live`): core subjects, at most once.
//!
//! While NATS is unavailable, readers get the texts as they are saved.

use std::time::Duration;

use anyhow::Context as _;
use async_nats::{Client, ConnectOptions, Event, Subject, Subscriber, connection::State};
use bytes::Bytes;
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use percent_encoding::percent_decode_str;
use tokio::{sync::Mutex, time::timeout};

use crate::timeline::live::Live;

const CONNECTED: &str = "runreel_live_connected";
/// Messages that wait to be sent, and those that wait to be read: a third of a second of a busy server's traffic.
const WAITING_MAX: usize = 16;
/// How long a message waits for room in the send queue.
const ROOM_MAX: Duration = Duration::from_millis(100);
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
    /// Connects in the background, as soon as the server is available.
    pub async fn connect(url: &str, subject: String) -> anyhow::Result<Self> {
        metrics::describe_gauge!(CONNECTED, "Whether the server of --live is connected");
        metrics::gauge!(CONNECTED).set(0);
        let (url, options) = with_credentials(url)?;
        // Also requires TLS of other servers of its cluster.
        let options = options
            .require_tls(url.scheme() == "tls")
            .name("runreel")
            .no_echo()
            .retry_on_initial_connect()
            .client_capacity(WAITING_MAX)
            .subscription_capacity(WAITING_MAX)
            .reconnect_delay_callback(|attempts| {
                PAUSE.min(Duration::from_millis(50) * u32::try_from(attempts).unwrap_or(20))
            })
            .event_callback(|event| async move { note(&event) });
        let client = options.connect(url.as_str()).await?;
        let subject = Subject::from(subject);
        let messages = Mutex::new(client.subscribe(subject.clone()).await?);
        Ok(Self { client, subject, messages })
    }
}

/// Moves a URL's credentials to the options: the client does not send those of a URL, and logs them.
fn with_credentials(url: &str) -> anyhow::Result<(reqwest::Url, ConnectOptions)> {
    let mut url = reqwest::Url::parse(url).context("the URL of the NATS server")?;
    let decoded = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let (user, password) = (decoded(url.username()), url.password().map(decoded));
    let is_bare = url.set_username("").and_then(|()| url.set_password(None));
    anyhow::ensure!(is_bare.is_ok(), "the URL of the NATS server has no host");
    let options = match password {
        Some(password) => ConnectOptions::with_user_and_password(user, password),
        None if !user.is_empty() => ConnectOptions::with_token(user),
        None => ConnectOptions::new(),
    };
    Ok((url, options))
}

fn note(event: &Event) {
    match event {
        Event::Connected => {
            metrics::gauge!(CONNECTED).set(1);
            tracing::info!("live texts: connected to NATS");
        }
        Event::Closed => metrics::gauge!(CONNECTED).set(0),
        Event::ClientError(_) | Event::ServerError(_) => tracing::warn!(event = %event, "live texts: NATS"),
        Event::Disconnected => {
            metrics::gauge!(CONNECTED).set(0);
            tracing::warn!("live texts: not connected to NATS; other servers' readers get tokens five times a second");
        }
        other => tracing::debug!(event = %other, "live texts: NATS"),
    }
}

impl Live for Nats {
    fn send(&self, message: Bytes) -> BoxFuture<'_, ()> {
        async {
            // The client would queue messages for a server that comes back, when they are useless.
            if self.client.connection_state() != State::Connected {
                return;
            }
            // A server that hangs counts as connected for minutes.
            match timeout(ROOM_MAX, self.client.publish(self.subject.clone(), message)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::debug!(error = &error as &dyn std::error::Error, "live texts not sent"),
                Err(_) => tracing::debug!("live texts not sent: NATS takes none"),
            }
        }
        .boxed()
    }

    fn next(&self) -> BoxFuture<'_, Bytes> {
        async {
            match self.messages.lock().await.next().await {
                Some(message) => message.payload,
                // The client has ended, with its process.
                None => std::future::pending().await,
            }
        }
        .boxed()
    }
}
