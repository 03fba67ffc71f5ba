//! What a newcomer types and reads: names, beginnings of ids, addresses, and errors that say what to do.

use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{
    process::{Said, program, run},
    server::{Server, setup},
};

fn to(server: &Server, words: &[&str]) -> Command {
    let mut command = program(words);
    command.env("RUNREEL_URL", &server.base);
    command
}

#[track_caller]
fn check(said: &Said, code: i32) {
    assert_eq!(said.code, Some(code), "stdout: {}\nstderr: {}", said.stdout, said.stderr);
}

/// A run with an id of this millisecond of today and these last two digits.
async fn run_with(server: &Server, ms: i64, end: &str) -> String {
    let ms = u64::try_from(server.clock.now().timestamp_millis() + ms).unwrap();
    let id = uuid::Builder::from_unix_timestamp_millis(ms, &[0; 10]).into_uuid().to_string();
    let id = format!("{}{end}", &id[..34]);
    server.create(json!({ "run_id": id, "title": format!("Run {end}") })).await;
    id
}

#[tokio::test]
async fn a_run_is_found_by_the_beginning_of_its_id_and_only_by_its_owner() {
    let server = setup().jwt().start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let ms = u64::try_from(server.clock.now().timestamp_millis()).unwrap() - 3_600_000;
    let of = async |api: &crate::support::api::Api, tail: &str| {
        let id = uuid::Builder::from_unix_timestamp_millis(ms, &[0; 10]).into_uuid().to_string();
        let id = format!("{}{tail}", &id[..34]);
        api.post("/api/runs", json!({ "run_id": id })).await.expect(201);
        id
    };
    let (one, two, other) = (of(&ann, "0a").await, of(&ann, "0b").await, of(&bob, "0c").await);
    let ids = async |api: &crate::support::api::Api, query: &str| -> Vec<String> {
        let page = api.get(&format!("/api/runs?id_prefix={query}")).await.expect(200);
        assert_eq!(page["next_cursor"], Value::Null);
        page["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(&ann, &one[..13]).await, [two.clone(), one.clone()]);
    assert_eq!(ids(&ann, &one[..4]).await, [two.clone(), one.clone()]);
    assert_eq!(ids(&ann, &format!("{}&limit=1", &one[..13])).await, std::slice::from_ref(&two));
    assert_eq!(ids(&ann, &one.replace('-', "")).await, std::slice::from_ref(&one));
    assert_eq!(ids(&ann, &one.to_uppercase()).await, std::slice::from_ref(&one));
    assert_eq!(ids(&bob, &one[..13]).await, [other]);
    assert_eq!(ids(&ann, "ffff").await, Vec::<String>::new());
    for bad in ["019", "0198c0dg", "last", "0198c0de&agent=a", "0198c0de&cursor=r1.2"] {
        let problem = ann.get(&format!("/api/runs?id_prefix={bad}")).await.refused(400, "invalid_request");
        assert_eq!(problem["field"], "id_prefix", "{bad}");
    }
}

#[tokio::test]
async fn every_command_takes_the_beginning_of_an_id_and_last() {
    let server = Server::start().await;
    let (old, new) = (run_with(&server, -60_000, "01").await, run_with(&server, 0, "02").await);
    // Eight digits are of about a minute, thirteen characters of a millisecond.
    let short = &new[..13];
    for words in [
        ["runs", "show", short].as_slice(),
        &["runs", "show", "last"],
        &["emit", short, "--type", "log.info"],
        &["emit", "last", "--type", "log.info"],
        &["runs", "answer", short],
        &["runs", "open", short],
        &["runs", "cancel", short],
        &["tail", short],
        &["export", "--run", short],
        &["runs", "delete", short],
    ] {
        let mut command = to(&server, words);
        // There is no browser.
        command.env("PATH", "/nowhere");
        check(&run(command, "").await, 0);
    }
    server.get(&format!("/api/runs/{new}")).await.refused(404, "not_found");
    check(&run(to(&server, &["runs", "delete", &old]), "").await, 1);
    let said = run(to(&server, &["runs", "show", short]), "").await;
    check(&said, 4);
    assert!(said.stderr.contains(&format!("begins with {short}")), "{}", said.stderr);
    let said = run(to(&server, &["runs", "show", &new]), "").await;
    assert!(said.stderr.starts_with(&format!("error: there is no run {new} of yours")), "{}", said.stderr);
    let twin = format!("{}ff", &old[..34]);
    server.create(json!({ "run_id": twin, "title": "The other" })).await;
    let said = run(to(&server, &["tail", &old[..13]]), "").await;
    check(&said, 2);
    assert!(said.stderr.contains(&format!("\n  {twin}  running     The other\n  {old}  running")), "{}", said.stderr);
    assert!(said.stderr.contains("\nhint: add digits"), "{}", said.stderr);
}

#[tokio::test]
async fn names_are_of_any_script_and_an_error_says_which_is_wrong() {
    let server = Server::start().await;
    let body = json!({ "agent": "Weather agent", "tags": ["prüfung", "客服 2", "👩‍🔬"], "session_id": "s 1" });
    let run_id = server.create(body).await;
    let said = run(to(&server, &["runs", "--agent", "Weather agent", "--tag", "客服 2", "--json"]), "").await;
    check(&said, 0);
    assert!(said.stdout.contains(&run_id), "{}", said.stdout);
    for (body, field, part) in [
        (json!({ "agent": "two\nlines" }), "agent", "a name is 1 to 128 characters"),
        (json!({ "tags": ["a", "b\u{200b}"] }), "tags[1]", "a name is 1 to 128 characters"),
        (json!({ "agnet": "a" }), "agnet", "did you mean agent? (line 1, column 8)"),
        (json!({ "lease_ms": "60" }), "lease_ms", "must be a whole number, not a text"),
    ] {
        let problem = server.post("/api/runs", body).await.refused(400, "invalid_request");
        assert_eq!(problem["field"], field, "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(part), "{problem}");
    }
    let problem = server.try_emit(&run_id, json!([{ "type": "a.b" }, { "tpye": "a.b" }])).await;
    assert_eq!(problem.refused(400, "invalid_event")["field"], "events[1].tpye");
    let problem = server.try_emit(&run_id, json!({ "payload": {} })).await.refused(400, "invalid_event");
    assert_eq!(
        (&problem["field"], problem["detail"].as_str().unwrap()),
        (&json!("type"), "type is missing (line 1, column 14)")
    );
}

#[tokio::test]
async fn emit_tells_the_page_of_its_run_and_leaves_none_behind_for_nothing() {
    let server = Server::start().await;
    for (input, code) in [("", 1), ("not json\n", 1), ("\n\n", 1)] {
        let said = run(to(&server, &["emit", "--title", "x"]), input).await;
        check(&said, code);
        assert!(said.stderr.contains("error: "), "{}", said.stderr);
    }
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"], json!([]));
    check(&run(to(&server, &["emit", "--title", "Only opened", "--end", "completed"]), "").await, 0);
    let said = run(to(&server, &["emit", "--title", "x"]), "{\"type\":\"log.info\"}\nnot json\n").await;
    check(&said, 1);
    let list = server.get("/api/runs?status=running").await.expect(200);
    let id = list["runs"][0]["run_id"].as_str().unwrap();
    for part in [
        format!("page  {}/runs/{id}\n", server.base),
        "1 event stored (seq 3)".to_owned(),
        format!("runreel runs cancel {id}"),
    ] {
        assert!(said.stderr.contains(&part), "{part}: {}", said.stderr);
    }
}

#[tokio::test]
async fn approve_lists_what_waits_and_answers_it() {
    let server = Server::start().await;
    let said = run(to(&server, &["approve"]), "").await;
    assert_eq!((said.stdout.as_str(), said.stderr.trim()), ("", "nothing waits for an answer"));
    let id = server.create(json!({ "title": "Ship" })).await;
    let ask = json!({ "type": "interrupt.requested", "span_id": "a", "payload": { "prompt": "Ship it?" } });
    server.emit(&id, json!([ask, { "type": "run.interrupted" }])).await;
    let said = run(to(&server, &["approve"]), "").await;
    check(&said, 0);
    assert_eq!(said.stdout, format!("{id}  Ship\n  a  Ship it?\n"));
    check(&run(to(&server, &["approve", &id[..18], "{\"by\":\"me\"}"]), "").await, 0);
    let page = server.get(&format!("/api/runs/{id}/events?types=interrupt.resolved")).await.expect(200);
    assert_eq!(page["events"][0]["payload"]["decision"], "approve");
    assert_eq!(page["events"][0]["payload"]["value"], json!({ "by": "me" }));
}

#[tokio::test]
async fn a_browser_gets_a_page_where_a_program_gets_a_problem() {
    let server = Server::start().await;
    let get = async |path: &str, accept: &str| {
        let request = server.http.get(format!("{}{path}", server.base)).header("accept", accept);
        server.send(request).await
    };
    let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    let page = get("/foo", browser).await;
    assert_eq!((page.status, page.headers["content-type"].as_bytes()), (404, b"text/html; charset=utf-8".as_slice()));
    assert!(page.headers["vary"].to_str().unwrap().contains("accept,"));
    for (path, accept) in [("/foo", "*/*"), ("/foo", "application/json"), ("/api/foo", browser)] {
        get(path, accept).await.refused(404, "not_found");
    }
    get("/foo?token=x", browser).await.refused(400, "token_in_url");
}

#[tokio::test]
async fn the_program_alone_says_what_to_do_first() {
    let said = run(program(&[]), "").await;
    check(&said, 2);
    for first in ["runreel demo", "runreel serve", "runreel --help"] {
        assert!(said.stderr.contains(first), "{}", said.stderr);
    }
    let said = run(program(&["config", "--listen", "everywhere"]), "").await;
    check(&said, 2);
    assert!(said.stderr.contains("an IP address and a port"), "{}", said.stderr);
}

#[tokio::test]
async fn threads_are_listed() {
    let server = Server::start().await;
    server.create(json!({ "thread_id": "web_ann" })).await;
    let said = run(to(&server, &["threads"]), "").await;
    check(&said, 0);
    assert!(said.stdout.lines().nth(1).is_some_and(|line| line.starts_with("web_ann  ")), "{}", said.stdout);
    let said = run(to(&server, &["threads", "--search", "bob"]), "").await;
    assert_eq!((said.stdout.as_str(), said.stderr.as_str()), ("", "no threads\n"));
}

#[test]
fn the_api_says_how_to_authorize() {
    let document = serde_json::to_value(runreel::http::openapi()).unwrap();
    assert_eq!(document["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    assert_eq!(document["security"], json!([{}, { "token": [] }]));
}
