//! API tokens: `rr_` and 64 hexadecimal digits, of which the database stores only the SHA-256.

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use super::{Caller, Error};
use crate::{
    clock::IdSource,
    domain::principal::{OwnerId, Principal, Reach, Scope},
    store::{self, Store, tokens::TokenRecord},
};

/// The prefix by which people and secret scanners recognize an API token.
pub(super) const PREFIX: &str = "rr_";

/// What a new token is for.
pub struct Grant {
    /// Its purpose, for people.
    pub name: String,
    pub scopes: Vec<Scope>,
    pub reach: Reach,
    pub expires_at: Option<DateTime<Utc>>,
}

/// A new token; `secret` is shown once and stored nowhere.
pub struct Issued {
    pub record: TokenRecord,
    pub secret: String,
}

/// Creates a token for an owner and stores its hash; `None` if the owner has as many as it may have.
pub async fn issue(
    store: &Store,
    ids: &IdSource,
    owner_id: OwnerId,
    grant: Grant,
    created_at: DateTime<Utc>,
) -> Result<Option<Issued>, store::Error> {
    let secret = format!("{PREFIX}{}", hex::encode(ids.secret()));
    let Grant { name, scopes, reach, expires_at } = grant;
    let record =
        TokenRecord { token_id: ids.uuid(), owner_id, name, scopes, reach, created_at, expires_at, revoked_at: None };
    let stored = store.tokens().insert(&record, &digest(&secret)).await?;
    Ok(stored.then_some(Issued { record, secret }))
}

/// Looks up a presented token.
pub(super) async fn verify(store: &Store, presented: &str, now: DateTime<Utc>) -> Result<Caller, Error> {
    const UNKNOWN: Error = Error::Invalid("the API token is unknown, expired or revoked");
    // The lookup is by hash, so its timing reveals nothing about existing secrets.
    let record = store.tokens().by_secret(&digest(presented)).await?.ok_or(UNKNOWN)?;
    if record.revoked_at.is_some() || record.expires_at.is_some_and(|expires_at| expires_at <= now) {
        return Err(UNKNOWN);
    }
    Ok(Caller {
        principal: Principal { owner_id: record.owner_id, reach: record.reach, scopes: record.scopes },
        expires_at: record.expires_at,
        token_id: Some(record.token_id),
    })
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}
