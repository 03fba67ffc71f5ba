//! What is compressed on the wire, for whom, and what never is.

use reqwest::Method;
use serde_json::json;

use crate::support::{
    api::{Api, Reply},
    shared::shared,
    sse::Stream,
};

async fn accepting(server: &Api, path: &str, codings: &str) -> Reply {
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).no_gzip().build().unwrap();
    let request = Api { http, ..server.clone() }.request(Method::GET, path).header("accept-encoding", codings);
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = response.bytes().await.unwrap();
    Reply { status, headers, text: format!("{} bytes", bytes.len()) }
}

fn coding(reply: &Reply) -> Option<&str> {
    reply.headers.get("content-encoding").map(|coding| coding.to_str().unwrap())
}

#[tokio::test]
async fn pages_of_events_are_compressed_for_those_who_accept_it_and_streams_never() {
    let server = shared().await;
    let run = server.start_run().await;
    server.emit(&run, (0..100).map(|n| json!({ "type": "custom.n", "payload": { "n": n } })).collect()).await;
    let path = format!("/api/runs/{run}/events");
    for (codings, expected) in [("gzip", Some("gzip")), ("br, GZIP", Some("gzip")), ("identity", None), ("br", None)] {
        let reply = accepting(&server, &path, codings).await;
        assert_eq!((reply.status, coding(&reply)), (200, expected), "{codings}");
    }
    assert_eq!(coding(&accepting(&server, &format!("/api/runs/{run}"), "gzip").await), None, "a small one");
    server.emit_many(&run, 100, 500).await;
    let long = accepting(&server, &format!("{path}?limit=1000"), "gzip").await;
    assert_eq!((long.status, coding(&long)), (200, Some("gzip")), "one that is sent in pieces");
    let request = server.request(Method::GET, &format!("/api/stream/runs/{run}")).header("accept-encoding", "gzip");
    let mut stream = Stream::of(request.header("accept", "text/event-stream").send().await.unwrap());
    assert!(!stream.response.headers().contains_key("content-encoding"));
    stream.caught_up().await;
}

#[tokio::test]
async fn a_client_that_refuses_every_coding_gets_what_it_asked_for_and_a_truthful_status() {
    let server = shared().await;
    for codings in ["identity;q=0", "*;q=0", "gzip;q=0, identity;q=0"] {
        let request = server.request(Method::POST, "/api/runs").header("accept-encoding", codings).json(&json!({}));
        assert_eq!(server.send(request).await.status, 201, "{codings}");
    }
}

#[tokio::test]
async fn an_artifact_is_sent_as_it_is_stored_with_its_ranges() {
    let server = shared().await;
    let run = server.start_run().await;
    let text = format!("{{\"text\":\"{}\"}}", "x".repeat(10_000));
    let stored = server.post_text(&format!("/api/runs/{run}/artifacts?name=a.json"), "application/json", text).await;
    let id = stored.expect(201)["artifact_id"].as_str().unwrap().to_owned();
    let reply = accepting(&server, &format!("/api/artifacts/{id}"), "gzip").await;
    assert_eq!((reply.status, coding(&reply)), (200, None));
    assert!(reply.headers.contains_key("accept-ranges"));
}

#[tokio::test]
async fn the_files_of_the_ui_come_in_the_smallest_form_that_is_accepted_and_each_has_its_etag() {
    let server = shared().await;
    let page = server.get("/").await.text;
    let script = page.split('"').find(|part| part.starts_with("/assets/") && part.ends_with(".js")).unwrap();
    let mut etags = std::collections::BTreeSet::new();
    let mut sizes = Vec::new();
    for (codings, expected) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("gzip", Some("gzip")),
        ("br;q=0, gzip;q=0.5", Some("gzip")),
        ("identity", None),
        ("", None),
    ] {
        let reply = accepting(&server, script, codings).await;
        assert_eq!((reply.status, coding(&reply)), (200, expected), "{codings}");
        assert_eq!(reply.headers["vary"], "accept-encoding");
        assert_eq!(reply.headers["content-type"], "text/javascript; charset=utf-8");
        etags.insert((expected, reply.headers["etag"].clone().to_str().unwrap().to_owned()));
        sizes.push(reply.text.trim_end_matches(" bytes").parse::<usize>().unwrap());
    }
    assert_eq!(etags.len(), 3, "{etags:?}");
    assert!(sizes[0] < sizes[1] && sizes[1] * 2 < sizes[3], "{sizes:?}");
    for ending in [".br", ".gz"] {
        server.get(&format!("{script}{ending}")).await.refused(404, "not_found");
    }
}

#[tokio::test]
async fn the_page_of_the_api_is_small_and_swagger_ui_is_a_file_of_its_own_with_an_etag_for_whoever_asks_for_it() {
    let server = shared().await;
    let page = server.get("/docs").await;
    assert_eq!((page.status, page.headers["content-type"].as_bytes()), (200, &b"text/html; charset=utf-8"[..]));
    assert_eq!(page.headers["cache-control"], "no-cache");
    assert!(page.headers["content-security-policy"].to_str().unwrap().starts_with("default-src 'self';"));
    let named = |text: &str| -> Vec<String> {
        let parts = text.split(['"', '\'', '`']).filter(|part| part.starts_with("/assets/"));
        parts.map(str::to_owned).collect()
    };
    let loaded = named(&page.text);
    assert!(!loaded.is_empty() && !loaded.iter().any(|file| file.contains("swagger")), "{loaded:?}");
    let mut lazy = Vec::new();
    for file in &loaded {
        let text = server.get(file).await.text;
        assert!(text.len() < 10_000, "{file}: {} bytes", text.len());
        lazy.extend(named(&text));
    }
    assert_eq!(lazy.len(), 2, "a script and a style sheet: {lazy:?}");
    for file in &lazy {
        let mut sizes = Vec::new();
        for (codings, expected) in [("gzip, br", Some("br")), ("gzip", Some("gzip")), ("identity", None)] {
            let reply = accepting(&server, file, codings).await;
            assert_eq!((reply.status, coding(&reply)), (200, expected), "{file} {codings}");
            assert_eq!(reply.headers["cache-control"], "public, max-age=31536000, immutable");
            sizes.push(reply.text.trim_end_matches(" bytes").parse::<usize>().unwrap());
            let known = server.request(Method::GET, file).header("accept-encoding", codings);
            let known = known.header("if-none-match", reply.headers["etag"].clone());
            assert_eq!(server.send(known).await.status, 304, "{file} {codings}");
        }
        assert!(sizes[0] < sizes[1] && sizes[1] * 3 < sizes[2], "{file}: {sizes:?}");
    }
}

#[tokio::test]
async fn the_page_of_the_api_is_read_only_and_there_with_a_slash_too() {
    let server = shared().await;
    assert_eq!(server.get("/docs/").await.text, server.get("/docs").await.text);
    server.send(server.request(Method::POST, "/docs")).await.refused(405, "method_not_allowed");
    server.get("/docs/swagger-ui-bundle.js").await.refused(404, "not_found");
}
