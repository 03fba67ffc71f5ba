//! Extractors from a request to typed values: behind them, nothing is an unparsed string.

use std::{collections::HashMap, str::FromStr};

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};

use super::{
    Server,
    problem::{Code, Problem},
};
pub(super) use super::{
    body::Body,
    caller::{Allowed, Caller, CleanUrl},
};
use crate::domain::{
    artifact::ArtifactId,
    checkpoint::CheckpointId,
    context::Role,
    id::{ExternalId, Malformed, Name, RunId, ThreadId},
    session::inbound::{ChannelName, UserId},
    trace,
    transcript::SavedName,
};

/// One of the ids in a path, as text.
async fn path_text(parts: &mut Parts, server: &Server, name: &'static str) -> Result<String, Problem> {
    let Path(mut values) =
        Path::<HashMap<String, String>>::from_request_parts(parts, server).await.map_err(|_| Problem::not_found())?;
    values.remove(name).ok_or_else(Problem::not_found)
}

/// A client-chosen id in a path; a malformed one gets an error with its rule.
async fn chosen<T: FromStr<Err = Malformed>>(
    parts: &mut Parts,
    server: &Server,
    name: &'static str,
) -> Result<T, Problem> {
    let text = path_text(parts, server, name).await?;
    text.parse().map_err(|rule: Malformed| Problem::new(Code::InvalidRequest, rule.0).field(name))
}

/// The run id in a path. A malformed one is answered like an absent run.
pub(super) struct RunPath(pub(super) RunId);

impl FromRequestParts<Server> for RunPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        let run = path_text(parts, server, "run_id").await?;
        Ok(Self(run.parse().map_err(|_: Malformed| Problem::not_found())?))
    }
}

/// The external id in a path.
pub(super) struct ExternalIdPath(pub(super) ExternalId);

impl FromRequestParts<Server> for ExternalIdPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        Ok(Self(chosen(parts, server, "external_id").await?))
    }
}

/// The artifact id in a path. A malformed one is answered like an absent artifact.
pub(super) struct ArtifactPath(pub(super) ArtifactId);

impl FromRequestParts<Server> for ArtifactPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        let artifact = path_text(parts, server, "artifact_id").await?;
        Ok(Self(artifact.parse().map_err(|_: Malformed| Problem::not_found())?))
    }
}

/// The thread id in a path.
pub(super) struct ThreadPath(pub(super) ThreadId);

impl FromRequestParts<Server> for ThreadPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        // A thread may have the same name as a path of the API, whose route then has no parameter.
        if parts.uri.path() == PRUNE {
            return Ok(Self(ThreadId::trusted("prune")));
        }
        Ok(Self(chosen(parts, server, "thread_id").await?))
    }
}

/// The one path below `/api/threads/` that does not name a thread in a POST.
pub(super) const PRUNE: &str = "/api/threads/prune";

/// The thread id and the checkpoint id in a path.
pub(super) struct CheckpointPath(pub(super) ThreadId, pub(super) CheckpointId);

impl FromRequestParts<Server> for CheckpointPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        let thread = chosen(parts, server, "thread_id").await?;
        Ok(Self(thread, chosen(parts, server, "checkpoint_id").await?))
    }
}

/// The channel in a path. A malformed name cannot be configured.
pub(super) struct ChannelPath(pub(super) ChannelName);

impl FromRequestParts<Server> for ChannelPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        let channel = path_text(parts, server, "channel").await?;
        Ok(Self(channel.parse().map_err(|_: Malformed| Problem::not_found())?))
    }
}

/// The user of a channel in a path. A malformed id is answered like an absent user.
pub(super) struct ChannelUserPath(pub(super) UserId);

impl FromRequestParts<Server> for ChannelUserPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        let user = path_text(parts, server, "user_id").await?;
        Ok(Self(user.parse().map_err(|_: Malformed| Problem::not_found())?))
    }
}

/// The session id in a path. A malformed one is answered like an absent session.
pub(super) struct SessionPath(pub(super) Name);

impl FromRequestParts<Server> for SessionPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        let session = path_text(parts, server, "session_id").await?;
        Ok(Self(session.parse().map_err(|_: Malformed| Problem::not_found())?))
    }
}

/// The name of a saved session in a path.
pub(super) struct SavedPath(pub(super) SavedName);

impl FromRequestParts<Server> for SavedPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        Ok(Self(chosen(parts, server, "name").await?))
    }
}

/// The trace that the request is part of, from its `traceparent`.
pub(super) struct Trace(pub(super) Option<String>);

impl FromRequestParts<Server> for Trace {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &Server) -> Result<Self, Self::Rejection> {
        let text = parts.headers.get("traceparent").and_then(|value| value.to_str().ok());
        Ok(Self(text.and_then(trace::of_parent).map(str::to_owned)))
    }
}

/// The query, with each parameter parsed on demand; one that is given twice is rejected.
pub(super) struct Query(HashMap<String, String>);

impl FromRequestParts<Server> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Server) -> Result<Self, Problem> {
        let malformed = || Problem::new(Code::InvalidRequest, "the query string is malformed");
        let axum::extract::Query(pairs) =
            axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).map_err(|_| malformed())?;
        let mut query = HashMap::new();
        for (name, value) in pairs {
            if query.insert(name.clone(), value).is_some() {
                return Err(Problem::new(Code::InvalidRequest, "the parameter is given twice").field(name));
            }
        }
        Ok(Self(query))
    }
}

impl Query {
    /// Parameters that are not from a URL.
    pub(super) fn of(given: impl IntoIterator<Item = (String, String)>) -> Self {
        Self(given.into_iter().collect())
    }

    /// The names of the parameters that were given.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A parsed parameter; absent and empty are `None`.
    pub(super) fn parsed<T: FromStr>(&self, name: &str) -> Result<Option<T>, Problem>
    where
        T::Err: std::fmt::Display,
    {
        let Some(text) = self.text(name).filter(|text| !text.is_empty()) else { return Ok(None) };
        let refused = |error: T::Err| Problem::new(Code::InvalidRequest, error.to_string()).field(name);
        text.parse().map(Some).map_err(refused)
    }

    /// Roles of runs, separated by commas.
    pub(super) fn roles(&self) -> Result<Vec<Role>, Problem> {
        let unknown =
            || Problem::new(Code::InvalidRequest, "a role must be supervisor, worker, agent or router").field("role");
        let named = self.text("role").unwrap_or_default().split(',').filter(|name| !name.is_empty());
        named.map(|name| Role::parse(name).ok_or_else(unknown)).collect()
    }

    /// An integer within bounds.
    pub(super) fn number(&self, name: &str, default: i64, min: i64, max: i64) -> Result<i64, Problem> {
        let number = self.parsed::<i64>(name)?.unwrap_or(default);
        if (min..=max).contains(&number) {
            return Ok(number);
        }
        Err(Problem::new(Code::InvalidRequest, format!("must be a number from {min} to {max}")).field(name))
    }
}
