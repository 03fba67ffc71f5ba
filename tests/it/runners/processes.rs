//! The built runner as a process of its own: killed, stopped, cut off from its server.

use std::collections::BTreeMap;

use tokio::process::Child;

use super::*;
use crate::support::{process, proxy::Proxy, until};

/// Says five things, each with an id of its own, and takes its time.
const STEPS: &str = r#"read input; for i in 1 2 3 4 5; do
    echo "{\"type\":\"custom.step\",\"event_id\":\"s$i\",\"payload\":{\"i\":$i,\"input\":$input}}"; sleep 0.03; done"#;

fn start(base: &str, capacity: &str, exec: &str) -> Child {
    let words = ["runner", "--agent", "a", "--url", base, "--capacity", capacity, "--grace", "5", "--exec", exec];
    process::program(&words).stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

async fn ended(server: &Server, run: &str) {
    until("the run to end", || async { server.run(run).await["ended_at"].is_string() }).await;
}

#[tokio::test]
async fn a_command_carries_out_runs_in_any_language() {
    let server = Server::start().await;
    let script =
        r#"cat; echo; echo plain; echo oops >&2; echo '{"type":"tool.started","span_id":"t","payload":{"name":"x"}}'"#;
    let _runner = start(&server.base, "1", script);
    let run = job(&server).await;
    ended(&server, &run).await;
    let events: Vec<Value> = server.events(&run).await.iter().map(parsed).collect();
    let mut said: Vec<String> =
        events[1..].iter().map(|event| format!("{} {}", event["type"].as_str().unwrap(), event["payload"])).collect();
    said.sort();
    assert_eq!(
        said,
        [
            r#"log.info {"message":"plain"}"#,
            r#"log.info {"message":"{\"z\":1,\"a\":2}"}"#,
            r#"log.warn {"message":"oops"}"#,
            "run.completed {}",
            "run.started {}",
            r#"tool.started {"name":"x"}"#
        ]
    );
}

#[tokio::test]
async fn a_command_that_fails_fails_its_run_and_one_that_ends_it_itself_is_believed() {
    let server = Server::start().await;
    let _runner = start(
        &server.base,
        "4",
        r#"read x; [ "$x" = 1 ] && exit 3; echo '{"type":"run.completed","payload":{"output":"mine"}}'; exit 3"#,
    );
    let failing = server.create(json!({ "agent": "a", "start": false, "input": 1 })).await;
    let ending = server.create(json!({ "agent": "a", "start": false, "input": 2 })).await;
    ended(&server, &failing).await;
    ended(&server, &ending).await;
    let (failing, ending) = (server.run(&failing).await, server.run(&ending).await);
    assert_eq!((&failing["status"], &failing["error"]["code"]), (&json!("failed"), &json!("exit_status")));
    assert_eq!((&ending["status"], &ending["output"]), (&json!("completed"), &json!("mine")));
}

#[tokio::test]
async fn a_command_is_told_what_it_needs_and_no_secret_of_its_runner() {
    let server = Server::start().await;
    let words = ["runner", "--agent", "a", "--url", &server.base, "--exec", "env"];
    let secrets = ["RUNREEL_JWT_SECRET", "RUNREEL_TELEGRAM_BOT_TOKEN", "DATABASE_URL_FILE"];
    let mut runner = process::program(&words);
    for secret in secrets {
        runner.env(secret, "sentinel-of-the-runner");
    }
    let _runner = runner.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let run = job(&server).await;
    ended(&server, &run).await;
    let said = server.events(&run).await.join("\n");
    assert!(said.contains(&format!("RUNREEL_RUN_ID={run}")), "{said}");
    assert!(!said.contains("sentinel-of-the-runner"), "{said}");
}

#[tokio::test]
async fn a_cancelled_run_ends_its_command_and_all_that_it_started() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("alive");
    let script =
        format!("echo begun; (sleep 0.2; while :; do date +%s%N > '{}'; sleep 0.02; done) & wait", mark.display());
    let _runner = start(&server.base, "1", &script);
    let run = job(&server).await;
    until("the command to work", || async { mark.exists() }).await;
    server.post(&format!("/api/runs/{run}/cancel"), json!({})).await.expect(202);
    until("the command to end", || async {
        let before = std::fs::read(&mark).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::fs::read(&mark).unwrap() == before
    })
    .await;
    assert_contiguous(&server.events(&run).await, 4);
}

#[tokio::test]
async fn an_interrupted_command_comes_again_with_the_answer() {
    let server = Server::start().await;
    let script = r#"if [ "$RUNREEL_ANSWERS" = "[]" ]; then
        echo '{"type":"interrupt.requested","span_id":"i","payload":{"prompt":"?"}}'; echo '{"type":"run.interrupted"}'
        else echo "answers $RUNREEL_ANSWERS"; fi"#;
    let _runner = start(&server.base, "1", script);
    let run = job(&server).await;
    until("the question", || async { server.run(&run).await["status"] == "interrupted" }).await;
    server
        .db
        .until_number("the job to be given back", "select count(*) from store.job where lease_id is null", 1)
        .await;
    let answer = json!({ "interrupt_id": "i", "decision": "respond", "value": 42 });
    server.post(&format!("/api/runs/{run}/resume"), answer).await.expect(202);
    ended(&server, &run).await;
    let events = server.events(&run).await.join("\n");
    assert!(events.contains("respond") && events.contains(r#"\"value\":42"#), "{events}");
}

#[tokio::test]
async fn a_runner_that_is_told_to_stop_finishes_what_it_has_and_takes_nothing_new() {
    let server = Server::start().await;
    let folder = tempfile::tempdir().unwrap();
    let busy = folder.path().join("busy");
    std::fs::write(&busy, "").unwrap();
    // At work until it is told to be done, so that the signal always comes in the middle.
    let work = format!(r#"echo '{{"type":"custom.step"}}'; while [ -e {} ]; do sleep 0.2; done"#, busy.display());
    let mut runner = start(&server.base, "1", &work);
    let (first, second) = (job(&server).await, job(&server).await);
    until("work", || async { server.run(&first).await["last_seq"].as_i64() > Some(2) }).await;
    signal(&runner, rustix::process::Signal::TERM);
    std::fs::remove_file(&busy).unwrap();
    let code = crate::support::patiently("the end", runner.wait()).await.unwrap();
    assert!(code.success(), "{code}");
    assert_eq!(server.run(&first).await["status"], "completed");
    assert_eq!(server.run(&second).await["status"], "queued");
}

#[tokio::test]
async fn a_network_that_breaks_all_the_time_loses_and_doubles_nothing() {
    let server = Server::start().await;
    let proxy = Proxy::to_http(&server.base).await;
    let _runner = start(&proxy.base(), "4", STEPS);
    let mut runs = Vec::new();
    for _ in 0..12 {
        runs.push(job(&server).await);
    }
    let cutting = async {
        for _ in 0..12 {
            tokio::time::sleep(Duration::from_millis(60)).await;
            proxy.drop_all();
        }
    };
    let ending = async {
        for run in &runs {
            ended(&server, run).await;
        }
    };
    tokio::join!(cutting, ending);
    for run in &runs {
        let events = server.events(run).await;
        // Nobody lost a lease, so nobody began anew.
        assert_contiguous(&events, 8);
        assert_eq!(types(&events)[2..7], ["custom.step"; 5]);
    }
}

#[tokio::test]
async fn of_two_runners_one_is_killed_and_all_of_a_hundred_runs_end_with_no_event_lost_or_doubled() {
    let server = setup().flags(&["--lease-ms", "1500"]).start().await;
    let mut runs = Vec::new();
    for n in 0..100 {
        runs.push(server.create(json!({ "agent": "a", "start": false, "input": n })).await);
    }
    let (mut doomed, _survivor) = (start(&server.base, "8", STEPS), start(&server.base, "8", STEPS));
    server
        .db
        .until_number("twenty runs to end", "select least(count(*), 20) from store.run where status = 'completed'", 20)
        .await;
    doomed.kill().await.unwrap();
    let taken = server.db.number("select count(*) from store.job where lease_id is not null").await;
    server.db.until_number("all to end", "select count(*) from store.run where ended_at is not null", 100).await;
    let (mut events_total, mut again) = (0, 0);
    for (n, run) in runs.iter().enumerate() {
        assert_eq!(server.run(run).await["status"], "completed");
        let events = server.events(run).await;
        assert_contiguous(&events, i64::try_from(events.len()).unwrap());
        events_total += events.len();
        let mut steps = BTreeMap::new();
        for event in events.iter().map(parsed).filter(|event| event["type"] == "custom.step") {
            assert_eq!(event["payload"]["input"], n, "an event of another run");
            *steps.entry(event["payload"]["i"].as_i64().unwrap()).or_insert(0) += 1;
        }
        assert_eq!(steps, (1..=5).map(|i| (i, 1)).collect(), "{run}");
        let words = types(&events);
        assert_eq!(words.iter().filter(|word| *word == "run.started").count(), 1, "{words:?}");
    }
    again += server.db.number("select count(*) from store.job").await;
    eprintln!(
        "100 runs, 2 runners of 8, one killed with {taken} runs under way: {events_total} events, none lost, none \
         doubled; {again} jobs left"
    );
}
