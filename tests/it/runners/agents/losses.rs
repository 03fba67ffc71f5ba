//! Requests whose answers are lost, and work that is cancelled.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use axum::{
    body::Body,
    extract::{Request, State},
    response::Response,
};

use super::*;
use crate::support::models::axum_serve;

/// Passes requests on, and answers the first of each `PUT` with nothing of what the server said.
#[derive(Clone)]
struct Forgetful {
    to: String,
    puts: Arc<Mutex<Puts>>,
}

/// How often each came, by its path and what it brought.
type Puts = HashMap<(String, Vec<u8>), usize>;

impl Forgetful {
    async fn start(server: &Server) -> (Self, String) {
        let hop = Self { to: server.base.clone(), puts: Arc::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let router = axum::Router::new().fallback(pass).with_state(hop.clone());
        tokio::spawn(axum_serve(listener, router));
        (hop, base)
    }
}

async fn pass(State(hop): State<Forgetful>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let path = parts.uri.path_and_query().unwrap().to_string();
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let request =
        http.request(parts.method.clone(), format!("{}{path}", hop.to)).headers(parts.headers).body(body.clone());
    let answer = request.send().await.unwrap();
    let (status, bytes) = (answer.status(), answer.bytes().await.unwrap());
    if parts.method == axum::http::Method::PUT {
        let mut puts = hop.puts.lock().unwrap();
        let times = puts.entry((path, body.to_vec())).or_default();
        *times += 1;
        if *times == 1 {
            return Response::builder().status(502).body(Body::empty()).unwrap();
        }
    }
    Response::builder().status(status).body(Body::from(bytes)).unwrap()
}

#[tokio::test]
async fn a_state_whose_answer_was_lost_is_sent_again_and_kept_once() {
    let config = "[tools.files]\nroot = \"work\"\n[agents.clerk]\nmodel = \"script:clerk.toml\"\ntools = [\"files\"]\n";
    let script = r#"
        [[turns]]
        tool_calls = [
            { name = "files_write", args = { path = "a", text = "a\n", mode = "append" } },
            { name = "files_write", args = { path = "b", text = "b\n", mode = "append" } },
        ]
        [[turns]]
        text = "written"
    "#;
    let agents = with(config, &[("clerk.toml", script)]);
    let server = Server::start().await;
    let (hop, base) = Forgetful::start(&server).await;
    let _hands = Hands::through(&agents, &server, &base);
    let run = ask(&server, "clerk", "write", json!({ "thread_id": "t" })).await;
    assert_eq!(response(&server, &run).await, "written");
    let events = log(&server, &run).await;
    assert_once(&events);
    assert_eq!(std::fs::read_to_string(agents.folder().path().join("work/a")).unwrap(), "a\n");
    let puts = hop.puts.lock().unwrap().clone();
    assert!(puts.len() > 4 && puts.values().all(|times| *times == 2), "{:?}", puts.values());
    let told = i64::try_from(of(&events, "state.checkpointed").len()).unwrap();
    assert_eq!(
        server.db.number("select count(*) from store.checkpoint").await,
        told + 2,
        "the first and the last besides"
    );
}

#[tokio::test]
async fn who_cancels_a_run_ends_the_command_that_a_runners_agent_has_at_work() {
    let config = "[tools.shell]\nroot = \"work\"\napproval = false\n[agents.busy]\nmodel = \"script:busy.toml\"\n\
        tools = [\"shell\"]\n";
    let script = r#"
        [[turns]]
        tool_calls = [{ name = "shell", args = { command = "while :; do date +%s%N > alive; sleep 0.02; done" } }]
    "#;
    let agents = with(config, &[("busy.toml", script)]);
    let mark = agents.folder().path().join("work/alive");
    let server = Server::start().await;
    let _hands = Hands::of(&agents, &server);
    let run = ask(&server, "busy", "work", json!({})).await;
    until("the command to work", || async { mark.exists() }).await;
    server.post(&format!("/api/runs/{run}/cancel"), json!({})).await.expect(202);
    stands(&server, &run, "cancelled").await;
    until("the command to end", || async {
        let before = std::fs::read(&mark).unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        std::fs::read(&mark).unwrap() == before
    })
    .await;
    server.db.until_number("no state", "select count(*) from store.checkpoint", 0).await;
    server.db.until_number("no job", JOBS, 0).await;
}
