//! Conversations: messages in through a channel, answers out, sessions and threads in between.

mod codes;
mod crashes;
mod deliveries;
mod forms;
mod logs;
mod resumed;
mod served;
pub mod telegram;
mod threads;
mod transcript;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{
    api::Api,
    patiently,
    runs::parsed,
    server::{Server, manual_clock, setup},
    until,
};

pub const WEB: &str = "[channels.web]\nagent = \"echo\"\n";

/// What a message was answered with.
pub async fn say(api: &Api, channel: &str, message: Value) -> (u16, Value) {
    let reply = api.post(&format!("/api/channels/{channel}/messages"), message).await;
    (reply.status, reply.json())
}

/// A message of user 5 in his own chat, which is accepted.
pub async fn accepted(api: &Api, text: &str) -> Value {
    let (status, body) =
        say(api, "web", json!({ "chat_id": "5", "user_id": "5", "username": "ann", "text": text })).await;
    assert_eq!((status, &body["outcome"]), (202, &json!("accepted")), "{body}");
    body
}

pub fn id(body: &Value, name: &str) -> String {
    body[name].as_str().unwrap_or_else(|| panic!("{name}: {body}")).to_owned()
}

/// Carries out an agent's run as its agent would.
pub async fn answer(api: &Api, run: &str, text: &str) {
    let events = json!([
        { "type": "run.started" },
        { "type": "message.completed", "span_id": "m", "payload": { "role": "assistant", "content": [{ "type": "text", "text": text }] } },
        { "type": "run.completed", "payload": { "output": { "text": text } } },
    ]);
    api.emit(run, events).await;
}

/// How the router's run tells the story: its steps, and what it ended with.
pub async fn story(api: &Api, body: &Value) -> (Vec<String>, Value) {
    let run = id(body, "router_run_id");
    let events: Vec<Value> = api.events(&run).await.iter().map(parsed).collect();
    let completed = events.iter().filter(|event| event["type"] == "step.completed");
    let steps = completed.map(|event| {
        assert!(event["payload"]["duration_ms"].as_f64().unwrap() >= 0.0);
        event["payload"]["name"].as_str().unwrap().to_owned()
    });
    (steps.collect(), events.last().unwrap()["payload"]["output"].clone())
}

/// The lines of a session's log, each as role and content.
pub async fn log(api: &Api, session: &str) -> Vec<(String, Value)> {
    let reply = api.get(&format!("/api/sessions/{session}/log.jsonl")).await;
    assert_eq!((reply.status, reply.headers["content-type"].to_str().unwrap()), (200, "application/x-ndjson"));
    let lines = reply.text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| {
            let mut members: Vec<&String> = line.as_object().unwrap().keys().collect();
            members.sort();
            assert_eq!(members, ["channel", "content", "role", "ts", "user_id"]);
            (line["role"].as_str().unwrap().to_owned(), line["content"].clone())
        })
        .collect()
}

#[tokio::test]
async fn a_conversation_goes_on_one_thread_until_a_new_session_is_asked_for() {
    let server = setup().config(WEB).start().await;
    let first = accepted(&server, "hello").await;
    assert_eq!(
        (id(&first, "thread_id"), id(&first, "stream_url")),
        ("web_5".to_owned(), format!("/api/stream/runs/{}", id(&first, "run_id")))
    );
    let run = server.run(&id(&first, "run_id")).await;
    assert_eq!(
        (&run["status"], &run["agent"], &run["thread_id"], &run["session_id"]),
        (&json!("queued"), &json!("echo"), &json!("web_5"), &first["session_id"])
    );
    let text = run["input"]["messages"][0]["content"][0]["text"].as_str().unwrap();
    assert!(text.ends_with("Z] [ann]: hello") && text.starts_with("[20"), "{text}");
    let (steps, output) = story(&server, &first).await;
    assert_eq!(steps, ["resolve", "start"], "nobody is identified on an open channel");
    assert_eq!((&output["run_id"], &output["new_session"]), (&first["run_id"], &json!(true)));
    assert_eq!(run["metadata"]["router_run_id"], first["router_run_id"]);

    answer(&server, &id(&first, "run_id"), "hi").await;
    let second = accepted(&server, "again").await;
    assert_eq!((&second["session_id"], &second["thread_id"]), (&first["session_id"], &first["thread_id"]));

    for (n, reset) in [json!({ "text": "/new" }), json!({ "reset_session": true })].into_iter().enumerate() {
        let mut message = json!({ "chat_id": 5, "user_id": 5 });
        message.as_object_mut().unwrap().extend(reset.as_object().unwrap().clone());
        let (status, body) = say(&server, "web", message).await;
        assert_eq!(
            (status, &body["outcome"], &body["reason"]),
            (200, &json!("filtered"), &json!("session_reset")),
            "{n}"
        );
        assert_eq!(story(&server, &body).await.1["reason"], "session_reset");
    }
    let third = accepted(&server, "anew").await;
    assert_eq!(third["thread_id"], "web_5_s2", "two resets, so the second");
    assert_ne!(third["session_id"], first["session_id"]);

    let sessions = server.get("/api/sessions?channel=web&chat_id=5").await.expect(200)["sessions"].clone();
    let told: Vec<_> = sessions
        .as_array()
        .unwrap()
        .iter()
        .map(|s| (s["thread_id"].clone(), s["messages"].clone(), s["end_reason"].clone()))
        .collect();
    assert_eq!(told, [(json!("web_5_s2"), json!(1), Value::Null), (json!("web_5"), json!(2), json!("reset"))]);
    let runs = server.get("/api/threads/web_5/runs").await.expect(200)["runs"].as_array().unwrap().len();
    assert_eq!(runs, 2, "the router's runs are on no thread");
}

#[tokio::test]
async fn the_log_of_a_session_has_what_was_said_and_answered() {
    let server = setup().config(WEB).start().await;
    let first = accepted(&server, "hello").await;
    answer(&server, &id(&first, "run_id"), "hi\nthere").await;
    let session = id(&first, "session_id");
    until("the answer in the log", || async { log(&server, &session).await.len() == 2 }).await;
    assert_eq!(
        log(&server, &session).await,
        [("user".to_owned(), json!("hello")), ("assistant".to_owned(), json!("hi\nthere"))]
    );
    // It is counted right after it stands in the log.
    server.db.until_number("it counts", "select messages * 10 + answers from store.session", 11).await;
}

#[tokio::test]
async fn who_waits_gets_the_answer() {
    let server = setup().config(WEB).start().await;
    let api = server.api.clone();
    let asked = tokio::spawn(async move {
        let message = json!({ "chat_id": "5", "user_id": "5", "text": "hello", "message_id": "m1" });
        api.post("/api/channels/web/messages?wait=true", message).await.expect(202)
    });
    until("the run", || async { server.get("/api/runs?agent=echo").await.expect(200)["runs"][0].is_object() }).await;
    let run = id(&server.get("/api/runs?agent=echo").await.expect(200)["runs"][0], "run_id");
    answer(&server, &run, "echo").await;
    let body = patiently("the answer", asked).await.unwrap();
    assert_eq!((&body["response"], &body["status"], id(&body, "run_id")), (&json!("echo"), &json!("completed"), run));
    assert_eq!(log(&server, &id(&body, "session_id")).await.len(), 2, "the answer is in the log before it is given");
    let reply = server
        .post("/api/channels/web/messages?wait=true", json!({ "chat_id": "5", "user_id": "5", "text": "/new" }))
        .await;
    assert!(id(&reply.expect(200), "response").starts_with("A new session"));
}

#[tokio::test]
async fn after_the_idle_time_a_session_is_over() {
    let clock = manual_clock();
    let text = "[channels.web]\nidle_timeout_s = 60\n[channels.one]\nidle_timeout_s = 60\nthread_per_session = false\n";
    let server = setup().clock(&clock).config(text).start().await;
    let message = json!({ "chat_id": "5", "user_id": "5", "text": "hello" });
    for (channel, threads) in [("web", ["web_5", "web_5", "web_5_s1"]), ("one", ["one_5", "one_5", "one_5"])] {
        let mut bodies = Vec::new();
        for wait in [0, 59, 60] {
            server.pass(Duration::from_secs(wait));
            bodies.push(say(&server, channel, message.clone()).await.1);
        }
        let found: Vec<String> = bodies.iter().map(|body| id(body, "thread_id")).collect();
        assert_eq!(found, threads);
        assert_eq!(bodies[0]["session_id"], bodies[1]["session_id"]);
        assert_ne!(bodies[1]["session_id"], bodies[2]["session_id"], "{channel}: one thread may have many sessions");
        let sessions = server.get(&format!("/api/sessions?channel={channel}")).await.expect(200)["sessions"].clone();
        assert_eq!((&sessions[0]["ended_at"], &sessions[1]["end_reason"]), (&Value::Null, &json!("idle")));
        assert_eq!(sessions[1]["ended_at"], sessions[0]["started_at"], "it ended when the time had passed");
    }
}

#[tokio::test]
async fn a_session_that_is_ended_over_the_api_is_followed_by_a_new_one() {
    let server = setup().config(WEB).start().await;
    let first = accepted(&server, "hello").await;
    let path = format!("/api/sessions/{}/end", id(&first, "session_id"));
    let ended = server.post(&path, json!({})).await.expect(200);
    assert_eq!(ended["end_reason"], "ended");
    assert_eq!(server.post(&path, json!({})).await.expect(200), ended, "once");
    let second = accepted(&server, "hello").await;
    assert_eq!(second["thread_id"], "web_5_s1");
    server.post("/api/sessions/nobody/end", json!({})).await.refused(404, "not_found");
    let page = server.get("/api/sessions?limit=1").await.expect(200);
    let next = server.get(&format!("/api/sessions?limit=1&cursor={}", id(&page, "next_cursor"))).await.expect(200);
    assert_eq!(
        (&page["sessions"][0]["session_id"], &next["sessions"][0]["session_id"]),
        (&second["session_id"], &first["session_id"])
    );
    assert_eq!(next["next_cursor"], Value::Null);
    server.get("/api/sessions?cursor=x").await.refused(400, "invalid_cursor");
}

#[tokio::test]
async fn what_starts_no_run_says_why_on_a_timeline_of_its_own() {
    let server = setup().config("[channels.web]\nallowed_users = [\"5\"]\ntrigger = \"@Reel\"\n").start().await;
    let group = |text: &str| json!({ "chat_id": "g", "user_id": "5", "text": text, "is_private": false });
    for (message, reason, steps) in [
        (json!({ "chat_id": "7", "user_id": "secret-77", "text": "let me in" }), "not_allowed", 1),
        (group("hello all"), "no_trigger", 2),
        (json!({ "chat_id": "5", "user_id": "5", "text": " " }), "empty", 2),
        (json!({ "chat_id": "5", "user_id": "5" }), "empty", 2),
        (group("@reel"), "empty", 2),
        (group("@REEL /new"), "session_reset", 2),
    ] {
        let (status, body) = say(&server, "web", message).await;
        assert_eq!((status, &body["outcome"], &body["reason"]), (200, &json!("filtered"), &json!(reason)), "{body}");
        assert!(body.get("run_id").is_none() && body.get("response").is_none());
        let (told, output) = story(&server, &body).await;
        assert_eq!((told.len(), &output["reason"]), (steps, &json!(reason)), "{told:?}");
        let router = id(&body, "router_run_id");
        let all = server.events(&router).await.concat() + &server.run(&router).await.to_string();
        assert!(!all.contains("secret-77") && !all.contains("let me in"), "{all}");
    }
    assert_eq!(server.get("/api/runs?agent=assistant").await.expect(200)["runs"], json!([]));
    let (_, body) = say(&server, "web", group("@reel what is it?")).await;
    let run = server.run(&id(&body, "run_id")).await;
    assert_eq!(story(&server, &body).await.0, ["identify", "resolve", "start"], "who is on a list is identified");
    assert!(run["input"].to_string().contains("]: what is it?"), "the trigger is taken off: {run}");
    assert_eq!(run["thread_id"], "web_g_s1", "the reset before counts");
}

#[tokio::test]
async fn an_image_travels_with_its_text() {
    let server = setup().config(WEB).start().await;
    let image = "iVBORw0KGgo="; // the first bytes of every PNG
    let message = |image: &str, kind: Value| json!({ "chat_id": "5", "user_id": "5", "image_base64": image, "image_media_type": kind });
    let (status, body) = say(&server, "web", message(image, json!("image/png"))).await;
    assert_eq!(status, 202, "an image alone is a message: {body}");
    let run = server.run(&id(&body, "run_id")).await;
    let parts = &run["input"]["messages"][0]["content"];
    assert_eq!(parts.as_array().unwrap().len(), 2);
    assert_eq!(parts[1]["url"], format!("data:image/png;base64,{image}"));
    let lines = log(&server, &id(&body, "session_id")).await;
    assert_eq!((&lines[0].1[1]["media_type"], &lines[0].1[1]["size"]), (&json!("image/png"), &json!(8)));
    for (image, kind, status, code) in [
        ("nonsense!", Value::Null, 400, "invalid_request"),
        ("PHN2Zz4=", json!("image/svg+xml"), 415, "unsupported_media_type"),
        ("PHN2Zz4=", Value::Null, 415, "unsupported_media_type"),
        (image, json!("image/jpeg"), 415, "unsupported_media_type"),
    ] {
        server.post("/api/channels/web/messages", message(image, kind)).await.refused(status, code);
    }
    let large = "A".repeat(7 * 1024 * 1024);
    server.post("/api/channels/web/messages", message(&large, Value::Null)).await.refused(413, "too_large");
    let listed = async |query: &str| server.get(&format!("/api/runs{query}")).await.expect(200)["runs"].clone();
    for (query, role) in [("", "agent"), ("?role=agent", "agent"), ("?role=router", "router")] {
        let runs = listed(query).await;
        assert_eq!((runs.as_array().unwrap().len(), &runs[0]["role"]), (1, &json!(role)), "{query}");
    }
    server.get("/api/runs?role=owner").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_message_out_of_bounds_is_refused_whole() {
    let server = setup().config(WEB).start().await;
    server.post("/api/channels/nowhere/messages", json!({})).await.refused(404, "not_found");
    server.post("/api/channels/a%2Fb/messages", json!({})).await.refused(404, "not_found");
    for (members, status, code) in [
        (json!({ "chat_id": "" }), 400, "invalid_request"),
        (json!({ "chat_id": "a\nb" }), 400, "invalid_request"),
        (json!({ "user_id": "x".repeat(129) }), 400, "invalid_request"),
        (json!({ "message_id": "" }), 400, "invalid_request"),
        (json!({ "username": "a\u{7}b" }), 400, "invalid_request"),
        (json!({ "text": "a\u{0}b" }), 400, "invalid_request"),
        (json!({ "text": "x".repeat(33_000) }), 413, "too_large"),
        (json!({ "ts": "yesterday" }), 400, "invalid_request"),
        (json!({ "tetx": "hello" }), 400, "invalid_request"),
    ] {
        let mut message = json!({ "chat_id": "5", "user_id": "5", "text": "hello" });
        message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        server.post("/api/channels/web/messages", message).await.refused(status, code);
    }
    assert_eq!(server.db.number("select count(*) from store.inbound").await, 0);
    assert_eq!(server.db.number("select count(*) from store.run").await, 0);
}

#[tokio::test]
async fn the_same_channel_and_chat_of_two_principals_never_meet() {
    let server = setup().jwt().config(WEB).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let message = json!({ "chat_id": "5", "user_id": "5", "text": "hello", "message_id": "m" });
    let (hers, his) = (say(&alice, "web", message.clone()).await.1, say(&bob, "web", message).await.1);
    assert_eq!((&hers["outcome"], &his["outcome"]), (&json!("accepted"), &json!("accepted")));
    assert_eq!((&hers["thread_id"], &his["thread_id"]), (&json!("web_5"), &json!("web_5")));
    assert_ne!(hers["session_id"], his["session_id"]);
    assert_eq!(say(&alice, "web", json!({ "chat_id": "5", "user_id": "5", "text": "/new" })).await.0, 200);
    assert_eq!(accepted(&bob, "still here").await["thread_id"], "web_5");
    assert_eq!(accepted(&alice, "anew").await["thread_id"], "web_5_s1");
    for (api, own, foreign) in [(&alice, &hers, &his), (&bob, &his, &hers)] {
        assert!(log(api, &id(own, "session_id")).await.iter().all(|(_, content)| content != "anew"));
        for path in ["log.jsonl", "end"] {
            let path = format!("/api/sessions/{}/{path}", id(foreign, "session_id"));
            let reply = if path.ends_with("end") { api.post(&path, json!({})).await } else { api.get(&path).await };
            reply.refused(404, "not_found");
        }
        api.get(&format!("/api/runs/{}", id(foreign, "run_id"))).await.refused(404, "not_found");
        api.get(&format!("/api/runs/{}", id(foreign, "router_run_id"))).await.refused(404, "not_found");
    }
    let sessions = |body: Value| body["sessions"].as_array().unwrap().len();
    assert_eq!(sessions(alice.get("/api/sessions").await.expect(200)), 2);
    assert_eq!(sessions(bob.get("/api/sessions").await.expect(200)), 1);
}

#[tokio::test]
async fn the_view_of_sessions_tells_of_channels_and_of_labels() {
    let server: Server = setup().config(WEB).start().await;
    accepted(&server, "hello").await;
    server.create(json!({ "session_id": "label", "thread_id": "t" })).await;
    let query = "select channel, chat_id, thread_id, runs, messages from sessions order by runs, thread_id".to_owned();
    let table = runreel::store::query::run(&server.db.reader(), query, Duration::from_secs(5)).await.unwrap();
    let rows: Vec<String> = table
        .rows
        .iter()
        .map(|row| row.iter().map(|cell| cell.as_deref().unwrap_or("∅")).collect::<Vec<_>>().join("|"))
        .collect();
    assert_eq!(rows, ["∅|∅|t|1|∅", "web|5|web_5|1|1"]);
}
