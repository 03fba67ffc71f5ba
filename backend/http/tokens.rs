//! API tokens: create, list, revoke; and read tokens, which share one run, tree or thread for a limited time.

use axum::{
    Json as Reply,
    extract::{Path, State},
    http::{HeaderName, HeaderValue, StatusCode, header},
};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use uuid::Uuid;

use super::{
    Server,
    extract::{Body, Caller, RunPath, ThreadPath},
    handler::routes,
    problem::{Code, Problem},
};
use crate::{
    auth::{self, Grant},
    domain::{
        event::timestamp,
        id::{Name, RunId},
        limits::{READ_TOKEN_S_DEFAULT, READ_TOKEN_S_MAX, TOKEN_LIFE_S_MAX, TOKENS_OWN_MAX},
        principal::{OwnerId, Reach, Scope},
    },
    store::tokens::TokenRecord,
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(revoke))
        .routes(routes!(share_run))
        .routes(routes!(share_thread))
}

/// A token, without its secret.
#[derive(Debug, Serialize, ToSchema)]
struct Token {
    token_id: Uuid,
    name: String,
    #[schema(value_type = Vec<String>)]
    scopes: Vec<Scope>,
    /// The run it is limited to.
    run_id: Option<Uuid>,
    /// Whether it covers the descendants of that run too.
    tree: bool,
    /// The thread it is limited to.
    thread_id: Option<String>,
    created_at: String,
    /// Null: never.
    expires_at: Option<String>,
    revoked_at: Option<String>,
}

impl From<TokenRecord> for Token {
    fn from(record: TokenRecord) -> Self {
        let (run_id, thread_id) = match &record.reach {
            Reach::Everything => (None, None),
            Reach::Run(run) | Reach::Tree(run) => (Some(run.uuid()), None),
            Reach::Thread(thread) => (None, Some(thread.as_str().to_owned())),
        };
        Self {
            token_id: record.token_id,
            name: record.name,
            scopes: record.scopes,
            run_id,
            tree: matches!(record.reach, Reach::Tree(_)),
            thread_id,
            created_at: timestamp(record.created_at),
            expires_at: record.expires_at.map(timestamp),
            revoked_at: record.revoked_at.map(timestamp),
        }
    }
}

/// A new token with its secret, which is shown this once.
#[derive(Debug, Serialize, ToSchema)]
struct NewToken {
    /// `rr_` and 64 hexadecimal digits, for `Authorization: Bearer`.
    token: String,
    #[serde(flatten)]
    about: Token,
}

/// The principal's tokens, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct TokenList {
    tokens: Vec<Token>,
}

/// A token to create.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CreateToken {
    /// Its purpose, for people.
    #[schema(value_type = String)]
    name: Name,
    /// At least one of `read`, `emit`, `approve`, `admin`.
    #[schema(value_type = Vec<String>)]
    scopes: Vec<Scope>,
    /// Limits it to this run.
    #[schema(value_type = Option<Uuid>)]
    run_id: Option<RunId>,
    /// Seconds, from 1 to ten years. Without it, the token does not expire.
    ttl_s: Option<i64>,
}

/// What a read token covers, and for how long.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ShareRun {
    /// Seconds, from 1 to 86 400. Default 3 600.
    ttl_s: Option<i64>,
    /// Whether it covers the run's descendants too. Default `false`.
    #[serde(default)]
    tree: bool,
}

/// How long a read token lives.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct ShareThread {
    /// Seconds, from 1 to 86 400. Default 3 600.
    ttl_s: Option<i64>,
}

/// A secret must not be cached.
type Created = (StatusCode, [(HeaderName, HeaderValue); 1], Reply<NewToken>);

/// Create an API token for oneself.
#[utoipa::path(post, operation_id = "create_token", path = "/api/tokens", tag = "tokens", request_body = CreateToken,
    responses((status = 201, body = NewToken, description = "Created; `token` is shown this once"),
    (status = 404, body = Problem, description = "No such run, or of another owner"),
    (status = 429, body = Problem, description = "`busy`: as many tokens as one may have")))]
async fn create(State(server): State<Server>, caller: Caller, body: Body) -> Result<Created, Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    let CreateToken { name, mut scopes, run_id, ttl_s } = body.json()?;
    scopes.sort();
    scopes.dedup();
    if scopes.is_empty() {
        return Err(Problem::new(Code::InvalidRequest, "a token needs at least one scope").field("scopes"));
    }
    if let Some(run) = run_id {
        server.timeline.context(owner, run).await?.ok_or_else(Problem::not_found)?;
    }
    let expires_at = ttl_s.map(|ttl_s| until(&server, ttl_s, TOKEN_LIFE_S_MAX)).transpose()?;
    let reach = run_id.map_or(Reach::Everything, Reach::Run);
    issue(&server, owner, Grant { name: name.as_str().to_owned(), scopes, reach, expires_at }).await
}

/// The tokens of the principal, newest first: all that have not ended, and those that ended within a day.
#[utoipa::path(get, operation_id = "list_tokens", path = "/api/tokens", tag = "tokens",
    responses((status = 200, body = TokenList, description = "All of them, at most 1000")))]
async fn list(State(server): State<Server>, caller: Caller) -> Result<Reply<TokenList>, Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    let records = server.timeline.store().tokens().list(owner).await?;
    Ok(Reply(TokenList { tokens: records.into_iter().map(Token::from).collect() }))
}

/// Revoke a token. Its open streams end within 5 s.
///
/// Without the scope `admin`, only tokens that read one run, tree or thread.
#[utoipa::path(delete, operation_id = "revoke_token", path = "/api/tokens/{token_id}", tag = "tokens", params(("token_id" = Uuid, Path)),
    responses((status = 204, description = "Revoked, now or before"), (status = 404, body = Problem, description = "Not found, or of another owner")))]
async fn revoke(
    State(server): State<Server>,
    caller: Caller,
    Path(token_id): Path<String>,
) -> Result<StatusCode, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.owner();
    let token_id: Uuid = token_id.parse().map_err(|_| Problem::not_found())?;
    let any = caller.allows(Scope::Admin);
    let now = server.timeline.clock().now();
    let found = server.timeline.store().tokens().revoke(owner, token_id, any, now).await?;
    if found { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found()) }
}

/// Create a read token for a run, or for a run and all its descendants.
///
/// Also accepted as `?access_token=` on streams, for `EventSource`.
#[utoipa::path(post, operation_id = "share_run", path = "/api/runs/{run_id}/tokens", tag = "tokens", params(("run_id" = Uuid, Path)),
    request_body(content = Option<ShareRun>), responses((status = 201, body = NewToken, description = "Created; `token` is shown this once"),
    (status = 404, body = Problem, description = "Not found, or of another owner"),
    (status = 429, body = Problem, description = "`busy`: as many tokens as one may have")))]
async fn share_run(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    body: Body,
) -> Result<Created, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.needs(Scope::Read)?.owner();
    let ShareRun { ttl_s, tree } = body.json()?;
    server.timeline.context(owner, run).await?.ok_or_else(Problem::not_found)?;
    share(&server, owner, if tree { Reach::Tree(run) } else { Reach::Run(run) }, ttl_s).await
}

/// Create a read token for a thread: its messages, its runs, its stream.
///
/// Also accepted as `?access_token=` on streams, for `EventSource`. Valid before the thread exists, as its stream is.
#[utoipa::path(post, operation_id = "share_thread", path = "/api/threads/{thread_id}/tokens", tag = "tokens", params(("thread_id" = String, Path)),
    request_body(content = Option<ShareThread>), responses((status = 201, body = NewToken, description = "Created; `token` is shown this once"),
    (status = 429, body = Problem, description = "`busy`: as many tokens as one may have")))]
async fn share_thread(
    State(server): State<Server>,
    caller: Caller,
    ThreadPath(thread): ThreadPath,
    body: Body,
) -> Result<Created, Problem> {
    let owner = caller.needs_all(Scope::Emit)?.needs(Scope::Read)?.owner();
    let ShareThread { ttl_s } = body.json()?;
    share(&server, owner, Reach::Thread(thread), ttl_s).await
}

async fn share(server: &Server, owner: &OwnerId, reach: Reach, ttl_s: Option<i64>) -> Result<Created, Problem> {
    let expires_at = until(server, ttl_s.unwrap_or(READ_TOKEN_S_DEFAULT), READ_TOKEN_S_MAX)?;
    let grant = Grant { name: "share".to_owned(), scopes: vec![Scope::Read], reach, expires_at: Some(expires_at) };
    issue(server, owner, grant).await
}

fn until(server: &Server, ttl_s: i64, max: i64) -> Result<DateTime<Utc>, Problem> {
    if !(1..=max).contains(&ttl_s) {
        let rule = format!("must be a number of seconds from 1 to {max}");
        return Err(Problem::new(Code::InvalidRequest, rule).field("ttl_s"));
    }
    Ok(server.timeline.clock().now() + TimeDelta::seconds(ttl_s))
}

async fn issue(server: &Server, owner: &OwnerId, grant: Grant) -> Result<Created, Problem> {
    let timeline = &server.timeline;
    let issued = auth::issue(timeline.store(), timeline.ids(), owner.clone(), grant, timeline.clock().now()).await?;
    let Some(issued) = issued else {
        let detail = format!("this principal has {TOKENS_OWN_MAX} tokens, as many as it may have");
        return Err(Problem::new(Code::Busy, detail)
            .hint("revoke some: DELETE /api/tokens/{token_id}; a token counts until a day after its end"));
    };
    let no_store = [(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))];
    let token = NewToken { token: issued.secret, about: issued.record.into() };
    Ok((StatusCode::CREATED, no_store, Reply(token)))
}
