//! The pepper that all servers of one database share.

use sha2::{Digest, Sha256};
use sqlx::{Connection as _, postgres::PgConnectOptions};

use super::{Error, Store, access::Access};

impl Store {
    /// Initializes the pepper: the operator's if given, else the one stored with the data, generated on first use.
    pub async fn init_pepper(&self, given: Option<&[u8]>, fresh: [u8; 32]) -> Result<Vec<u8>, Error> {
        let offered: &[u8] = given.unwrap_or(&fresh);
        let print = fingerprint(offered);
        let kept = if given.is_some() { None } else { Some(offered) };
        let mut owner = self.owner.acquire().await?;
        sqlx::query!(
            "insert into store.pepper (pepper, fingerprint) values ($1, $2) on conflict (single) do nothing",
            kept,
            print.as_slice(),
        )
        .execute(&mut *owner)
        .await?;
        let row = sqlx::query!("select pepper, fingerprint from store.pepper").fetch_one(&mut *owner).await?;
        // Startup needs the owner of the tables no further.
        owner.close().await?;
        agree(given, row.pepper, &row.fingerprint)
    }
}

/// The pepper in use, for a process that only reads; `None` if no server has initialized one.
pub async fn kept(options: &PgConnectOptions, given: Option<&[u8]>) -> Result<Option<Vec<u8>>, Error> {
    let mut owner = Access::new(options).open().await?;
    let row = sqlx::query!("select pepper, fingerprint from store.pepper").fetch_optional(&mut owner).await?;
    owner.close().await?;
    row.map(|row| agree(given, row.pepper, &row.fingerprint)).transpose()
}

fn agree(given: Option<&[u8]>, kept: Option<Vec<u8>>, print: &[u8]) -> Result<Vec<u8>, Error> {
    match (given, kept) {
        (Some(given), _) if fingerprint(given).as_slice() == print => Ok(given.to_vec()),
        (None, Some(kept)) => Ok(kept),
        (Some(_), _) => Err(Error::Incompatible(
            "this database was created with another pepper: set RUNREEL_PEPPER to that one, or unset it if the \
             database stores its own"
                .to_owned(),
        )),
        (None, None) => Err(Error::Incompatible(
            "this database was created with a pepper of the operator: set RUNREEL_PEPPER to it".to_owned(),
        )),
    }
}

fn fingerprint(pepper: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(b"runreel pepper").chain_update(pepper).finalize().into()
}
