//! `runreel config`.

use std::{fmt::Write as _, process::ExitCode};

use super::render::print;
use crate::{
    agents::registry::Agents,
    config::{self, Secrets, ServeArgs},
    confine::Confinement,
};

/// Prints the configuration that `serve` would use, after checking it.
pub(super) fn run(args: &ServeArgs) -> anyhow::Result<ExitCode> {
    let secrets = Secrets::read()?;
    let mut text = String::new();
    for (name, variable, value) in args.effective(&secrets)? {
        writeln!(text, "{name:<15} {value:<40} {variable}")?;
    }
    // A file that cannot be read is reported by the check.
    for (key, value) in args.file().map(|file| file.effective()).unwrap_or_default() {
        writeln!(text, "{key} = {value}")?;
    }
    print(&text)?;
    args.check(&secrets)?;
    // As `serve` does: models and tools have more rules than the file.
    Agents::new(args.file()?, args.data.data_dir()?, config::path(), Confinement::default())?;
    Ok(ExitCode::SUCCESS)
}
