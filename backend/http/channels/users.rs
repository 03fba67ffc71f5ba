//! Users of a channel who have given a one-time code: who they are, and that they have to give one again.

use axum::{Json as Reply, extract::State, http::StatusCode};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    config::Ttl,
    domain::{
        event::timestamp,
        limits::{PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX},
        principal::Scope,
        session::inbound::UserId,
    },
    http::{
        Server,
        extract::{Caller, ChannelPath, ChannelUserPath, Query},
        problem::Problem,
    },
};

/// A user who has given a code.
#[derive(Debug, Serialize, ToSchema)]
struct ChannelUser {
    user_id: String,
    /// RFC 3339, UTC, microseconds.
    verified_at: String,
    /// When a code is wanted again; null: never.
    expires_at: Option<String>,
}

/// A page of users, by id.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChannelUserList {
    users: Vec<ChannelUser>,
    /// Send it back as `cursor` for the next page; null on the last.
    next_cursor: Option<String>,
}

/// List the users of a channel who have given a one-time code that still counts, by id.
#[utoipa::path(get, operation_id = "list_channel_users", path = "/api/channels/{channel}/users", tag = "channels", params(
    ("channel" = String, Path, description = "As the configuration file calls it"),
    ("cursor" = Option<String>, Query, description = "`next_cursor` of the page before"),
    ("limit" = Option<i64>, Query, description = "1 to 1000, default 100")),
    responses((status = 200, body = ChannelUserList, description = "A page"), (status = 400, body = Problem, description = "Invalid"),
    (status = 404, body = Problem, description = "No such channel")))]
pub(super) async fn list(
    State(server): State<Server>,
    caller: Caller,
    ChannelPath(channel): ChannelPath,
    query: Query,
) -> Result<Reply<ChannelUserList>, Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    let config = server.channels.config(&channel).ok_or_else(Problem::not_found)?;
    let limit = query.number("limit", PAGE_ROWS_DEFAULT, 1, PAGE_ROWS_MAX)?;
    let read = |text: &str| text.strip_prefix('u')?.parse::<UserId>().ok();
    let after = query.text("cursor").map(|text| read(text).ok_or_else(Problem::bad_cursor)).transpose()?;
    let (store, now) = (server.timeline.store(), server.timeline.clock().now());
    let expired_until = config.expired_until(now);
    let known = store.verified_users(owner, &channel, expired_until, after.as_ref(), limit + 1).await?;
    let (more, limit) = (known.len() as i64 > limit, usize::try_from(limit).unwrap_or(1));
    let expires_at = |at| config.verified_for.map(|Ttl(life_s)| timestamp(at + chrono::TimeDelta::seconds(life_s)));
    let users: Vec<ChannelUser> = known
        .into_iter()
        .take(limit)
        .map(|user| ChannelUser {
            user_id: user.user_id.to_string(),
            verified_at: timestamp(user.verified_at),
            expires_at: expires_at(user.verified_at),
        })
        .collect();
    let next_cursor = users.last().filter(|_| more).map(|last| format!("u{}", last.user_id));
    Ok(Reply(ChannelUserList { users, next_cursor }))
}

/// Make a user give a one-time code again, with the next message.
#[utoipa::path(delete, operation_id = "revoke_channel_user", path = "/api/channels/{channel}/users/{user_id}", tag = "channels", params(
    ("channel" = String, Path, description = "As the configuration file calls it"), ("user_id" = String, Path, description = "As the channel gives it")),
    responses((status = 204, description = "Has to give one"), (status = 404, body = Problem, description = "No such channel, or no such user of yours")))]
pub(super) async fn revoke(
    State(server): State<Server>,
    caller: Caller,
    ChannelPath(channel): ChannelPath,
    ChannelUserPath(user): ChannelUserPath,
) -> Result<StatusCode, Problem> {
    let owner = caller.needs_all(Scope::Admin)?.owner();
    server.channels.config(&channel).ok_or_else(Problem::not_found)?;
    let revoked = server.timeline.store().revoke_user(owner, &channel, &user).await;
    if revoked.map_err(Problem::of_change)? { Ok(StatusCode::NO_CONTENT) } else { Err(Problem::not_found()) }
}
