//! Any log that the product accepts is told in each protocol, and in its own stream, so that the protocol's own client has
//! nothing to complain of, and has each call, result and text once: logs by chance, in every way in which a client can come
//! to one.

mod made;
mod streams;

use std::{path::Path, process::Stdio};

use rand::{RngExt as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use self::made::Log;
use crate::support::patiently;

/// The clients as a program: what they are told goes in, and what they complain of and have comes out.
pub struct Clients {
    told: ChildStdin,
    results: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Clients {
    pub async fn start() -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers");
        assert!(
            folder.join("node_modules/ai").exists(),
            "the clients are not installed: run ./just peers typescript-build"
        );
        let mut node = Command::new("node");
        let node = node.arg(folder.join("complaints.mjs")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = node.kill_on_drop(true).spawn().unwrap();
        let (told, results) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut results = BufReader::new(results).lines();
        assert_eq!(patiently("the clients", results.next_line()).await.unwrap().as_deref(), Some("ready"));
        Self { told, results, _child: child }
    }

    /// What a client has in the end, which it got without a complaint.
    pub async fn read(&mut self, what: &str, face: &str, bodies: &[String]) -> Value {
        let order = json!({"face": face, "bodies": bodies}).to_string();
        self.told.write_all(format!("{order}\n").as_bytes()).await.unwrap();
        let line = patiently(what, self.results.next_line()).await.unwrap().unwrap();
        let result: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(result["complaints"], json!([]), "{what}, {face}:\n{}", bodies.join("\n--\n"));
        result["messages"].clone()
    }
}

/// Every text in a value.
fn strings<'a>(value: &'a Value, out: &mut Vec<&'a str>) {
    match value {
        Value::String(text) => out.push(text),
        Value::Array(list) => list.iter().for_each(|value| strings(value, out)),
        Value::Object(members) => members.values().for_each(|value| strings(value, out)),
        _ => {}
    }
}

/// Checks that each of these is there once, alone or in the JSON of arguments.
fn once(messages: &Value, wanted: &[String], what: &str) {
    let mut all = Vec::new();
    strings(messages, &mut all);
    for text in wanted {
        let quoted = format!("\"{text}\"");
        let count = all.iter().filter(|found| **found == text.as_str() || found.contains(&quoted)).count();
        assert_eq!(count, 1, "{what}: {text}: {messages:#}");
    }
}

/// Checks what a reader of the run's own stream has: every event once, in order, and the texts.
async fn own(clients: &mut Clients, log: &Log, bodies: &[String], what: &str) {
    let read = clients.read(what, "own", bodies).await;
    let seqs: Vec<i64> = log.moments.iter().filter_map(|moment| Some(moment.frame.place?.seq.get())).collect();
    assert_eq!(read["seqs"], json!(seqs), "{what}");
    once(&read["texts"], &log.texts, what);
}

async fn check(clients: &mut Clients, seed: u64) {
    let log: Log = made::log(seed);
    let mut random = StdRng::seed_from_u64(seed);
    let (asks, pauses) = (log.has("interrupt.requested"), log.has("run.interrupted"));
    let replaces = log.has("agui.messages_snapshot");
    for now in [0, random.random_range(0..=log.moments.len()), log.moments.len()] {
        let what = format!("seed {seed}, {now} of {}", log.moments.len());
        let joined = clients.read(&what, "agui", &streams::agui_joined(&log, now)).await;
        let message = clients.read(&what, "ai_sdk", &streams::ai_sdk(&log, now)).await;
        let is_whole = now == log.moments.len() || !pauses;
        if is_whole {
            once(&message, &log.args, &what);
        }
        // A call that a person refused has no result there.
        if is_whole && !asks {
            once(&message, &log.results, &what);
        }
        if is_whole && !replaces {
            once(&joined, &log.args, &what);
            once(&joined, &log.results, &what);
        }
        let response = clients.read(&what, "responses", &streams::responses(&log, now, None)).await;
        once(&response, &log.texts, &what);
        if !asks {
            once(&response, &log.args, &what);
            once(&response, &log.results, &what);
        }
        if now == log.moments.len() {
            once(&message, &log.texts, &what);
        }
        own(clients, &log, &streams::own(&log, now, None), &what).await;
    }
    for is_cut in [false, true] {
        let what = format!("seed {seed}, cut: {is_cut}");
        if is_cut {
            let response = clients.read(&what, "responses", &streams::responses(&log, 0, Some(&mut random))).await;
            once(&response, &log.texts, &what);
            own(clients, &log, &streams::own(&log, 0, Some(&mut random)), &what).await;
        }
        let messages = clients.read(&what, "agui", &streams::agui(&log, &mut random, is_cut)).await;
        if !pauses && !replaces {
            once(&messages, &log.args, &what);
            once(&messages, &log.results, &what);
        }
    }
}

/// How many logs; `./just faces-property` tries more.
fn count() -> u64 {
    std::env::var("RUNREEL_TEST_LOGS").map_or(50, |count| count.parse().expect("RUNREEL_TEST_LOGS is a number"))
}

#[tokio::test]
async fn clients_have_nothing_to_complain_of_whatever_the_log_is() {
    let mut clients = Clients::start().await;
    let first =
        std::env::var("RUNREEL_TEST_SEED").map_or(1, |seed| seed.parse().expect("RUNREEL_TEST_SEED is a number"));
    for seed in first..first + count() {
        check(&mut clients, seed).await;
    }
}
