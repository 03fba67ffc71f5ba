//! The connection to a server: whether it answers, and what a proxy in between does to the traffic.

use std::time::Duration;

use super::{CheckResult, PATIENCE};
use crate::{
    cli::{connection::Connection, render::clean},
    client::{Arrival, Client, Error, Kind, StreamProbe},
    domain::limits::{BODY_BYTES_MAX, PING_MS},
};

/// How long to wait for anything after a stream's first frame; the server pings sooner.
const NEXT_MAX: Duration = Duration::from_millis(PING_MS + 5_000);

const UNBUFFERED: &str =
    "turn off buffering for /api/stream/ in the proxy (nginx: proxy_buffering off), see docs/operations.md";
const UNCOMPRESSED: &str = "turn off compression for text/event-stream in the proxy (nginx: gzip off)";
const PATIENT: &str = "set a read timeout well over 10 s in the proxy (nginx: proxy_read_timeout 60s)";
const CURSOR: &str = "configure the proxy to forward the header Last-Event-ID";
const LARGE: &str = "configure the proxy to accept bodies of 32 MiB (nginx: client_max_body_size 32m)";
const UPGRADED: &str = "configure the proxy to forward WebSockets at /api/runners/ (nginx: proxy_http_version 1.1 and \
                        the headers Upgrade and Connection), if runners connect this way";
const ADDRESS: &str = "check that the URL is right and that any proxy in between forwards every path";
const CREDENTIAL: &str =
    "set RUNREEL_TOKEN to a token with the scopes read and emit; a proxy must forward Authorization";

/// A server, if there is one, as seen from here.
pub(super) struct Connectivity {
    client: Option<Client>,
    server: CheckResult,
    is_elsewhere: bool,
}

impl Connectivity {
    pub(super) async fn to(connection: &Connection) -> Self {
        let client = match connection.client() {
            Ok(client) => client,
            Err(error) => {
                let server = CheckResult::Bad(error.to_string(), "correct --url or the token's variable");
                return Self { client: None, server, is_elsewhere: false };
            }
        };
        let is_elsewhere = !client.is_of_this_machine();
        let health = tokio::time::timeout(PATIENCE, client.health()).await;
        let server = match &health {
            Ok(Ok(health)) if client.ready().await => {
                CheckResult::Good(format!("{} is ready, version {}", connection.url, clean(&health.version)))
            }
            Ok(Ok(_)) => CheckResult::Bad(
                format!("{} is running but not ready", connection.url),
                "check its log: the database is unavailable, or the server is draining",
            ),
            Ok(Err(error)) if error.kind != Kind::Unreachable => {
                CheckResult::Bad(format!("{} does not answer like a Runreel server: {error}", connection.url), ADDRESS)
            }
            // Before the first start there is no server at the default address.
            _ if connection.is_default() => {
                CheckResult::Open(format!("no server at {}; runreel serve starts one", connection.url))
            }
            _ => CheckResult::Bad(format!("no server answers at {}", connection.url), ADDRESS),
        };
        let client = matches!(server, CheckResult::Good(_)).then_some(client);
        Self { client, server, is_elsewhere }
    }

    /// Whether the server is on another machine.
    pub(super) fn is_elsewhere(&self) -> bool {
        self.is_elsewhere
    }

    pub(super) fn server(&self) -> &CheckResult {
        &self.server
    }

    /// Whether frames arrive one by one: the first at once, the next when it is sent.
    pub(super) async fn stream(&self) -> CheckResult {
        let Some(client) = &self.client else { return nobody() };
        match client.probe_stream(PATIENCE, NEXT_MAX).await {
            Ok(StreamProbe::Live { first, next }) => CheckResult::Good(format!(
                "the first frame arrived after {} ms, the next frame or ping after {:.1} s",
                first.as_millis(),
                next.as_secs_f64()
            )),
            Ok(StreamProbe::HeldBack) => CheckResult::Bad(
                format!("no frame arrived within {} s: something in between buffers the stream", PATIENCE.as_secs()),
                UNBUFFERED,
            ),
            Ok(StreamProbe::Stalled { .. }) => CheckResult::Bad(
                format!(
                    "a first frame arrived, but no ping within {} s: something in between buffers the rest",
                    NEXT_MAX.as_secs()
                ),
                UNBUFFERED,
            ),
            Ok(StreamProbe::Compressed(encoding)) => {
                CheckResult::Bad(format!("something in between compresses the stream ({encoding})"), UNCOMPRESSED)
            }
            Ok(StreamProbe::Cut(after)) => {
                CheckResult::Bad(format!("the stream was cut after {:.1} s of silence", after.as_secs_f64()), PATIENT)
            }
            Err(error) => unasked(&error),
        }
    }

    /// Whether `Last-Event-ID` of a reconnecting reader arrives.
    pub(super) async fn resume(&self) -> CheckResult {
        let Some(client) = &self.client else { return nobody() };
        match client.probe_cursor().await {
            Ok(Arrival::Whole) => CheckResult::Good("a reconnecting reader's cursor reaches the server".to_owned()),
            Ok(_) => {
                CheckResult::Bad("Last-Event-ID does not arrive: reconnecting readers start over".to_owned(), CURSOR)
            }
            Err(error) => unasked(&error),
        }
    }

    /// Whether the largest emit arrives.
    pub(super) async fn bodies(&self) -> CheckResult {
        let Some(client) = &self.client else { return nobody() };
        // Checked first, because a proxy hides a rejection that arrives before the end of the body.
        if let Err(error) = client.probe_cursor().await {
            return unasked(&error);
        }
        let size = format!("a body of {} MiB", BODY_BYTES_MAX / (1024 * 1024));
        match client.probe_body().await {
            Ok(Arrival::Whole) => CheckResult::Good(format!("{size} reaches the server")),
            Ok(Arrival::Refused(status)) => {
                CheckResult::Bad(format!("{size} is rejected on the way ({status})"), LARGE)
            }
            Ok(Arrival::Stripped) => CheckResult::Bad(format!("{size} breaks the connection"), LARGE),
            Err(error) => unasked(&error),
        }
    }

    /// Whether a runner could connect.
    pub(super) async fn runners(&self) -> CheckResult {
        let Some(client) = &self.client else { return nobody() };
        match client.probe_upgrade().await {
            Ok(Arrival::Whole) => CheckResult::Good("a WebSocket reaches the server".to_owned()),
            Ok(Arrival::Stripped) => {
                CheckResult::Bad("no WebSocket reaches the server: runners cannot connect".to_owned(), UPGRADED)
            }
            Ok(Arrival::Refused(status)) => CheckResult::Bad(
                format!("a WebSocket is rejected on the way ({status}): runners cannot connect"),
                UPGRADED,
            ),
            Err(error) => unasked(&error),
        }
    }
}

fn nobody() -> CheckResult {
    CheckResult::Open("not checked: no server".to_owned())
}

/// A request that was not answered.
fn unasked(error: &Error) -> CheckResult {
    match error.kind {
        Kind::Refused => CheckResult::Bad(error.to_string(), CREDENTIAL),
        _ => CheckResult::Bad(error.to_string(), ADDRESS),
    }
}
