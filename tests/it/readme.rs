//! The commands of the README and of the tasks, run as they stand: only the port is another.

use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use crate::support::{
    process::run,
    server::{Server, setup},
};

/// The `sh` blocks that follow the mark `<!-- runs -->`.
fn blocks(text: &str) -> Vec<&str> {
    let marked = text.split("<!-- runs -->\n```sh\n").skip(1);
    marked.map(|rest| rest.split("\n```").next().expect("a block ends")).collect()
}

/// Runs each block in a shell of its own; returns what they print.
async fn said(server: &Server, text: &str, token: &str) -> Vec<String> {
    let programs = std::path::Path::new(env!("CARGO_BIN_EXE_runreel")).parent().expect("the program lies in a folder");
    let address = server.base.trim_start_matches("http://");
    let mut said = Vec::new();
    for block in blocks(text) {
        let mut shell = Command::new("bash");
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
        shell.args(["-euo", "pipefail", "-c", &block.replace("127.0.0.1:7717", address)]);
        shell.env("PATH", path).env("RUNREEL_URL", &server.base).env("DATABASE_URL", server.db.url());
        if !token.is_empty() {
            shell.env("RUNREEL_TOKEN", token);
        }
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let done = run(shell, "").await;
        assert_eq!(done.code, Some(0), "{block}\nstdout: {}\nstderr: {}", done.stdout, done.stderr);
        said.push(done.stdout);
    }
    said
}

#[tokio::test]
async fn the_readmes_commands_do_what_it_says() {
    let said = said(&Server::start().await, include_str!("../../README.md"), "").await;
    assert!(said.len() >= 2, "the README shows a first run and a cut stream");
    assert!(said[0].contains("run.completed") && said[0].contains("log.info"), "{}", said[0]);
    let ids: Vec<&str> = said[1].lines().filter_map(|line| line.strip_prefix("id: ")).collect();
    assert_eq!(ids, ["1", "2", "3", "4", "5"], "the cut reader went on at the next seq: {}", said[1]);
    assert!(said[1].contains("204"), "{}", said[1]);
}

#[tokio::test]
async fn the_tasks_commands_do_what_they_say() {
    let server = setup().jwt().start().await;
    let alice = server.as_subject("alice");
    let run = alice.create(json!({ "title": "Monday's trip" })).await;
    alice.emit(&run, json!([{ "type": "tool.started", "span_id": "t", "payload": { "name": "book" } }])).await;
    alice.complete(&run).await;
    let said =
        said(&server, include_str!("../../docs/tasks.md"), alice.token.as_ref().expect("alice has a token")).await;
    let [share, own, program, failed, slow] = said.try_into().expect("five tasks are run");
    assert!(share.contains("Monday's trip") && share.contains("event: run.completed"), "{share}");
    assert_eq!(own.trim(), "completed");
    assert!(program.contains("nightly\t20"), "{program}");
    assert!(failed.contains("out of credit"), "{failed}");
    assert!(slow.contains("book"), "{slow}");
}
