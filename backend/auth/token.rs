//! API tokens: `rr_` and 64 hexadecimal digits, of which the database stores only the SHA-256.

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

use super::{Caller, Error};
use crate::{
    clock::IdSource,
    domain::{
        id::RunId,
        principal::{OwnerId, Principal, Scope},
    },
    store::{self, Store, tokens::TokenRecord},
};

/// The prefix by which people and secret scanners recognize an API token.
pub(super) const PREFIX: &str = "rr_";

/// A new token; `secret` is shown once and stored nowhere.
pub struct Issued {
    pub record: TokenRecord,
    pub secret: String,
}

/// Creates a token for an owner and stores its hash.
pub async fn issue(
    store: &Store,
    ids: &IdSource,
    owner_id: OwnerId,
    name: String,
    scopes: Vec<Scope>,
    run_id: Option<RunId>,
    (created_at, expires_at): (DateTime<Utc>, Option<DateTime<Utc>>),
) -> Result<Issued, store::Error> {
    let secret = format!("{PREFIX}{}", hex::encode(ids.secret()));
    let record =
        TokenRecord { token_id: ids.uuid(), owner_id, name, scopes, run_id, created_at, expires_at, revoked_at: None };
    store.tokens().insert(&record, &digest(&secret)).await?;
    Ok(Issued { record, secret })
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
        principal: Principal { owner_id: record.owner_id, run_id: record.run_id, scopes: record.scopes },
        expires_at: record.expires_at,
        token_id: Some(record.token_id),
    })
}

fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}
