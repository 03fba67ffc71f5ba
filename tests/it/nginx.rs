//! Behind Debian's nginx: with the settings of docs/operations.md nothing changes, and `doctor` finds what others break.

use runreel::domain::principal::Scope;
use serde_json::{Value, json};

use crate::support::{
    api::{Api, stream_of},
    cluster::Db,
    nginx::Nginx,
    page::{blocks, done, serving, task},
    process::{Said, program, run},
    runs::parsed,
    server::{Server, setup},
    sse::{envelopes, names},
};

/// The settings that the documentation recommends.
fn documented() -> &'static str {
    let (_, after) = include_str!("../../docs/operations.md").split_once("```nginx\n").unwrap();
    after.split_once("```").unwrap().0
}

/// A server with authentication, and a token that may read and emit.
async fn guarded() -> (Server, Api) {
    let server = setup().jwt().start().await;
    let (api, _) = server.api_token("ann", &[Scope::Read, Scope::Emit], None, None).await;
    (server, api)
}

/// As the holder of the same token sees the server through nginx.
async fn through(server: &Server, api: &Api, block: &str) -> (Nginx, Api) {
    let nginx = Nginx::before(server, block).await;
    let outside = nginx.api.with(api.token.clone().unwrap());
    (nginx, outside)
}

#[tokio::test]
async fn a_live_stream_comes_through_nginx_event_by_event_and_a_reconnect_goes_on() {
    let (server, api) = guarded().await;
    let (_nginx, outside) = through(&server, &api, documented()).await;
    let created = api.post("/api/runs", json!({ "title": "through" })).await.expect(201);
    let id = created["run_id"].as_str().unwrap();
    let mut stream = outside.stream(&stream_of(id)).await;
    assert!(!stream.response.headers().contains_key("content-encoding"));
    stream.caught_up().await;
    let mut seen = Vec::new();
    for n in 0..20 {
        // The next one is not sent before this one has arrived.
        let delta = json!({ "type": "message.delta", "span_id": "m", "payload": { "text": format!("{n} ") } });
        api.emit(id, delta).await;
        assert_eq!(stream.next().await.event, "message.delta");
        api.emit(id, json!({ "type": "custom.n", "payload": { "n": n } })).await;
        seen.push(stream.next().await);
        assert_eq!(seen[n].json()["payload"]["n"], n);
    }
    drop(stream);
    api.emit(id, json!([{ "type": "custom.late" }, { "type": "run.completed", "payload": { "output": 1 } }])).await;
    let last = seen.last().unwrap().id.as_deref();
    let mut again = outside.stream_after(&stream_of(id), last).await;
    let rest = again.rest().await;
    assert_eq!(names(&rest)[..1], ["custom.late"]);
    assert!(names(&rest).ends_with(&["run.completed", "stream.caught_up", "stream.end"]), "{:?}", names(&rest));
    let all = api.events(id).await;
    assert_eq!(all[all.len() - 22..].to_vec(), [envelopes(&seen), envelopes(&rest)].concat());
    let end = rest.iter().rev().find_map(|frame| frame.id.clone()).unwrap();
    assert_eq!(outside.no_stream(&stream_of(id), Some(&end)).await.status, 204);
}

#[tokio::test]
async fn large_bodies_artifacts_and_runners_come_through_nginx() {
    let (server, api) = guarded().await;
    let (_nginx, outside) = through(&server, &api, documented()).await;
    let created = outside.post("/api/runs", json!({ "agent": "far", "start": false })).await.expect(201);
    let id = created["run_id"].as_str().unwrap();
    let checkpoint = json!({ "ns": "", "checkpoint": { "t": "bytes", "b": "AAAA".repeat(5 << 20) }, "metadata": {} });
    let put = outside.request(reqwest::Method::PUT, "/api/threads/t/checkpoints/1").json(&checkpoint);
    outside.send(put).await.expect(201);
    let bytes: Vec<u8> = (0..40_u32 << 20).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[2]).collect();
    let artifact = outside.upload(id, "large.bin", bytes.clone()).await;
    assert!(outside.bytes_of(&artifact).await == bytes, "an artifact comes back as it went");
    let mut runner = outside.runner(&["far"], 1).await;
    let run = runner.assigned().await;
    runner.event(&run, 1, json!([{ "type": "run.started" }, { "type": "run.completed" }])).await;
    runner.expect("ack").await;
    runner.done(&run).await;
    assert_eq!(api.run(&run).await["status"], "completed");
}

async fn doctor(outside: &Api) -> (Said, Vec<Value>) {
    let mut command = program(&["doctor", "--json", "--url", &outside.base]);
    command.env("RUNREEL_TOKEN", outside.token.as_deref().unwrap());
    command.env("DATABASE_URL", "postgres://nobody@127.0.0.1:9/none");
    let said = run(command, "").await;
    let checks = said.stdout.lines().map(|line| parsed(&line)).collect();
    (said, checks)
}

fn state<'a>(checks: &'a [Value], name: &str) -> (&'a str, &'a str) {
    let check = checks.iter().find(|check| check["check"] == name).unwrap_or_else(|| panic!("no check {name}"));
    (check["state"].as_str().unwrap(), check["detail"].as_str().unwrap())
}

#[tokio::test]
async fn doctor_finds_nothing_wrong_with_the_nginx_of_the_documentation() {
    let (server, api) = guarded().await;
    let (_nginx, outside) = through(&server, &api, documented()).await;
    let (_, checks) = doctor(&outside).await;
    for name in ["configuration", "server", "resume", "bodies", "runners", "stream"] {
        assert_eq!(state(&checks, name).0, "good", "{checks:?}");
    }
    assert!(state(&checks, "stream").1.contains("the next frame or ping after"), "{checks:?}");
}

/// What `doctor` says of these checks behind a proxy with these settings.
async fn behind(settings: &str, expected: &[(&str, &str, &str)]) {
    let (server, api) = guarded().await;
    let block = format!(
        "server {{ proxy_set_header Host $http_host; {settings} location / {{ proxy_pass http://127.0.0.1:7717; }} }}"
    );
    let (_nginx, outside) = through(&server, &api, &block).await;
    let (said, checks) = doctor(&outside).await;
    assert_eq!(said.code, Some(1), "{settings}");
    for (name, wanted, part) in expected {
        let (found, detail) = state(&checks, name);
        assert!(found == *wanted && detail.contains(part), "{settings}: {name}: {found}: {detail}");
    }
}

#[tokio::test]
async fn doctor_finds_a_proxy_that_buffers() {
    behind("proxy_ignore_headers X-Accel-Buffering;", &[("stream", "bad", "buffers the stream")]).await;
}

#[tokio::test]
async fn doctor_finds_a_proxy_that_compresses_streams() {
    let settings = "gzip on; gzip_types text/event-stream; gzip_proxied any; gzip_http_version 1.0;";
    behind(settings, &[("stream", "bad", "compresses the stream (gzip)")]).await;
}

#[tokio::test]
async fn doctor_finds_a_proxy_that_cuts_what_is_silent() {
    behind("proxy_read_timeout 2s;", &[("stream", "bad", "was cut after 2.")]).await;
}

#[tokio::test]
async fn doctor_finds_a_proxy_that_was_told_nothing_or_drops_a_cursor() {
    let settings = "proxy_set_header Last-Event-ID \"\"; proxy_read_timeout 1s;";
    let expected = [
        ("bodies", "bad", "(413)"),
        ("runners", "bad", "no WebSocket"),
        ("resume", "bad", "Last-Event-ID does not arrive"),
        ("server", "good", "is ready"),
    ];
    behind(settings, &expected).await;
}

#[tokio::test]
async fn doctor_finds_a_proxy_that_leads_nowhere_or_keeps_the_credential() {
    let (server, api) = guarded().await;
    let block = "server { location / { proxy_set_header Authorization \"\"; proxy_pass http://127.0.0.1:7717; } }";
    let (_nginx, outside) = through(&server, &api, block).await;
    let (said, checks) = doctor(&outside).await;
    assert_eq!((said.code, state(&checks, "stream").0), (Some(1), "bad"));
    assert!(said.stdout.contains("a proxy must forward Authorization"), "{}", said.stdout);
    let (_nginx, nowhere) = through(&server, &api, "server { location / { proxy_pass http://127.0.0.1:9; } }").await;
    let (said, checks) = doctor(&nowhere).await;
    assert_eq!((said.code, state(&checks, "server").0), (Some(1), "bad"));
    assert_eq!(state(&checks, "stream").0, "open");
}

#[tokio::test]
async fn the_page_about_nginx_lets_users_in_and_keeps_the_metrics_to_the_network() {
    let page = task("nginx");
    let [serve, doctor, create] = &blocks(&page, "sh")[..] else { panic!("another page: {page}") };
    let db = Db::new().await;
    let served = serving(serve, |command| _ = command.env("DATABASE_URL", db.url()).current_dir(db.data.path())).await;
    let created = done(create, |command| _ = command.env("DATABASE_URL", db.url())).await;
    let token = created.stdout.lines().last().unwrap();
    let (block, end) = documented().rsplit_once('}').unwrap();
    let block = format!("{block}{}}}{end}", blocks(&page, "nginx")[0]);
    let nginx = Nginx::before(&Api::new(served.base.clone()), &block).await;
    let doctor = doctor.replace("https://runreel.example", &nginx.api.base).replace('…', token);
    let said = done(&doctor, |command| _ = command.env("DATABASE_URL", db.url())).await;
    assert!(said.stdout.contains("the next frame or ping after"), "{}", said.stdout);
    let ann = nginx.api.with(token);
    let run = ann.start_run().await;
    ann.stream(&stream_of(&run)).await.caught_up().await;
    nginx.api.get("/api/runs").await.refused(401, "unauthorized");
    // The network of the page is not this machine's.
    assert_eq!(nginx.api.get("/metrics").await.status, 403);
    assert_eq!(Api::new(served.base.clone()).get("/metrics").await.status, 200);
}
