//! Which server a command uses, and with which token.

use std::{fs::File, io::Read as _, path::PathBuf};

use anyhow::Context as _;

use crate::{cli::exit::CliError, client::Client, config};

/// The server's default address.
const DEFAULT_URL: &str = "http://127.0.0.1:7717";
/// A token is short; a larger file is some other file.
const TOKEN_FILE_BYTES_MAX: u64 = 64 * 1024;

// Not a doc comment: clap would show it as the text of every command that has these flags.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct Connection {
    /// URL of the server
    #[arg(long, env = "RUNREEL_URL", value_name = "URL", default_value = DEFAULT_URL)]
    pub url: String,
    /// File that contains the token; the token itself can be in the variable `RUNREEL_TOKEN`, never in a flag
    #[arg(long, env = "RUNREEL_TOKEN_FILE", value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

impl Connection {
    /// A client with the token of the file, else of `RUNREEL_TOKEN`, else without one.
    pub(super) fn client(&self) -> anyhow::Result<Client> {
        Ok(Client::new(&self.url, self.token()?)?)
    }

    /// Whether it is the default address.
    pub(super) fn is_default(&self) -> bool {
        self.url == DEFAULT_URL
    }

    /// The token itself, for requests that the client does not make.
    pub(super) fn token(&self) -> anyhow::Result<Option<String>> {
        Ok(match &self.token_file {
            Some(path) => Some(read_token(path)?),
            None => config::variable("RUNREEL_TOKEN").filter(|token| !token.trim().is_empty()),
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "a secret's file is configuration")]
fn read_token(path: &PathBuf) -> anyhow::Result<String> {
    let context = || format!("the token file {}", path.display());
    let mut token = String::new();
    let file = File::open(path).with_context(context)?;
    file.take(TOKEN_FILE_BYTES_MAX + 1).read_to_string(&mut token).with_context(context)?;
    if token.trim().is_empty() || token.len() as u64 > TOKEN_FILE_BYTES_MAX {
        return Err(CliError::usage(format!("{} does not contain a token", context())).into());
    }
    Ok(token.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_holds_one_token_and_its_line_end_is_no_part_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        std::fs::write(&path, "rr_secret\r\n").unwrap();
        assert_eq!(read_token(&path).unwrap(), "rr_secret");
        std::fs::write(&path, " \n").unwrap();
        assert!(read_token(&path).unwrap_err().to_string().ends_with("does not contain a token"));
        assert!(read_token(&folder.path().join("absent")).is_err());
    }
}
