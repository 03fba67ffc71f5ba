//! Many streams on one connection, for any number of tabs of a browser that opens only a few connections.
//!
//! Each subscription has a follower and a task that writes its frames in its turn, so that one that waits for the
//! database, ends or fails delays no other. A batch of frames is written as a whole: frames of two subscriptions never
//! mix. The tasks live as long as the response.

use std::sync::Arc;

use axum::{
    extract::{Extension, State},
    http::HeaderMap,
    response::Response,
};
use bytes::Bytes;
use serde::Deserialize;
use tokio::{
    sync::{Mutex, mpsc},
    task::JoinSet,
};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    body::AtMost,
    extract::{Body, Caller, Query},
    handler::routes,
    problem::{Code, Problem},
    stream::{Asked, Followed, Refused, jitter, places},
    stream_body::{Source, write},
};
use crate::{
    domain::{
        limits::{DRAINED_RETRY_MS, SUBSCRIPTION_NAME_CHARS_MAX, SUBSCRIPTIONS_MAX},
        principal::Scope,
    },
    faces::{
        Encoder as _,
        sse::{self, Sse},
    },
    paced::Outflow,
    timeline::{follow::StreamItem, resume::Resumed},
    wire::frames::StreamEnd,
};

/// Events that change the list of open interrupts.
const INTERRUPT_TYPES: &str = "interrupt.*,run.completed,run.failed,run.cancelled";

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(open))
}

/// The streams to open on one connection.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct OpenStreams {
    /// 1 to 64.
    #[schema(value_type = Vec<Subscription>)]
    subscriptions: AtMost<Subscription, SUBSCRIPTIONS_MAX>,
}

/// One of the streams.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Subscription {
    /// The client's own, before the event of each frame: 1–64 of `A–Z a–z 0–9 _ -`, unique in the request.
    name: String,
    stream: StreamKind,
    /// Of `run` and `tree`.
    run_id: Option<String>,
    /// Of `thread`.
    thread_id: Option<String>,
    /// The last id that was seen.
    after: Option<String>,
    /// Without `after`: start with so many of the last events, 0 to 1000.
    tail: Option<i64>,
    /// Such as `tool.*,run.*`.
    types: Option<String>,
    /// Roles of runs in a feed, separated by commas.
    role: Option<String>,
    /// `false` omits deltas.
    tokens: Option<bool>,
    /// `index`: durable events without their payloads.
    view: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum StreamKind {
    Run,
    /// A run and all its descendants.
    Tree,
    Thread,
    /// Everything the caller owns.
    Runs,
    /// What changes the list of open interrupts.
    Interrupts,
}

/// A parsed subscription.
struct Wanted {
    name: String,
    /// `None` if the id is malformed: answered like an absent run.
    target: Option<Followed>,
    asked: Asked,
}

impl Subscription {
    fn read(self) -> Result<Wanted, Problem> {
        let rule = |detail: &str, field: &'static str| Problem::new(Code::InvalidRequest, detail).field(field);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if !(1..=SUBSCRIPTION_NAME_CHARS_MAX).contains(&self.name.len()) || !self.name.bytes().all(is_plain) {
            return Err(rule("a name is 1 to 64 of A-Z a-z 0-9 _ -", "name"));
        }
        let wants_run = matches!(self.stream, StreamKind::Run | StreamKind::Tree);
        if wants_run != self.run_id.is_some() {
            return Err(rule("streams of the kinds run and tree have a run_id, and no other", "run_id"));
        }
        if (self.stream == StreamKind::Thread) != self.thread_id.is_some() {
            return Err(rule("streams of the kind thread have a thread_id, and no other", "thread_id"));
        }
        let is_filtered = self.stream == StreamKind::Interrupts;
        if is_filtered && (self.types.is_some() || self.tokens.is_some()) {
            return Err(rule("the stream interrupts has no types and no tokens", "stream"));
        }
        let target = match self.stream {
            StreamKind::Run => self.run_id.as_deref().and_then(|id| id.parse().ok()).map(Followed::Run),
            StreamKind::Tree => self.run_id.as_deref().and_then(|id| id.parse().ok()).map(Followed::Tree),
            StreamKind::Thread => Some(Followed::thread(self.thread_id.as_deref().unwrap_or_default())?),
            StreamKind::Runs | StreamKind::Interrupts => Some(Followed::Runs),
        };
        let tokens = self.tokens.unwrap_or(!is_filtered);
        let texts = [
            ("after", self.after),
            ("tail", self.tail.map(|tail| tail.to_string())),
            ("types", self.types.or_else(|| is_filtered.then(|| INTERRUPT_TYPES.to_owned()))),
            ("role", self.role),
            ("tokens", Some(tokens.to_string())),
            ("view", self.view),
        ];
        let given = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?)));
        // Parameters mean the same as for a single stream.
        let asked = Asked::read(&Query::of(given), &HeaderMap::new())?;
        Ok(Wanted { name: self.name, target, asked })
    }
}

/// Follow up to 64 runs, trees, threads and feeds on one connection.
///
/// Each frame has the name of its subscription before its event, and an id that is the cursor of this subscription alone.
/// A subscription that ends or fails says so and ends no other.
#[utoipa::path(post, operation_id = "open_streams", path = "/api/stream", tag = "streams", request_body = OpenStreams,
    responses((status = 200, description = "Frames; see docs/protocol.md", content_type = "text/event-stream"),
    (status = 400, body = Problem, description = "The request is malformed; nothing was opened"), (status = 429, body = Problem, description = "`busy`")))]
async fn open(
    State(server): State<Server>,
    caller: Caller,
    headers: HeaderMap,
    Extension(outflow): Extension<Outflow>,
    body: Body,
) -> Result<Response, Refused> {
    let owner = caller.needs(Scope::Read)?.owner();
    let OpenStreams { subscriptions: AtMost(subscriptions) } = body.json()?;
    if subscriptions.is_empty() || subscriptions.len() > SUBSCRIPTIONS_MAX {
        let detail = format!("a connection has 1 to {SUBSCRIPTIONS_MAX} subscriptions");
        return Err(Problem::new(Code::InvalidRequest, detail).field("subscriptions").into());
    }
    drop(body);
    let mut names = std::collections::HashSet::new();
    let mut wanted = Vec::with_capacity(subscriptions.len());
    for (n, subscription) in subscriptions.into_iter().enumerate() {
        if !names.insert(subscription.name.clone()) {
            let field = format!("subscriptions[{n}].name");
            return Err(Problem::new(Code::InvalidRequest, "the name is given twice").field(field).into());
        }
        wanted.push(subscription.read().map_err(|problem| problem.within(format!("subscriptions[{n}]")))?);
    }
    let count = u32::try_from(wanted.len()).unwrap_or(u32::MAX);
    let places = places(&server, owner, &headers, count)?;
    let source = Many::open(&server, &Arc::new(caller.clone()), wanted);
    Ok(write(&server, &caller, (places, outflow), source))
}

/// The chunks of many streams, one batch after the other.
struct Many {
    chunks: mpsc::Receiver<Bytes>,
    chunk: Option<Bytes>,
    /// Aborted when the response is dropped.
    _tasks: JoinSet<()>,
}

/// Where the frames go. A task holds the lock while it writes a batch.
type Output = Arc<Mutex<mpsc::Sender<Bytes>>>;

impl Many {
    fn open(server: &Server, caller: &Arc<Caller>, wanted: Vec<Wanted>) -> Self {
        let (sender, chunks) = mpsc::channel(1);
        let output: Output = Arc::new(Mutex::new(sender));
        let mut tasks = JoinSet::new();
        for wanted in wanted {
            tasks.spawn(follow(server.clone(), Arc::clone(caller), wanted, Arc::clone(&output)));
        }
        Self { chunks, chunk: None, _tasks: tasks }
    }
}

impl Source for Many {
    fn opening(&self) -> Bytes {
        sse::opening()
    }

    fn ping(&self) -> Bytes {
        sse::ping()
    }

    fn chunk(&mut self) -> Option<Bytes> {
        self.chunk.take()
    }

    fn is_over(&self) -> bool {
        false
    }

    async fn advance(&mut self) -> bool {
        self.chunk = self.chunks.recv().await;
        self.chunk.is_some()
    }
}

/// Writes one subscription until it is over.
async fn follow(server: Server, caller: Arc<Caller>, wanted: Wanted, output: Output) {
    let Wanted { name, target, asked } = wanted;
    let is_index = asked.is_index;
    let resumed = async {
        let target = target.ok_or_else(Problem::not_found)?;
        let owner = target.permit(&server, &caller).await?.owner();
        Ok::<_, Problem>(target.resume(&server, owner, asked).await?)
    };
    let last = match Box::pin(resumed).await {
        Err(problem) => sse::control_of(&name, "stream.failed", &problem),
        Ok(Resumed::Ended { status, last_seq }) => {
            sse::control_of(&name, "stream.end", &StreamEnd { status, last_seq })
        }
        Ok(Resumed::Stream(mut follower)) => {
            let retry_ms = jitter(&server, DRAINED_RETRY_MS);
            let mut encoder = Sse::at(follower.position(), retry_ms).index(is_index).named(&name);
            let mut says_why = false;
            while let Some(items) = follower.next().await {
                let is_last =
                    |item| matches!(item, &StreamItem::End { .. } | &StreamItem::Reset | &StreamItem::Draining);
                says_why |= items.iter().any(is_last);
                encoder.take(items);
                let output = output.lock().await;
                while let Some(chunk) = encoder.chunk() {
                    if output.send(chunk).await.is_err() {
                        return;
                    }
                }
            }
            if says_why {
                return;
            }
            sse::control_of(&name, "stream.gone", &serde_json::json!({}))
        }
    };
    // An error means that the connection is gone.
    let _ = output.lock().await.send(last).await;
}
