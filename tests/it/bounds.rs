//! What one principal may have of what all share: whoever has it all is refused, and a neighbour is served.

mod rates;

use std::time::Duration;

use reqwest::Method;
use runreel::domain::principal::Scope;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{
    api::{Api, Reply, stream_of},
    cluster::Db,
    patiently,
    process::{Served, program, serve},
    runs::numbered,
    server::{Server, setup},
    shared::shared,
    sse::{Item, Stream},
    until,
};

/// A server with these bounds, and two principals of it.
async fn neighbours(flags: &[&str]) -> (Server, Api, Api) {
    let server = setup().jwt().flags(flags).start().await;
    let (a, b) = (server.as_subject("a"), server.as_subject("b"));
    (server, a, b)
}

/// A connection that has sent this much and keeps silent.
async fn begun(api: &Api, head: &str) -> TcpStream {
    let mut socket = TcpStream::connect(api.base.trim_start_matches("http://")).await.unwrap();
    let authorization = api.token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n"));
    let head = head.replacen("\r\n", &format!("\r\nhost: localhost\r\n{}", authorization.unwrap_or_default()), 1);
    socket.write_all(head.as_bytes()).await.unwrap();
    socket
}

/// A request whose body is waited for, and does not come: the server asks for it once it has found room for it.
async fn awaited(api: &Api, line: &str) -> TcpStream {
    let head = format!("{line} HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 1000\r\n\r\n");
    let mut socket = begun(api, &head).await;
    let said = answer(&mut socket).await;
    assert!(said.starts_with("HTTP/1.1 100 "), "{said}");
    socket
}

/// What a connection answers, up to its end or the end of its first head.
async fn answer(socket: &mut TcpStream) -> String {
    let mut said = Vec::new();
    while !said.windows(4).any(|end| end == b"\r\n\r\n") {
        if patiently("an answer", socket.read_buf(&mut said)).await.unwrap() == 0 {
            break;
        }
    }
    String::from_utf8(said).unwrap()
}

#[track_caller]
fn busy(reply: &Reply) {
    reply.refused(429, "busy");
    let seconds: u64 = reply.headers["retry-after"].to_str().unwrap().parse().unwrap();
    assert!(seconds >= 1);
}

#[tokio::test]
async fn a_stream_too_many_says_when_to_come_back() {
    let (_server, a, b) = neighbours(&["--principal-streams", "2"]).await;
    let run = a.start_run().await;
    let mut open = Vec::new();
    for path in [stream_of(&run), "/api/stream/runs".to_owned()] {
        let mut stream = a.stream(&path).await;
        stream.caught_up().await;
        open.push(stream);
    }
    let path = stream_of(&run);
    busy(&a.get(&path).await);
    for path in [path.as_str(), "/api/stream/runs", "/api/stream/threads/t"] {
        // EventSource gives up for ever after any status but 200.
        let request = a.request(Method::GET, path).header("accept", "text/event-stream");
        let mut stream = Stream::of(patiently("a stream", request.send()).await.unwrap());
        assert_eq!(
            (stream.response.status().as_u16(), &stream.response.headers()["content-type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        let Some(Item::Retry(retry_ms)) = stream.item().await else { panic!("{path}: retry comes first") };
        assert!((3_000..8_000).contains(&retry_ms));
        let frame = stream.next().await;
        assert_eq!((frame.event.as_str(), frame.id.as_deref()), ("stream.draining", None));
        assert_eq!(frame.json(), json!({ "retry_ms": retry_ms, "reason": "busy_own" }));
        assert_eq!(stream.item().await, None);
    }
    b.stream("/api/stream/runs").await.caught_up().await;
    drop(open);
    until("a place to be free", || async { a.request(Method::GET, &path).send().await.unwrap().status() == 200 }).await;
}

#[tokio::test]
async fn slow_bodies_of_one_principal_keep_only_its_own_out() {
    let (_server, a, b) = neighbours(&["--principal-bodies-mib", "1"]).await;
    let mut slow = Vec::new();
    for _ in 0..16 {
        slow.push(awaited(&a, "POST /api/runs").await);
    }
    busy(&a.post("/api/runs", json!({})).await);
    b.start_run().await;
    drop(slow);
    until("the room to be free", || async { a.post("/api/runs", json!({})).await.status == 201 }).await;
}

#[tokio::test]
async fn a_body_that_says_it_is_too_large_is_refused_before_it_comes() {
    let server = shared().await;
    let path = format!("/api/runs/{}/events", server.start_run().await);
    for expect in ["", "expect: 100-continue\r\n"] {
        let head = format!(
            "POST {path} HTTP/1.1\r\n{expect}content-type: application/json\r\ncontent-length: 8388609\r\n\r\n"
        );
        let said = answer(&mut begun(&server, &head).await).await;
        assert!(said.starts_with("HTTP/1.1 413 "), "{said}");
    }
    let gzip = server.request(Method::POST, &path).header("content-encoding", "gzip").json(&numbered(1));
    server.send(gzip).await.refused(415, "unsupported_media_type");
}

#[tokio::test]
async fn uploads_of_one_principal_keep_only_its_own_out() {
    let (_server, a, b) = neighbours(&["--principal-uploads", "2"]).await;
    let (mine, theirs) = (a.start_run().await, b.start_run().await);
    let line = format!("POST /api/runs/{mine}/artifacts?name=slow");
    let slow = [awaited(&a, &line).await, awaited(&a, &line).await];
    busy(&a.try_upload(&mine, "x", "", "x").await);
    b.upload(&theirs, "x", "x").await;
    drop(slow);
    until("a place to be free", || async { a.try_upload(&mine, "x", "", "x").await.status == 201 }).await;
}

#[tokio::test]
async fn downloads_of_one_principal_keep_only_its_own_out() {
    let (_server, a, b) = neighbours(&["--principal-downloads", "1"]).await;
    let mut urls = Vec::new();
    for api in [&a, &b] {
        let kept = api.upload(&api.start_run().await, "large", vec![7; 16 * 1024 * 1024]).await;
        urls.push(kept["artifact_id"].as_str().unwrap().to_owned());
    }
    let stalled = a.download(&urls[0], &[]).await;
    assert_eq!(stalled.status(), 200);
    busy(&a.get(&format!("/api/artifacts/{}", urls[0])).await);
    assert_eq!(b.download(&urls[1], &[]).await.bytes().await.unwrap().len(), 16 * 1024 * 1024);
    drop(stalled);
    until("the place to be free", || async { a.download(&urls[0], &[("range", "bytes=0-0")]).await.status() == 206 })
        .await;
}

#[tokio::test]
async fn timelines_of_one_principal_keep_only_its_own_out() {
    let (server, a, b) = neighbours(&[]).await;
    let (mine, theirs) = (a.start_run().await, b.start_run().await);
    let name = "é".repeat(20_000);
    a.emit(&mine, json!({ "type": "tool.started", "span_id": "s", "payload": { "name": name } })).await;
    let held = server.inner.timelines.try_take(&server.inner.authenticator.owner("", "a"), 2).unwrap();
    let path = |run: &str| format!("/api/runs/{run}/timeline");
    busy(&a.get(&path(&mine)).await);
    b.get(&path(&theirs)).await.expect(200);
    drop(held);
    let reply = a.get(&path(&mine)).await;
    assert_eq!(reply.headers["content-length"], reply.text.len().to_string());
    let timeline = reply.expect(200);
    assert_eq!(timeline["spans"][1]["name"], "é".repeat(128));
    assert_eq!((&timeline["spans_omitted"], &timeline["last_seq"]), (&json!(0), &json!(3)));
}

#[tokio::test]
async fn runners_of_one_principal_keep_only_its_own_out() {
    let (_server, a, b) = neighbours(&["--principal-runners", "1"]).await;
    let first = a.runner(&["x"], 1).await;
    let (status, problem) = a.no_runner(a.runner_request()).await;
    assert_eq!((status, &problem["code"]), (429, &json!("busy")));
    b.runner(&["x"], 1).await;
    drop(first);
    until("the place to be free", || async { tokio_tungstenite::connect_async(a.runner_request()).await.is_ok() })
        .await;
}

#[tokio::test]
async fn unfinished_messages_of_one_principals_runners_keep_only_its_own_out() {
    let (_server, a, b) = neighbours(&[]).await;
    let mut unfinished = Vec::new();
    for _ in 0..8 {
        let head = "GET /api/runners/connect HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
            sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
            sec-websocket-protocol: runreel.runner.v1\r\n\r\n";
        let mut socket = begun(&a, head).await;
        assert!(answer(&mut socket).await.starts_with("HTTP/1.1 101 "));
        // The head of a text of 8 MiB that is masked with zeros, and a part of it.
        let frame = [&[0x81, 0xff][..], &(8u64 << 20).to_be_bytes(), &[0; 4], &vec![b' '; 1 << 20]].concat();
        let (reading, mut writing) = socket.into_split();
        let sent = tokio::spawn(async move { writing.write_all(&frame).await.map(|()| writing) });
        unfinished.push((reading, sent));
    }
    // Of theirs, a message that is larger than what needs no room of its own.
    let mut runner = b.runner(&["x"], 1).await;
    let run = b.create(json!({ "agent": "x", "start": false })).await;
    assert_eq!(runner.assigned().await, run);
    runner.event(&run, 1, json!([{ "type": "log.info", "payload": "x".repeat(200_000) }])).await;
    assert_eq!(runner.expect("ack").await["n"], 1);
    // Their own small talk goes on as well: what is unfinished has taken the room of the largest messages, not all.
    let mut own = a.runner(&["x"], 1).await;
    own.silent().await;
}

#[tokio::test]
async fn what_two_servers_could_read_differently_is_refused_or_ends_its_connection() {
    let server = shared().await;
    for (head, status) in [
        ("GET /api/runs HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n", "400 "),
        ("GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", "400 "),
        (
            "POST /api/runs HTTP/1.1\r\ncontent-type: application/json\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            "201 ",
        ),
    ] {
        let said = answer(&mut begun(&server, head).await).await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status}")) && said.contains("connection: close\r\n"), "{said}");
    }
    for (method, path, status) in [
        ("POST", "/", 405),
        ("TRACE", "/", 405),
        ("DELETE", "/runs/x", 405),
        ("POST", "/livez", 405),
        ("PROPFIND", "/api/runs", 405),
        ("POST", "/api/nothing", 404),
        ("HEAD", "/", 200),
    ] {
        let reply = server.send(server.request(Method::from_bytes(method.as_bytes()).unwrap(), path)).await;
        assert_eq!(reply.status, status, "{method} {path}");
        assert_eq!(reply.headers["cross-origin-resource-policy"], "same-origin");
        if status == 405 {
            reply.refused(405, "method_not_allowed");
            assert!(reply.headers.contains_key("allow"), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_wrong_path_is_refused_changes_nothing_and_is_told_the_right_one() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let event = json!({ "type": "log.info" });
    for (method, path, status, meant) in [
        ("POST", format!("/runs/{run}/events"), 404, Some(format!("POST /api/runs/{run}/events"))),
        ("POST", format!("/api/runs/{run}/events/"), 404, Some(format!("POST /api/runs/{run}/events"))),
        ("GET", format!("/runs/{run}/events"), 404, Some(format!("GET /api/runs/{run}/events"))),
        ("POST", "/runs".to_owned(), 405, Some("POST /api/runs".to_owned())),
        ("DELETE", format!("/runs/{run}"), 405, Some(format!("DELETE /api/runs/{run}"))),
        ("DELETE", "/runs/x".to_owned(), 405, Some("DELETE /api/runs/x".to_owned())),
        ("GET", "/threads/t/runs".to_owned(), 404, Some("GET /api/threads/t/runs".to_owned())),
        ("PUT", "/".to_owned(), 405, None),
        ("PUT", "/nothing".to_owned(), 404, None),
        ("GET", "/nothing".to_owned(), 404, None),
        ("GET", "/runsandmore".to_owned(), 404, None),
        ("GET", "/runs/x/y/z".to_owned(), 404, None),
        ("GET", "//".to_owned(), 404, None),
        ("GET", "/api".to_owned(), 404, None),
        ("GET", "/api/".to_owned(), 404, None),
        ("GET", "/assets/none.js".to_owned(), 404, None),
    ] {
        let request = server.request(method.parse().unwrap(), &path);
        let request = if method == "GET" { request } else { request.json(&event) };
        let reply = server.send(request).await;
        let code = if status == 404 { "not_found" } else { "method_not_allowed" };
        assert_eq!(reply.headers["content-type"], "application/problem+json", "{method} {path}");
        let problem = reply.refused(status, code);
        let detail = problem["detail"].as_str().unwrap();
        match meant {
            Some(meant) => assert!(detail.ends_with(&meant), "{method} {path}: {problem}"),
            None => assert!(!detail.contains("the route is"), "{method} {path}: {problem}"),
        }
    }
    assert_eq!(server.run(&run).await["last_seq"], 2);
    assert_eq!(server.db.number("select count(*) from store.run").await, 1);
    for (path, status) in [("/", 200), ("/runs", 200), ("/runs/x", 404), (&format!("/runs/{run}/"), 200)] {
        let page = server.get(path).await;
        assert_eq!(
            (page.status, &page.headers["content-type"] == "text/html; charset=utf-8"),
            (status, true),
            "{path}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_told_to_stop_says_so_before_it_takes_no_more() {
    let server = setup().flags(&["--drain-notice-ms", "2000"]).start().await;
    let run = server.start_run().await;
    let mut stream = server.stream(&stream_of(&run)).await;
    stream.caught_up().await;
    server.begin_stop();
    let ready = || async { answer(&mut begun(&server, "GET /readyz HTTP/1.1\r\n\r\n").await).await };
    until("the notice", || async { ready().await.starts_with("HTTP/1.1 503 ") }).await;
    server.emit(&run, numbered(1)).await;
    assert_eq!(stream.next().await.event, "custom.n");
    assert_eq!(stream.next().await.event, "stream.draining");
    tokio::time::timeout(Duration::from_secs(10), server.stop()).await.unwrap();
}

#[tokio::test]
async fn a_message_of_more_large_payloads_than_are_kept_at_once_is_stored() {
    let server = shared().await;
    let run = server.start_run().await;
    let large: Vec<Value> =
        (0..70).map(|n| json!({ "type": "custom.large", "payload": { "n": n, "x": "x".repeat(66_000) } })).collect();
    server.emit(&run, json!(large)).await;
    assert_eq!(server.run(&run).await["last_seq"], 72);
}

#[tokio::test]
async fn an_array_of_countless_events_is_refused_without_being_built() {
    let db = Db::new().await;
    let data = db.data.path().to_str().unwrap();
    // A process of its own, whose memory is only what it needs for this.
    let served =
        serve(program(&["serve", "--listen", "127.0.0.1:0", "--database-url", &db.url(), "--data-dir", data])).await;
    let api = Api::new(served.base.clone());
    let run = api.start_run().await;
    let many = format!("[{}]", vec![r#"{"type":""}"#; 600_000].join(","));
    let before = peak_kib(&served);
    let request = api.request(Method::POST, &format!("/api/runs/{run}/events"));
    api.send(request.header("content-type", "application/json").body(many)).await.refused(413, "too_large");
    assert!(peak_kib(&served) - before < 64 * 1024);
}

/// The most memory that a server has had.
fn peak_kib(served: &Served) -> i64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", served.child.id().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn lists_of_large_rows_come_in_pages_of_bounded_size() {
    let server = shared().await;
    let input = "x".repeat(60_000);
    for _ in 0..75 {
        server.create(json!({ "input": input, "tags": ["large"] })).await;
    }
    let page = server.get("/api/runs?limit=1000").await;
    assert!(page.text.len() < 5 * 1024 * 1024, "{}", page.text.len());
    assert_eq!(server.pages("/api/runs?limit=1000", "runs").await.len(), 75);
}

#[tokio::test]
async fn large_replies_of_one_principal_keep_only_its_own_out() {
    let (server, a, b) = neighbours(&[]).await;
    let (mine, theirs) = (a.start_run().await, b.start_run().await);
    for (api, run) in [(&a, &mine), (&b, &theirs)] {
        let large: Vec<Value> = (0..20).map(|_| json!({ "type": "custom.x", "payload": "x".repeat(20_000) })).collect();
        api.emit(run, json!(large)).await;
    }
    let path = |run: &str| format!("/api/runs/{run}/events");
    let owner = server.inner.authenticator.owner("", "a");
    let held = server.inner.replies.try_take(&owner, 1_020).unwrap();
    busy(&a.get(&path(&mine)).await);
    let small = a.get(&format!("{}?limit=1", path(&mine))).await;
    small.expect(200);
    b.get(&path(&theirs)).await.expect(200);
    drop(held);
    let reply = a.get(&path(&mine)).await;
    assert_eq!(reply.expect(200)["events"].as_array().unwrap().len(), 22);
    // Given back with the last of it.
    drop(server.inner.replies.try_take(&owner, 1_024).unwrap());
}

#[tokio::test]
async fn whoever_guesses_tokens_keeps_out_no_holder_of_a_good_one() {
    let (server, ..) = neighbours(&["--db-connections", "4"]).await;
    let (holder, _) = server.api_token("a", &[Scope::Read], None, None).await;
    holder.get("/api/runs").await.expect(200);
    let guesses = (0..300).map(|n| {
        let guesser = server.with(format!("rr_{n:043}"));
        async move { guesser.get("/api/runs").await.status }
    });
    let (_, asked) = tokio::join!(futures::future::join_all(guesses), async {
        let mut asked = Vec::new();
        for _ in 0..20 {
            asked.push(holder.get("/api/runs").await.status);
        }
        asked
    });
    assert_eq!(asked, [200; 20]);
}
