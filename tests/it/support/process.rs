//! The built program as a separate process.

use std::{path::Path, process::Stdio};

use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdout, Command},
};

use super::patiently;

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The program with these arguments, without this environment's configuration.
pub fn program(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_runreel"));
    command.args(words).kill_on_drop(true).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("RUNREEL_") || text.starts_with("DATABASE_URL") {
            command.env_remove(&name);
        }
    }
    command.env("NO_COLOR", "1");
    command
}

/// Runs a command to its end.
pub async fn run(command: Command, stdin: &str) -> Said {
    patiently("the command", ended(command, stdin)).await
}

/// The same without a time limit.
pub async fn ended(mut command: Command, stdin: &str) -> Said {
    command.stdin(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let text = stdin.to_owned();
    let feeding = tokio::spawn(async move {
        // A command that has failed reads no more.
        let _ = input.write_all(text.as_bytes()).await;
    });
    let output = child.wait_with_output().await.unwrap();
    feeding.await.unwrap();
    Said {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Starts a server on a database, with a configuration and a data directory: one that is killed and started again. What it
/// held is soon taken over.
pub async fn serve_again(url: &str, config: &Path, data: &Path) -> Served {
    let (config, data) = (config.to_str().unwrap(), data.to_str().unwrap());
    let words = ["serve", "--listen", "127.0.0.1:0", "--database-url", url, "--config", config, "--data-dir", data];
    let more = ["--lease-ms", "2000", "--poll-ms", "50", "--db-connections", "3"];
    serve(program(&[&words[..], &more[..]].concat())).await
}

/// A server in a separate process.
pub struct Served {
    pub child: Child,
    pub base: String,
    _stdout: BufReader<ChildStdout>,
}

/// Starts `serve` and waits until it prints its address.
pub async fn serve(mut command: Command) -> Served {
    command.stderr(Stdio::inherit());
    served(command).await
}

/// The same with its log where the command says.
pub async fn served(mut command: Command) -> Served {
    let mut child = command.spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    patiently("the server's address", stdout.read_line(&mut line)).await.unwrap();
    assert!(line.starts_with("http"), "the server said {line:?}");
    Served { child, base: line.trim().to_owned(), _stdout: stdout }
}
