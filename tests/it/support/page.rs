//! The documents' own text, so that what they say is what is tested.

use std::{path::Path, process::Stdio};

use tokio::process::Command;

use super::process::{Said, Served, run, serve};

/// A page of the tasks.
pub fn task(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tasks").join(name).with_extension("md");
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Its blocks of a language, without the indentation of a list.
pub fn blocks(text: &str, language: &str) -> Vec<String> {
    let fence = format!("```{language}");
    let mut blocks: Vec<String> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim_start() == fence {
            let indent = line.len() - fence.len();
            let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
            blocks.push(block.map(|line| line.get(indent..).unwrap_or_default().to_owned() + "\n").collect());
        }
    }
    blocks
}

/// bash, which finds the built program first and knows nothing of this environment's configuration.
pub fn shell(script: &str) -> Command {
    let programs = Path::new(env!("CARGO_BIN_EXE_runreel")).parent().expect("the program lies in a folder");
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &format!("PATH='{}':$PATH\n{script}", programs.display())]);
    for name in std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()) {
        if name.starts_with("RUNREEL_") || name.starts_with("DATABASE_URL") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Starts the server of a block that ends with `runreel serve`, on a port of its own.
pub async fn serving(block: &str, prepare: impl FnOnce(&mut Command)) -> Served {
    let block = block.replace("runreel serve", "exec runreel serve");
    let block = ["127.0.0.1:7717", "0.0.0.0:7717"].iter().fold(block, |block, port| block.replace(port, "127.0.0.1:0"));
    let mut command = shell(&block);
    prepare(&mut command);
    serve(command).await
}

/// Runs a block to its end, which has to be a good one.
pub async fn done(block: &str, prepare: impl FnOnce(&mut Command)) -> Said {
    let mut command = shell(block);
    prepare(&mut command);
    let said = run(command, "").await;
    assert_eq!(said.code, Some(0), "{block}\nstdout: {}\nstderr: {}", said.stdout, said.stderr);
    said
}
