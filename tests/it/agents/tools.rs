//! Agents that call tools, in a folder that is there.

use serde_json::{Value, json};

use super::{ask, assert_once, kinds, log, of, response, said, with};

const CONFIG: &str = r#"
[tools.files]
root = "work"
[agents.clerk]
model = "script:clerk.toml"
system = "You keep the files."
tools = ["files"]
"#;

#[tokio::test]
async fn a_call_of_a_tool_is_told_below_its_step_and_its_result_goes_back_to_the_model() {
    let script = r#"
        [[turns]]
        text = "I write it down."
        tool_calls = [{ name = "files_write", args = { path = "a.txt", text = "forty-two" } }]
        [[turns]]
        tool_calls = [{ name = "files_list" }, { name = "files_read", args = { path = "a.txt" } }]
        [[turns]]
        text = "It says {tool}"
    "#;
    let setup = with(CONFIG, &[("clerk.toml", script)]);
    let folder = setup.folder();
    let server = setup.start().await;
    let run = ask(&server, "clerk", "remember", json!({})).await;
    let answer = response(&server, &run).await;
    assert!(answer.starts_with("It says ") && answer.contains("forty-two"), "{answer}");
    assert_eq!(std::fs::read_to_string(folder.path().join("work/a.txt")).unwrap(), "forty-two");
    let events = log(&server, &run).await;
    assert_once(&events);
    let steps: Vec<_> = of(&events, "step.completed").iter().map(|step| step["payload"]["name"].clone()).collect();
    assert_eq!(steps, ["model", "tools", "model", "tools", "model"]);
    let (started, completed) = (of(&events, "tool.started"), of(&events, "tool.completed"));
    let names: Vec<_> = started.iter().map(|call| call["payload"]["name"].clone()).collect();
    assert_eq!(names, ["files_write", "files_list", "files_read"]);
    let tools: Vec<_> =
        of(&events, "step.started").into_iter().filter(|step| step["payload"]["name"] == "tools").collect();
    let parents: Vec<_> = started.iter().map(|call| &call["parent_span_id"]).collect();
    assert_eq!(parents, [&tools[0]["span_id"], &tools[1]["span_id"], &tools[1]["span_id"]]);
    for call in &started {
        let end = completed.iter().find(|end| end["span_id"] == call["span_id"]).unwrap();
        assert_eq!(end["parent_span_id"], call["parent_span_id"]);
        assert!(end["payload"]["duration_ms"].as_f64().unwrap() >= 0.0);
    }
    assert_eq!(started[0]["payload"]["args"], json!({ "path": "a.txt", "text": "forty-two" }));
    assert!(
        !events.iter().any(|event| event.to_string().contains("You keep the files")),
        "the system's words are no message"
    );
    assert_eq!(said(&events)[1].1, "I write it down.");
}

#[tokio::test]
async fn a_call_that_fails_is_told_to_the_model_and_the_run_goes_on() {
    let script = r#"
        [[turns]]
        tool_calls = [
            { name = "files_read", args = { path = "nothing.txt" } },
            { name = "files_read", args = { path = 7 } },
            { name = "files_read", args = { path = "../../etc/passwd" } },
            { name = "no_such_tool" },
        ]
        [[turns]]
        text = "I cannot: {tool}"
    "#;
    let server = with(CONFIG, &[("clerk.toml", script)]).start().await;
    let run = ask(&server, "clerk", "look", json!({})).await;
    let answer = response(&server, &run).await;
    assert!(answer.contains("no_such_tool"), "{answer}");
    let events = log(&server, &run).await;
    let failed = of(&events, "tool.failed");
    assert_eq!((failed.len(), of(&events, "tool.completed").len()), (4, 0), "{:?}", kinds(&events));
    assert!(failed.iter().all(|end| !end["payload"]["error"]["message"].as_str().unwrap().is_empty()));
    // What the model asked for, the call and its end are known by one id.
    let said = of(&events, "message.completed");
    let wanted = said.iter().find_map(|message| message["payload"]["tool_calls"].as_array()).unwrap();
    let wanted: Vec<&Value> = wanted.iter().map(|call| &call["id"]).collect();
    for kind in ["tool.started", "tool.failed"] {
        let mut told: Vec<&Value> =
            of(&events, kind).into_iter().map(|event| &event["payload"]["tool_call_id"]).collect();
        told.sort_by_key(std::string::ToString::to_string);
        assert_eq!(told, wanted, "{kind}");
        assert!(of(&events, kind).iter().all(|event| event["payload"]["tool_call_id"] == event["span_id"]));
    }
    let took = server.run(&run).await["node_durations_ms"].clone();
    let nodes: Vec<&String> = took.as_object().unwrap().keys().collect();
    assert_eq!(nodes, ["model", "tools"], "{took}");
    assert!(!events.iter().any(|event| event.to_string().contains("root:")), "{events:?}");
}

#[tokio::test]
async fn commands_of_several_runs_in_one_folder_are_never_at_work_together() {
    let config = r#"
        [tools.shell]
        root = "work"
        approval = false
        [agents.worker]
        model = "script:worker.toml"
        tools = ["shell"]
    "#;
    // Each finds the folder as if it were alone.
    let script = r#"
        [[turns]]
        tool_calls = [{ name = "shell", args = { command = "mkdir busy && sleep 0.1 && rmdir busy" } }]
        [[turns]]
        text = "{tool.exit_code}"
    "#;
    let server = with(config, &[("worker.toml", script)]).start().await;
    let mut runs = Vec::new();
    for _ in 0..5 {
        runs.push(ask(&server, "worker", "go", json!({})).await);
    }
    for run in runs {
        assert_eq!(response(&server, &run).await, "0");
    }
}
