//! The Vercel AI SDK: a chat's posts, and the stream of its current message. Translation is in
//! [`faces::ai_sdk`](crate::faces::ai_sdk).

use axum::{
    extract::{Extension, Path, State},
    http::{HeaderName, HeaderValue, StatusCode},
    response::{IntoResponse as _, Response},
};
use bytes::BytesMut;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    chats::{self, decide, follow, place},
    extract::{Allowed, Body, Caller, Query, Trace},
    handler::routes,
    problem::{Code, Problem},
    runs,
    stream::jitter,
    stream_body::stream,
};
use crate::{
    domain::{
        context::Role,
        cursor::RunCursor,
        event::timestamp,
        history::Tag,
        id::{Malformed, Name, RunId, Seq, ThreadId, Title},
        json::Json,
        limits::{
            AI_SDK_MESSAGE_RUNS_MAX, AI_SDK_REPLAY_BYTES_MAX, DRAINED_RETRY_MS, LIVE_TEXTS_MAX, PAYLOAD_BYTES_MAX,
        },
        principal::{OwnerId, Scope},
        run::{RunFields, Status},
    },
    faces::{
        Encoder,
        ai_sdk::{
            AiSdk, HEADER,
            request::{ChatRequest, Continued, Output, Turn},
        },
        conversation::{Conversation, Shown},
        position::Position,
    },
    paced::Outflow,
    store::runs::{RunRecord, filter::RunFilter},
    wire::runs::CreateRun,
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(post)).routes(routes!(resume))
}

/// As many live texts as possible: the client keeps no position.
const SHOWN: Shown = Shown { texts_max: LIVE_TEXTS_MAX, reasoning: true, announcements: false };

/// A chat of a caller with an agent.
struct Chat<'a> {
    server: &'a Server,
    caller: Allowed<'a>,
    agent: Name,
    thread: ThreadId,
}

/// Send what is new in a chat, and follow the answer.
///
/// Takes what `DefaultChatTransport` posts. A new message of the user starts a run of the agent on the chat's thread;
/// answers to approvals and results of the client's tools continue the last message.
#[utoipa::path(post, operation_id = "ai_sdk_chat", path = "/api/ai-sdk/agents/{agent}", tag = "protocols", params(("agent" = String, Path)),
    request_body(content = Object, description = "`{id, messages, trigger, messageId, tools?}`; other members are ignored"),
    responses((status = 200, description = "A UI message stream, version 1", content_type = "text/event-stream"),
    (status = 400, body = Problem, description = "Invalid"), (status = 403, body = Problem, description = "The principal may not use the agent"),
    (status = 409, body = Problem, description = "`interrupt_closed`")))]
async fn post(
    State(server): State<Server>,
    caller: Caller,
    trace: Trace,
    Path(agent): Path<String>,
    Extension(outflow): Extension<Outflow>,
    body: Body,
) -> Result<Response, Problem> {
    let caller = caller.needs_all(Scope::Emit)?.needs(Scope::Read)?;
    let place = place(&server, caller.owner())?;
    let request: ChatRequest = body.json()?;
    let tools = request.tools()?;
    let turn = request.turn()?;
    let chat = Chat { server: &server, caller, agent: named(&agent)?, thread: request.id };
    let (run, message_id, after) = match turn {
        Turn::Wrote(messages) => chat.written(trace, messages, tools).await?,
        Turn::Continued(continued) => chat.continued(trace, continued, tools).await?,
    };
    let record = server.timeline.run(caller.owner(), run).await?.ok_or_else(Problem::not_found)?;
    let dialect = AiSdk::new(&message_id, metadata(&record));
    let after = after.map_or_else(Position::default, |seq| Position::after(RunCursor { seq, history: Tag::FIRST }));
    let follower = follow(&server, caller.owner(), run).await?;
    let encoder = Conversation::new(dialect, after, SHOWN, jitter(&server, DRAINED_RETRY_MS));
    Ok(in_its_words(stream(&server, &caller, (place, outflow), follower, encoder)))
}

/// Resume a chat's current message: all of it, from its beginning.
///
/// 204 when no run of the chat is active; with `ended=true` the message of one that has ended is replayed too.
#[utoipa::path(get, operation_id = "ai_sdk_resume", path = "/api/ai-sdk/agents/{agent}/{chat_id}/stream", tag = "protocols", params(
    ("agent" = String, Path), ("chat_id" = String, Path),
    ("ended" = Option<bool>, Query, description = "`true` replays a message that is complete")),
    responses((status = 200, description = "A UI message stream, version 1", content_type = "text/event-stream"),
    (status = 204, description = "No run of the chat is active"), (status = 400, body = Problem, description = "Invalid")))]
async fn resume(
    State(server): State<Server>,
    caller: Caller,
    Path((agent, chat_id)): Path<(String, String)>,
    query: Query,
    Extension(outflow): Extension<Outflow>,
) -> Result<Response, Problem> {
    let thread: ThreadId =
        chat_id.parse().map_err(|rule: Malformed| Problem::new(Code::InvalidRequest, rule.0).field("chat_id"))?;
    let caller = caller.needs_thread(Scope::Read, &thread)?;
    let place = place(&server, caller.owner())?;
    let with_ended = query.parsed::<bool>("ended")?.unwrap_or_default();
    let chat = Chat { server: &server, caller, agent: named(&agent)?, thread };
    let latest = chat.latest().await?.filter(|record| with_ended || !record.head.status.is_terminal());
    let Some(record) = latest else { return Ok(StatusCode::NO_CONTENT.into_response()) };
    let own = Own::of(&record);
    let before = chat.replayed(&own).await?;
    let dialect = AiSdk::new(&own.message_id, metadata(&record)).after(before);
    let follower = follow(&server, caller.owner(), record.context.run_id).await?;
    let encoder = Conversation::new(dialect, Position::default(), SHOWN, jitter(&server, DRAINED_RETRY_MS));
    Ok(in_its_words(stream(&server, &caller, (place, outflow), follower, encoder)))
}

/// A run's metadata under `ai_sdk`: the message that it continues, and the earlier runs of the message.
#[derive(Debug, Deserialize, Serialize)]
struct Own {
    message_id: String,
    continues: Vec<RunId>,
}

impl Own {
    fn of(record: &RunRecord) -> Self {
        let first = || Self { message_id: record.context.run_id.to_string(), continues: Vec::new() };
        record.fields.metadata.member("ai_sdk").unwrap_or_else(first)
    }
}

impl Chat<'_> {
    fn owner(&self) -> &OwnerId {
        self.caller.owner()
    }

    /// The newest run of the agent in this thread, workers excluded.
    async fn latest(&self) -> Result<Option<RunRecord>, Problem> {
        let filter = RunFilter {
            thread_id: Some(self.thread.clone()),
            agents: vec![self.agent.clone()],
            roles: vec![Role::Agent, Role::Supervisor],
            ..RunFilter::default()
        };
        let runs = self.server.timeline.store().runs().newest(self.owner(), &filter, 1).await?;
        Ok(runs.into_iter().next())
    }

    /// Starts a run for the user's messages. An interrupted run will not get its answer: it is cancelled once the new
    /// run is accepted, which begins after it.
    async fn written(
        &self,
        trace: Trace,
        messages: Vec<Value>,
        tools: Vec<Value>,
    ) -> Result<(RunId, String, Option<Seq>), Problem> {
        self.caller.may_use(self.server, &self.agent)?;
        let waiting = self.latest().await?.filter(|latest| latest.head.status == Status::Interrupted);
        let run = self.start(trace, messages, tools, None).await?;
        if let Some(waiting) = waiting {
            let reason = Title::trusted("the user wrote instead of answering");
            self.server.timeline.cancel_run(self.owner(), waiting.context.run_id, Some(&reason)).await?;
        }
        Ok((run, run.to_string(), None))
    }

    async fn start(
        &self,
        trace: Trace,
        messages: Vec<Value>,
        tools: Vec<Value>,
        own: Option<Own>,
    ) -> Result<RunId, Problem> {
        let mut input = json!({"messages": messages});
        if !tools.is_empty() {
            input["tools"] = Value::Array(tools);
        }
        let request = CreateRun {
            agent: Some(self.agent.clone()),
            thread_id: Some(self.thread.clone()),
            start: Some(false),
            ..CreateRun::default()
        };
        let metadata = own.map_or_else(Json::empty, |own| Json::of(&json!({"ai_sdk": own})));
        let fields = RunFields { input: Some(chats::input(&input)?), metadata, ..RunFields::default() };
        fields.check(PAYLOAD_BYTES_MAX)?;
        Ok(runs::open(self.server, self.caller, trace, request, fields).await?.0)
    }

    /// Continues the last message: with the run that waits for the answers, or with a new run that gets the results of
    /// the client's calls.
    async fn continued(
        &self,
        trace: Trace,
        continued: Continued,
        tools: Vec<Value>,
    ) -> Result<(RunId, String, Option<Seq>), Problem> {
        let nothing = "the last message is the agent's, and nothing in it waits for an answer";
        let latest =
            self.latest().await?.ok_or_else(|| Problem::new(Code::InvalidRequest, nothing).field("messages"))?;
        let run = latest.context.run_id;
        let asked: Vec<Value> =
            latest.head.output.as_ref().and_then(|output| output.member("tool_calls")).unwrap_or_default();
        if !continued.decided.is_empty() {
            let before = Own::of(&latest);
            let earlier = if before.message_id == continued.message_id { before.continues } else { Vec::new() };
            let earlier = &earlier[..earlier.len().min(AI_SDK_MESSAGE_RUNS_MAX)];
            let after = decide(self.server, &self.caller, run, earlier, &continued.decided).await?;
            return Ok((run, continued.message_id, Some(after)));
        }
        if !latest.head.status.is_terminal() || asked.is_empty() {
            return Err(Problem::new(Code::InvalidRequest, nothing).field("messages"));
        }
        let ids: Vec<&str> = asked.iter().map(|call| call["id"].as_str().unwrap_or_default()).collect();
        let result = |(output, id): (Option<&Output>, &&str)| {
            let missing =
                || Problem::new(Code::InvalidRequest, format!("the call {id} has no output")).field("messages");
            output.map(|output| output.message(id)).ok_or_else(missing)
        };
        // An external agent may know a call by an id that is unique only in its run.
        let scope = run.scoped("");
        let names: Vec<&str> = ids.iter().map(|id| id.strip_prefix(&scope).unwrap_or(id)).collect();
        let outputs = continued.outputs_of(run, &names);
        let messages = outputs.into_iter().zip(&ids).map(result).collect::<Result<_, _>>()?;
        let before = Own::of(&latest);
        let mut earlier = if before.message_id == continued.message_id { before.continues } else { Vec::new() };
        earlier.push(run);
        if earlier.len() >= AI_SDK_MESSAGE_RUNS_MAX {
            let detail = format!("a message may go on for {AI_SDK_MESSAGE_RUNS_MAX} runs; send a new message");
            return Err(Problem::new(Code::TooLarge, detail).field("messages"));
        }
        let own = Own { message_id: continued.message_id.clone(), continues: earlier };
        let next = self.start(trace, messages, tools, Some(own)).await?;
        Ok((next, continued.message_id, None))
    }

    /// The output of the earlier runs of a message; deleted ones are left out. The metadata is not trusted: runs of
    /// other threads are skipped, and those that have not ended, since the replay would wait for them.
    async fn replayed(&self, own: &Own) -> Result<bytes::Bytes, Problem> {
        let mut replay = BytesMut::new();
        for run in own.continues.iter().take(AI_SDK_MESSAGE_RUNS_MAX) {
            let record = self.server.timeline.run(self.owner(), *run).await?;
            let is_of_chat = |record: &RunRecord| record.context.thread_id.as_ref() == Some(&self.thread);
            let record = record.filter(|record| is_of_chat(record) && record.head.status.is_terminal());
            let Some(record) = record else { continue };
            let dialect = AiSdk::new(&own.message_id, metadata(&record)).continued();
            let mut encoder = Conversation::new(dialect, Position::default(), SHOWN, 0);
            let mut follower = follow(self.server, self.owner(), *run).await?;
            while let Some(items) = follower.next().await {
                encoder.take(items);
                while let Some(chunk) = encoder.chunk() {
                    replay.extend_from_slice(&chunk);
                }
                if replay.len() > AI_SDK_REPLAY_BYTES_MAX {
                    let detail = "the earlier runs of this message say too much to be replayed";
                    return Err(Problem::new(Code::TooLarge, detail));
                }
            }
        }
        Ok(replay.freeze())
    }
}

fn named(agent: &str) -> Result<Name, Problem> {
    agent.parse().map_err(|rule: Malformed| Problem::new(Code::InvalidRequest, rule.0).field("agent"))
}

/// A message's metadata about its run.
fn metadata(record: &RunRecord) -> Map<String, Value> {
    let context = &record.context;
    let members = [
        ("runId", json!(context.run_id)),
        ("threadId", json!(context.thread_id)),
        ("agent", json!(context.agent)),
        ("createdAt", json!(timestamp(record.head.created_at))),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn in_its_words(mut response: Response) -> Response {
    let (name, value) = HEADER;
    response.headers_mut().insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    response
}
