//! A message whose routing stops in the middle: it is routed again to the same end, and a question is asked once.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{WEB, id, say};
use crate::support::{
    api::Api,
    cluster::{Db, execute},
    runs::{new_run_id, parsed},
    server::{Server, manual_clock, setup},
};

const CODES: &str = "[channels.web]\nagent = \"echo\"\nauth = \"code\"\n";

/// A table that takes nothing of a kind, until it is let go. The trigger stays: to drop it from under a server that works
/// would be a lock on the whole table, and perhaps a deadlock.
struct Trouble {
    connection: PgConnection,
    function: String,
}

impl Trouble {
    async fn on(db: &Arc<Db>, table: &str, what: &str) -> Self {
        let mut connection = db.connect().await;
        let function = format!("trouble_{}", new_run_id().replace('-', ""));
        let text = format!(
            "create function public.{function}() returns trigger language plpgsql as
                 $$ begin raise exception 'no room'; end $$;
             create trigger {function} before insert or update on store.{table} for each row when ({what})
                 execute function public.{function}()"
        );
        execute(&mut connection, text).await;
        Self { connection, function }
    }

    async fn over(mut self) {
        let text = format!(
            "create or replace function public.{}() returns trigger language plpgsql as
                 $$ begin return new; end $$",
            self.function
        );
        execute(&mut self.connection, text).await;
    }
}

/// What a run tells, without what differs from one attempt to the next and from one clock to another.
async fn told(api: &Api, run: &str) -> Vec<(String, Value, Value, Value)> {
    let events: Vec<Value> = api.events(run).await.iter().map(parsed).collect();
    // An attempt that failed tells where it was and why.
    let events = events.into_iter().filter(|event| event["type"] != "log.warn" && event["type"] != "step.started");
    let story = events.map(|event| {
        let kind = event["type"].as_str().unwrap().to_owned();
        // A checkpoint's id is new with each message.
        let span = if kind == "state.checkpointed" { Value::Null } else { event["span_id"].clone() };
        let payload = &event["payload"];
        let next = if kind == "state.checkpointed" { payload["next"].clone() } else { payload["name"].clone() };
        (kind, span, next, payload["output"]["outcome"].clone())
    });
    story.collect()
}

fn hello(name: &str) -> Value {
    json!({ "chat_id": name, "user_id": "5", "text": "hello", "message_id": name })
}

/// The delivery again, after the pause that a message rests which could not be routed; or the inbox was looked into first.
async fn once_more(server: &Server, message: Value) -> Value {
    server.pass(Duration::from_mins(2));
    let (status, body) = say(server, "web", message).await;
    assert!(status == 202 || body["outcome"] == "filtered", "{body}");
    server.db.until_number("all done", "select count(*) from store.inbound where state <> 'done'", 0).await;
    body
}

#[tokio::test]
async fn a_message_that_is_stopped_between_any_two_nodes_tells_the_same_story_once() {
    let server = setup().clock(&manual_clock()).config(WEB).start().await;
    let (_, whole) = say(&server, "web", hello("whole")).await;
    let router = id(&whole, "router_run_id");
    let timeline = server.get(&format!("/api/runs/{router}/timeline")).await.expect(200);
    let nodes: Vec<&String> = timeline["summary"]["node_durations_ms"].as_object().unwrap().keys().collect();
    assert_eq!(nodes, ["resolve", "start"]);
    assert_eq!(server.run(&router).await["node_durations_ms"], timeline["summary"]["node_durations_ms"]);
    let whole = told(&server, &router).await;
    let kinds: Vec<&str> = whole.iter().map(|(kind, ..)| kind.as_str()).collect();
    assert_eq!(kinds, ["run.created", "run.started", "step.completed", "step.completed", "run.completed"]);
    let mut messages = 1;
    for (table, what) in [
        ("session", "new.messages > 0"),
        ("reply", "true"),
        ("run", "new.agent = 'echo'"),
        ("run_event", "new.agent = 'echo'"),
        ("run_event", "new.agent = 'router'"),
        ("run_event", "new.agent = 'router' and new.type = 'run.completed'"),
        ("inbound", "new.state = 'done'"),
    ] {
        let name = format!("{table}{messages}");
        let trouble = Trouble::on(&server.db, table, what).await;
        let (status, body) = say(&server, "web", hello(&name)).await;
        assert_eq!((status, &body["outcome"]), (202, &json!("queued")), "{name}: {body}");
        trouble.over().await;
        let body = once_more(&server, hello(&name)).await;
        assert_eq!(told(&server, &id(&body, "router_run_id")).await, whole, "{name}");
        messages += 1;
    }
    assert_eq!(server.db.number("select count(*) from store.run where agent = 'echo'").await, messages);
    assert_eq!(server.db.number("select sum(messages)::bigint from store.session").await, messages);
    let threads = "select count(*) from store.thread where thread_id like 'run:%'";
    assert_eq!(server.db.number(threads).await, 0, "a message that is not asked about keeps no state");
}

async fn code(server: &Server) -> String {
    id(&server.post("/api/channels/web/codes", json!({})).await.expect(201), "code")
}

fn of_user(text: &str, message: &str) -> Value {
    json!({ "chat_id": "5", "user_id": "5", "text": text, "message_id": message })
}

/// How often the run told each part of its question.
async fn question(server: &Server, router: &str) -> Vec<(String, usize)> {
    let told = told(server, router).await;
    let kinds = ["interrupt.requested", "run.interrupted", "interrupt.resolved", "run.resumed", "run.completed"];
    kinds.map(|kind| (kind.to_owned(), told.iter().filter(|(told, ..)| told == kind).count())).to_vec()
}

fn each_once(kinds: &[(String, usize)]) -> bool {
    kinds.iter().all(|(_, times)| *times == 1)
}

#[tokio::test]
async fn a_held_message_goes_on_from_its_question_wherever_that_was_left() {
    for what in ["interrupt.requested", "run.interrupted", "interrupt.resolved", "run.completed"] {
        let server = setup().clock(&manual_clock()).config(CODES).start().await;
        let trouble = Trouble::on(&server.db, "run_event", &format!("new.type = '{what}'")).await;
        let (status, first) = say(&server, "web", of_user("what is the weather?", "m1")).await;
        let is_asked = !matches!(what, "interrupt.requested" | "run.interrupted");
        assert_eq!(status, if is_asked { 200 } else { 202 }, "{what}: {first}");
        let kept = "select ttl_s from store.thread where thread_id like 'run:%'";
        assert_eq!(server.db.number(kept).await, 0, "{what}: the question outlives every time to live");
        if is_asked {
            let good = code(&server).await;
            assert_eq!(say(&server, "web", of_user(&good, "m2")).await.1["outcome"], "queued", "{what}");
            trouble.over().await;
            once_more(&server, of_user(&good, "m2")).await;
        } else {
            trouble.over().await;
            let good = code(&server).await;
            let (status, body) = say(&server, "web", of_user(&good, "m2")).await;
            assert_eq!((status, &body["outcome"]), (202, &json!("accepted")), "{what}: {body}");
        }
        let held = "select count(*) from store.run where agent = 'echo' and input::text like '%the weather?%'";
        server.db.until_number("it goes its way", held, 1).await;
        assert_eq!(server.db.number("select count(*) from store.run where agent = 'echo'").await, 1, "{what}");
        let (_, again) = say(&server, "web", of_user("what is the weather?", "m1")).await;
        let kinds = question(&server, &id(&again, "router_run_id")).await;
        if is_asked {
            assert!(each_once(&kinds), "{what}: {kinds:?}");
        } else {
            // What could not be asked was answered all the same.
            assert_eq!(kinds.iter().map(|(_, times)| *times).collect::<Vec<_>>(), [0, 0, 0, 0, 1], "{what}");
        }
        let threads = "select count(*) from store.thread where thread_id like 'run:%'";
        assert_eq!(server.db.number(threads).await, 0, "{what}");
    }
}

#[tokio::test]
async fn a_code_whose_message_was_not_put_away_is_no_message_to_the_agent() {
    let server = setup().clock(&manual_clock()).config(CODES).start().await;
    let good = code(&server).await;
    let trouble = Trouble::on(&server.db, "inbound", "new.state = 'done'").await;
    assert_eq!(say(&server, "web", of_user(&good, "m1")).await.1["outcome"], "queued");
    trouble.over().await;
    once_more(&server, of_user(&good, "m1")).await;
    assert_eq!(server.db.number("select count(*) from store.inbound where reason = 'code_accepted'").await, 1);
    assert_eq!(server.db.number("select count(*) from store.run where agent = 'echo'").await, 0);
}

#[tokio::test]
async fn a_wrong_code_counts_once_however_often_its_message_is_routed() {
    let server = setup().clock(&manual_clock()).config(CODES).start().await;
    let trouble = Trouble::on(&server.db, "run_event", "new.agent = 'router'").await;
    assert_eq!(say(&server, "web", of_user("ABCD-2345", "m1")).await.1["outcome"], "queued");
    trouble.over().await;
    once_more(&server, of_user("ABCD-2345", "m1")).await;
    assert_eq!(server.db.number("select count(*) from store.inbound where reason = 'code_wrong'").await, 1);
    assert_eq!(server.db.number("select max(tries)::bigint from store.channel_tries").await, 1);
}

#[tokio::test]
async fn a_code_of_a_user_who_needs_none_is_spent_and_told_to_no_agent() {
    let server = setup().config(CODES).start().await;
    let (first, second) = (code(&server).await, code(&server).await);
    assert_eq!(say(&server, "web", of_user(&first, "m1")).await.1["reason"], "code_accepted");
    for (text, message) in [(&first, "m2"), (&second, "m3"), (&second, "m4")] {
        assert_eq!(say(&server, "web", of_user(text, message)).await.1["reason"], "code_accepted", "{message}");
    }
    assert_eq!(server.db.number("select count(*) from store.run where agent = 'echo'").await, 0);
    assert_eq!(server.db.number("select count(*) from store.channel_code where used_at is null").await, 0);
    let other = json!({ "chat_id": "6", "user_id": "6", "text": second, "message_id": "m5" });
    assert_eq!(say(&server, "web", other).await.1["reason"], "code_wrong", "it is nobody else's any more");
}

#[tokio::test]
async fn of_two_first_messages_at_once_one_waits_and_the_other_is_told_so() {
    let server = setup().config(CODES).start().await;
    let all = (0..6).map(|n| {
        let message =
            json!({ "chat_id": format!("c{n}"), "user_id": "5", "text": "hello", "message_id": format!("m{n}") });
        say(&server, "web", message)
    });
    for (status, body) in futures::future::join_all(all).await {
        assert_eq!((status, &body["reason"]), (200, &json!("code_wanted")), "{body}");
    }
    assert_eq!(server.db.number("select count(*) from store.inbound where state = 'held'").await, 1);
    let good = code(&server).await;
    assert_eq!(say(&server, "web", of_user(&good, "m9")).await.1["outcome"], "accepted");
    assert_eq!(server.db.number("select count(*) from store.inbound where state in ('held', 'open')").await, 0);
}

#[tokio::test]
async fn who_answers_the_question_without_a_code_lets_nobody_in() {
    let server = setup().config(CODES).start().await;
    let (_, held) = say(&server, "web", of_user("what is the weather?", "m1")).await;
    let router = id(&held, "router_run_id");
    let asked: Vec<Value> = server.events(&router).await.iter().map(parsed).collect();
    let asked = asked.iter().find(|event| event["type"] == "interrupt.requested").unwrap();
    assert_eq!(asked["payload"], json!({ "kind": "code", "prompt": "Please send the one-time code you were given." }));
    let answer = json!({ "interrupt_id": asked["span_id"], "decision": "approve" });
    server.post(&format!("/api/runs/{router}/resume"), answer).await.expect(202);
    let (_, body) = say(&server, "web", of_user("and now?", "m2")).await;
    assert_eq!(body["reason"], "code_wanted");
    let good = code(&server).await;
    let (_, body) = say(&server, "web", of_user(&good, "m3")).await;
    assert_eq!((&body["outcome"], id(&body, "router_run_id")), (&json!("accepted"), router.clone()));
    assert!(each_once(&question(&server, &router).await));
}

#[tokio::test]
async fn a_held_message_whose_run_was_cancelled_still_goes_its_way() {
    let server = setup().config(CODES).start().await;
    let (_, held) = say(&server, "web", of_user("what is the weather?", "m1")).await;
    let router = id(&held, "router_run_id");
    server.post(&format!("/api/runs/{router}/cancel"), json!({})).await.expect(202);
    let good = code(&server).await;
    let (status, body) = say(&server, "web", of_user(&good, "m2")).await;
    assert_eq!((status, &body["outcome"]), (202, &json!("accepted")), "{body}");
    assert_eq!(server.run(&router).await["status"], "cancelled");
    let threads = "select count(*) from store.thread where thread_id like 'run:%'";
    assert_eq!(server.db.number(threads).await, 0);
}

#[tokio::test]
async fn a_held_message_outlives_whatever_fails_right_after_its_code() {
    let server = setup().clock(&manual_clock()).config(CODES).start().await;
    say(&server, "web", of_user("what is the weather?", "m1")).await;
    let good = code(&server).await;
    let trouble = Trouble::on(&server.db, "inbound", "new.state = 'open' and new.attempts > 1").await;
    assert_eq!(say(&server, "web", of_user(&good, "m2")).await.1["outcome"], "queued");
    trouble.over().await;
    once_more(&server, of_user(&good, "m2")).await;
    let runs = server.get("/api/runs?agent=echo").await.expect(200)["runs"].as_array().unwrap().clone();
    assert_eq!(runs.len(), 1);
    assert!(runs[0]["input"].to_string().contains("]: what is the weather?"), "{}", runs[0]);
}
