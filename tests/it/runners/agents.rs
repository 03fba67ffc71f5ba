//! Agents that a runner carries out: the same story, the same state, wherever they are at work.

use crate::support::{api::Api, shared::shared};

mod answers;
mod deaths;
mod losses;
mod own;

use super::*;
use crate::{
    agents::{ask, assert_once, kinds, log, of, response, said, stands, with},
    support::{hands::Hands, process, until},
};

const ECHO: &str = "[agents.echo]\nmodel = \"echo\"\n";

#[tokio::test]
async fn an_agent_of_a_runner_tells_the_story_that_the_servers_own_would_tell() {
    let agents = with(ECHO, &[]);
    let own = agents.clone().start().await;
    let mut stories = Vec::new();
    let run = ask(&own, "echo", "hello you", json!({})).await;
    assert_eq!(response(&own, &run).await, "echo: hello you");
    stories.push(log(&own, &run).await);
    let server = Server::start().await;
    let _hands = Hands::of(&agents, &server);
    let run = ask(&server, "echo", "hello you", json!({})).await;
    assert_eq!(response(&server, &run).await, "echo: hello you");
    stories.push(log(&server, &run).await);
    assert_eq!(kinds(&stories[0]), kinds(&stories[1]));
    assert_eq!(said(&stories[0]), said(&stories[1]));
    assert_once(&stories[1]);
    // Nothing is left of it but its log.
    server.db.until_number("no job", JOBS, 0).await;
    server.db.until_number("no state", "select count(*) from store.checkpoint", 0).await;
}

const COUNT: &str = r#"
[[turns]]
text = "one {user}"
[[turns]]
text = "two {user}"
[[turns]]
text = "three {user}"
"#;

/// What the checkpoints of a thread hold, oldest first, without what is new in every run.
async fn states(server: &Api, thread: &str) -> Vec<(String, Value, Value)> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let text = |b: &Value| String::from_utf8(STANDARD.decode(b.as_str().unwrap()).unwrap()).unwrap();
    let page = server.get(&format!("/api/threads/{thread}/checkpoints")).await.expect(200);
    let states = page["checkpoints"].as_array().unwrap().iter().rev().map(|checkpoint| {
        let head: Value = serde_json::from_str(&text(&checkpoint["checkpoint"]["b"])).unwrap();
        let messages = text(&checkpoint["blobs"]["messages"]["b"]);
        (messages, checkpoint["metadata"].clone(), json!([head["v"], head["graph"], head["step"], head["next"]]))
    });
    states.collect()
}

#[tokio::test]
async fn a_conversation_that_a_server_began_goes_on_at_a_runner_and_comes_back() {
    let agents = with("[agents.count]\nmodel = \"script:count.toml\"\n", &[("count.toml", COUNT)]);
    let own = agents.clone().start().await;
    let on = |thread: &str| json!({ "thread_id": thread });
    for (words, answer) in [("a", "one a"), ("b", "two b"), ("c", "three c")] {
        let run = ask(&own, "count", words, on("at-home")).await;
        assert_eq!(response(&own, &run).await, answer);
    }
    let run = ask(&own, "count", "a", on("abroad")).await;
    assert_eq!(response(&own, &run).await, "one a");
    let db = std::sync::Arc::clone(&own.db);
    own.stop().await;
    let server = setup().on(&db).start().await;
    let hands = Hands::of(&agents, &server);
    let run = ask(&server, "count", "b", on("abroad")).await;
    assert_eq!(response(&server, &run).await, "two b");
    hands.stop().await;
    server.stop().await;
    let own = agents.on(&db).start().await;
    let run = ask(&own, "count", "c", on("abroad")).await;
    assert_eq!(response(&own, &run).await, "three c");
    assert_eq!(states(&own, "at-home").await, states(&own, "abroad").await);
}

#[tokio::test]
async fn a_channel_may_lead_to_an_agent_that_only_a_runner_has() {
    let server = setup().config("[channels.web]\nagent = \"echo\"\n").start().await;
    let body = crate::channels::accepted(&server, "is anybody there").await;
    let run = crate::channels::id(&body, "run_id");
    let _hands = Hands::of(&with(ECHO, &[]), &server);
    let answer = response(&server, &run).await;
    assert!(answer.starts_with("echo: ") && answer.ends_with("is anybody there"), "{answer}");
}

#[tokio::test]
async fn a_token_that_may_not_delete_is_enough_for_a_runner() {
    let server = setup().jwt().flags(&["--poll-ms", "50"]).start().await;
    let alice = server.as_subject("alice");
    let (scoped, _) = server.api_token("alice", &[Scope::Read, Scope::Emit], None, None).await;
    let _hands = Hands::of(&with(ECHO, &[]), &scoped);
    let run = ask(&alice, "echo", "hello", json!({})).await;
    assert_eq!(response(&alice, &run).await, "echo: hello");
    // By the server when the job ends, or at its next check for what has expired.
    let kept = "select count(*) from store.thread where ttl_s is distinct from 1";
    server.db.until_number("the run's state to be removed, or to be about to", kept, 0).await;
}

#[tokio::test]
async fn what_is_too_long_for_a_run_is_kept_as_an_artifact_of_the_server() {
    let config = "[tools.shell]\nroot = \"work\"\napproval = false\n[agents.loud]\nmodel = \"script:loud.toml\"\n\
        tools = [\"shell\"]\n";
    let script = r#"
        [[turns]]
        tool_calls = [{ name = "shell", args = { command = "head -c 150000 /dev/zero | tr '\\0' x" } }]
        [[turns]]
        text = "that was long"
    "#;
    let server = shared().await;
    let _hands = Hands::of(&with(config, &[("loud.toml", script)]), &server);
    let run = ask(&server, "loud", "shout", json!({})).await;
    assert_eq!(response(&server, &run).await, "that was long");
    let events = log(&server, &run).await;
    let kept = &of(&events, "artifact.created")[0]["payload"];
    let bytes = server.get(&format!("/api/artifacts/{}", kept["artifact_id"].as_str().unwrap())).await;
    assert!(bytes.text.contains(&"x".repeat(150_000)), "{} bytes", bytes.text.len());
    assert_eq!(of(&events, "tool.completed").len(), 1);
}

#[tokio::test]
async fn a_runner_says_what_is_missing_of_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let server = setup().jwt().start().await;
    let (half, _) = server.api_token("alice", &[Scope::Emit], None, None).await;
    let (empty, echo) = (file("empty.toml", ""), file("echo.toml", ECHO));
    let broken = file("broken.toml", "[agents.a]\nmodel = \"nothing\"\n");
    let cases: [(&[&str], &[&str]); 6] = [
        (&[], &["--config FILE", "--exec COMMAND"]),
        (&["--config", &empty], &["has no agents", "[agents.assistant]"]),
        (&["--config", &echo, "--agent", "other"], &["has no agent other", "it has: echo"]),
        (&["--config", &broken], &["line 2", "nothing"]),
        (&["--config", &echo, "--agent", "echo", "--exec", "cat"], &["--exec", "--config", "cannot be used with"]),
        (&["--exec", "cat"], &["--agent"]),
    ];
    for (words, expected) in cases {
        let said = process::run(process::program(&[&["runner"], words].concat()), "").await;
        assert_eq!(said.code, Some(2), "{words:?}: {}", said.stderr);
        for part in expected {
            assert!(said.stderr.contains(part), "{words:?}, {part}: {}", said.stderr);
        }
    }
    let mut blind = process::program(&["runner", "--config", &echo, "--url", &server.base]);
    blind.env("RUNREEL_TOKEN", half.token.as_ref().unwrap());
    let said = process::run(blind, "").await;
    assert_eq!(said.code, Some(5), "{}", said.stderr);
    assert!(said.stderr.contains("the scopes read and emit"), "{}", said.stderr);
}
