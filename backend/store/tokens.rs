//! API tokens, known only by the hash of their secret.

use std::sync::{MutexGuard, PoisonError};

use chrono::{DateTime, Utc};
use lru::LruCache;
use uuid::Uuid;

use super::Error;
use crate::domain::{
    id::{RunId, ThreadId},
    limits::TOKENS_OWN_MAX,
    principal::{OwnerId, Reach, Scope},
};

/// A token as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRecord {
    pub token_id: Uuid,
    pub owner_id: OwnerId,
    pub name: String,
    pub scopes: Vec<Scope>,
    pub reach: Reach,
    pub created_at: DateTime<Utc>,
    pub expires_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
}

fn scope_word(scope: Scope) -> &'static str {
    match scope {
        Scope::Read => "read",
        Scope::Emit => "emit",
        Scope::Approve => "approve",
        Scope::Admin => "admin",
    }
}

fn scopes(words: &[String]) -> Vec<Scope> {
    let all = [Scope::Read, Scope::Emit, Scope::Approve, Scope::Admin];
    all.into_iter().filter(|scope| words.iter().any(|word| word == scope_word(*scope))).collect()
}

fn reach(run: Option<Uuid>, tree: bool, thread: Option<&str>) -> Reach {
    match (run.map(RunId::trusted), thread) {
        (Some(run), _) if tree => Reach::Tree(run),
        (Some(run), _) => Reach::Run(run),
        (None, Some(thread)) => Reach::Thread(ThreadId::trusted(thread)),
        (None, None) => Reach::Everything,
    }
}

repository! {
    /// API tokens, by the hashes of their secrets.
    Tokens, tokens
}

impl Tokens<'_> {
    /// Stores a new token; `secret` is the SHA-256 of the holder's secret. Removes the owner's tokens that ended more
    /// than a day ago; `false` if the owner still has as many as it may have.
    pub async fn insert(self, token: &TokenRecord, secret: &[u8; 32]) -> Result<bool, Error> {
        let words: Vec<String> = token.scopes.iter().map(|scope| scope_word(*scope).to_owned()).collect();
        let (run, thread) = match &token.reach {
            Reach::Everything => (None, None),
            Reach::Run(run) | Reach::Tree(run) => (Some(run.uuid()), None),
            Reach::Thread(thread) => (None, Some(thread.as_str())),
        };
        self.scoped(&token.owner_id, async |mut connection| {
            let done = sqlx::query!(
                r#"with ended as (
                       delete from store.api_token
                       where owner_id = $3 and least(expires_at, revoked_at) < $9::timestamptz - interval '1 day'
                       returning 1
                   )
                   insert into store.api_token
                       (token_id, secret, owner_id, name, scopes, run_id, tree, thread_id, created_at, expires_at)
                   select $1, $2, $3, $4, $5, $6, $7, $8, $9, $10
                   where (select count(*) from store.api_token where owner_id = $3) - (select count(*) from ended) < $11"#,
                token.token_id,
                secret.as_slice(),
                token.owner_id.as_str(),
                token.name,
                &words,
                run,
                matches!(token.reach, Reach::Tree(_)),
                thread,
                token.created_at,
                token.expires_at,
                TOKENS_OWN_MAX
            )
            .execute(&mut *connection)
            .await?;
            Ok(done.rows_affected() == 1)
        })
        .await
    }

    fn seen(&self) -> MutexGuard<'_, LruCache<[u8; 32], OwnerId>> {
        self.tokens_seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token whose secret has this hash, of any owner.
    pub async fn by_secret(self, secret: &[u8; 32]) -> Result<Option<TokenRecord>, Error> {
        // Recently valid tokens count against their owner's share, so that guessed ones can only block each other.
        let payer = self.seen().get(secret).unwrap_or(&self.nobody).clone();
        self.unscoped(&payer, async |mut connection| {
            let row = sqlx::query!(
                r#"select token_id as "token_id!", owner_id as "owner_id!", name as "name!", scopes as "scopes!", run_id,
                          tree as "tree!", thread_id, created_at as "created_at!", expires_at, revoked_at
                   from store.token_by_secret($1)"#,
                secret.as_slice()
            )
            .fetch_optional(&mut *connection)
            .await?;
            let Some(row) = row else { return Ok(None) };
            let owner_id = OwnerId::trusted(&row.owner_id);
            self.seen().put(*secret, owner_id.clone());
            Ok(Some(TokenRecord {
                token_id: row.token_id,
                owner_id,
                name: row.name,
                scopes: scopes(&row.scopes),
                reach: reach(row.run_id, row.tree, row.thread_id.as_deref()),
                created_at: row.created_at,
                expires_at: row.expires_at,
                revoked_at: row.revoked_at,
            }))
        })
        .await
    }

    /// The tokens of an owner, newest first.
    pub async fn list(self, owner: &OwnerId) -> Result<Vec<TokenRecord>, Error> {
        self.scoped(owner, async |mut connection| {
            let rows = sqlx::query!(
                r#"select token_id, owner_id, name, scopes, run_id, tree, thread_id, created_at, expires_at, revoked_at
                   from store.api_token where owner_id = $1 order by created_at desc, token_id desc limit $2"#,
                owner.as_str(),
                TOKENS_OWN_MAX
            )
            .fetch_all(&mut *connection)
            .await?;
            Ok(rows
                .into_iter()
                .map(|row| TokenRecord {
                    token_id: row.token_id,
                    owner_id: OwnerId::trusted(&row.owner_id),
                    name: row.name,
                    scopes: scopes(&row.scopes),
                    reach: reach(row.run_id, row.tree, row.thread_id.as_deref()),
                    created_at: row.created_at,
                    expires_at: row.expires_at,
                    revoked_at: row.revoked_at,
                })
                .collect())
        })
        .await
    }

    /// Revokes a token; `false` if the owner has no such token. Without `any`, only one that can do no more than read a
    /// run, tree or thread.
    pub async fn revoke(self, owner: &OwnerId, token_id: Uuid, any: bool, now: DateTime<Utc>) -> Result<bool, Error> {
        self.scoped(owner, async |mut connection| {
            let done = sqlx::query!(
                r#"update store.api_token set revoked_at = coalesce(revoked_at, $4)
                   where token_id = $1 and owner_id = $2
                     and ($3 or (scopes = '{read}' and coalesce(run_id::text, thread_id) is not null))"#,
                token_id,
                owner.as_str(),
                any,
                now
            )
            .execute(&mut *connection)
            .await?;
            Ok(done.rows_affected() == 1)
        })
        .await
    }

    /// Which of these tokens have been revoked.
    pub async fn revoked(self, ids: &[Uuid]) -> Result<Vec<Uuid>, Error> {
        self.unscoped(&self.nobody, async |mut connection| {
            let ids = sqlx::query_scalar!(r#"select id as "id!" from store.revoked_tokens($1) as id"#, ids)
                .fetch_all(&mut *connection)
                .await?;
            Ok(ids)
        })
        .await
    }
}
