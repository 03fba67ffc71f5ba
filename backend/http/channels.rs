//! Messages of channels: through the common route, or through Telegram's webhook.

mod message;
mod users;

use std::{sync::Arc, time::Duration};

use axum::{
    Json as Reply,
    extract::{FromRequestParts, State},
    http::{HeaderValue, StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use self::message::PostMessage;
use super::{
    Server,
    extract::{Body, Caller, ChannelPath, CleanUrl, Query, Trace},
    handler::routes,
    problem::{Code, Problem},
};
use crate::{
    channels::{
        Receipt,
        router::Outcome as Routed,
        telegram::{
            Telegram,
            update::{Said, Update},
        },
    },
    config::channels::{ChannelConfig, TELEGRAM},
    domain::{
        event::timestamp,
        id::RunId,
        limits::{CODE_LIFE_S_DEFAULT, CODE_LIFE_S_MAX, CODES_MAX, MESSAGE_WAIT_MS_MAX, WEBHOOK_BYTES_MAX},
        principal::{OwnerId, Scope},
        run::Status,
        session::{
            Reason,
            inbound::{ChannelName, check_text},
        },
    },
    wire::messages::{MessageOutcome, Outcome},
};

/// The header in which Telegram sends the secret of the webhook.
const SECRET_HEADER: &str = "x-telegram-bot-api-secret-token";

/// Telegram, if configured and authenticated. Checked before any of the body is read.
struct Webhook {
    channel: ChannelName,
    telegram: Telegram,
    config: Arc<ChannelConfig>,
}

impl FromRequestParts<Server> for Webhook {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        let channel = ChannelName::trusted(TELEGRAM);
        let (Some(telegram), Some(config)) = (server.channels.telegram(), server.channels.config(&channel)) else {
            return Err(Problem::not_found());
        };
        let secret = parts.headers.get(SECRET_HEADER).map(HeaderValue::as_bytes);
        if !secret.is_some_and(|secret| telegram.knows(secret)) {
            return Err(Problem::new(Code::Unauthorized, "wrong webhook secret"));
        }
        Ok(Self { telegram: telegram.clone(), config: Arc::clone(config), channel })
    }
}

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(post))
        .routes(routes!(make_code))
        .merge(users::routes())
        .routes(routes!(telegram))
}

/// The outcome of a message, without the members that `wait` adds.
fn outcome_of(receipt: &Receipt) -> MessageOutcome {
    let mut reply = MessageOutcome {
        outcome: Outcome::Queued,
        reason: receipt.is_duplicate.then_some(Reason::Duplicate),
        run_id: None,
        router_run_id: receipt.router_run_id.uuid(),
        session_id: None,
        thread_id: None,
        stream_url: None,
        status: None,
        response: None,
    };
    let Some(outcome) = &receipt.outcome else { return reply };
    reply.reason = reply.reason.or(outcome.reason());
    reply.outcome = if reply.reason.is_some() { Outcome::Filtered } else { Outcome::Accepted };
    if let Routed::Accepted { run_id, session_id, thread_id, .. } = outcome {
        reply.run_id = Some(run_id.uuid());
        reply.session_id = Some(session_id.to_string());
        reply.thread_id = Some(thread_id.to_string());
        reply.stream_url = Some(format!("/api/stream/runs/{run_id}"));
    }
    reply
}

/// Send a message to an agent.
///
/// It is routed by the channel's rules. An accepted message starts a run; for one that is not accepted, the reply has
/// the reason. A message that was accepted or queued is processed whatever happens to the connection or the server.
#[utoipa::path(post, operation_id = "post_message", path = "/api/channels/{channel}/messages", tag = "channels", params(
    ("channel" = String, Path, description = "Its name in the configuration file"),
    ("wait" = Option<bool>, Query, description = "`true` or `1`: hold until the agent's run has ended, at most 60 s")),
    request_body = PostMessage, responses((status = 202, description = "Accepted, or queued", body = MessageOutcome),
    (status = 200, description = "Filtered", body = MessageOutcome), (status = 400, body = Problem, description = "Invalid"),
    (status = 403, body = Problem, description = "The principal may not use the channel's agent"),
    (status = 404, body = Problem, description = "No such channel"), (status = 413, body = Problem, description = "Over a limit")))]
async fn post(
    State(server): State<Server>,
    caller: Caller,
    ChannelPath(channel): ChannelPath,
    query: Query,
    trace: Trace,
    body: Body,
) -> Result<Response, Problem> {
    let caller = caller.needs_all(Scope::Emit)?;
    let owner = caller.owner();
    let config = server.channels.config(&channel).ok_or_else(Problem::not_found)?;
    caller.may_use(&server, &config.agent)?;
    let wait = wants_wait(&query)?;
    let now = server.timeline.clock().now();
    let mut inbound = body.json::<PostMessage>()?.into_inbound(now)?;
    inbound.trace_id = trace.0;
    let busy = |full| Problem::busy(full, "streams");
    let _place = wait.then(|| server.streams.try_take(owner, 1).map_err(busy)).transpose()?;
    let receipt =
        server.channels.receive(owner, &channel, inbound, body.into_room()).await.map_err(Problem::of_change)?;
    if receipt.is_given_up {
        let detail = format!("the message cannot be routed; the run {} has the reason", receipt.router_run_id);
        return Err(Problem::new(Code::Internal, detail).hint("send it as a new message"));
    }
    let mut outcome = outcome_of(&receipt);
    match receipt.outcome {
        Some(Routed::Accepted { run_id, .. }) if wait => {
            let (status, response) = waited(&server, owner, run_id).await?;
            (outcome.status, outcome.response) = (Some(status), Some(Value::from(response)));
        }
        _ if wait => outcome.response = Some(Value::from(outcome.reason.and_then(Reason::reply))),
        _ => {}
    }
    let status = match outcome.outcome {
        Outcome::Accepted | Outcome::Queued => StatusCode::ACCEPTED,
        Outcome::Filtered => StatusCode::OK,
    };
    Ok((status, Reply(outcome)).into_response())
}

fn wants_wait(query: &Query) -> Result<bool, Problem> {
    match query.text("wait") {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(_) => Err(Problem::new(Code::InvalidRequest, "wait must be true or false").field("wait")),
    }
}

async fn waited(server: &Server, owner: &OwnerId, run: RunId) -> Result<(Status, Option<String>), Problem> {
    let at_most = Duration::from_millis(MESSAGE_WAIT_MS_MAX);
    let outcome = Box::pin(server.channels.wait(owner, run, at_most)).await?.ok_or_else(Problem::not_found)?;
    Ok((outcome.status, outcome.response))
}

/// How long a code is valid.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct MakeCode {
    /// 1 to 86 400 seconds; 900 when absent.
    expires_s: Option<i64>,
}

/// A one-time code. It is shown only here.
#[derive(Debug, Serialize, ToSchema)]
struct NewCode {
    channel: String,
    /// `XXXX-XXXX`.
    code: String,
    /// RFC 3339, UTC, microseconds.
    expires_at: String,
}

/// Create a one-time code, with which a user is verified on a channel that requires one.
#[utoipa::path(post, operation_id = "make_code", path = "/api/channels/{channel}/codes", tag = "channels", params(
    ("channel" = String, Path, description = "Its name in the configuration file")),
    request_body(content = Option<MakeCode>), responses((status = 201, description = "The code", body = NewCode),
    (status = 404, body = Problem, description = "No such channel"), (status = 429, body = Problem, description = "Too many valid codes")))]
async fn make_code(
    State(server): State<Server>,
    caller: Caller,
    ChannelPath(channel): ChannelPath,
    body: Body,
) -> Result<(StatusCode, Reply<NewCode>), Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    server.channels.config(&channel).ok_or_else(Problem::not_found)?;
    let life_s = body.json::<MakeCode>()?.expires_s.unwrap_or(CODE_LIFE_S_DEFAULT);
    if !(1..=CODE_LIFE_S_MAX).contains(&life_s) {
        let rule = format!("a code may be valid for 1 to {CODE_LIFE_S_MAX} seconds");
        return Err(Problem::new(Code::InvalidRequest, rule).field("expires_s"));
    }
    let made = server.channels.make_code(owner, &channel, life_s).await;
    let code = made.map_err(Problem::of_change)?;
    let code =
        code.ok_or_else(|| Problem::new(Code::Busy, format!("the channel already has {CODES_MAX} valid codes")))?;
    let expires_at = timestamp(code.expires_at);
    Ok((StatusCode::CREATED, Reply(NewCode { channel: channel.to_string(), code: code.text, expires_at })))
}

/// Receive an update from Telegram.
///
/// Telegram authenticates with the secret given to `setWebhook`. The reply is sent as soon as the message is in the
/// inbox; an update that is not a message for the bot is accepted and ignored.
#[utoipa::path(post, operation_id = "telegram_webhook", path = "/api/channels/telegram/webhook", tag = "channels", params(
    ("X-Telegram-Bot-Api-Secret-Token" = String, Header, description = "The secret of the webhook")),
    request_body = Value, responses((status = 200, description = "Accepted"),
    (status = 401, body = Problem, description = "Wrong or missing secret"), (status = 404, body = Problem, description = "Telegram is not configured")))]
async fn telegram(
    State(server): State<Server>,
    _: CleanUrl,
    Webhook { channel, telegram, config }: Webhook,
    body: Result<Body<WEBHOOK_BYTES_MAX>, Problem>,
) -> Result<StatusCode, Problem> {
    // Telegram repeats a rejected update, so one that is not a message, or must not be stored, is accepted and dropped.
    let known: Value = match body {
        Err(problem) if problem.code() == Code::CredentialInBody => {
            tracing::warn!("Telegram message dropped: it contains a JWT of this server");
            return Ok(StatusCode::OK);
        }
        body => body?.json()?,
    };
    let Ok(update) = serde_json::from_value::<Update>(known) else { return Ok(StatusCode::OK) };
    match telegram.read(update, &config) {
        Some(Said::Message(envelope)) => {
            let too_long = envelope.inbound.text.as_deref().is_some_and(|text| check_text(text).is_err());
            if !too_long {
                server.channels.leave(telegram.owner(), &channel, &envelope).await?;
            }
        }
        Some(Said::Moved { from, to }) => server.channels.moved(telegram.owner(), &channel, &from, &to).await?,
        None => {}
    }
    Ok(StatusCode::OK)
}
