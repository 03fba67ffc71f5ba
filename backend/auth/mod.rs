//! Authentication: from a bearer credential to a [`Principal`].
//!
//! Invariant: a credential is used only for the duration of one request. What leaves this module is the principal's
//! key, the scopes and the time of expiry; never the token, never the subject.
//!
//! Start reading at [`Authenticator::authenticate`].

mod admission;
mod claims;
mod jwt;
mod keys;
mod providers;
mod revocations;
pub mod signatures;
mod token;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use self::{
    admission::Admission,
    jwt::JwtRules,
    revocations::{Revocations, Watched},
    token::{Grant, Issued, issue},
};
use crate::{
    clock::Clock,
    config::sections::{Agent, Named},
    domain::principal::{OwnerId, Principal, Reach},
    store::{self, Store},
};

/// Why a credential was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a bearer token is required")]
    Missing,
    /// The text states which rule was broken, without quoting the token.
    #[error("{0}")]
    Invalid(&'static str),
    #[error("the keys of the token's issuer cannot be read at the moment")]
    ProviderUnavailable,
    #[error(transparent)]
    Store(#[from] store::Error),
}

/// Which credentials a server accepts.
#[derive(Clone, Debug)]
pub enum Mode {
    /// None: every caller is the principal `local`. Only for a loopback address.
    Off,
    /// JWTs that satisfy these rules, and API tokens.
    Jwt(Arc<JwtRules>),
}

/// The sender of a request, until the credential expires.
#[derive(Clone, Debug)]
pub struct Caller {
    pub principal: Principal,
    pub expires_at: Option<DateTime<Utc>>,
    /// Set if the credential can be revoked.
    pub token_id: Option<Uuid>,
}

/// Verifies credentials. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Authenticator {
    mode: Mode,
    pepper: Arc<[u8]>,
    store: Store,
    clock: Clock,
    admission: Admission,
}

/// The subject of every caller when authentication is off.
pub const LOCAL_SUBJECT: &str = "local";

impl Authenticator {
    pub fn new(mode: Mode, pepper: &[u8], store: Store, clock: Clock) -> Self {
        Self { mode, pepper: Arc::from(pepper), store, clock, admission: Admission::default() }
    }

    /// Applies the rules of these agents. Those about principals have no effect when authentication is off.
    #[must_use]
    pub fn admitting(self, agents: &Named<Agent>) -> Self {
        let owner = |issuer: &str, subject: &str| self.owner(issuer, subject);
        let admission = Admission::of(agents, if self.is_off() { None } else { Some(&owner) });
        Self { admission, ..self }
    }

    /// Who may use which agent.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    pub fn is_off(&self) -> bool {
        matches!(self.mode, Mode::Off)
    }

    /// The key that this server derives for a subject.
    pub fn owner(&self, issuer: &str, subject: &str) -> OwnerId {
        OwnerId::derive(&self.pepper, issuer, subject)
    }

    /// Whether these bytes contain a JWT of this server, even an expired one, or more candidate tokens than are
    /// checked.
    pub fn finds_jwt(&self, bytes: &[u8]) -> bool {
        matches!(&self.mode, Mode::Jwt(rules) if rules.signed_one_in(bytes))
    }

    /// Keeps what credentials are verified with up to date, until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        match &self.mode {
            Mode::Jwt(rules) => rules.keep_fresh(stop).await,
            Mode::Off => stop.cancelled().await,
        }
    }

    /// Verifies the value of an `Authorization` header.
    pub async fn authenticate(&self, authorization: Option<&str>) -> Result<Caller, Error> {
        let Mode::Jwt(rules) = &self.mode else {
            let principal = Principal::full(self.owner("", LOCAL_SUBJECT));
            return Ok(Caller { principal, expires_at: None, token_id: None });
        };
        let bearer = authorization.ok_or(Error::Missing)?;
        let (scheme, credential) =
            bearer.split_once(' ').ok_or(Error::Invalid("the header must be: Bearer <token>"))?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(Error::Invalid("only the Bearer scheme is supported"));
        }
        let credential = credential.trim();
        if credential.starts_with(token::PREFIX) {
            return token::verify(&self.store, credential, self.clock.now()).await;
        }
        let claims = rules.verify(credential, self.clock.now()).await?;
        let owner_id = match &claims.team {
            Some(team) => OwnerId::of_team(&self.pepper, &claims.issuer, team),
            None => self.owner(&claims.issuer, &claims.subject),
        };
        Ok(Caller {
            principal: Principal { owner_id, reach: Reach::Everything, scopes: claims.scopes },
            expires_at: Some(claims.expires_at),
            token_id: None,
        })
    }
}
