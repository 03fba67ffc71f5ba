//! `runreel demo`: a survey that its own process carries out for a server.

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{
    agents::{assert_once, kinds, log, of, stands},
    support::{
        patiently,
        process::{program, run},
        server::{Server, setup},
        until,
    },
};

/// Jobs, and runs whose state is kept.
const LEFT: &str = "select (select count(*) from store.job) + (select count(distinct thread_no) from store.checkpoint)";

/// A folder with three parts, one of which repeats what another holds.
pub fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let body = "fn long(x: u8) {\n    one(x);\n    two(x);\n    three(x);\n    four(x);\n    five(x);\n}\n";
    for (path, text) in [("a/one.rs", body), ("b/two.rs", body), ("c/three.py", "def f():\n    pass\n")] {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    dir
}

/// A server that gives the work of a process which was killed to another one soon.
async fn server() -> Server {
    setup().flags(&["--lease-ms", "500", "--poll-ms", "50"]).start().await
}

pub fn demo(server: &Server, dir: &tempfile::TempDir, words: &[&str]) -> Command {
    let mut command = program(&["demo", "--url", &server.base]);
    command.args(words).arg(dir.path());
    command
}

/// A demo whose agents speak so slowly that it stands in the middle of its workers' last step.
async fn in_the_middle(server: &Server, dir: &tempfile::TempDir) -> (Child, String) {
    let child = demo(server, dir, &["--pace", "60000"]).spawn().unwrap();
    until("all workers at their notes", || async {
        let lead = lead(server).await;
        lead["status"] == "waiting" && {
            let mut writing = 0;
            for worker in workers(server, lead["run_id"].as_str().unwrap()).await {
                writing += usize::from(of(&log(server, &worker).await, "step.started").len() == 3);
            }
            writing == 3
        }
    })
    .await;
    (child, lead(server).await["run_id"].as_str().unwrap().to_owned())
}

async fn workers(server: &Server, lead: &str) -> Vec<String> {
    let page = server.get(&format!("/api/runs?parent_run_id={lead}")).await.expect(200);
    page["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
}

async fn lead(server: &Server) -> Value {
    server.get("/api/runs?agent=survey-lead").await.expect(200)["runs"][0].clone()
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[tokio::test]
async fn a_demo_prints_the_table_that_its_supervisor_put_together_from_its_workers() {
    let (server, dir) = (server().await, tree());
    let said = run(demo(&server, &dir, &["--pace", "0"]), "").await;
    assert_eq!(said.code, Some(0), "{said:?}");
    let lead = lead(&server).await;
    let id = lead["run_id"].as_str().unwrap();
    assert!(said.stderr.contains(&format!("{}/runs/{id}", server.base)), "{said:?}");
    assert_eq!((&lead["status"], &lead["role"]), (&json!("completed"), &json!("supervisor")));
    assert_eq!(said.stdout.trim_end(), lead["output"]["table"].as_str().unwrap());
    let events = log(&server, id).await;
    assert_once(&events);
    let story: Vec<&str> = kinds(&events)
        .into_iter()
        .filter(|kind| kind.starts_with("run.") || kind.starts_with("worker.") || kind.starts_with("custom."))
        .collect();
    let spawned = ["run.created", "run.started", "worker.spawned", "worker.spawned", "worker.spawned", "run.waiting"];
    let ended = ["run.resumed", "worker.completed", "worker.completed", "worker.completed", "custom.table"];
    assert_eq!(story, [&spawned[..], &ended, &["run.completed"]].concat());
    server.db.until_number("nothing left", LEFT, 0).await;
}

#[tokio::test]
async fn a_demo_whose_process_is_killed_goes_on_in_the_next_one_and_measures_nothing_twice() {
    let (server, dir) = (server().await, tree());
    let whole = run(demo(&server, &dir, &["--pace", "0"]), "").await.stdout;
    let (mut child, id) = in_the_middle(&server, &dir).await;
    child.kill().await.unwrap();
    let said = run(demo(&server, &dir, &["--pace", "0", "--resume", &id]), "").await;
    assert_eq!((said.code, &said.stdout), (Some(0), &whole), "{said:?}");
    for worker in workers(&server, &id).await {
        let events = log(&server, &worker).await;
        assert_once(&events);
        assert_eq!((of(&events, "tool.started").len(), of(&events, "message.completed").len()), (5, 1));
    }
    server.db.until_number("nothing left", LEFT, 0).await;
    let other = run(demo(&server, &tree(), &["--resume", &id]), "").await;
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.stderr.contains("is no survey of this folder"), "{other:?}");
}

#[tokio::test]
async fn ctrl_c_cancels_a_demo_and_a_cancelled_run_ends_it() {
    let (server, dir) = (server().await, tree());
    let (mut child, id) = in_the_middle(&server, &dir).await;
    signal(&child, rustix::process::Signal::INT);
    let status = patiently("the end", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(130));
    stands(&server, &id, "cancelled").await;
    server.db.until_number("nothing left", LEFT, 0).await;
    let (child, id) = in_the_middle(&server, &tree()).await;
    server.post(&format!("/api/runs/{id}/cancel"), json!({})).await.expect(202);
    let said = patiently("the end", child.wait_with_output()).await.unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("the survey was cancelled"));
}
