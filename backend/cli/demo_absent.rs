//! `runreel demo` of a build without the feature `demo`: reports that it is missing.

use std::process::ExitCode;

use super::exit::CliError;

/// Not contained in this build
#[derive(Debug, clap::Args)]
pub(super) struct Demo {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

#[expect(clippy::unused_async, reason = "the same function as that of `demo`")]
pub(super) async fn run(_: Demo) -> anyhow::Result<ExitCode> {
    let hint = "build Runreel with the feature `demo`, or start with: runreel serve";
    Err(CliError::failed("this build does not contain the demo").with_hint(hint).into())
}
