//! `runreel completions`: the script that lets a shell complete this program's commands.

use std::process::ExitCode;

use clap_complete::Shell;

use super::render::print;

/// Print a completion script for a shell
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  runreel completions bash > ~/.local/share/bash-completion/completions/runreel
  runreel completions zsh > ~/.zfunc/_runreel
  runreel completions fish > ~/.config/fish/completions/runreel.fish")]
pub(super) struct Args {
    /// The target shell
    shell: Shell,
}

/// Prints the script for `command`, which is the whole program.
pub(super) fn run(args: &Args, mut command: clap::Command) -> anyhow::Result<ExitCode> {
    print(&script(args.shell, &mut command)?)?;
    Ok(ExitCode::SUCCESS)
}

fn script(shell: Shell, command: &mut clap::Command) -> anyhow::Result<String> {
    let (mut script, name) = (Vec::new(), command.get_name().to_owned());
    // Into memory first: the generator panics if its writer fails, as with a closed pipe.
    clap_complete::generate(shell, command, name, &mut script);
    Ok(String::from_utf8(script)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_gets_a_script_that_names_the_commands() {
        use clap::ValueEnum as _;
        for shell in Shell::value_variants() {
            let mut command = clap::Command::new("runreel").subcommand(clap::Command::new("serve"));
            assert!(script(*shell, &mut command).unwrap().contains("serve"), "{shell}");
        }
    }
}
