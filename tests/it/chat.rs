//! `runreel chat`: the real program talks to agents of a real server.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    process::Command,
};

use crate::support::{
    patiently,
    process::{Said, program, run},
    server::{Server, setup},
};

const ECHO: &str = "[channels.web]\n[agents.assistant]\nmodel = \"echo\"\n";

fn chat(server: &Server, words: &[&str]) -> Command {
    let mut command = program(&[&["chat", "--chat", "t", "--user", "ann"], words].concat());
    command.env("RUNREEL_URL", &server.base);
    command
}

#[track_caller]
fn check(said: &Said, code: i32) {
    assert_eq!(said.code, Some(code), "stdout: {}\nstderr: {}", said.stdout, said.stderr);
}

async fn threads(server: &Server) -> Vec<Value> {
    let sessions = server.get("/api/sessions?channel=web&chat_id=t").await.expect(200)["sessions"].clone();
    sessions.as_array().unwrap().iter().map(|session| session["thread_id"].clone()).collect()
}

#[tokio::test]
async fn a_conversation_is_answered_begins_anew_and_ends() {
    let server = setup().config(ECHO).start().await;
    let mut child = chat(&server, &["--username", "Ann"]).stdin(Stdio::piped()).spawn().unwrap();
    let (mut input, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for (text, answered) in [("hello there\n", "hello there"), ("/help\n\n/new\nagain\n", "again")] {
        input.write_all(text.as_bytes()).await.unwrap();
        let mut line = String::new();
        patiently("an answer", stdout.read_line(&mut line)).await.unwrap();
        assert!(line.starts_with("echo: [20") && line.ends_with(&format!("Z] [Ann]: {answered}\n")), "{line}");
    }
    input.write_all(b"/quit\nnot sent\n").await.unwrap();
    let (status, mut rest) = (patiently("the end", child.wait()).await.unwrap(), String::new());
    patiently("the rest", stdout.read_to_string(&mut rest)).await.unwrap();
    assert_eq!((status.code(), rest.as_str()), (Some(0), ""), "each answer stands there once");
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).await.unwrap();
    assert!(stderr.contains("starts a new session") && stderr.contains("/quit"), "{stderr}");
    assert_eq!(threads(&server).await, ["web_t_s1", "web_t"]);
}

#[tokio::test]
async fn one_message_is_answered_for_a_script() {
    let server = setup().config(&format!("{ECHO}[channels.club]\nallowed_users = [\"bob\"]\n")).start().await;
    let said = run(chat(&server, &["--once", "hello"]), "").await;
    check(&said, 0);
    assert!(said.stdout.ends_with("[ann]: hello\n") && said.stdout.lines().count() == 1, "{}", said.stdout);
    let said = run(chat(&server, &["--once"]), "two\nlines\n").await;
    check(&said, 0);
    assert!(said.stdout.ends_with("[ann]: two\nlines\n"), "{}", said.stdout);
    check(&run(chat(&server, &["--once"]), " \n").await, 2);
    let said = run(chat(&server, &["club", "--once", "hello"]), "").await;
    check(&said, 1);
    assert!(
        said.stdout.is_empty() && said.stderr.contains("not_allowed: ann may not write to club"),
        "{}",
        said.stderr
    );
    let said = run(chat(&server, &["nowhere", "--once", "hello"]), "").await;
    check(&said, 4);
    assert!(
        said.stderr.contains("there is no channel nowhere") && said.stderr.contains("--config"),
        "what to do is told: {}",
        said.stderr
    );
    let said = run(chat(&server, &["--url", "http://127.0.0.1:9", "--once", "hello"]), "").await;
    check(&said, 3);
}

/// An agent whose first answer is a call of the shell, and whose second one ends the turn.
const SCRIPT: &str = "[[turns]]\ntext = \"Let me see.\"\n[[turns.tool_calls]]\nname = \"shell\"\n\
    args = { command = \"echo forty-two\" }\n[[turns]]\ntext = \"It said: {tool}\"\n";

#[tokio::test]
async fn what_the_agent_may_not_do_alone_is_asked() {
    let setup =
        setup().config("[channels.web]\n[agents.assistant]\nmodel = \"script:turns.toml\"\ntools = [\"shell\"]\n");
    std::fs::write(setup.folder().path().join("turns.toml"), SCRIPT).unwrap();
    let server = setup.start().await;
    let said = run(chat(&server, &[]), "look\n\ny\n").await;
    check(&said, 0);
    assert!(said.stdout.starts_with("Let me see.\nIt said: ") && said.stdout.contains("forty-two"), "{}", said.stdout);
    for told in ["May shell be called?", "shell(command: \"echo forty-two\")", "✓ shell ("] {
        assert!(said.stderr.contains(told), "{told}: {}", said.stderr);
    }
    let mut command = program(&["chat", "--chat", "u", "--user", "ann", "--once", "look"]);
    command.env("RUNREEL_URL", &server.base);
    let said = run(command, "y\n").await;
    check(&said, 1);
    let waiting = server.get("/api/runs?status=interrupted").await.expect(200)["runs"][0].clone();
    let how = format!("runreel runs answer {} approve", waiting["run_id"].as_str().unwrap());
    assert!(said.stdout.is_empty() && said.stderr.contains(&how), "nobody is there to ask: {}", said.stderr);
}

#[tokio::test]
async fn ctrl_c_cancels_what_is_under_way() {
    let server = setup().config("[channels.web]\nagent = \"nobody\"\n").start().await;
    let mut child = chat(&server, &["--once", "hello"]).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    patiently("the word that nobody is there", stderr.read_line(&mut line)).await.unwrap();
    assert!(line.contains("nobody needs [agents.nobody]"), "{line}");
    interrupt(&child);
    let status = patiently("the end", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(1));
    let run = server.get("/api/runs?agent=nobody").await.expect(200)["runs"][0].clone();
    assert_eq!(run["status"], json!("cancelled"));
}

fn interrupt(child: &tokio::process::Child) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}
