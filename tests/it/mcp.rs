//! Tools of a real MCP server, the reference one from npm, over both transports. `./just peers` installs it.

use std::{path::PathBuf, process::Stdio, time::Duration};

use runreel::{
    agents::{
        agent::AgentResolver as _,
        assistant::Assistant,
        model::Part,
        registry::Agents,
        tools::{ToolError, parts},
    },
    config::File,
    confine::Confinement,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio_util::sync::CancellationToken;

use crate::support::{
    patiently,
    tools::{call, context},
};

fn server() -> PathBuf {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/peers/node_modules"));
    let script = folder.join("@modelcontextprotocol/server-everything/dist/index.js");
    assert!(script.exists(), "the MCP server is not installed: run ./just peers");
    script
}

fn agents(dir: &std::path::Path, section: &str) -> Agents {
    let text = format!("[mcp.every]\n{section}\n[agents.a]\nmodel = \"echo\"\ntools = [\"every\"]\n");
    Agents::new(File::parse(&text, dir).unwrap(), dir.to_owned(), std::env::var_os("PATH"), Confinement::default())
        .unwrap()
}

/// The server as a program that leaves its pid.
fn over_stdio(more: &str) -> String {
    let command = format!("echo $$ > pid; exec node {} stdio", server().display());
    format!("command = \"sh\"\nargs = [\"-c\", \"{command}\"]\n{more}")
}

/// What must hold over either transport.
async fn assert_works(agent: &Assistant) {
    let go = CancellationToken::new();
    assert_eq!(call(agent, "every_echo", json!({"message": "hi"}), &go).await, Ok(json!("Echo: hi")));
    let sum = call(agent, "every_get-sum", json!({"a": 2, "b": 40}), &go).await.unwrap();
    assert!(sum.as_str().unwrap().contains("42"), "{sum}");
    let wrong = call(agent, "every_get-sum", json!({"a": "two", "b": 40}), &go).await;
    assert!(matches!(wrong, Err(ToolError::Arguments(_))), "{wrong:?}");
    let image = call(agent, "every_get-tiny-image", json!({}), &go).await;
    let shown = parts(&image);
    let is_image = |part: &Part| matches!(part, Part::Image { media_type, .. } if media_type == "image/png");
    assert!(shown.iter().any(is_image), "{shown:?}");
    let weather = call(agent, "every_get-structured-content", json!({"location": "New York"}), &go).await.unwrap();
    assert!(weather["structured"]["temperature"].is_number(), "{weather}");
    assert!(!agent.toolbox.needs_approval("every_echo", &json!({"message": "hi"})));
    assert_eq!(agent.toolbox.get("every_echo").unwrap().exclusive(&context()), None, "what only looks excludes nobody");
}

#[tokio::test]
async fn tools_of_a_program_work_as_ours() {
    let dir = tempfile::tempdir().unwrap();
    let agents = agents(dir.path(), &over_stdio("env = { COLOUR = \"blue\" }"));
    let agent = agents.assistant("a").await.unwrap();
    assert_works(&agent).await;
    // It has what the configuration gives it and nothing of the server's own environment.
    let env = call(&agent, "every_get-env", json!({}), &CancellationToken::new()).await.unwrap();
    let env: Value = serde_json::from_str(env.as_str().unwrap()).unwrap();
    assert_eq!(env["COLOUR"], "blue");
    let names: Vec<&String> = env.as_object().unwrap().keys().collect();
    let expected = ["COLOUR", "HOME", "LANG", "OLDPWD", "PATH", "PWD", "SHLVL", "_"];
    assert!(names.iter().all(|name| expected.contains(&name.as_str())), "{names:?}");
    agents.close().await;
}

#[tokio::test]
async fn a_program_that_dies_fails_its_calls_and_is_there_again_for_the_next_run() {
    let dir = tempfile::tempdir().unwrap();
    let own = "tools = [\"echo\"]\napproval = true\nprefix = \"\"\nexclusive = { echo = \"desk\" }";
    let agents = agents(dir.path(), &over_stdio(own));
    let pid = || std::fs::read_to_string(dir.path().join("pid")).unwrap();
    let (first, same) = (agents.assistant("a").await.unwrap(), agents.assistant("a").await.unwrap());
    let (go, hi) = (CancellationToken::new(), json!({"message": "hi"}));
    let names: Vec<String> = first.toolbox.specs().into_iter().map(|spec| spec.name).collect();
    assert_eq!(names, ["echo"]);
    assert!(first.toolbox.needs_approval("echo", &hi), "the configuration has the last word");
    let shared = first.toolbox.get("echo").unwrap().exclusive(&context());
    assert_eq!(shared.as_deref(), Some("name desk"), "here as well");
    call(&same, "echo", hi.clone(), &go).await.unwrap();
    let old = pid();
    let killed = std::process::Command::new("kill").args(["-9", old.trim()]).status().unwrap();
    assert!(killed.success());
    assert!(matches!(call(&first, "echo", hi.clone(), &go).await, Err(ToolError::Failed(_))));
    let next = agents.assistant("a").await.unwrap();
    assert_ne!(pid(), old);
    call(&next, "echo", hi.clone(), &go).await.unwrap();
    // At the end nothing of it is left.
    agents.close().await;
    assert!(matches!(call(&next, "echo", hi, &go).await, Err(ToolError::Failed(_))));
}

#[tokio::test]
async fn a_cancelled_call_ends_at_once_and_the_server_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let agents = agents(dir.path(), &over_stdio("per_run = true"));
    let agent = agents.assistant("a").await.unwrap();
    let cancel = CancellationToken::new();
    let long = json!({"duration": 600, "steps": 2});
    let soon = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        cancel.cancel();
    };
    let (ended, ()) = tokio::join!(call(&agent, "every_trigger-long-running-operation", long, &cancel), soon);
    assert_eq!(ended, Err(ToolError::Cancelled));
    assert_works(&agent).await;
}

#[tokio::test]
async fn a_program_that_speaks_no_mcp_is_told_of_in_time() {
    let dir = tempfile::tempdir().unwrap();
    for (section, expected) in [
        ("command = \"sh\"\nargs = [\"-c\", \"echo hello; sleep 600\"]\nstart_timeout_s = 1", "the tool server every"),
        ("command = \"no-such-program\"", "cannot be started"),
        ("command = \"sh\"\nenv_from = { TOKEN = \"RUNREEL_TEST_NOT_SET\" }", "RUNREEL_TEST_NOT_SET is not set"),
        ("url = \"http://127.0.0.1:1/mcp\"\nstart_timeout_s = 5", "the tool server every"),
    ] {
        let resolved = patiently("an answer", agents(dir.path(), section).assistant("a")).await;
        let told = resolved.map(|_| ()).unwrap_err().to_string();
        assert!(told.contains(expected), "{told}");
    }
}

#[tokio::test]
async fn tools_of_an_http_server_work_as_ours() {
    // A port that is free now; the server takes none by itself.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut process = tokio::process::Command::new("node")
        .arg(server())
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
    patiently("the server", async { while !lines.next_line().await.unwrap().unwrap().contains("listening") {} }).await;
    let dir = tempfile::tempdir().unwrap();
    let agents = agents(dir.path(), &format!("url = \"http://127.0.0.1:{port}/mcp\""));
    let agent = agents.assistant("a").await.unwrap();
    assert_works(&agent).await;
    process.kill().await.unwrap();
    let failed = call(&agent, "every_echo", json!({"message": "hi"}), &CancellationToken::new()).await;
    assert!(matches!(failed, Err(ToolError::Failed(_))), "{failed:?}");
    agents.close().await;
}
