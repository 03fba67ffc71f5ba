//! `runreel man`: the manual pages of this program's commands.

use std::{path::PathBuf, process::ExitCode};

/// Write the manual pages
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  runreel man ~/.local/share/man/man1")]
pub(super) struct Args {
    /// The folder to write them to; it is created if it does not exist.
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Writes a page for `command` (the program) and for each of its subcommands.
#[expect(clippy::disallowed_methods, reason = "writes the files that it is asked for")]
pub(super) fn run(args: &Args, command: clap::Command) -> anyhow::Result<ExitCode> {
    let written = std::fs::create_dir_all(&args.folder).and_then(|()| clap_mangen::generate_to(command, &args.folder));
    written.map_err(|error| anyhow::anyhow!("cannot write to {}: {error}", args.folder.display()))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_gets_a_page() {
        let folder = tempfile::tempdir().unwrap();
        let command = clap::Command::new("runreel").subcommand(clap::Command::new("serve"));
        run(&Args { folder: folder.path().join("man1") }, command).unwrap();
        for page in ["runreel.1", "runreel-serve.1"] {
            assert!(folder.path().join("man1").join(page).is_file(), "{page}");
        }
    }
}
