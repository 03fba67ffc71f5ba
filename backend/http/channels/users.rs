//! Users of a channel who have entered a one-time code: listing them, and requiring a new one.

use axum::{Json as Reply, extract::State, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use crate::{
    config::retention::Ttl,
    domain::{event::timestamp, principal::Scope},
    http::{
        Server,
        extract::{Caller, ChannelPath, ChannelUserPath, Query},
        handler::routes,
        page::next_cursor,
        problem::Problem,
    },
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(revoke))
}

/// A user who has entered a code.
#[derive(Debug, Serialize, ToSchema)]
struct ChannelUser {
    user_id: String,
    /// RFC 3339, UTC, microseconds.
    verified_at: String,
    /// When a code is required again; null for never.
    expires_at: Option<String>,
}

/// A page of users, by id.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChannelUserList {
    users: Vec<ChannelUser>,
    /// Send it back as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
}

/// List the users of a channel who have entered a one-time code that is still valid, by id.
#[utoipa::path(get, operation_id = "list_channel_users", path = "/api/channels/{channel}/users", tag = "channels", params(
    ("channel" = String, Path, description = "Its name in the configuration file"),
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the previous page"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = ChannelUserList, description = "A page"), (status = 400, body = Problem, description = "Invalid"),
    (status = 404, body = Problem, description = "No such channel")))]
async fn list(
    State(server): State<Server>,
    caller: Caller,
    ChannelPath(channel): ChannelPath,
    query: Query,
) -> Result<Reply<ChannelUserList>, Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    let config = server.channels.config(&channel).ok_or_else(Problem::not_found)?;
    let page = query.page()?;
    let (store, now) = (server.timeline.store(), server.timeline.clock().now());
    let expired_until = config.expired_until(now);
    let (known, more) = store.codes().users(owner, &channel, expired_until, &page).await?;
    let next_cursor = next_cursor(more, known.last().map(|last| last.user_id.clone()));
    let expires_at = |at| config.verified_for.map(|Ttl(life_s)| timestamp(at + chrono::TimeDelta::seconds(life_s)));
    let users: Vec<ChannelUser> = known
        .into_iter()
        .map(|user| ChannelUser {
            user_id: user.user_id.to_string(),
            verified_at: timestamp(user.verified_at),
            expires_at: expires_at(user.verified_at),
        })
        .collect();
    Ok(Reply(ChannelUserList { users, next_cursor }))
}

/// Require a new one-time code from a user, with the next message.
#[utoipa::path(delete, operation_id = "revoke_channel_user", path = "/api/channels/{channel}/users/{user_id}", tag = "channels", params(
    ("channel" = String, Path, description = "Its name in the configuration file"), ("user_id" = String, Path, description = "The channel's id of the user")),
    responses((status = 204, description = "The user must enter a code again"), (status = 404, body = Problem, description = "No such channel or user")))]
async fn revoke(
    State(server): State<Server>,
    caller: Caller,
    ChannelPath(channel): ChannelPath,
    ChannelUserPath(user): ChannelUserPath,
) -> Result<StatusCode, Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    server.channels.config(&channel).ok_or_else(Problem::not_found)?;
    let revoked = server.timeline.store().codes().revoke(owner, &channel, &user).await;
    if revoked.map_err(Problem::of_change)? { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found()) }
}
