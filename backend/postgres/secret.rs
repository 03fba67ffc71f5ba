//! The password of the embedded cluster. The kernel isolates programs of one user from each other only in a sandbox
//! (see [`crate::confine`]), so the socket alone would admit every program of the cluster's user.
//!
//! It is stored in the data directory as a libpq password file (`PGPASSFILE`), closed to others. If that file is
//! missing, or the rules are not ours, the next start sets a new password: this is how clusters of older versions get
//! one, and how an operator changes it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest as _, Sha256};
use tracing::info;

use super::NAME;
use super::account::Account;
use super::data_dir::{DataDir, NO_LINK};
use super::error::Error;
use super::find::Programs;
use super::{initdb, pidfile};

/// Who may connect, and how: `pg_hba.conf`.
const RULES_FILE: &str = "pg_hba.conf";
const RULES: &str = "# Written by runreel; a change is undone, with a new password, at the next start.\n\
                     local all         all scram-sha-256\n\
                     local replication all scram-sha-256\n";
/// How Postgres stores a password.
pub(super) const SCRAM: &str = "password_encryption=scram-sha-256";
/// The prefix of the password in its file: any host, port, database and role.
const ANYWHERE: &str = "*:*:*:*:";

/// A password; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(super) fn fresh() -> Self {
        Self(hex::encode(rand::random::<[u8; 32]>()))
    }

    /// The statement that sets it for the superuser, in the form that Postgres stores. Nothing in it needs escaping.
    pub(super) fn statement(&self) -> String {
        format!("alter role {NAME} password '{}'\n", verifier(&self.0, rand::random()))
    }
}

/// What Postgres stores of a password (RFC 5803, RFC 5802), with one iteration instead of Postgres's 4 096: iterations
/// slow down guessing, which 256 random bits do not need, and every connection would wait for them.
fn verifier(password: &str, salt: [u8; 16]) -> String {
    let salted = keyed(password.as_bytes(), &[&salt[..], &1_u32.to_be_bytes()].concat());
    let stored_key = Sha256::digest(keyed(&salted, b"Client Key"));
    let [salt, stored_key, server_key] =
        [&salt[..], &stored_key[..], &keyed(&salted, b"Server Key")[..]].map(|bytes| STANDARD.encode(bytes));
    format!("SCRAM-SHA-256$1:{salt}${stored_key}:{server_key}")
}

fn keyed(key: &[u8], text: &[u8]) -> [u8; 32] {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("any length will do");
    mac.update(text);
    mac.finalize().into_bytes().into()
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(…)")
    }
}

/// The password, if its file exists.
pub(super) fn read(home: &DataDir) -> Option<Password> {
    let text = fs::read_to_string(home.password()).ok()?;
    let password = text.strip_prefix(ANYWHERE)?.trim_end();
    (!password.is_empty()).then(|| Password(password.to_owned()))
}

/// The password valid on this cluster, if its rules are still ours.
pub(super) fn standing(home: &DataDir) -> Option<Password> {
    let rules = fs::read_to_string(home.cluster().join(RULES_FILE)).ok()?;
    read(home).filter(|_| rules == RULES)
}

/// Sets a new password for the cluster, which must not be running.
///
/// A crash in between leaves no password file, or foreign rules, so the next start sets another password.
pub(super) async fn make(home: &DataDir, programs: &Programs, account: Account) -> Result<Password, Error> {
    info!("generating a new password for the database");
    let path = home.password();
    fs::remove_file(&path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(Error::file(&path)(error)),
    })?;
    let (cluster, password) = (home.cluster(), Password::fresh());
    // Marked, so that a start after a crash recognizes it and waits for its end.
    let mark = pidfile::mark(home.cluster_inode()?);
    initdb::single(&cluster, programs, account, &["exit_on_error=on", SCRAM, &mark], &password.statement()).await?;
    close(&cluster)?;
    keep(home, &password)?;
    Ok(password)
}

/// Requires a password for every connection to a cluster. The file keeps its owner, the user Postgres runs as.
pub(super) fn close(cluster: &Path) -> Result<(), Error> {
    let rules = cluster.join(RULES_FILE);
    let opened = OpenOptions::new().write(true).truncate(true).custom_flags(NO_LINK).open(&rules);
    write(opened, RULES).map_err(Error::file(&rules))
}

/// Stores the password where [`read`] finds it.
pub(super) fn keep(home: &DataDir, password: &Password) -> Result<(), Error> {
    let (path, fresh) = (home.password(), home.root().join("postgres.pass.new"));
    let opened =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).custom_flags(NO_LINK).open(&fresh);
    write(opened, &format!("{ANYWHERE}{}\n", password.0)).map_err(Error::file(&fresh))?;
    fs::rename(&fresh, &path).map_err(Error::file(&path))?;
    File::open(home.root()).and_then(|root| root.sync_all()).map_err(Error::file(home.root()))
}

fn write(opened: io::Result<File>, text: &str) -> io::Result<()> {
    let mut file = opened?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_stored_as_postgres_itself_would_store_it() {
        // Keys made by an independent implementation of PBKDF2 and HMAC.
        let salt = "MDEyMzQ1Njc4OWFiY2RlZg==";
        let keys = "6E6za7g9nQj7bvJ78b+hKOVaeRanit38xaWlCSvoB4Y=:+Xl/1j60mYw7IUJQ7cmQYlUgCDB0vLsvuw4MqpuAMaQ=";
        assert_eq!(verifier("pencil", *b"0123456789abcdef"), format!("SCRAM-SHA-256$1:{salt}${keys}"));
    }
}
