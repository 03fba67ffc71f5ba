//! Credentials: which are believed, for how long, and that none is ever written down.

use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta};
use runreel::{
    app::App,
    config::Secrets,
    domain::{limits::JWT_LEEWAY_S, principal::Scope},
};
use serde_json::{Value, json};
use sqlx::Row as _;

use crate::support::{
    api::stream_of,
    jwt::signed,
    runs::numbered,
    server::{JWT_SECRET, serve_args, setup},
    sse::Item,
    take_log,
};

#[tokio::test]
async fn only_a_well_made_bearer_credential_is_believed() {
    let server = setup().jwt().start().await;
    let exp = server.clock.now().timestamp() + 60;
    let good = signed(&json!({ "sub": "alice", "exp": exp }));
    let [head, body, signature] = good.split('.').collect::<Vec<_>>().try_into().unwrap();
    let none = "eyJhbGciOiJub25lIn0";
    let rs256 = "eyJhbGciOiJSUzI1NiJ9";
    let status = async |header: &[u8]| {
        let value = reqwest::header::HeaderValue::from_bytes(header).unwrap();
        server.send(server.request(reqwest::Method::GET, "/api/runs").header("authorization", value)).await
    };
    for fine in [format!("Bearer {good}"), format!("bearer {good}"), format!("Bearer  {good} ")] {
        assert_eq!(status(fine.as_bytes()).await.status, 200, "{fine}");
    }
    let claims = |claims: Value| format!("Bearer {}", signed(&claims));
    for bad in [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        good.clone(),
        format!("Basic {good}"),
        format!("Token {good}"),
        format!("Bearer {none}.{body}."),
        format!("Bearer {none}.{body}.{signature}"),
        format!("Bearer {rs256}.{body}.{signature}"),
        format!("Bearer {head}.{body}"),
        format!("Bearer {head}.{body}.{signature}x"),
        format!("Bearer {head}..{signature}"),
        format!("Bearer {}", "a".repeat(9_000)),
        "Bearer rr_".to_owned(),
        format!("Bearer rr_{}", "0".repeat(64)),
        "Bearer rr_' or 1=1 --".to_owned(),
        claims(json!({ "sub": "alice" })),
        claims(json!({ "exp": exp })),
        claims(json!({ "sub": "", "exp": exp })),
        claims(json!({ "sub": ["alice"], "exp": exp })),
        claims(json!({ "sub": "alice", "exp": exp.to_string() })),
        claims(json!({ "sub": "alice", "exp": -1 })),
        claims(json!({ "sub": "alice", "exp": exp, "nbf": exp })),
    ] {
        let reply = status(bad.as_bytes()).await;
        reply.refused(401, "unauthorized");
        assert_eq!(reply.headers["www-authenticate"], "Bearer", "{bad}");
        assert!(bad.len() < 12 || !reply.text.contains(&bad[10..]), "{}", reply.text);
    }
    status(b"Bearer \xff\xfe").await.refused(401, "unauthorized");
}

#[tokio::test]
async fn a_credential_in_a_url_is_refused_whoever_asks() {
    let server = setup().jwt().start().await;
    let alice = server.as_subject("alice");
    let run = alice.start_run().await;
    let token = alice.token.clone().unwrap();
    for query in [
        "token=x",
        "access_token=x",
        "TOKEN=x",
        "api_key=",
        "jwt=1",
        "authorization=Bearer",
        "x=rr_abc",
        &format!("q={token}"),
    ] {
        for path in ["/api/runs".to_owned(), format!("/api/runs/{run}"), stream_of(&run), "/api/stream/runs".to_owned()]
        {
            for api in [&alice, &server.api] {
                let reply = api.no_stream(&format!("{path}?{query}"), None).await;
                reply.refused(400, "token_in_url");
                assert!(!reply.text.contains(&token));
            }
        }
    }
    let sly = alice.no_stream(&format!("{}?%74oken={token}", stream_of(&run)), None).await;
    sly.refused(400, "token_in_url");
}

#[tokio::test]
async fn a_stream_ends_when_its_credential_expires_and_pings_while_it_waits() {
    let now = DateTime::from_timestamp(runreel::clock::Clock::System.now().timestamp(), 0).unwrap();
    let clock = runreel::clock::Clock::manual(now);
    let server = setup().jwt().clock(&clock).start().await;
    let alice = server.as_subject("alice");
    let run = alice.start_run().await;
    // A stream lasts as long as a request would be let in, so with the leeway it has a second left.
    let exp = now.timestamp() + 1 - i64::try_from(JWT_LEEWAY_S).unwrap();
    let jwt = server.with(signed(&json!({ "sub": "alice", "exp": exp })));
    let token = server.api_token("alice", &[Scope::Read], Some(&run), Some(now + TimeDelta::seconds(1))).await.0;
    let mut lasting = alice.stream(&stream_of(&run)).await;
    lasting.caught_up().await;
    let mut streams = [jwt.stream(&stream_of(&run)).await, token.stream(&stream_of(&run)).await];
    for stream in &mut streams {
        stream.caught_up().await;
        // The clock stands, so the stream looks again each time the second is over, and says that it lives.
        assert_eq!(stream.item().await, Some(Item::Comment("ping".to_owned())));
    }
    server.pass(std::time::Duration::from_secs(1));
    for stream in &mut streams {
        assert_eq!(stream.rest().await, []);
    }
    token.no_stream(&stream_of(&run), Some("2")).await.refused(401, "unauthorized");
    jwt.no_stream(&stream_of(&run), Some("2")).await.refused(401, "unauthorized");
    alice.emit(&run, numbered(1)).await;
    assert_eq!(lasting.next().await.event, "custom.n");
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked() {
    let server = setup().jwt().start().await;
    let run = server.as_subject("alice").start_run().await;
    let (token, id) = server.api_token("alice", &[Scope::Read], None, None).await;
    let (kept, _) = server.api_token("alice", &[Scope::Read], None, None).await;
    let mut streams = [token.stream(&stream_of(&run)).await, token.stream("/api/stream/runs").await];
    let mut other = kept.stream(&stream_of(&run)).await;
    other.caught_up().await;
    for stream in &mut streams {
        stream.caught_up().await;
    }
    let (store, authenticator) = (server.inner.timeline.store(), &server.inner.authenticator);
    let now = server.clock.now();
    assert!(
        !store.tokens().revoke(&authenticator.owner("", "bob"), id, true, now).await.unwrap(),
        "another's token stays"
    );
    assert!(store.tokens().revoke(&authenticator.owner("", "alice"), id, true, now).await.unwrap());
    for stream in &mut streams {
        assert_eq!(stream.rest().await, []);
    }
    token.no_stream(&stream_of(&run), None).await.refused(401, "unauthorized");
    server.as_subject("alice").emit(&run, numbered(1)).await;
    assert_eq!(other.next().await.event, "custom.n");
}

/// Everything this process has logged.
static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn log() -> MutexGuard<'static, Vec<u8>> {
    LOG.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Keep;

impl std::io::Write for Keep {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        log().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_secret_is_ever_logged_or_stored() {
    let filter = tracing_subscriber::EnvFilter::new("debug,runreel=trace");
    // From every thread, also those that only read and write files.
    assert!(take_log());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(|| Keep).init();
    let server = setup().jwt().start().await;
    let subject = "sentinel-subject-7c1d";
    let jwt =
        signed(&json!({ "sub": subject, "exp": server.clock.now().timestamp() + 60, "name": "sentinel-name-7c1d" }));
    let alice = server.with(jwt.clone());
    let token = server.api_token(subject, &[Scope::Admin], None, None).await.0;
    let secret = token.token.clone().unwrap();
    let (mut said, mut shared) = (String::new(), Vec::new());
    for api in [&alice, &token] {
        let run = api.create(json!({ "thread_id": "t", "title": "x" })).await;
        api.emit(&run, json!([numbered(1), { "type": "message.completed", "payload": { "text": "x" } }])).await;
        said += &api.try_emit(&run, json!({ "type": "wrong" })).await.text;
        said += &api.no_stream(&format!("{}?token={}", stream_of(&run), api.token.as_ref().unwrap()), None).await.text;
        said += &server.with(format!("{}x", api.token.as_ref().unwrap())).get("/api/runs").await.text;
        api.stream(&stream_of(&run)).await.caught_up().await;
        let read_token = api.post(&format!("/api/runs/{run}/tokens"), json!({})).await.expect(201)["token"].clone();
        let read_token = read_token.as_str().unwrap().to_owned();
        server.stream(&format!("{}?access_token={read_token}", stream_of(&run))).await.caught_up().await;
        said += &server.get(&format!("/api/runs/{run}?access_token={read_token}")).await.text;
        shared.push(read_token.trim_start_matches("rr_").to_owned());
        api.complete(&run).await;
        said += &api.get(&format!("/api/runs/{run}")).await.text;
        said += &api.events(&run).await.concat();
        said += &api.delete(&format!("/api/runs/{run}")).await.text;
        api.start_run().await;
    }
    said += &server.get("/metrics").await.text;
    let mut connection = server.db.connect().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select format('%I.%I', schemaname, tablename) from pg_tables where schemaname not in ('pg_catalog', 'information_schema')",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert!(tables.len() >= 6, "{tables:?}");
    let mut rows = 0;
    for table in tables {
        let query = sqlx::AssertSqlSafe(format!("select t::text as row from {table} t"));
        for row in sqlx::query(query).fetch_all(&mut connection).await.unwrap() {
            rows += 1;
            said += row.get::<&str, _>("row");
        }
    }
    assert!(rows > 5, "{rows} rows");
    said += &String::from_utf8_lossy(&log());
    assert!(said.contains("runreel"), "something was logged");
    let secret_hex = hex::encode(&secret);
    let bare = secret.trim_start_matches("rr_");
    let (signature, jwt_secret) = (jwt.rsplit('.').next().unwrap(), std::str::from_utf8(JWT_SECRET).unwrap());
    let sentinels = [subject, "sentinel-name-7c1d", signature, bare, secret_hex.as_str(), jwt_secret];
    for sentinel in sentinels.into_iter().chain(shared.iter().map(String::as_str)) {
        if let Some(at) = said.find(sentinel) {
            let (from, to) = (said.floor_char_boundary(at.saturating_sub(200)), said.ceil_char_boundary(at + 200));
            panic!("{sentinel} was written down: {}", &said[from..to]);
        }
    }
}

#[tokio::test]
async fn without_authentication_only_this_machine_may_ask() {
    let server = setup().start().await;
    let run = server.start_run().await;
    let ask = async |method: reqwest::Method, host: &str, origin: Option<&str>| {
        let path = if method == reqwest::Method::GET {
            format!("/api/runs/{run}")
        } else {
            format!("/api/runs/{run}/heartbeat")
        };
        let mut request = server.request(method, &path).header("host", host);
        if let Some(origin) = origin {
            request = request.header("origin", origin);
        }
        server.send(request).await
    };
    for host in
        ["localhost", "localhost:7717", "127.0.0.1:1", "127.1.2.3", "[::1]", "[::1]:7717", "runreel.localhost:80"]
    {
        assert_eq!(ask(reqwest::Method::GET, host, None).await.status, 200, "{host}");
    }
    for (host, origin) in [
        ("localhost:7717", "http://localhost:7717"),
        ("localhost:5173", "http://localhost:5173"),
        ("[::1]", "https://[::1]"),
    ] {
        assert_eq!(ask(reqwest::Method::POST, host, Some(origin)).await.status, 204, "{origin}");
    }
    for origin in [
        "http://evil.example",
        "null",
        "",
        "http://localhost:3000",
        "http://127.0.0.1:7717",
        "https://localhost.evil.example",
        "http://127.0.0.1.evil.example",
    ] {
        ask(reqwest::Method::POST, "localhost:7717", Some(origin)).await.refused(403, "host_not_allowed");
    }
    for site in ["cross-site", "same-site"] {
        let request = server.request(reqwest::Method::GET, "/api/runs").header("sec-fetch-site", site);
        server.send(request).await.refused(403, "host_not_allowed");
    }
    for site in ["same-origin", "none"] {
        let request = server.request(reqwest::Method::GET, "/api/runs").header("sec-fetch-site", site);
        assert_eq!(server.send(request).await.status, 200, "{site}");
    }
    for name in ["host", "origin"] {
        let value = reqwest::header::HeaderValue::from_bytes(b"http://\xe9.example").unwrap();
        let request = server.request(reqwest::Method::POST, &format!("/api/runs/{run}/heartbeat")).header(name, value);
        server.send(request).await.refused(403, "host_not_allowed");
    }
    for host in [
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "1270.0.0.1",
        "127.0.0.1.evil.example",
        "127.evil.example:80",
    ] {
        ask(reqwest::Method::GET, host, None).await.refused(403, "host_not_allowed");
        ask(reqwest::Method::POST, host, None).await.refused(403, "host_not_allowed");
    }
}

#[tokio::test]
async fn an_unsafe_configuration_does_not_start() {
    let bare = Secrets::default();
    for (flags, words) in [
        (["--listen", "0.0.0.0:0"].as_slice(), "--auth jwt"),
        (&["--listen", "[::]:0"], "--auth jwt"),
        (&["--listen", "192.0.2.1:0", "--auth", "off"], "--auth jwt"),
        (&["--listen", "127.0.0.1:0", "--auth", "jwt"], "RUNREEL_JWT_SECRET"),
    ] {
        let error = App::start(&serve_args(flags), &bare).await.err().expect("it does not start").to_string();
        assert!(error.contains(words), "{flags:?}: {error}");
    }
}
