//! An agent that gives work to others, each in a run of its own.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{answer, ask, assert_once, children, kinds, log, of, questions, response, stands, tree_of, with};
use crate::support::{
    runs::{parsed, seqs},
    server::Setup,
    sse::envelopes,
    until,
};

const CONFIG: &str = r#"
[tools.gate]
kind = "files"
root = "work"
approval = true
[agents.chief]
model = "script:chief.toml"
workers = ["asker", "echo", "broken"]
[agents.asker]
model = "script:asker.toml"
tools = ["gate"]
[agents.echo]
model = "echo"
[agents.broken]
model = "script:broken.toml"
"#;

const ASKER: &str = r#"
[[turns]]
tool_calls = [{ name = "gate_list" }]
[[turns]]
text = "{user} is done"
"#;

const BROKEN: &str = "[[turns]]\nerror = { kind = \"refused\", message = \"not this\" }\n";

/// A chief that gives work to these agents, all at once; an asker works until a person has answered it.
fn chief_of(workers: &[&str]) -> Setup {
    let call = |(n, agent): (usize, &&str)| {
        format!(
            "{{ name = \"spawn_worker\", args = {{ agent = \"{agent}\", task = \"part {n}\", title = \"worker {n}\" }} }},"
        )
    };
    let calls: String = workers.iter().enumerate().map(call).collect();
    let chief = format!("[[turns]]\ntool_calls = [{calls}]\n[[turns]]\ntext = \"last: {{tool}}\"\n");
    with(CONFIG, &[("chief.toml", &chief), ("asker.toml", ASKER), ("broken.toml", BROKEN)])
}

async fn approve(api: &crate::support::api::Api, run: &str) {
    let asked = questions(api, run).await;
    answer(api, run, &asked[0], "approve", Value::Null).await;
}

#[tokio::test]
async fn a_supervisor_waits_for_all_its_workers_and_goes_on_with_their_results() {
    let server = chief_of(&["asker", "asker"]).start().await;
    let chief = ask(&server, "chief", "both parts", json!({ "thread_id": "t", "session_id": "s" })).await;
    stands(&server, &chief, "waiting").await;
    let workers = children(&server, &chief).await;
    assert_eq!(workers.len(), 2);
    for (n, worker) in workers.iter().enumerate() {
        let run = server.run(worker).await;
        assert_eq!(
            (
                &run["role"],
                &run["agent"],
                &run["parent_run_id"],
                &run["root_run_id"],
                &run["title"],
                &run["session_id"]
            ),
            (
                &json!("worker"),
                &json!("asker"),
                &json!(chief),
                &json!(chief),
                &json!(format!("worker {n}")),
                &json!("s")
            )
        );
    }
    approve(&server, &workers[0]).await;
    assert_eq!(response(&server, &workers[0]).await, "part 0 is done");
    assert_eq!(server.run(&chief).await["status"], "waiting", "one is still at work");
    approve(&server, &workers[1]).await;
    assert_eq!(response(&server, &chief).await, "last: part 1 is done");
    let events = log(&server, &chief).await;
    assert_once(&events);
    let second_half: Vec<&str> = kinds(&events).into_iter().skip_while(|kind| *kind != "tool.started").collect();
    assert_eq!(
        second_half,
        [
            "tool.started",
            "worker.spawned",
            "tool.started",
            "worker.spawned",
            "run.waiting",
            "run.resumed",
            "worker.completed",
            "tool.completed",
            "worker.completed",
            "tool.completed",
            "step.completed",
            "state.checkpointed",
            "step.started",
            "message.completed",
            "step.completed",
            "run.completed",
        ]
    );
    let summaries: Vec<_> =
        of(&events, "worker.completed").iter().map(|event| event["payload"]["summary"].clone()).collect();
    assert_eq!(summaries, [json!("part 0 is done"), json!("part 1 is done")]);
    let waited: Vec<_> = of(&events, "run.waiting")[0]["payload"]["run_ids"].as_array().unwrap().clone();
    assert_eq!(waited, [json!(workers[0]), json!(workers[1])]);
    let worker = log(&server, &workers[0]).await;
    assert!(worker.iter().all(|event| event["role"] == "worker"), "{worker:?}");
    assert_eq!(server.run(&workers[0]).await["parent_run_id"], json!(chief));
    // What a worker remembered is gone with it; the thread has the conversation of its supervisor alone.
    let runs = server.get("/api/threads/t/runs").await.expect(200)["runs"].as_array().unwrap().len();
    assert_eq!(runs, 1);
    server.db.until_number("no job", super::JOBS, 0).await;
    server.db.until_number("one state", "select count(distinct thread_no) from store.checkpoint", 1).await;
}

#[tokio::test]
async fn a_worker_that_fails_is_told_to_its_supervisor_which_goes_on() {
    let server = chief_of(&["echo", "broken"]).start().await;
    let chief = ask(&server, "chief", "both parts", json!({})).await;
    let told = response(&server, &chief).await;
    assert!(told.contains("not this"), "{told}");
    let events = log(&server, &chief).await;
    let (completed, failed) = (of(&events, "worker.completed"), of(&events, "worker.failed"));
    assert_eq!((completed.len(), failed.len()), (1, 1));
    assert_eq!(completed[0]["payload"]["summary"], "echo: part 0");
    assert!(failed[0]["payload"]["error"]["message"].as_str().unwrap().contains("not this"), "{failed:?}");
    let workers = children(&server, &chief).await;
    assert_eq!(server.run(&workers[1]).await["status"], "failed");
}

#[tokio::test]
async fn an_agent_it_may_not_give_work_to_is_a_failed_call_and_no_run() {
    let server = chief_of(&["chief", "nobody"]).start().await;
    let chief = ask(&server, "chief", "go", json!({})).await;
    let told = response(&server, &chief).await;
    assert!(told.contains("no worker agent"), "{told}");
    let events = log(&server, &chief).await;
    assert_eq!((of(&events, "tool.failed").len(), of(&events, "worker.spawned").len()), (2, 0));
    assert_eq!(server.db.number("select count(*) from store.run").await, 1);
}

#[tokio::test]
async fn who_cancels_a_supervisor_cancels_its_workers() {
    let server = chief_of(&["asker", "echo", "asker"]).start().await;
    let chief = ask(&server, "chief", "go", json!({})).await;
    stands(&server, &chief, "waiting").await;
    let workers = children(&server, &chief).await;
    stands(&server, &workers[0], "interrupted").await;
    stands(&server, &workers[1], "completed").await;
    stands(&server, &workers[2], "interrupted").await;
    server.post(&format!("/api/runs/{chief}/cancel"), json!({})).await.expect(202);
    for run in [&chief, &workers[0], &workers[2]] {
        stands(&server, run, "cancelled").await;
    }
    assert_eq!(server.run(&workers[1]).await["status"], "completed", "what had ended stays");
    server.db.until_number("no job", super::JOBS, 0).await;
}

#[tokio::test]
async fn the_stream_of_a_tree_shows_every_run_in_order_and_ends_with_the_last() {
    let server = chief_of(&["echo", "asker"]).start().await;
    let chief = ask(&server, "chief", "go", json!({})).await;
    let mut stream = server.stream(&tree_of(&chief)).await;
    let mut frames = stream.until("interrupt.requested").await;
    let workers = children(&server, &chief).await;
    approve(&server, &workers[1]).await;
    frames.extend(stream.rest().await);
    assert_eq!(frames.last().unwrap().event, "stream.end");
    let events = envelopes(&frames);
    for run in [&chief, &workers[0], &workers[1]] {
        let own: Vec<&String> = events.iter().filter(|event| parsed(event)["run_id"] == json!(run)).collect();
        assert_eq!(own, server.events(run).await.iter().collect::<Vec<_>>());
        assert!(seqs(&own).is_sorted());
    }
    let last = parsed(events.last().unwrap());
    assert_eq!((&last["type"], &last["run_id"]), (&json!("run.completed"), &json!(chief)));
}

#[tokio::test]
async fn a_restart_while_a_supervisor_waits_loses_nothing_and_makes_no_worker_twice() {
    let setup = chief_of(&["asker", "asker"]);
    let server = setup.clone().start().await;
    let chief = ask(&server, "chief", "go", json!({})).await;
    stands(&server, &chief, "waiting").await;
    let workers = children(&server, &chief).await;
    approve(&server, &workers[0]).await;
    response(&server, &workers[0]).await;
    stands(&server, &workers[1], "interrupted").await;
    let db = Arc::clone(&server.db);
    server.stop().await;
    let server = setup.on(&db).start().await;
    assert_eq!(server.run(&chief).await["status"], "waiting");
    approve(&server, &workers[1]).await;
    assert_eq!(response(&server, &chief).await, "last: part 1 is done");
    assert_once(&log(&server, &chief).await);
    assert_eq!(children(&server, &chief).await, workers);
    until("three runs", || async { db.number("select count(*) from store.run").await == 3 }).await;
}
