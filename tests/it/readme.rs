//! The README's own commands, run as they stand: only the port is another.

use std::process::Stdio;

use tokio::process::Command;

use crate::support::{process::run, server::Server};

/// The `sh` blocks that follow the mark `<!-- runs -->`.
fn blocks(text: &str) -> Vec<&str> {
    let marked = text.split("<!-- runs -->\n```sh\n").skip(1);
    marked.map(|rest| rest.split("\n```").next().expect("a block ends")).collect()
}

#[tokio::test]
async fn the_readmes_commands_do_what_it_says() {
    let server = Server::start().await;
    let readme = include_str!("../../README.md");
    let blocks = blocks(readme);
    assert!(blocks.len() >= 2, "the README shows a first run and a cut stream");
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_runreel")).parent().expect("the program lies in a folder");
    let address = server.base.trim_start_matches("http://");
    let mut said = Vec::new();
    for block in blocks {
        let mut shell = Command::new("bash");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
        shell.args(["-euo", "pipefail", "-c", &block.replace("127.0.0.1:7717", address)]);
        shell.env("PATH", path).env("RUNREEL_URL", &server.base).env("DATABASE_URL", server.db.url());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let done = run(shell, "").await;
        assert_eq!(done.code, Some(0), "{block}\nstdout: {}\nstderr: {}", done.stdout, done.stderr);
        said.push(done.stdout);
    }
    assert!(said[0].contains("run.completed") && said[0].contains("log.info"), "{}", said[0]);
    let ids: Vec<&str> = said[1].lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, ["1", "2", "3", "4", "5"], "the cut reader went on at the next seq: {}", said[1]);
    assert!(said[1].contains("204"), "{}", said[1]);
}
