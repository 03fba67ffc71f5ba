//! Endpoints that are away, and streams that break.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::{before, begun, call, error, result, text, whole};
use crate::{
    agents::{ask, kinds, log, of, response, said, stands},
    support::{
        api::Api,
        cluster::Db,
        models::{Answer, ModelServer, refusal, stream_of},
        patiently,
        process::{program, serve, serve_again},
        server::setup,
        until,
    },
};

fn texts(events: &[Value]) -> Vec<String> {
    said(events).into_iter().filter(|(role, _)| role == "assistant").map(|(_, text)| text).collect()
}

#[tokio::test]
async fn an_endpoint_that_is_away_is_asked_again_while_nothing_was_received() {
    let away = || refusal(503, &[("retry-after", "0")], &json!({"error": "restarting"}));
    let (server, endpoint) = before(vec![away(), away(), whole(&text("m", &["here"]))], "retries = 2").await;
    let run = ask(&server, "far", "go", json!({})).await;
    assert_eq!(response(&server, &run).await, "here");
    let events = log(&server, &run).await;
    let warned = of(&events, "log.warn");
    assert_eq!(warned.len(), 2, "{:?}", kinds(&events));
    let message = warned[0]["payload"]["message"].as_str().unwrap();
    assert!(message.contains("503") && message.contains("restarting") && message.contains("try 1"), "{message}");
    let asked = endpoint.asked();
    assert!(asked.iter().all(|asked| asked.body == asked.body && asked.body["runId"] == run), "{asked:?}");
}

#[tokio::test]
async fn what_cannot_become_better_fails_the_run_with_what_to_do_and_no_secret() {
    let echoed = refusal(401, &[], &json!({"error": "the key far-secret-0123456789 is wrong"}));
    let redirect = refusal(307, &[("location", "http://169.254.169.254/")], &json!({}));
    let page = stream_of("text/html", "<html>".to_owned());
    let alone = refusal(403, &[], &json!({"error": "far-bearer-0123456789 may not do this"}));
    let failed = json!({"type": "RUN_ERROR", "message": "upstream: 401 for Bearer far-bearer-0123456789 there", "code": "far-bearer-0123456789"});
    let failed = stream_of("text/event-stream", begun(&[failed]));
    let endpoint = ModelServer::start(vec![echoed, redirect, page, alone, failed]).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "far-secret-0123456789").unwrap();
    let bearer = folder.path().join("bearer");
    std::fs::write(&bearer, "Bearer far-bearer-0123456789").unwrap();
    // The name of a variable that only this test reads, given as a file.
    let config = format!(
        "[agents.far]\nkind = \"agui\"\nurl = \"{}/agent\"\n\
         headers_env = {{ \"X-Key\" = \"AGUI_TEST_KEY\", \"Authorization\" = \"AGUI_TEST_BEARER\" }}\n",
        endpoint.base
    );
    let config_file = folder.path().join("runreel.toml");
    std::fs::write(&config_file, config).unwrap();
    let (db, data) = (Db::new().await, folder.path().join("data"));
    let mut command = program(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--database-url",
        &db.url(),
        "--config",
        config_file.to_str().unwrap(),
        "--data-dir",
        data.to_str().unwrap(),
        "--db-connections",
        "3",
    ]);
    command.env("AGUI_TEST_KEY_FILE", &file).env("AGUI_TEST_BEARER_FILE", &bearer);
    let served = serve(command).await;
    let api = Api::new(served.base.clone());
    for (code, words) in [
        ("agui_refused", "401"),
        ("agui_refused", "redirects are not followed"),
        ("agui_not_a_stream", "text/html"),
        ("agui_refused", "*** may not do this"),
        ("***", "upstream: 401 for *** there"),
    ] {
        let run = ask(&api, "far", "go", json!({})).await;
        let error = error(&api, &run).await;
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().unwrap().contains(words), "{error}");
        let log = api.events(&run).await.concat();
        assert!(!log.contains("far-secret") && !log.contains("far-bearer"), "{log}");
    }
    let asked = endpoint.asked();
    assert_eq!(asked.len(), 5);
    assert!(asked.iter().all(|asked| asked.headers["x-key"] == "far-secret-0123456789"));
}

#[tokio::test]
async fn an_endpoint_that_nobody_serves_fails_the_run_after_its_tries() {
    let config = "[agents.far]\nkind = \"agui\"\nurl = \"http://127.0.0.1:9/\"\nretries = 1\n";
    let server = setup().config(config).start().await;
    let run = ask(&server, "far", "go", json!({})).await;
    let error = error(&server, &run).await;
    assert_eq!(error["code"], "agui_unreachable");
    assert!(error["message"].as_str().unwrap().contains("cannot be reached"), "{error}");
}

#[tokio::test]
async fn a_stream_that_breaks_goes_on_with_the_messages_that_were_complete() {
    let first = [
        vec![json!({"type": "STEP_STARTED", "stepName": "work"})],
        text("m1", &["one"]),
        call("c1", "search", &["{}"], "m1"),
        vec![result("c1", "r1", "found")],
        call("c2", "send", &["{}"], "m1"),
        text("m2", &["tw", "o"])[..2].to_vec(),
    ]
    .concat();
    // The second answer repeats what it got as history, and a message with the old id and other words.
    let second = [text("m1", &["one"]), text("m3", &["two and"]), text("m3", &["three"])].concat();
    let (server, endpoint) = before(vec![Answer::Cut(begun(&first)), whole(&second)], "").await;
    let run = ask(&server, "far", "go", json!({})).await;
    assert_eq!(response(&server, &run).await, "three");
    let events = log(&server, &run).await;
    assert_eq!(texts(&events), ["one", "two and", "three"], "{:?}", kinds(&events));
    let spans: Vec<&Value> = of(&events, "message.completed").iter().skip(1).map(|event| &event["span_id"]).collect();
    assert_eq!(spans, ["m1", "m3", "m3~2"]);
    let failed = of(&events, "agui.failed")[0];
    assert_eq!((&failed["span_id"], &failed["payload"]["text"]), (&json!("m2"), &json!("tw")));
    assert_eq!(failed["payload"]["error"]["code"], "agui_cut");
    let call = of(&events, "tool.failed")[0];
    assert_eq!((&call["span_id"], &call["payload"]["name"]), (&json!("c2"), &json!("send")));
    assert_eq!(of(&events, "step.failed").len(), 1);
    let warned = of(&events, "log.warn")[0]["payload"]["message"].as_str().unwrap();
    assert!(warned.contains("call c2 (send)") && warned.contains("made again"), "{warned}");
    let asked = endpoint.asked();
    assert_eq!(asked[1].body["runId"], format!("{run}~2"));
    let roles: Vec<&str> =
        asked[1].body["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool"]);
    let calls = asked[1].body["messages"][1]["toolCalls"].as_array().unwrap();
    assert_eq!(calls.len(), 1, "a call without a result is in no history");
}

#[tokio::test]
async fn a_run_whose_agent_is_never_asked_again_fails_with_what_it_has() {
    let first = [text("m1", &["one"]), text("m2", &["tw", "o"])[..2].to_vec()].concat();
    let (server, endpoint) = before(vec![Answer::Cut(begun(&first))], "retry = \"never\"").await;
    let run = ask(&server, "far", "go", json!({})).await;
    assert_eq!(error(&server, &run).await["code"], "agui_cut");
    let events = log(&server, &run).await;
    assert_eq!(texts(&events), ["one"]);
    assert!(of(&events, "log.warn")[0]["payload"]["message"].as_str().unwrap().contains("retry = \"never\""));
    assert_eq!(endpoint.asked().len(), 1);
}

#[tokio::test]
async fn an_endpoint_that_falls_silent_and_one_that_never_gets_anywhere_are_given_up() {
    let nothing = || Answer::Silent(begun(&[]));
    let (server, endpoint) = before(vec![nothing(), nothing()], "silence_s = 1\nretries = 1").await;
    let run = ask(&server, "far", "go", json!({})).await;
    let error = error(&server, &run).await;
    assert_eq!(error["code"], "agui_cut");
    assert!(error["message"].as_str().unwrap().contains("silent for 1s"), "{error}");
    assert_eq!(endpoint.asked().len(), 2);
}

#[tokio::test]
async fn a_run_is_bounded_as_a_whole_however_alive_its_endpoint_is() {
    let answers = vec![Answer::Silent(begun(&text("m1", &["one"])))];
    // Long enough for the first words, also on a busy machine.
    let (server, _endpoint) = before(answers, "timeout_s = 15").await;
    let run = ask(&server, "far", "go", json!({})).await;
    let error = error(&server, &run).await;
    assert_eq!(error["message"], "the run took longer than 15s");
    assert_eq!(texts(&log(&server, &run).await), ["one"]);
}

#[tokio::test]
async fn cancelling_a_run_closes_the_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = setup().config(&format!("[agents.far]\nkind = \"agui\"\nurl = \"{url}\"\n")).start().await;
    let run = ask(&server, "far", "go", json!({})).await;
    let (mut socket, _) = patiently("the request", listener.accept()).await.unwrap();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    let begun = begun(&text("m", &["so far"])[..2]);
    socket.write_all(format!("{head}{begun}").as_bytes()).await.unwrap();
    stands(&server, &run, "running").await;
    server.post(&format!("/api/runs/{run}/cancel"), json!({})).await.expect(202);
    // All that was sent, and then the end of the connection.
    patiently("the connection's end", async {
        let mut sent = Vec::new();
        let _ = socket.read_to_end(&mut sent).await;
    })
    .await;
    stands(&server, &run, "cancelled").await;
}

#[tokio::test]
async fn a_run_whose_process_is_killed_goes_on_in_the_next_and_says_what_was_lost() {
    let first = [text("m1", &["one"]), text("m2", &["tw", "o"])[..2].to_vec()].concat();
    let second = [text("m3", &["two"]), text("m4", &["three"])].concat();
    let endpoint = ModelServer::start(vec![Answer::Silent(begun(&first)), whole(&second)]).await;
    let folder = tempfile::tempdir().unwrap();
    let (file, data) = (folder.path().join("runreel.toml"), folder.path().join("data"));
    std::fs::write(&file, format!("[agents.far]\nkind = \"agui\"\nurl = \"{}/\"\n", endpoint.base)).unwrap();
    let db = Db::new().await;
    let start = async || serve_again(&db.url(), &file, &data).await;
    let mut served = start().await;
    let api = Api::new(served.base.clone());
    let run = ask(&api, "far", "go", json!({"thread_id": "t"})).await;
    until("the first message", || async { of(&log(&api, &run).await, "message.completed").len() == 2 }).await;
    served.child.kill().await.unwrap();
    let served = start().await;
    let api = Api::new(served.base.clone());
    assert_eq!(response(&api, &run).await, "three");
    let events = log(&api, &run).await;
    assert_eq!(texts(&events), ["one", "two", "three"], "{:?}", kinds(&events));
    assert_eq!(of(&events, "run.started").len(), 1);
    let warned = of(&events, "log.warn");
    assert_eq!(warned.len(), 1);
    let message = warned[0]["payload"]["message"].as_str().unwrap();
    assert!(message.contains("the process that read it has ended"), "{message}");
    assert_eq!(warned[0]["span_id"], "m2", "{message}");
    assert_eq!(of(&events, "agui.failed")[0]["span_id"], "m2");
    assert_eq!(endpoint.asked()[1].body["messages"].as_array().unwrap().len(), 2);
}
