//! `runreel demo`: agents of a configuration that its own process carries out for a server.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{
    agents::{answer, assert_once, children, kinds, log, of, questions, said, stands},
    support::{
        cluster::Db,
        holds,
        process::{Said, ended, program, run},
        server::{Server, setup},
        within,
    },
};

/// How long five agents with their tools, in a process of their own, are waited for when others keep all processors
/// busy. It hides no lease that lapsed: two seconds is what they have here.
const DEMO_MAX: Duration = Duration::from_mins(1);

/// Jobs, and runs whose state is kept.
const LEFT: &str = "select (select count(*) from store.job) + (select count(distinct thread_no) from store.checkpoint)";

/// A folder with something for each worker: something to read, kinds, one file that is too long for a message, marks.
pub fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    file("README.md", "# A tree\n\nIt stands in a test.\n");
    file("src/one.rs", "// TODO: the rest\nfn one() {}\n// TODO: and its end\n");
    file("src/two.rs", "// FIXME: all of it\n");
    file("src/three.py", "pass\n");
    file("data/long.txt", &"a line of many\n".repeat(4_000));
    file(".hidden/four.rs", "// TODO: nobody looks here\n");
    dir
}

/// A server that gives the work of a process which was killed to another one soon.
async fn server() -> Server {
    setup().flags(&["--lease-ms", "2000", "--poll-ms", "50"]).start().await
}

/// A demo that ends by itself.
pub fn demo(server: &Server, dir: &tempfile::TempDir, words: &[&str]) -> Command {
    let mut command = program(&["demo", "--url", &server.base, "--exit"]);
    command.args(words).arg(dir.path());
    command
}

/// As fast as it goes, and without a visitor.
pub const ALONE: [&str; 4] = ["--pace", "0", "--answer-after", "0"];

/// Runs a demo to its end.
async fn to_its_end(demo: Command) -> Said {
    within(DEMO_MAX, "the demo", ended(demo, "")).await
}

/// The demo's run that was made last.
async fn lead(server: &Server) -> Value {
    server.get("/api/runs?tag=demo").await.expect(200)["runs"][0].clone()
}

/// The demo's run, once it waits for its visitor.
async fn asked(server: &Server) -> (String, Value) {
    within(DEMO_MAX, "the question", holds(|| async { lead(server).await["status"] == "interrupted" })).await;
    let id = lead(server).await["run_id"].as_str().unwrap().to_owned();
    let question = questions(server, &id).await.remove(0);
    (id, question)
}

/// A demo whose agents speak so slowly that it stands in the middle of its workers' answers, when all tools are done.
async fn in_the_middle(server: &Server, dir: &tempfile::TempDir) -> (Child, String) {
    let child = demo(server, dir, &["--pace", "60000"]).spawn().unwrap();
    within(DEMO_MAX, "the supervisor to wait", holds(|| async { lead(server).await["status"] == "waiting" })).await;
    let id = lead(server).await["run_id"].as_str().unwrap().to_owned();
    within(DEMO_MAX, "all workers at their answers", holds(|| async { steps(server, &id).await == [3, 5, 5, 7] }))
        .await;
    (child, id)
}

/// How many steps each worker has begun.
async fn steps(server: &Server, lead: &str) -> Vec<usize> {
    let mut steps = Vec::new();
    for worker in children(server, lead).await {
        steps.push(of(&log(server, &worker).await, "step.started").len());
    }
    steps.sort_unstable();
    steps
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[tokio::test]
async fn a_demo_shows_what_its_agents_found_and_ends_by_itself() {
    let (server, dir) = (server().await, tree());
    let shown = to_its_end(demo(&server, &dir, &ALONE)).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let lead = lead(&server).await;
    let id = lead["run_id"].as_str().unwrap();
    assert!(shown.stderr.contains(&format!("{}/runs/{id}", server.base)), "{shown:?}");
    assert_eq!((&lead["status"], &lead["role"]), (&json!("completed"), &json!("supervisor")));
    assert_eq!(shown.stdout.trim(), lead["output"]["response"].as_str().unwrap());
    for found in [
        "README.txt could not be read (error: No such file",
        "so I took README.md. It begins:\n\n# A tree\n",
        "4 entries at the top",
        "2 rs\n",
        "4000 ./data/long.txt\n",
        "Of all folders src has the most files. In 3 of them \"TODO\" occurs in 2 lines, \"FIXME\" in 1 and \"HACK\" in 0.",
        "There are 5 files in all.",
        "No answer within 0 s",
    ] {
        assert!(shown.stdout.contains(found), "{found}: {}", shown.stdout);
    }
    let events = log(&server, id).await;
    assert_once(&events);
    let story: Vec<&str> = kinds(&events)
        .into_iter()
        .filter(|kind| ["run.", "worker.", "interrupt."].iter().any(|family| kind.starts_with(family)))
        .collect();
    let spawned =
        ["run.created", "run.started", "worker.spawned", "worker.spawned", "worker.spawned", "worker.spawned"];
    let ended = ["run.waiting", "run.resumed", "worker.completed", "worker.completed", "worker.completed"];
    let asked = ["worker.completed", "interrupt.requested", "run.interrupted", "interrupt.resolved", "run.resumed"];
    assert_eq!(story, [&spawned[..], &ended, &asked, &["run.completed"]].concat());
    assert_eq!(of(&events, "reasoning.completed").len(), 1);
    assert_eq!(said(&events).len(), 4, "what it was asked, and what it said in each of three turns");
    server.db.until_number("nothing left", LEFT, 0).await;
}

#[tokio::test]
async fn workers_call_tools_side_by_side_get_over_a_failure_and_leave_an_artifact() {
    let (server, dir) = (server().await, tree());
    let shown = to_its_end(demo(&server, &dir, &ALONE)).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    let id = lead(&server).await["run_id"].as_str().unwrap().to_owned();
    let (mut failed, mut side_by_side, mut artifacts) = (0, 0, log(&server, &id).await);
    for worker in children(&server, &id).await {
        stands(&server, &worker, "completed").await;
        let events = log(&server, &worker).await;
        failed += of(&events, "tool.failed").len();
        let parents = |kind| of(&events, kind).iter().map(|event| event["parent_span_id"].clone()).collect::<Vec<_>>();
        let mut begun = parents("tool.started");
        begun.dedup();
        side_by_side += parents("tool.started").len() - begun.len();
        artifacts.extend(events);
    }
    assert_eq!((failed, side_by_side), (1, 4), "README.txt; one call more, one more, and two more in one step");
    let artifacts = of(&artifacts, "artifact.created");
    let named =
        |name: &str| artifacts.iter().find(|event| event["payload"]["name"] == name).unwrap()["payload"].clone();
    let config = String::from_utf8(server.bytes_of(&named("demo.toml")).await).unwrap();
    assert_eq!(config, include_str!("../../backend/cli/demo/demo.toml"));
    let long = server.bytes_of(&named("files_read.txt")).await;
    assert_eq!(long, std::fs::read(dir.path().join("data/long.txt")).unwrap());
}

#[tokio::test]
async fn a_visitor_who_agrees_sees_the_command_run() {
    let (server, dir) = (server().await, tree());
    let child = demo(&server, &dir, &["--pace", "0", "--answer-after", "3600"]).spawn().unwrap();
    let (id, question) = asked(&server).await;
    assert_eq!((&question["payload"]["kind"], &question["payload"]["tool"]), (&json!("approval"), &json!("shell")));
    answer(&server, &id, &question, "approve", Value::Null).await;
    let shown = within(DEMO_MAX, "the end", child.wait_with_output()).await.unwrap();
    let report = String::from_utf8(shown.stdout).unwrap();
    assert!(report.contains("What changed last:\n\nThere is no history."), "{report}");
    let events = log(&server, &id).await;
    let calls = of(&events, "tool.completed");
    let git = calls.iter().find(|event| event["payload"]["name"] == "shell").unwrap();
    assert_eq!(git["payload"]["result"]["stdout"], "There is no history.\n");
}

#[tokio::test]
async fn a_demo_whose_process_is_killed_goes_on_in_the_next_one_and_does_nothing_twice() {
    let (server, dir) = (server().await, tree());
    let whole = to_its_end(demo(&server, &dir, &ALONE)).await.stdout;
    let (mut child, id) = in_the_middle(&server, &dir).await;
    child.kill().await.unwrap();
    let shown = to_its_end(demo(&server, &dir, &[&ALONE[..], &["--resume", &id]].concat())).await;
    assert_eq!((shown.code, &shown.stdout), (Some(0), &whole), "{shown:?}");
    let mut tools = Vec::new();
    for worker in children(&server, &id).await {
        let events = log(&server, &worker).await;
        let calls = of(&events, "tool.started").len();
        assert_eq!(of(&events, "tool.completed").len() + of(&events, "tool.failed").len(), calls);
        assert_eq!(said(&events).last().unwrap().0, "assistant");
        tools.push(calls);
    }
    tools.sort_unstable();
    assert_eq!(tools, [2, 3, 3, 4]);
    server.db.until_number("nothing left", LEFT, 0).await;
    let other = to_its_end(demo(&server, &tree(), &["--resume", &id])).await;
    assert_eq!(other.code, Some(1), "{other:?}");
    assert!(other.stderr.contains("is not a demo of this folder"), "{other:?}");
}

#[tokio::test]
async fn a_demo_whose_process_is_killed_while_it_asks_takes_the_answer_in_the_next_one() {
    let (server, dir) = (server().await, tree());
    let mut child = demo(&server, &dir, &["--pace", "0", "--answer-after", "3600"]).spawn().unwrap();
    let (id, question) = asked(&server).await;
    child.kill().await.unwrap();
    answer(&server, &id, &question, "reject", json!("not now")).await;
    let shown = to_its_end(demo(&server, &dir, &[&ALONE[..], &["--resume", &id]].concat())).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("a person refused this call: not now"), "{shown:?}");
}

#[tokio::test]
async fn ctrl_c_cancels_a_demo_and_a_cancelled_run_ends_it() {
    let (server, dir) = (server().await, tree());
    let (mut child, id) = in_the_middle(&server, &dir).await;
    signal(&child, rustix::process::Signal::INT);
    let status = within(DEMO_MAX, "the end", child.wait()).await.unwrap();
    assert_eq!(status.code(), Some(130));
    stands(&server, &id, "cancelled").await;
    server.db.until_number("nothing left", LEFT, 0).await;
    let (child, id) = in_the_middle(&server, &tree()).await;
    server.post(&format!("/api/runs/{id}/cancel"), json!({})).await.expect(202);
    let shown = within(DEMO_MAX, "the end", child.wait_with_output()).await.unwrap();
    assert_eq!(shown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&shown.stderr).contains("the run was cancelled"));
}

#[tokio::test]
async fn two_demos_of_one_owner_leave_each_others_runs_alone() {
    let (server, here, there) = (server().await, tree(), tree());
    std::fs::write(there.path().join("README.md"), "# Another tree\n").unwrap();
    let (mut killed, id) = in_the_middle(&server, &here).await;
    killed.kill().await.unwrap();
    // Its runs are nobody's now, and there is room at the other demo.
    let [one, other] = [demo(&server, &here, &ALONE), demo(&server, &there, &ALONE)];
    let (one, other) = tokio::join!(to_its_end(one), to_its_end(other));
    assert_eq!((one.code, other.code), (Some(0), Some(0)), "{one:?}{other:?}");
    assert!(one.stdout.contains("# A tree") && !one.stdout.contains("# Another tree"), "{one:?}");
    assert!(other.stdout.contains("# Another tree") && !other.stdout.contains("# A tree"), "{other:?}");
    assert_eq!(server.run(&id).await["status"], "waiting");
    assert_eq!(steps(&server, &id).await, [3, 5, 5, 7], "nobody went on with it");
}

#[tokio::test]
async fn a_demo_starts_a_server_on_a_free_port_and_ends_it() {
    let (db, dir) = (Db::new().await, tree());
    let mut command = program(&["demo", "--listen", "127.0.0.1:0", "--exit"]);
    command.args(ALONE).arg("--data-dir").arg(db.data.path()).arg(dir.path()).env("DATABASE_URL", db.url());
    let shown = to_its_end(command).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    assert!(shown.stdout.contains("# A tree"), "{shown:?}");
    let (_, link) = shown.stderr.split_once("Live: http://").unwrap();
    let address: std::net::SocketAddr = link.split_once('/').unwrap().0.parse().unwrap();
    assert_ne!(address.port(), 0);
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "the server has ended");
}

#[tokio::test]
async fn a_folder_that_is_not_there_makes_no_run() {
    let (server, dir) = (server().await, tree());
    std::fs::remove_dir_all(dir.path()).unwrap();
    let shown = to_its_end(demo(&server, &dir, &[])).await;
    assert_eq!(shown.code, Some(1), "{shown:?}");
    assert!(shown.stderr.contains("cannot read the folder"), "{shown:?}");
    assert!(lead(&server).await.is_null());
}

#[tokio::test]
async fn the_configuration_that_a_demo_prints_is_a_servers_own() {
    let printed = run(program(&["demo", "--print-config"]), "").await;
    assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""));
    // Its folder holds the server's data in this test, which tools never see.
    let setup = setup().config(&printed.stdout.replace("root = \".\"", "root = \"work\"").replace("pace_ms = 35", ""));
    std::fs::create_dir(setup.folder().path().join("work")).unwrap();
    std::fs::write(setup.folder().path().join("work/README.md"), "# Mine\n").unwrap();
    let server = setup.start().await;
    for n in 1..3 {
        let message = json!({ "chat_id": "5", "user_id": "5", "username": "ann", "text": "what is it?" });
        let taken = server.post("/api/channels/web/messages", message).await.expect(202);
        let run = taken["run_id"].as_str().unwrap();
        let question = questions(&server, run).await.remove(0);
        answer(&server, run, &question, "approve", Value::Null).await;
        let report = crate::agents::response(&server, run).await;
        assert!(report.contains("# Mine"), "message {n}: {report}");
    }
}
