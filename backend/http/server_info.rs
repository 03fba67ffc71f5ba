//! The server's version, the calling principal, and the retention of runs.

use axum::{Json as Reply, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{Server, extract::Caller, handler::routes, problem::Problem};
use crate::domain::{
    event::timestamp,
    principal::Scope,
    retention::{Policy, Rule},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(show))
}

/// The server that answers.
#[derive(Debug, Serialize, ToSchema)]
struct ServerInfo {
    version: &'static str,
    /// Its clock: RFC 3339, UTC, microseconds.
    now: String,
    principal: CallingPrincipal,
    retention: RetentionPolicy,
}

/// The principal that asks, and its credential.
#[derive(Debug, Serialize, ToSchema)]
struct CallingPrincipal {
    /// Who owns what this principal creates.
    owner_id: String,
    #[schema(value_type = Vec<String>)]
    scopes: Vec<Scope>,
    /// When the credential ends; null for one that does not.
    expires_at: Option<String>,
    /// Whether the server asks for credentials at all.
    is_authenticated: bool,
}

/// How long a run stays after its end: its own time to live, else that of the first rule that matches, else the default.
#[derive(Debug, Serialize, ToSchema)]
struct RetentionPolicy {
    /// Seconds; null for ever.
    run_ttl_s: Option<i64>,
    rules: Vec<RetentionRule>,
}

/// A time to live for the runs of an agent, or with a tag, or both.
#[derive(Debug, Serialize, ToSchema)]
struct RetentionRule {
    agent: Option<String>,
    tag: Option<String>,
    /// Seconds; 0 means for ever.
    ttl_s: i64,
}

impl From<&Rule> for RetentionRule {
    fn from(rule: &Rule) -> Self {
        let text = |name: &crate::domain::id::Name| name.as_str().to_owned();
        Self { agent: rule.agent.as_ref().map(text), tag: rule.tag.as_ref().map(text), ttl_s: rule.ttl_s }
    }
}

impl From<&Policy> for RetentionPolicy {
    fn from(policy: &Policy) -> Self {
        Self {
            run_ttl_s: policy.ttl_s.filter(|ttl_s| *ttl_s > 0),
            rules: policy.rules.iter().map(RetentionRule::from).collect(),
        }
    }
}

/// Show the server's version, the principal that asks, and how long runs stay.
#[utoipa::path(get, operation_id = "show_server", path = "/api/server", tag = "operations",
    responses((status = 200, body = ServerInfo, description = "As it is now"), (status = 403, body = Problem, description = "`forbidden`")))]
async fn show(State(server): State<Server>, caller: Caller) -> Result<Reply<ServerInfo>, Problem> {
    let caller = caller.needs_all(Scope::Read)?;
    let principal = CallingPrincipal {
        owner_id: caller.owner().as_str().to_owned(),
        scopes: caller.scopes().to_vec(),
        expires_at: caller.expires_at().map(timestamp),
        is_authenticated: !server.authenticator.is_off(),
    };
    let now = timestamp(server.timeline.clock().now());
    let retention = RetentionPolicy::from(server.retention.policy());
    Ok(Reply(ServerInfo { version: env!("CARGO_PKG_VERSION"), now, principal, retention }))
}
