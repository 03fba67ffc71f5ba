//! What an agent's conversation costs, and how little of it stays behind.

use serde_json::{Value, json};

use super::{answer, ask, log, of, questions, response, with};
use crate::support::threads::{blob, value};

/// Everything that is stored of the states of threads, bytes.
const STORED: &str = "select (select coalesce(sum(length(b) + length(metadata::text) + length(versions::text)), 0)::bigint
                              from store.checkpoint)
                           + (select coalesce(sum(length(b) + length(channel) + length(version)), 0)::bigint from store.blob)
                           + (select coalesce(sum(length(b)), 0)::bigint from store.pending_write)";
const VALUES: &str = "select coalesce(sum(length(b)), 0)::bigint from store.blob";

#[tokio::test]
async fn eighty_turns_cost_what_they_say_and_not_the_square_of_it() {
    let server = with("[agents.echo]\nmodel = \"echo\"\n", &[]).start().await;
    let (mut values, mut stored) = (Vec::new(), Vec::new());
    for turn in 1..=80 {
        let run = ask(&server, "echo", &format!("{turn:0>500}"), json!({ "thread_id": "t" })).await;
        response(&server, &run).await;
        if turn % 20 == 0 {
            values.push(server.db.number(VALUES).await);
            server.inner.threads.prune_old().await.unwrap();
            stored.push(server.db.number(STORED).await);
        }
    }
    assert!(values[3] <= 400_000, "{values:?} bytes of values before old ones went");
    assert!(stored[3] <= 400_000, "{stored:?} bytes in all");
    // Twice the turns are at most twice the bytes.
    assert!(stored[3] <= stored[1] * 2 && stored[1] <= stored[0] * 2 + 10_000, "{stored:?}");
    let kept = server.db.number("select count(*) from store.checkpoint").await;
    assert_eq!(kept, 50);
    let said = server.db.number("select count(*) from store.blob where channel like 'messages%'").await;
    assert!(said < 150, "{said} pieces of a conversation");
}

const WINDOW: &str = "[models.small]\nmodel = \"echo\"\ncontext_tokens = 2000\n[agents.echo]\nmodel = \"small\"\n";

#[tokio::test]
async fn a_prompt_stays_within_the_models_window_and_the_log_says_what_was_left_out() {
    let server = with(WINDOW, &[]).start().await;
    let mut compacted = Vec::new();
    for turn in 0..12 {
        let run =
            ask(&server, "echo", &format!("request {turn} {}", "x".repeat(500)), json!({ "thread_id": "t" })).await;
        let said = response(&server, &run).await;
        assert!(said.starts_with(&format!("echo: request {turn} x")), "{said}");
        let events = log(&server, &run).await;
        let used = of(&events, "message.completed")[1]["payload"]["usage"]["input_tokens"].as_i64().unwrap();
        assert!(used < 2_000, "{used} tokens in turn {turn}");
        compacted.extend(of(&events, "state.compacted").into_iter().cloned());
    }
    let last = &compacted.last().expect("the window is too small for all of it")["payload"];
    assert!(last["tokens_after"].as_i64() < last["tokens_before"].as_i64(), "{last}");
    let summary = last["summary"].as_str().unwrap();
    assert!(summary.contains(". request ") && summary.contains("Messages in total"), "{summary}");
}

const ASKS: &str = r#"
[[turns]]
tool_calls = [{ name = "shell", args = { command = "true" } }]
[[turns]]
text = "done"
"#;

#[tokio::test]
async fn old_checkpoints_of_the_engine_go_and_the_one_a_run_waits_at_stays() {
    let setup = with("[agents.a]\nmodel = \"script:asks.toml\"\ntools = [\"shell\"]\n", &[("asks.toml", ASKS)]);
    let server = setup.flags(&["--checkpoints-keep", "3"]).start().await;
    let run = ask(&server, "a", "x", json!({ "thread_id": "t" })).await;
    let question = questions(&server, &run).await[0].clone();
    let waits = server.get("/api/threads/t/checkpoints/latest").await.expect(200)["checkpoint_id"].clone();
    let put = async |id: &str, source: &str| {
        let body = json!({
            "metadata": {"source": source}, "checkpoint": value(b"{}"), "versions": {"c": id}, "blobs": {"c": blob(id, b"x")},
        });
        server.put_checkpoint("t", id, body).await;
    };
    for n in 0..5 {
        // Before all others by their ids, and of another framework or of an engine.
        put(&format!("0000000{n}-0000-7000-8000-000000000000"), "graph").await;
        put(&format!("0000000{n}-0000-7000-8000-00000000000a"), "loop").await;
    }
    for n in 0..5 {
        put(&format!("ffffff0{n}-0000-7000-8000-000000000000"), "graph").await;
    }
    let gone = server.inner.threads.prune_old().await.unwrap();
    assert!(gone.checkpoints > 5 && gone.blobs > 5, "{gone:?}");
    let left = server.pages("/api/threads/t/checkpoints", "checkpoints").await;
    let left: Vec<&Value> = left.iter().map(|checkpoint| &checkpoint["checkpoint_id"]).collect();
    assert_eq!(left.len(), 3 + 1 + 5, "the newest three, the one it waits at, and what is no engine's: {left:?}");
    assert!(left.contains(&&waits), "{left:?}");
    assert_eq!(server.inner.threads.prune_old().await.unwrap().checkpoints, 0);
    answer(&server, &run, &question, "reject", json!(null)).await;
}

const LONG: &str = r#"
[[turns]]
tool_calls = [{ name = "files_read", args = { path = "long.txt" }, as = "long" }]
[[turns]]
tool_calls = [{ name = "read_artifact", args = { artifact_id = "{long.$artifact.artifact_id}", search = "needle" } }]
[[turns]]
text = "{tool.matches.0.offset}"
"#;

#[tokio::test]
async fn a_long_result_keeps_both_ends_and_the_agent_reads_the_rest_of_it() {
    let setup = with(
        "[tools.files]\nroot = \"files\"\n[agents.a]\nmodel = \"script:long.toml\"\ntools = [\"files\"]\n",
        &[("long.toml", LONG)],
    );
    let folder = setup.folder().path().join("files");
    std::fs::create_dir_all(&folder).unwrap();
    let text = format!("begin{}needle{}end", ".".repeat(40_000), ".".repeat(40_000));
    std::fs::write(folder.join("long.txt"), &text).unwrap();
    let server = setup.start().await;
    let run = ask(&server, "a", "x", json!({})).await;
    let found: usize = response(&server, &run).await.parse().unwrap();
    assert!((40_000..40_100).contains(&found), "{found}");
    let events = log(&server, &run).await;
    let result = &of(&events, "tool.completed")[0]["payload"]["result"];
    let preview = result["preview"].as_str().unwrap();
    assert!(
        preview.contains("begin...") && preview.contains("...end") && preview.contains("read_artifact"),
        "{preview}"
    );
    assert!(preview.len() < 11_000, "{}", preview.len());
}
