//! The commands of the README and of the tasks, run as they stand: only the port is another.

use std::{collections::BTreeSet, path::Path, process::Stdio};

use serde_json::json;
use tokio::process::Command;

use crate::support::{
    models::{ModelServer, events, stream_of},
    page::{shell, task},
    process::run,
    server::{Server, setup},
};

/// The blocks that follow the mark `<!-- runs -->`: their language, and what is to run.
fn blocks(text: &str) -> Vec<(&str, &str)> {
    let marked = text.split("<!-- runs -->\n```").skip(1);
    let whole = marked.map(|rest| rest.split("\n```").next().expect("a block ends"));
    whole.map(|block| block.split_once('\n').expect("a block has lines")).collect()
}

/// Runs each block in a process of its own; returns what they print.
async fn said(server: &Server, text: &str, token: &str) -> Vec<String> {
    let address = server.base.trim_start_matches("http://");
    let mut said = Vec::new();
    for (language, block) in blocks(text) {
        let block = block.replace("127.0.0.1:7717", address);
        let mut command = match language {
            "sh" => shell(&block),
            "js" => {
                let mut node = Command::new("node");
                // The packages that a page names are installed there.
                node.args(["--input-type=module", "-e", &block]);
                node.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers"));
                node
            }
            _ => panic!("nothing runs {language}: {block}"),
        };
        command.env("RUNREEL_URL", &server.base).env("DATABASE_URL", server.db.url());
        if !token.is_empty() {
            command.env("RUNREEL_TOKEN", token);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let done = run(command, "").await;
        assert_eq!(done.code, Some(0), "{block}\nstdout: {}\nstderr: {}", done.stdout, done.stderr);
        said.push(done.stdout + &done.stderr);
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

/// The pages of tasks with commands, in the order in which they run here, and what these print.
const TASKS: &[(&str, &[&str])] = &[
    ("share-a-run", &["Monday's trip", "event: run.completed"]),
    ("own-ids", &["completed"]),
    ("credentials", &["nightly\t20"]),
    ("failed-runs", &["out of credit"]),
    ("slow-tools", &["book"]),
    ("first-run", &["log.info", "run.completed"]),
    ("frameworks", &["\"last_seq\":5"]),
    ("javascript", &["5 run.completed"]),
    #[cfg(feature = "agents")]
    ("agui-proxy", &["Rome it is", "event: run.completed"]),
    ("backup", &["the file is complete", "already present"]),
    ("retention", &["nightly", "nothing was removed"]),
];

#[tokio::test]
async fn the_tasks_commands_do_what_they_say() {
    let answer = [
        json!({"type": "TEXT_MESSAGE_CHUNK", "messageId": "m", "delta": "Rome it is"}),
        json!({"type": "RUN_FINISHED", "threadId": "trip", "runId": "r"}),
    ];
    let endpoint = ModelServer::start(vec![stream_of("text/event-stream", events(&answer))]).await;
    let travel = format!("[agents.travel]\nkind = \"agui\"\nurl = \"{}/\"\n", endpoint.base);
    let config = if cfg!(feature = "agents") { travel.as_str() } else { "" };
    let server = setup().config(config).jwt().start().await;
    let alice = server.as_subject("alice");
    let run = alice.create(json!({ "title": "Monday's trip" })).await;
    alice.emit(&run, json!([{ "type": "tool.started", "span_id": "t", "payload": { "name": "book" } }])).await;
    alice.complete(&run).await;
    let token = alice.token.as_ref().expect("alice has a token");
    for (page, expected) in TASKS {
        let said = said(&server, &task(page), token).await.concat();
        let missing: Vec<_> = expected.iter().filter(|words| !said.contains(**words)).collect();
        assert!(missing.is_empty(), "{page} does not print {missing:?}: {said}");
    }
}

/// The pages of protocols with programs of Node.js, and what these print. `docs/protocols/openai-responses.md` is run by
/// `tests/sdk/test_responses.py`.
const PROTOCOLS: &[(&str, &[&str])] = &[
    ("ag-ui", &["echo: Hello!", "RUN_STARTED", "MESSAGES_SNAPSHOT", "RUN_FINISHED"]),
    ("ai-sdk", &["echo: Hello! completed", "null"]),
];

#[tokio::test]
async fn the_protocols_programs_do_what_they_say() {
    let server = setup().config("[agents.parrot]\nmodel = \"echo\"\n").start().await;
    for (page, expected) in PROTOCOLS {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/protocols").join(page).with_extension("md");
        let said = said(&server, &std::fs::read_to_string(path).unwrap(), "").await.concat();
        let missing: Vec<_> = expected.iter().filter(|words| !said.contains(**words)).collect();
        assert!(missing.is_empty(), "{page} does not print {missing:?}: {said}");
    }
}

#[test]
fn every_page_of_tasks_with_commands_to_run_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/tasks");
    let pages = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let names = pages.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned());
    let with_commands: BTreeSet<String> = names.filter(|name| !blocks(&task(name)).is_empty()).collect();
    let mut run: BTreeSet<String> = TASKS.iter().map(|(page, _)| (*page).to_owned()).collect();
    // A build without agents reaches no endpoint.
    run.insert("agui-proxy".to_owned());
    assert_eq!(with_commands, run);
}
