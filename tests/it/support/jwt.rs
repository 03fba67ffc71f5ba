//! Credentials: JWTs like an identity provider's, and API tokens.

use chrono::{DateTime, Utc};
use jsonwebtoken::{EncodingKey, Header, encode};
use runreel::{
    auth::{Grant, issue, signatures},
    domain::principal::{Reach, Scope},
};
use serde_json::{Value, json};

use super::{
    api::Api,
    server::{JWT_SECRET, Server},
};

/// A token with these claims.
pub fn signed(claims: &Value) -> String {
    signatures::install();
    encode(&Header::default(), claims, &EncodingKey::from_secret(JWT_SECRET)).unwrap()
}

impl Server {
    /// The server for this subject, for the next hour.
    pub fn as_subject(&self, subject: &str) -> Api {
        self.with(signed(&json!({ "sub": subject, "exp": self.clock.now().timestamp() + 3_600 })))
    }
}

impl Server {
    /// An API token of a subject: the server with that token, and the token's id.
    pub async fn api_token(
        &self,
        subject: &str,
        scopes: &[Scope],
        run: Option<&str>,
        expires_at: Option<DateTime<Utc>>,
    ) -> (Api, uuid::Uuid) {
        let timeline = &self.inner.timeline;
        let owner = self.inner.authenticator.owner("", subject);
        let reach = run.map_or(Reach::Everything, |run| Reach::Run(run.parse().unwrap()));
        let grant = Grant { name: "test".to_owned(), scopes: scopes.to_vec(), reach, expires_at };
        let issued = issue(timeline.store(), timeline.ids(), owner, grant, self.clock.now()).await.unwrap().unwrap();
        (self.with(issued.secret), issued.record.token_id)
    }
}
