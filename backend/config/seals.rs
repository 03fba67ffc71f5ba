//! How often the log is sealed, and by whom.

use std::path::PathBuf;

use clap::Args;
use rustls::pki_types::{PrivatePkcs8KeyDer, pem::PemObject as _};

use super::{Error, error, retention::Ttl};
use crate::domain::chain::seal::Key;

/// The settings of seals.
#[derive(Clone, Debug, Args)]
pub struct SealArgs {
    /// How often the heads of all runs are sealed: seconds, or a number with s, m, h or d.
    #[arg(long, env = "RUNREEL_SEAL_EVERY", default_value = "1d", value_name = "TIME")]
    pub seal_every: Ttl,
    /// The Ed25519 key that signs seals: a PEM file with a PKCS#8 private key, as from openssl genpkey -algorithm
    /// ed25519. Without it, seals are not signed.
    #[arg(long, env = "RUNREEL_SEAL_KEY_FILE", value_name = "FILE")]
    pub seal_key_file: Option<PathBuf>,
}

impl SealArgs {
    /// Reads the signing key, if one is configured.
    pub fn key(&self) -> Result<Option<Key>, Error> {
        let Some(path) = &self.seal_key_file else { return Ok(None) };
        let document = PrivatePkcs8KeyDer::from_pem_file(path)
            .map_err(|flaw| error(format!("cannot read a private key from {}: {flaw}", path.display())))?;
        let key = Key::from_pkcs8(document.secret_pkcs8_der());
        let rule =
            || error(format!("{} is not an Ed25519 key; make one: openssl genpkey -algorithm ed25519", path.display()));
        key.map(Some).ok_or_else(rule)
    }
}
