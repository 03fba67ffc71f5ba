//! Streams: a run, a tree, a thread, everything. All are the same follower with different scopes.

use std::ops::Range;

use axum::{
    extract::{Extension, Path, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Allowed, Caller, Query, RunPath},
    handler::routes,
    index::is_index,
    problem::{Code, Problem},
    stream_body::{event_stream, stream},
};
use crate::{
    domain::{
        id::{Malformed, RunId, ThreadId},
        limits::{DRAINED_RETRY_MS, PAGE_ROWS_MAX, REFUSED_RETRY_MS},
        principal::{OwnerId, Scope},
    },
    faces::sse::{Sse, sent_away},
    paced::Outflow,
    quota::{Full, Share},
    store::feed,
    timeline::{
        follow::StreamOptions,
        resume::{Begin, ResumeError, Resumed},
    },
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(run)).routes(routes!(everything)).routes(routes!(thread))
}

/// What a reader requests, from header and query.
pub(super) struct Asked {
    /// After an id ([`last_id`]), else with `?tail=`.
    begin: Begin,
    options: StreamOptions,
    /// Whether durable events are sent without their payloads.
    pub(super) is_index: bool,
}

impl Asked {
    pub(super) fn read(query: &Query, headers: &HeaderMap) -> Result<Self, Problem> {
        let cursor = last_id(query, headers)?;
        let tail = query.text("tail").map(|_| query.number("tail", 0, 0, PAGE_ROWS_MAX)).transpose()?;
        let tokens = match query.text("tokens") {
            None | Some("true" | "1") => true,
            Some("false" | "0") => false,
            Some(_) => return Err(Problem::new(Code::InvalidRequest, "tokens must be true or false").field("tokens")),
        };
        let filter = query.parsed("types")?.unwrap_or_default();
        let begin = match (cursor, tail) {
            (Some(cursor), _) => Begin::After(cursor.to_owned()),
            (None, Some(tail)) => Begin::Tail(tail),
            (None, None) => Begin::Start,
        };
        let options = StreamOptions { filter, tokens, roles: query.roles()? };
        Ok(Self { begin, options, is_index: is_index(query)? })
    }
}

/// The id after which a reader continues: from the header `Last-Event-ID`, from `?lastEventId=` for clients that cannot
/// set the header, or from `?after=`. A client that reconnects repeats its first query, so the first of these counts. A
/// reader that has seen no id sends an empty one.
pub(super) fn last_id<'a>(query: &'a Query, headers: &'a HeaderMap) -> Result<Option<&'a str>, Problem> {
    let header = headers.get("last-event-id").map(HeaderValue::to_str).transpose();
    let header = header.map_err(|_| invalid_cursor("Last-Event-ID is not plain text"))?;
    let sent = [header, query.text("lastEventId"), query.text("after")];
    Ok(sent.into_iter().flatten().find(|id| !id.is_empty()))
}

/// The target of a stream.
pub(super) enum Followed {
    Run(RunId),
    /// A run and all its descendants.
    Tree(RunId),
    Thread(ThreadId),
    /// Everything the caller owns.
    Runs,
}

impl Followed {
    /// The stream of a thread, which need not exist.
    pub(super) fn thread(id: &str) -> Result<Self, Problem> {
        let rule = |rule: Malformed| Problem::new(Code::InvalidRequest, rule.0).field("thread_id");
        id.parse().map(Self::Thread).map_err(rule)
    }

    /// Rejects what the caller's credential does not cover.
    pub(super) async fn permit<'a>(&self, server: &Server, caller: &'a Caller) -> Result<Allowed<'a>, Problem> {
        match self {
            Self::Run(run) => caller.needs_run(server, Scope::Read, *run).await,
            Self::Tree(run) => {
                caller.needs_run(server, Scope::Read, *run).await?;
                caller.needs_tree(Scope::Read, *run)
            }
            Self::Thread(thread) => caller.needs_thread(Scope::Read, thread),
            Self::Runs => caller.needs_all(Scope::Read),
        }
    }

    /// Opens its stream where the reader begins.
    pub(super) async fn resume(
        self,
        server: &Server,
        owner: &OwnerId,
        Asked { begin, options, .. }: Asked,
    ) -> Result<Resumed, ResumeError> {
        let timeline = &server.timeline;
        match self {
            Self::Run(run) => timeline.resume_run(owner, run, &begin, options).await,
            Self::Tree(run) => timeline.resume_tree(owner, run, &begin, options).await,
            Self::Thread(thread) => timeline.resume_feed(owner, feed::Scope::Thread(thread), &begin, options).await,
            Self::Runs => timeline.resume_feed(owner, feed::Scope::Everything, &begin, options).await,
        }
    }
}

/// Why a stream is not opened.
pub(super) enum Refused {
    Problem(Box<Problem>),
    /// `EventSource` never retries after a status other than 200, so a full server opens a stream that says when to.
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

/// A share for one more stream.
pub(super) fn place(server: &Server, owner: &OwnerId, headers: &HeaderMap) -> Result<Share, Refused> {
    places(server, owner, headers, 1)
}

/// A share for `count` more streams.
pub(super) fn places(server: &Server, owner: &OwnerId, headers: &HeaderMap, count: u32) -> Result<Share, Refused> {
    server.streams.try_take(owner, count).map_err(|full| {
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

/// A different delay for each reader, so that they do not all reconnect at once.
pub(super) fn jitter(server: &Server, range: Range<u64>) -> u64 {
    let (_, random) = server.timeline.ids().uuid().as_u64_pair();
    range.start + random % (range.end - range.start)
}

fn invalid_cursor(detail: &str) -> Problem {
    Problem::new(Code::InvalidCursor, detail)
        .hint("send the id of the last frame you saw, or none to start from the beginning")
}

impl From<ResumeError> for Problem {
    fn from(error: ResumeError) -> Self {
        match error {
            ResumeError::Invalid(rule) => invalid_cursor(rule.0),
            ResumeError::Ahead { last } => Self::new(Code::CursorAhead, format!("the log ends at {last}")).hint(
                "the cursor is from another run, another server or a database that was restored to an earlier state",
            ),
            ResumeError::NotFound => Self::not_found(),
            ResumeError::Store(error) => error.into(),
        }
    }
}

/// Follow a run, or with `tree=true` a run and all its descendants.
///
/// Replays the stored events, then continues live, each event once and in order. Reconnecting with the last seq of an
/// ended run is answered with 204: stop.
#[utoipa::path(get, operation_id = "follow_run", path = "/api/stream/runs/{run_id}", tag = "streams", params(("run_id" = uuid::Uuid, Path),
    ("Last-Event-ID" = Option<String>, Header, description = "Continue after this frame id; takes precedence over `lastEventId` and `after`"),
    ("lastEventId" = Option<String>, Query, description = "The same for clients that cannot set the header; takes precedence over `after`"),
    ("after" = Option<String>, Query, description = "Continue after this frame id"),
    ("tail" = Option<i64>, Query, description = "Start with this many of the last events, at most 1000"),
    ("types" = Option<String>, Query, description = "Such as `tool.*,run.*`; ids remain true seqs"),
    ("tokens" = Option<bool>, Query, description = "`false` omits deltas"),
    ("view" = Option<String>, Query, description = "`index`: durable events without their payloads"),
    ("tree" = Option<bool>, Query, description = "Include every descendant; ids are then opaque cursors")),
    responses((status = 200, description = "Frames; see docs/protocol.md", content_type = "text/event-stream"),
    (status = 204, description = "The run has ended and you have seen all of it"), (status = 400, body = Problem, description = "`invalid_cursor`"),
    (status = 404, body = Problem, description = "Not found, or of another owner"), (status = 409, body = Problem, description = "`cursor_ahead`")))]
async fn run(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    query: Query,
    headers: HeaderMap,
    Extension(outflow): Extension<Outflow>,
) -> Result<Response, Refused> {
    let is_tree = matches!(query.text("tree"), Some("true" | "1"));
    let target = if is_tree { Followed::Tree(run) } else { Followed::Run(run) };
    follow(&server, &caller, target, (&query, &headers), outflow).await
}

/// Follow every run of a thread, also later ones; valid before the thread exists.
#[utoipa::path(get, operation_id = "follow_thread", path = "/api/stream/threads/{thread_id}", tag = "streams", params(("thread_id" = String, Path),
    ("Last-Event-ID" = Option<String>, Header), ("lastEventId" = Option<String>, Query), ("after" = Option<String>, Query),
    ("tail" = Option<i64>, Query),
    ("types" = Option<String>, Query), ("role" = Option<String>, Query), ("tokens" = Option<bool>, Query),
    ("view" = Option<String>, Query)),
    responses((status = 200, description = "Frames; ids are opaque cursors", content_type = "text/event-stream"),
    (status = 400, body = Problem, description = "`invalid_cursor`"), (status = 409, body = Problem, description = "`cursor_ahead`")))]
async fn thread(
    State(server): State<Server>,
    caller: Caller,
    Path(thread): Path<String>,
    query: Query,
    headers: HeaderMap,
    Extension(outflow): Extension<Outflow>,
) -> Result<Response, Refused> {
    follow(&server, &caller, Followed::thread(&thread)?, (&query, &headers), outflow).await
}

/// Follow everything the caller owns.
#[utoipa::path(get, operation_id = "follow_runs", path = "/api/stream/runs", tag = "streams", params(
    ("Last-Event-ID" = Option<String>, Header), ("lastEventId" = Option<String>, Query), ("after" = Option<String>, Query),
    ("tail" = Option<i64>, Query),
    ("types" = Option<String>, Query), ("role" = Option<String>, Query), ("tokens" = Option<bool>, Query),
    ("view" = Option<String>, Query)),
    responses((status = 200, description = "Frames; ids are opaque cursors", content_type = "text/event-stream"),
    (status = 400, body = Problem, description = "`invalid_cursor`"), (status = 409, body = Problem, description = "`cursor_ahead`")))]
async fn everything(
    State(server): State<Server>,
    caller: Caller,
    query: Query,
    headers: HeaderMap,
    Extension(outflow): Extension<Outflow>,
) -> Result<Response, Refused> {
    follow(&server, &caller, Followed::Runs, (&query, &headers), outflow).await
}

async fn follow(
    server: &Server,
    caller: &Caller,
    target: Followed,
    (query, headers): (&Query, &HeaderMap),
    outflow: Outflow,
) -> Result<Response, Refused> {
    let owner = target.permit(server, caller).await?.owner();
    let place = place(server, owner, headers)?;
    let asked = Asked::read(query, headers)?;
    let is_index = asked.is_index;
    match target.resume(server, owner, asked).await? {
        Resumed::Stream(follower) => {
            let encoder = Sse::at(follower.position(), jitter(server, DRAINED_RETRY_MS)).index(is_index);
            Ok(stream(server, caller, (place, outflow), *follower, encoder))
        }
        Resumed::Ended { .. } => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}
