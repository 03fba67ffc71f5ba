//! The variables of libpq (`PGHOST`, `PGOPTIONS` and so on). They apply to a user's own Postgres only, not to the
//! embedded database or the programs that work on it.

use std::{ffi::OsString, os::unix::process::CommandExt as _, process::Command};

use super::{Error, error, variable, variable_os};

/// The driver sends it with each connection, regardless of its options.
const OPTIONS: &str = "PGOPTIONS";

/// The names of libpq's variables that are set.
#[expect(clippy::disallowed_methods, reason = "only config reads the environment")]
pub fn variables() -> Vec<OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| name.as_encoded_bytes().starts_with(b"PG")).collect()
}

/// Restarts this program without `PGOPTIONS`, if it is set and `DATABASE_URL_FILE` is not. A process cannot safely
/// remove its own variables.
pub fn start_again_without_options() -> Result<(), Error> {
    if variable_os(OPTIONS).is_none() || variable("DATABASE_URL_FILE").is_some() {
        return Ok(());
    }
    let again = |program| {
        let mut words = std::env::args_os();
        let mut command = Command::new(program);
        if let Some(name) = words.next() {
            command.arg0(name);
        }
        command.args(words).env_remove(OPTIONS).exec()
    };
    let cause = std::env::current_exe().map_or_else(|cause| cause, again);
    Err(error(format!("cannot start again without {OPTIONS}: {cause}; unset it")))
}
