//! Streams: a run, a tree, a thread, everything. All are the same follower with another scope.

use std::{ops::Range, sync::Arc, time::Duration};

use axum::{
    body::Body as ReplyBody,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    Server,
    events::check_current,
    extract::{Caller, Query, RunPath},
    problem::{Code, Problem},
    sse::{Encoder, sent_away},
};
use crate::{
    auth,
    domain::{
        cursor::{FeedCursor, RunCursor},
        history::Histories,
        id::{Seq, ThreadId},
        limits::{DRAINED_RETRY_MS, PAGE_ROWS_MAX, PING_MS, REFUSED_RETRY_MS},
        principal::{OwnerId, Scope},
    },
    quota::{Full, Share},
    store::{feed, runs::RunRecord},
    timeline::follow::{Follower, StreamOptions},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(run)).routes(routes!(everything)).routes(routes!(thread))
}

/// What a reader asks for, from header and query.
struct Asked {
    /// `Last-Event-ID` wins over `?after=`.
    cursor: Option<String>,
    tail: Option<i64>,
    wishes: StreamOptions,
}

impl Asked {
    fn read(query: &Query, headers: &HeaderMap) -> Result<Self, Problem> {
        let last = match headers.get("last-event-id") {
            None => None,
            Some(value) => Some(value.to_str().map_err(|_| invalid_cursor("Last-Event-ID is not plain text"))?),
        };
        // An empty id is what a reader sends that has seen none.
        let cursor = last.filter(|id| !id.is_empty()).or_else(|| query.text("after").filter(|id| !id.is_empty()));
        let tail = query.text("tail").map(|_| query.number("tail", 0, 0, PAGE_ROWS_MAX)).transpose()?;
        let tokens = match query.text("tokens") {
            None | Some("true" | "1") => true,
            Some("false" | "0") => false,
            Some(_) => return Err(Problem::new(Code::InvalidRequest, "tokens is true or false").field("tokens")),
        };
        let filter = query.parsed("types")?.unwrap_or_default();
        Ok(Self {
            cursor: cursor.map(str::to_owned),
            tail,
            wishes: StreamOptions { filter, tokens, roles: query.roles()? },
        })
    }
}

/// Why no stream is opened.
enum Refused {
    Problem(Box<Problem>),
    /// `EventSource` never comes back after a status other than 200, so a full server opens a stream that says when to.
    Later(Box<Response>),
}

impl<E: Into<Problem>> From<E> for Refused {
    fn from(error: E) -> Self {
        Self::Problem(Box::new(error.into()))
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        match self {
            Self::Problem(problem) => problem.into_response(),
            Self::Later(response) => *response,
        }
    }
}

/// Room for one more stream.
fn place(server: &Server, owner: &OwnerId, headers: &HeaderMap) -> Result<Share, Refused> {
    server.streams.try_take(owner, 1).map_err(|full| {
        let accepts = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if !accepts.contains("text/event-stream") {
            return Problem::busy(full, "streams").into();
        }
        let reason = match full {
            Full::Own => "busy_own",
            Full::All => "busy",
        };
        Refused::Later(Box::new(event_stream(sent_away(jitter(server, REFUSED_RETRY_MS), reason).into())))
    })
}

/// Another wait for each reader, so that they do not all come back at once.
fn jitter(server: &Server, range: Range<u64>) -> u64 {
    let (_, random) = server.timeline.ids().uuid().as_u64_pair();
    range.start + random % (range.end - range.start)
}

fn event_stream(body: ReplyBody) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, no-transform"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

fn invalid_cursor(detail: &str) -> Problem {
    Problem::new(Code::InvalidCursor, detail).hint("send back the id of the last frame you saw, or none to begin anew")
}

fn cursor_ahead(last: &str) -> Problem {
    Problem::new(Code::CursorAhead, format!("the log ends at {last}"))
        .hint("the cursor is from another run, another server or a database that was set back")
}

/// Follow a run, or with `tree=true` a run and all its descendants.
///
/// Replays what is there, then goes on live, each event once and in order. Reconnecting with the last seq of an ended
/// run answers 204: stop.
#[utoipa::path(get, operation_id = "follow_run", path = "/api/stream/runs/{run_id}", tag = "streams", params(("run_id" = uuid::Uuid, Path),
    ("Last-Event-ID" = Option<String>, Header, description = "Go on after this frame id; wins over `after`"),
    ("after" = Option<String>, Query, description = "Go on after this frame id"),
    ("tail" = Option<i64>, Query, description = "Begin with the last so many events, at most 1000"),
    ("types" = Option<String>, Query, description = "Such as `tool.*,run.*`; ids stay true seqs"),
    ("tokens" = Option<bool>, Query, description = "`false` leaves deltas out"),
    ("tree" = Option<bool>, Query, description = "Include every descendant; ids are then opaque cursors")),
    responses((status = 200, description = "Frames; see docs/protocol.md", content_type = "text/event-stream"),
    (status = 204, description = "The run has ended and you have seen all of it"), (status = 400, body = Problem, description = "`invalid_cursor`"),
    (status = 404, body = Problem, description = "Absent or foreign"), (status = 409, body = Problem, description = "`cursor_ahead`")))]
async fn run(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let owner = caller.needs_run(Scope::Read, run)?.owner().clone();
    let place = place(&server, &owner, &headers)?;
    let asked = Asked::read(&query, &headers)?;
    let histories = server.timeline.histories();
    let record = server.timeline.run(&owner, run).await?.ok_or_else(Problem::not_found)?;
    if matches!(query.text("tree"), Some("true" | "1")) {
        caller.needs_all(Scope::Read)?;
        return tree(&server, &caller, place, owner, &record, asked, histories).await;
    }
    let after = match (&asked.cursor, asked.tail) {
        (Some(cursor), _) => {
            let cursor: RunCursor =
                cursor.parse().map_err(|rule: crate::domain::id::Malformed| invalid_cursor(rule.0))?;
            let is_admitted = server.timeline.admits(&owner, run, cursor, &histories).await?;
            if !is_admitted || cursor.seq > record.head.last_seq {
                check_history(&server, &owner, &histories).await?;
                return Err(cursor_ahead(&record.head.last_seq.to_string()).into());
            }
            cursor.seq
        }
        (None, Some(tail)) => record.head.last_seq.back(tail),
        (None, None) => Seq::ZERO,
    };
    if after == record.head.last_seq && record.head.status.is_terminal() && asked.cursor.is_some() {
        check_history(&server, &owner, &histories).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let context = server.timeline.context(&owner, run).await?.ok_or_else(Problem::not_found)?;
    let mut follower = server.timeline.follow_run(context, after, histories, asked.wishes);
    if after == record.head.last_seq && record.head.status.is_terminal() {
        follower.root_ended(record.head.status, record.head.last_seq);
    }
    Ok(stream(&server, &caller, place, follower, Encoder::run()))
}

async fn tree(
    server: &Server,
    caller: &Caller,
    place: Share,
    owner: OwnerId,
    record: &RunRecord,
    asked: Asked,
    histories: Arc<Histories>,
) -> Result<Response, Refused> {
    let (root, head) = (record.context.run_id, &record.head);
    let resuming = asked.cursor.is_some();
    let scope = feed::Scope::Tree(root);
    let after = feed_cursor(server, &owner, &scope, &asked, &histories).await?;
    if resuming && head.status.is_terminal() {
        let store = server.timeline.store();
        let all_ended = store.tree(&owner, root).await?.iter().all(|(_, ended)| *ended);
        if all_ended && store.feed_page(&owner, &scope, &after, 1).await?.events.is_empty() {
            check_history(server, &owner, &histories).await?;
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
    let removed = server.timeline.store().removed(&owner).await?;
    let encoder = Encoder::feed(after.clone());
    let mut follower = server.timeline.follow_feed(owner, scope, after, &removed, histories, asked.wishes);
    if head.status.is_terminal() {
        follower.root_ended(head.status, head.last_seq);
    }
    Ok(stream(server, caller, place, follower, encoder))
}

/// Follow every run of a thread, also later ones; valid before the thread exists.
#[utoipa::path(get, operation_id = "follow_thread", path = "/api/stream/threads/{thread_id}", tag = "streams", params(("thread_id" = String, Path),
    ("Last-Event-ID" = Option<String>, Header), ("after" = Option<String>, Query), ("tail" = Option<i64>, Query),
    ("types" = Option<String>, Query), ("role" = Option<String>, Query), ("tokens" = Option<bool>, Query)),
    responses((status = 200, description = "Frames; ids are opaque cursors", content_type = "text/event-stream"),
    (status = 400, body = Problem, description = "`invalid_cursor`"), (status = 409, body = Problem, description = "`cursor_ahead`")))]
async fn thread(
    State(server): State<Server>,
    caller: Caller,
    Path(thread): Path<String>,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    let thread: ThreadId = thread
        .parse()
        .map_err(|rule: crate::domain::id::Malformed| Problem::new(Code::InvalidRequest, rule.0).field("thread_id"))?;
    many(&server, &caller, feed::Scope::Thread(thread), &query, &headers).await
}

/// Follow everything the caller owns.
#[utoipa::path(get, operation_id = "follow_runs", path = "/api/stream/runs", tag = "streams", params(
    ("Last-Event-ID" = Option<String>, Header), ("after" = Option<String>, Query), ("tail" = Option<i64>, Query),
    ("types" = Option<String>, Query), ("role" = Option<String>, Query), ("tokens" = Option<bool>, Query)),
    responses((status = 200, description = "Frames; ids are opaque cursors", content_type = "text/event-stream"),
    (status = 400, body = Problem, description = "`invalid_cursor`"), (status = 409, body = Problem, description = "`cursor_ahead`")))]
async fn everything(
    State(server): State<Server>,
    caller: Caller,
    query: Query,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    many(&server, &caller, feed::Scope::Everything, &query, &headers).await
}

async fn many(
    server: &Server,
    caller: &Caller,
    scope: feed::Scope,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Response, Refused> {
    let owner = caller.needs_all(Scope::Read)?.owner().clone();
    let place = place(server, &owner, headers)?;
    let asked = Asked::read(query, headers)?;
    let histories = server.timeline.histories();
    let after = feed_cursor(server, &owner, &scope, &asked, &histories).await?;
    let removed = server.timeline.store().removed(&owner).await?;
    let encoder = Encoder::feed(after.clone());
    let follower = server.timeline.follow_feed(owner, scope, after, &removed, histories, asked.wishes);
    Ok(stream(server, caller, place, follower, encoder))
}

async fn feed_cursor(
    server: &Server,
    owner: &OwnerId,
    scope: &feed::Scope,
    asked: &Asked,
    histories: &Histories,
) -> Result<FeedCursor, Problem> {
    let store = server.timeline.store();
    match (&asked.cursor, asked.tail) {
        (Some(cursor), _) => {
            let cursor: FeedCursor =
                cursor.parse().map_err(|rule: crate::domain::id::Malformed| invalid_cursor(rule.0))?;
            let tail = store.feed_tail(owner).await?;
            check_current(tail.history(), histories)?;
            if !histories.admits(&cursor) || cursor.is_ahead_of(&tail) {
                return Err(cursor_ahead(&tail.to_string()));
            }
            Ok(cursor.of_history(histories.current()))
        }
        (None, Some(tail)) => {
            let cursor = store.feed_before_tail(owner, scope, tail).await?;
            check_current(cursor.history(), histories)?;
            Ok(cursor)
        }
        (None, None) => Ok(FeedCursor::start().of_history(histories.current())),
    }
}

/// Says nothing about a place by what was read, unless the log is still in the history that it is admitted under.
async fn check_history(server: &Server, owner: &OwnerId, histories: &Histories) -> Result<(), Problem> {
    Ok(check_current(server.timeline.store().feed_tail(owner).await?.history(), histories)?)
}

/// Turns a follower into a response that ends when the follower, the credential or the server does.
fn stream(server: &Server, caller: &Caller, place: Share, mut follower: Follower, mut encoder: Encoder) -> Response {
    encoder.retry_ms = jitter(server, DRAINED_RETRY_MS);
    let auth::Caller { expires_at, token_id, .. } = caller.0.clone();
    let watched = token_id.map(|token| server.revocations.watch(token));
    let clock = server.timeline.clock().clone();
    let open = metrics::gauge!("runreel_streams_open");
    open.increment(1.0);
    let close = OnDrop(move || open.decrement(1.0));
    let chunks = async_stream::stream! {
        let (_place, _close) = (place, close);
        yield Ok::<Bytes, std::convert::Infallible>(Encoder::opening());
        loop {
            let left = expires_at.map(|expires_at| (expires_at - clock.now()).to_std().unwrap_or_default());
            if left == Some(Duration::ZERO) {
                return;
            }
            if watched.as_ref().is_some_and(auth::Watched::is_revoked) {
                return;
            }
            if let Some(chunk) = encoder.chunk() {
                yield Ok(chunk);
                continue;
            }
            let ping = Duration::from_millis(PING_MS);
            let patience = left.map_or(ping, |left| left.min(ping));
            let revoked = async {
                match &watched {
                    Some(watched) => watched.revoked().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                signals = follower.next() => match signals {
                    Some(signals) => encoder.take(signals),
                    None => return,
                },
                () = revoked => return,
                () = tokio::time::sleep(patience) => yield Ok(Encoder::ping()),
            }
        }
    };
    event_stream(ReplyBody::from_stream(chunks))
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}
