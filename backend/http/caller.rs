//! The sender of a request: its credential, where that may be, and which hosts are served without authentication.

use std::ops::Deref;

use axum::{
    extract::FromRequestParts,
    http::{HeaderName, Method, header, request::Parts},
};
use chrono::{DateTime, TimeDelta, Utc};
use uuid::Uuid;

use super::{
    Server,
    body::Payer,
    credential::CredentialGuard,
    problem::{Code, Problem},
    replies::Asker,
};
use crate::{
    auth,
    domain::{
        id::{Name, RunId, ThreadId},
        limits::READ_TOKEN_S_MAX,
        principal::{OwnerId, Reach, Scope},
    },
};

/// The verified sender of a request.
#[derive(Clone)]
pub(super) struct Caller(auth::Caller);

/// A caller whose credential covers what a handler asked for. Only this has an owner, so a handler that checks nothing
/// reaches no data.
#[derive(Clone, Copy)]
pub(super) struct Allowed<'a>(&'a Caller);

impl Caller {
    /// Whether the credential has this scope.
    pub(super) fn allows(&self, scope: Scope) -> bool {
        self.0.principal.allows(scope)
    }

    pub(super) fn scopes(&self) -> &[Scope] {
        &self.0.principal.scopes
    }

    pub(super) fn reach(&self) -> &Reach {
        &self.0.principal.reach
    }

    /// When the credential ends by itself.
    pub(super) fn expires_at(&self) -> Option<DateTime<Utc>> {
        self.0.expires_at
    }

    /// The API token that it is, if it is one.
    pub(super) fn token_id(&self) -> Option<Uuid> {
        self.0.token_id
    }

    /// Rejects what the credential's scopes do not cover.
    pub(super) fn needs(&self, scope: Scope) -> Result<Allowed<'_>, Problem> {
        if self.allows(scope) {
            return Ok(Allowed(self));
        }
        let wanted = format!("this request needs the scope {}", serde_json::to_string(&scope).unwrap_or_default());
        Err(Problem::new(Code::Forbidden, wanted)
            .hint("use a credential that has it; create a token with runreel token create"))
    }

    /// Like [`Caller::needs`], for one run; a credential that does not cover it gets 404.
    pub(super) async fn needs_run(&self, server: &Server, scope: Scope, run: RunId) -> Result<Allowed<'_>, Problem> {
        let owner = &self.0.principal.owner_id;
        let covered = match self.reach() {
            Reach::Everything => true,
            Reach::Run(only) => *only == run,
            Reach::Tree(top) => *top == run || server.timeline.store().runs().is_in_tree(owner, run, *top).await?,
            Reach::Thread(thread) => {
                let context = server.timeline.context(owner, run).await?;
                context.is_some_and(|context| context.thread_id.as_ref() == Some(thread))
            }
        };
        if covered { self.needs(scope) } else { Err(Problem::not_found()) }
    }

    /// Like [`Caller::needs`], for a run with all its descendants.
    pub(super) fn needs_tree(&self, scope: Scope, top: RunId) -> Result<Allowed<'_>, Problem> {
        if *self.reach() == Reach::Tree(top) { self.needs(scope) } else { self.needs_all(scope) }
    }

    /// Like [`Caller::needs`], for what all runs of a thread emitted.
    pub(super) fn needs_thread(&self, scope: Scope, thread: &ThreadId) -> Result<Allowed<'_>, Problem> {
        match self.reach() {
            Reach::Thread(only) if only == thread => self.needs(scope),
            Reach::Thread(_) => Err(Problem::not_found()),
            _ => self.needs_all(scope),
        }
    }

    /// Like [`Caller::needs`], for what spans more than one run.
    pub(super) fn needs_all(&self, scope: Scope) -> Result<Allowed<'_>, Problem> {
        if *self.reach() != Reach::Everything {
            return Err(Problem::new(Code::Forbidden, "this credential is limited to one run, tree or thread"));
        }
        self.needs(scope)
    }

    /// Whether the credential may be in the URL of a stream.
    fn may_be_in_url(&self, server: &Server) -> bool {
        let ends_soon = |at| at - server.timeline.clock().now() <= TimeDelta::seconds(READ_TOKEN_S_MAX);
        server.authenticator.is_off()
            || (self.0.principal.only_reads_a_part() && self.expires_at().is_some_and(ends_soon))
    }
}

impl<'a> Allowed<'a> {
    pub(super) fn owner(self) -> &'a OwnerId {
        &self.0.0.principal.owner_id
    }

    /// Another scope that the request needs.
    pub(super) fn needs(self, scope: Scope) -> Result<Self, Problem> {
        self.0.needs(scope)
    }

    /// Rejects a configured agent that is restricted to other subjects.
    pub(super) fn may_use(self, server: &Server, agent: &Name) -> Result<(), Problem> {
        if server.authenticator.admission().may_use(self.owner(), agent) {
            return Ok(());
        }
        let rule = format!("this subject may not use the agent {agent}");
        Err(Problem::new(Code::Forbidden, rule).hint("the operator sets who may use an agent, with allow"))
    }
}

impl Deref for Allowed<'_> {
    type Target = Caller;

    fn deref(&self) -> &Caller {
        self.0
    }
}

impl FromRequestParts<Server> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        let read_token = ReadToken::of(parts);
        refuse_token_in_url(parts, server, read_token.as_ref())?;
        if server.authenticator.is_off() {
            refuse_foreign_host(parts, server)?;
        }
        let authorization = match (&read_token, parts.headers.get(header::AUTHORIZATION)) {
            (Some(ReadToken(token)), _) => Some(format!("Bearer {token}")),
            (None, None) => None,
            (None, Some(value)) => {
                let text = value.to_str().map_err(|_| auth::Error::Invalid("the header is not plain text"))?;
                Some(text.to_owned())
            }
        };
        let caller = Self(server.authenticator.authenticate(authorization.as_deref()).await?);
        if read_token.is_some() && !caller.may_be_in_url(server) {
            return Err(token_in_url());
        }
        let owner = &caller.0.principal.owner_id;
        parts.extensions.insert(Payer(owner.clone()));
        if let Some(asker) = parts.extensions.get::<Asker>() {
            asker.is(owner);
        }
        Ok(caller)
    }
}

/// An API token in the URL of a stream, for `EventSource`, which cannot send a header.
struct ReadToken(String);

impl ReadToken {
    /// The only accepted parameter (RFC 6750, 2.3), and only without a header.
    const NAME: &str = "access_token";

    fn of(parts: &Parts) -> Option<Self> {
        let is_stream = parts.method == Method::GET && parts.uri.path().starts_with("/api/stream/");
        if !is_stream || parts.headers.contains_key(header::AUTHORIZATION) {
            return None;
        }
        let axum::extract::Query(pairs) =
            axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri).ok()?;
        pairs
            .into_iter()
            .find(|(name, token)| name == Self::NAME && token.starts_with("rr_"))
            .map(|(_, token)| Self(token))
    }
}

/// For a route that needs no credential of ours: the URL must not contain one either.
pub(super) struct CleanUrl;

impl CleanUrl {
    pub(super) fn check(parts: &Parts, server: &Server) -> Result<(), Problem> {
        refuse_token_in_url(parts, server, None)
    }
}

impl FromRequestParts<Server> for CleanUrl {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, server: &Server) -> Result<Self, Problem> {
        Self::check(parts, server).map(|()| Self)
    }
}

/// URLs end up in logs, histories and referrers, so only a short-lived token that reads little may be in one.
fn refuse_token_in_url(parts: &Parts, server: &Server, permitted: Option<&ReadToken>) -> Result<(), Problem> {
    const NAMES: [&str; 6] = ["token", "access_token", "api_key", "apikey", "jwt", "authorization"];
    // Parsed as the server parses parameters, so that no spelling of a name gets past.
    let pairs = axum::extract::Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
    let carries = |(name, value): &(String, String)| {
        let is_permitted = name == ReadToken::NAME && permitted.is_some_and(|ReadToken(token)| token == value);
        !is_permitted
            && (NAMES.contains(&name.to_ascii_lowercase().as_str())
                || value.starts_with("rr_")
                || value.starts_with("eyJ"))
    };
    let text = parts.uri.path_and_query().map_or("", axum::http::uri::PathAndQuery::as_str);
    let text: Vec<u8> = percent_encoding::percent_decode_str(text).collect();
    if CredentialGuard::of(&parts.headers, server).finds(&text)
        || pairs.is_ok_and(|axum::extract::Query(pairs)| pairs.iter().any(carries))
    {
        return Err(token_in_url());
    }
    Ok(())
}

fn token_in_url() -> Problem {
    Problem::new(Code::TokenInUrl, "the URL carries a credential")
        .hint("send it in the Authorization header, and revoke it: it may already have been logged")
}

/// Without authentication, only this machine may send requests. Another site's page can make a browser send some here
/// under its own host name (DNS rebinding), but not under ours; and it cannot hide its origin from the server.
fn refuse_foreign_host(parts: &Parts, server: &Server) -> Result<(), Problem> {
    let foreign = |detail: &str| {
        Problem::new(Code::HostNotAllowed, detail)
            .hint("use http://127.0.0.1 or http://localhost, or start the server with --auth jwt")
    };
    // A value that is not plain text cannot be one of our names.
    let text = |name: HeaderName| {
        let value = parts.headers.get(name).map(axum::http::HeaderValue::to_str).transpose();
        value.map_err(|_| foreign("without authentication this server answers only to localhost"))
    };
    let host = text(header::HOST)?.or_else(|| parts.uri.authority().map(axum::http::uri::Authority::as_str));
    if !host.is_none_or(is_local) {
        return Err(foreign("without authentication this server answers only to localhost"));
    }
    if parts.headers.get(header::ORIGIN).is_some_and(|origin| server.origins.admits(origin)) {
        return Ok(());
    }
    if matches!(text(HeaderName::from_static("sec-fetch-site"))?, Some("cross-site" | "same-site")) {
        return Err(foreign("without authentication this server rejects pages of other origins"));
    }
    let origin = text(header::ORIGIN)?.filter(|_| parts.method != Method::GET);
    if origin.is_some_and(|origin| origin.split_once("://").map(|(_, authority)| authority) != host) {
        return Err(foreign("without authentication only the server's own pages may change data"));
    }
    Ok(())
}

fn is_local(authority: &str) -> bool {
    let host = authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|b| b.is_ascii_digit()));
    let host = host.map_or(authority, |(host, _)| host);
    let numeric = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    let host = host.to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost") || numeric.is_ok_and(|address| address.is_loopback())
}
