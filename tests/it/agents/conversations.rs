//! What an agent says, and what it remembers of a thread.

use futures::future::join_all;
use serde_json::{Value, json};

use super::{ask, kinds, log, of, response, said, with};
use crate::support::{patiently, sse::envelopes, until};

const ECHO: &str = "[agents.echo]\nmodel = \"echo\"\n";

#[tokio::test]
async fn a_run_of_an_agent_tells_its_whole_story_in_order() {
    let server = with(ECHO, &[]).start().await;
    let run = ask(&server, "echo", "hello you", json!({})).await;
    assert_eq!(response(&server, &run).await, "echo: hello you");
    let events = log(&server, &run).await;
    assert_eq!(
        kinds(&events),
        [
            "run.created",
            "run.started",
            "message.completed",
            "step.started",
            "message.completed",
            "step.completed",
            "run.completed",
        ]
    );
    let pair = |role: &str, text: &str| (role.to_owned(), text.to_owned());
    assert_eq!(said(&events), [pair("user", "hello you"), pair("assistant", "echo: hello you")]);
    assert_eq!(events[6]["payload"], json!({ "output": { "response": "echo: hello you" } }));
    assert_eq!(
        (&events[4]["payload"]["usage"]["output_tokens"], &events[4]["payload"]["model"]),
        (&json!(3), &json!("echo"))
    );
    assert_eq!((&events[3]["span_id"], &events[4]["parent_span_id"]), (&events[5]["span_id"], &events[3]["span_id"]));
    assert!(events.iter().all(|event| event["agent"] == "echo" && event["role"] == "agent"), "{events:?}");
    // Nothing is left of it but its log.
    server.db.until_number("no job", super::JOBS, 0).await;
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

#[tokio::test]
async fn the_next_run_of_a_thread_goes_on_with_its_conversation() {
    let setup = with("[agents.count]\nmodel = \"script:count.toml\"\n", &[("count.toml", COUNT)]);
    let server = setup.clone().start().await;
    let on = |thread: &str| json!({ "thread_id": thread });
    let first = ask(&server, "count", "a", on("t")).await;
    assert_eq!(response(&server, &first).await, "one a");
    let second = ask(&server, "count", "b", on("t")).await;
    assert_eq!(response(&server, &second).await, "two b");
    let other = ask(&server, "count", "c", on("u")).await;
    assert_eq!(response(&server, &other).await, "one c", "another thread begins anew");
    assert_eq!(said(&log(&server, &second).await).len(), 2, "a run tells what is new in it");

    let db = std::sync::Arc::clone(&server.db);
    server.stop().await;
    let server = setup.on(&db).start().await;
    let third = ask(&server, "count", "d", on("t")).await;
    assert_eq!(response(&server, &third).await, "three d", "and after a restart");
    let kept = server.get("/api/threads/t/checkpoints/latest").await.expect(200);
    let messages = crate::support::threads::bytes_of(&kept["blobs"]["messages"]);
    let messages: Value = serde_json::from_slice(&messages).unwrap();
    let texts: Vec<&str> =
        messages.as_array().unwrap().iter().map(|message| message["content"][0]["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["a", "one a", "b", "two b", "d", "three d"]);
}

#[tokio::test]
async fn runs_of_one_thread_made_at_once_go_one_after_the_other() {
    let script = "repeat = true\n[[turns]]\ntext = \"{user}\"\ndelay_ms = 30\n";
    let server = with("[agents.slow]\nmodel = \"script:slow.toml\"\n", &[("slow.toml", script)]).start().await;
    let mut feed = server.stream("/api/stream/runs").await;
    let all = (0..8).map(|n| ask(&server, "slow", "x", json!({ "thread_id": format!("t{}", n % 2) })).map_into(n % 2));
    let made: Vec<(String, i32)> = join_all(all).await;
    let mut events: Vec<Value> = Vec::new();
    while of(&events, "run.completed").len() < made.len() {
        events.extend(envelopes(&feed.durable(1).await).iter().map(crate::support::runs::parsed));
    }
    let mut side_by_side = false;
    for thread in 0..2 {
        let (mut at_work, mut ended) = (None, 0);
        for event in &events {
            let run = event["run_id"].as_str().unwrap();
            if !made.iter().any(|(made, on)| made == run && *on == thread) {
                side_by_side |= at_work.is_some() && event["type"] == "step.started";
                continue;
            }
            match event["type"].as_str().unwrap() {
                "run.created" => {}
                "run.started" => assert_eq!(at_work.replace(run), None, "two at a time"),
                "run.completed" => {
                    assert_eq!(at_work.take(), Some(run));
                    ended += 1;
                }
                _ => assert_eq!(at_work, Some(run)),
            }
        }
        assert_eq!(ended, 4);
    }
    assert!(side_by_side, "threads do not wait for each other");
}

trait MapInto: Future<Output = String> + Sized {
    async fn map_into<T>(self, with: T) -> (String, T) {
        (self.await, with)
    }
}

impl<F: Future<Output = String>> MapInto for F {}

#[tokio::test]
async fn an_agent_answers_in_a_channel_and_the_conversation_is_in_the_log() {
    let config = "[channels.web]\nagent = \"count\"\n[agents.count]\nmodel = \"script:count.toml\"\n";
    let server = with(config, &[("count.toml", COUNT)]).start().await;
    let say = async |text: &str| {
        let message = json!({ "chat_id": "5", "user_id": "5", "username": "ann", "text": text });
        patiently("the answer", server.post("/api/channels/web/messages?wait=true", message)).await.expect(202)
    };
    let first = say("hello").await;
    let answer = first["response"].as_str().unwrap();
    assert!(answer.starts_with("one [20") && answer.ends_with("Z] [ann]: hello"), "{answer}");
    let second = say("again").await;
    assert!(second["response"].as_str().unwrap().starts_with("two ["), "{second}");
    assert_eq!(first["thread_id"], second["thread_id"]);
    let lines = || async {
        let path = format!("/api/sessions/{}/log.jsonl", first["session_id"].as_str().unwrap());
        server.get(&path).await.text.lines().map(|line| crate::support::runs::parsed(&line)).collect::<Vec<Value>>()
    };
    until("the answers in the log", || async { lines().await.len() == 4 }).await;
    let roles: Vec<Value> = lines().await.into_iter().map(|line| line["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
}
