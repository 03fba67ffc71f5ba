//! A channel that asks its users for a one-time code before it hears them.

use std::time::Duration;

use serde_json::{Value, json};

use super::{answer, id, say};
use crate::support::{
    api::Api,
    process::{program, run},
    runs::parsed,
    server::{Server, manual_clock, setup},
    telegram::{Telegram, private},
    threads::{column, encoded_throughout},
};

const CONFIG: &str = "[channels.web]\nagent = \"echo\"\nauth = \"code\"\n";

async fn code(api: &Api, expires_s: i64) -> String {
    let made = api.post("/api/channels/web/codes", json!({ "expires_s": expires_s })).await.expect(201);
    id(&made, "code")
}

async fn tell(server: &Server, user: &str, text: &str) -> Value {
    say(server, "web", json!({ "chat_id": user, "user_id": user, "text": text })).await.1
}

async fn reason(server: &Server, user: &str, text: &str) -> String {
    let body = tell(server, user, text).await;
    body["reason"].as_str().map_or_else(|| body["outcome"].to_string(), str::to_owned)
}

#[tokio::test]
async fn the_first_message_waits_for_the_code_and_then_goes_its_way() {
    let server = setup().config(CONFIG).start().await;
    let held = tell(&server, "5", "what is the weather?").await;
    assert_eq!((&held["outcome"], &held["reason"]), (&json!("filtered"), &json!("code_wanted")));
    let router = id(&held, "router_run_id");
    assert_eq!(server.run(&router).await["status"], "interrupted");
    assert_eq!(reason(&server, "5", "hello?").await, "code_wanted", "only the first one waits");
    assert_eq!(reason(&server, "5", "WXYZ-2345").await, "code_wrong");
    let good = code(&server, 60).await;
    let body = tell(&server, "5", &good.to_lowercase()).await;
    assert_eq!((&body["outcome"], id(&body, "router_run_id")), (&json!("accepted"), router.clone()));
    let run = server.run(&id(&body, "run_id")).await;
    assert!(run["input"].to_string().contains("]: what is the weather?"), "{run}");
    let events: Vec<Value> = server.events(&router).await.iter().map(parsed).collect();
    let lifecycle: Vec<&str> = events
        .iter()
        .filter_map(|event| event["type"].as_str())
        .filter(|kind| kind.starts_with("run.") || kind.starts_with("interrupt."))
        .collect();
    assert_eq!(
        lifecycle,
        [
            "run.created",
            "run.started",
            "interrupt.requested",
            "run.interrupted",
            "interrupt.resolved",
            "run.resumed",
            "run.completed"
        ]
    );
    let all = server.events(&router).await.concat();
    assert!(!all.contains(&good) && !all.contains(&good.replace('-', "")), "a code is in no log");
    // From now on he is known; and a code is good once.
    assert_eq!(tell(&server, "5", "and tomorrow?").await["outcome"], "accepted");
    assert_eq!(reason(&server, "6", &good).await, "code_wrong");
    assert_eq!(server.db.number("select count(*) from store.run where agent = 'echo'").await, 2);
    assert_eq!(server.db.number("select count(*) from store.inbound where state = 'held'").await, 0);
}

#[tokio::test]
async fn a_code_may_come_first_and_expires() {
    let clock = manual_clock();
    let server = setup().clock(&clock).config(CONFIG).start().await;
    let (late, early) = (code(&server, 60).await, code(&server, 61).await);
    server.pass(Duration::from_mins(1));
    assert_eq!(reason(&server, "5", &late).await, "code_wrong");
    assert_eq!(reason(&server, "5", &early).await, "code_accepted");
    assert_eq!(tell(&server, "5", "hello").await["outcome"], "accepted");
    for expires_s in [0, -1, 86_401] {
        server.post("/api/channels/web/codes", json!({ "expires_s": expires_s })).await.refused(400, "invalid_request");
    }
    server.post("/api/channels/nowhere/codes", json!({})).await.refused(404, "not_found");
}

#[tokio::test]
async fn who_guesses_has_to_wait_and_so_do_many_who_guess() {
    let clock = manual_clock();
    let server = setup().clock(&clock).config(CONFIG).start().await;
    let good = code(&server, 3_600).await;
    for _ in 0..5 {
        assert_eq!(reason(&server, "5", "WXYZ-2345").await, "code_wrong");
    }
    assert_eq!(reason(&server, "5", &good).await, "code_blocked", "even a good one is not looked at");
    server.pass(Duration::from_mins(15));
    assert_eq!(reason(&server, "5", &good).await, "code_accepted");
    let good = code(&server, 3_600).await;
    for guesser in 0..20 {
        for _ in 0..5 {
            assert_eq!(reason(&server, &format!("g{guesser}"), "WXYZ-2345").await, "code_wrong");
        }
    }
    assert_eq!(reason(&server, "fresh", &good).await, "code_blocked");
    server.pass(Duration::from_mins(15));
    assert_eq!(reason(&server, "fresh", &good).await, "code_accepted");
}

#[tokio::test]
async fn of_many_who_use_one_code_at_once_one_is_known() {
    let server = setup().flags(&["--db-connections", "8"]).config(CONFIG).start().await;
    let good = code(&server, 60).await;
    let users: Vec<String> = (0..8).map(|n| format!("u{n}")).collect();
    let reasons = futures::future::join_all(users.iter().map(|user| reason(&server, user, &good))).await;
    assert_eq!(reasons.iter().filter(|reason| *reason == "code_accepted").count(), 1, "{reasons:?}");
}

#[tokio::test]
async fn a_code_is_of_one_owner_and_needs_the_scope_admin() {
    let server = setup().jwt().config(CONFIG).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let hers = code(&alice, 60).await;
    let message = json!({ "chat_id": "5", "user_id": "5", "text": hers });
    assert_eq!(say(&bob, "web", message.clone()).await.1["reason"], "code_wrong");
    assert_eq!(say(&alice, "web", message).await.1["reason"], "code_accepted");
}

#[tokio::test]
async fn verified_users_are_listed_by_pages_and_one_who_is_revoked_has_to_give_a_code_again() {
    const USERS: &str = "/api/channels/web/users";
    let server = setup().config(CONFIG).start().await;
    let odd = "a/b?c=%41 é";
    for user in ["1", "2", odd] {
        let good = code(&server, 60).await;
        assert_eq!(reason(&server, user, &good).await, "code_accepted");
    }
    assert_eq!(reason(&server, "waits", "hello").await, "code_wanted");
    let first = server.get(&format!("{USERS}?limit=2")).await.expect(200);
    assert_eq!(column(first["users"].as_array().unwrap(), "user_id"), ["1", "2"]);
    assert_eq!(first["users"][0]["expires_at"], Value::Null);
    let cursor = first["next_cursor"].as_str().unwrap();
    let rest = server.get(&format!("{USERS}?cursor={cursor}")).await.expect(200);
    assert_eq!((&rest["users"][0]["user_id"], &rest["next_cursor"]), (&json!(odd), &Value::Null));
    server.get(&format!("{USERS}?cursor=x")).await.refused(400, "invalid_cursor");
    let path = format!("{USERS}/{}", encoded_throughout(odd));
    server.delete(&path).await.expect(204);
    // Neither is there: one who was revoked, one who never was, one who only waits, another channel's.
    let absent = server.delete(&path).await;
    for path in [format!("{USERS}/nobody"), format!("{USERS}/waits"), "/api/channels/none/users/1".to_owned()] {
        let reply = server.delete(&path).await;
        assert_eq!((reply.status, reply.text), (404, absent.text.clone()), "{path}");
    }
    assert_eq!(reason(&server, odd, "hello again").await, "code_wanted");
    assert_eq!(tell(&server, "1", "and I?").await["outcome"], "accepted");
    let good = code(&server, 60).await;
    assert_eq!(tell(&server, odd, &good).await["outcome"], "accepted", "what waited goes its way");
}

#[tokio::test]
async fn who_keeps_the_server_lists_and_revokes_users_on_the_database() {
    let server = setup().config(CONFIG).start().await;
    let channel = async |words: &[&str]| {
        let mut command = program(&[&["channel"], words].concat());
        command.env("DATABASE_URL", server.db.url());
        run(command, "").await
    };
    let made = channel(&["code", "web"]).await;
    assert_eq!(reason(&server, "ann", made.stdout.trim()).await, "code_accepted", "{}", made.stderr);
    let listed = channel(&["users", "web"]).await.stdout;
    assert!(listed.starts_with("ann  since 20") && listed.lines().count() == 1, "{listed}");
    assert_eq!(channel(&["users", "web", "--sub", "bob"]).await.stdout, "");
    assert_eq!(channel(&["revoke", "web", "ann", "--sub", "bob"]).await.code, Some(4));
    assert_eq!(channel(&["revoke", "web", "ann"]).await.code, Some(0));
    assert_eq!(channel(&["revoke", "web", "ann"]).await.code, Some(4));
    assert_eq!(reason(&server, "ann", "hello").await, "code_wanted");
}

#[tokio::test]
async fn users_of_one_owner_are_not_there_for_another() {
    let server = setup().jwt().config(CONFIG).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let hers = code(&alice, 60).await;
    let message = json!({ "chat_id": "5", "user_id": "5", "text": hers });
    assert_eq!(say(&alice, "web", message).await.1["reason"], "code_accepted");
    let path = "/api/channels/web/users";
    assert_eq!(bob.get(path).await.expect(200)["users"], json!([]));
    let (foreign, absent) = (bob.delete(&format!("{path}/5")).await, bob.delete(&format!("{path}/6")).await);
    assert_eq!((foreign.status, foreign.text), (404, absent.text));
    assert_eq!(alice.get(path).await.expect(200)["users"][0]["user_id"], "5");
}

#[tokio::test]
async fn a_verification_that_has_expired_has_to_be_given_anew() {
    let clock = manual_clock();
    let config = format!("{CONFIG}verified_for = \"30m\"\n");
    let server = setup().clock(&clock).config(&config).start().await;
    let good = code(&server, 60).await;
    assert_eq!(reason(&server, "5", &good).await, "code_accepted");
    let listed = server.get("/api/channels/web/users").await.expect(200)["users"][0].clone();
    let time = |member: &str| chrono::DateTime::parse_from_rfc3339(listed[member].as_str().unwrap()).unwrap();
    assert_eq!(time("expires_at") - time("verified_at"), chrono::TimeDelta::minutes(30));
    server.pass(Duration::from_secs(30 * 60 - 1));
    assert_eq!(tell(&server, "5", "one").await["outcome"], "accepted");
    server.pass(Duration::from_secs(1));
    assert_eq!(reason(&server, "5", "two").await, "code_wanted");
    assert_eq!(server.get("/api/channels/web/users").await.expect(200)["users"], json!([]));
    let again = code(&server, 60).await;
    assert_eq!(tell(&server, "5", &again).await["outcome"], "accepted", "what waited goes its way");
    assert_eq!(tell(&server, "5", "three").await["outcome"], "accepted");
    assert_eq!(server.get("/api/channels/web/users").await.expect(200)["users"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn over_telegram_the_question_is_asked_and_the_answer_taken() {
    let telegram = Telegram::start().await;
    let text = "[channels.telegram]\nagent = \"echo\"\nauth = \"code\"\n";
    let server = setup().config(text).telegram(&telegram.base).start().await;
    server.update(private(1, "hello")).await.expect(200);
    assert_eq!(telegram.texts(1).await, ["Please send the one-time code you were given."]);
    let made = server.post("/api/channels/telegram/codes", json!({})).await.expect(201);
    server.update(private(2, &id(&made, "code"))).await.expect(200);
    assert!(telegram.texts(2).await[1].starts_with("Thank you"));
    server.db.until_number("the run", "select count(*) from store.run where agent = 'echo'", 1).await;
    let run = id(&server.get("/api/runs?agent=echo").await.expect(200)["runs"][0], "run_id");
    answer(&server, &run, "hi").await;
    assert_eq!(telegram.texts(3).await[2], "hi");
}
