//! Pages of other origins: what a browser asks before it lets them, and what it is told.

use reqwest::{Method, RequestBuilder, header::HeaderMap};
use serde_json::json;

use crate::support::{
    api::Api,
    server::{serve_args, setup},
    shared::shared,
    sse::Stream,
};

const PAGE: &str = "https://app.example";
const OTHER: &str = "https://evil.example";

fn listed() -> crate::support::server::Setup {
    setup().flags(&["--cors-origin", "https://App.example/,http://localhost:5173"])
}

/// What a browser asks before a page may send this.
fn preflight(api: &Api, origin: &str, method: &str, path: &str) -> RequestBuilder {
    let request = api.http.request(Method::OPTIONS, format!("{}{path}", api.base)).header("origin", origin);
    request
        .header("access-control-request-method", method)
        .header("access-control-request-headers", "authorization,content-type,last-event-id")
}

/// A request that a browser sends for a page.
fn from_page(api: &Api, origin: &str, method: Method, path: &str) -> RequestBuilder {
    api.request(method, path).header("origin", origin).header("sec-fetch-site", "cross-site")
}

fn allowed<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(format!("access-control-allow-{name}")).map(|value| value.to_str().unwrap())
}

#[tokio::test]
async fn a_listed_page_reads_writes_and_follows_with_its_visitors_token() {
    let server = listed().jwt().start().await;
    let api = server.as_subject("alice");
    let asked = api.send(preflight(&api, PAGE, "POST", "/api/runs")).await;
    assert_eq!((asked.status, allowed(&asked.headers, "origin")), (200, Some(PAGE)));
    assert!(allowed(&asked.headers, "headers").unwrap().contains("last-event-id"));
    assert!(allowed(&asked.headers, "methods").unwrap().contains("DELETE"));
    let created = api.send(from_page(&api, PAGE, Method::POST, "/api/runs").json(&json!({}))).await;
    assert_eq!((created.status, allowed(&created.headers, "origin")), (201, Some(PAGE)));
    let run = created.json()["run_id"].as_str().unwrap().to_owned();
    let request = from_page(&api, PAGE, Method::GET, &format!("/api/stream/runs/{run}"));
    let mut stream = Stream::of(request.header("accept", "text/event-stream").send().await.unwrap());
    assert_eq!(allowed(stream.response.headers(), "origin"), Some(PAGE));
    stream.caught_up().await;
    // A page must be able to read why it was refused, and when to come back.
    let nobody = Api { token: None, ..api.clone() };
    let refused = nobody.send(from_page(&nobody, PAGE, Method::GET, "/api/runs")).await;
    refused.refused(401, "unauthorized");
    assert_eq!(allowed(&refused.headers, "origin"), Some(PAGE));
    assert!(refused.headers["access-control-expose-headers"].to_str().unwrap().contains("retry-after"));
}

#[tokio::test]
async fn no_other_page_is_named_and_none_gets_cookies() {
    let server = listed().jwt().start().await;
    let api = server.as_subject("alice");
    for origin in [OTHER, "null", "https://app.example.evil", "http://app.example", "https://app.example:8443"] {
        for request in [
            preflight(&api, origin, "POST", "/api/runs"),
            from_page(&api, origin, Method::GET, "/api/runs"),
            from_page(&api, origin, Method::GET, "/api/nothing"),
        ] {
            let reply = api.send(request).await;
            assert_eq!(allowed(&reply.headers, "origin"), None, "{origin}");
            assert!(reply.headers["vary"].to_str().unwrap().contains("origin"), "{origin}");
        }
    }
    let reply = api.send(preflight(&api, PAGE, "GET", "/api/runs")).await;
    assert_eq!(allowed(&reply.headers, "credentials"), None);
}

#[tokio::test]
async fn without_a_list_there_is_no_cors_at_all() {
    let server = shared().await;
    let asked = server.send(preflight(&server, PAGE, "GET", "/api/runs")).await;
    asked.refused(405, "method_not_allowed");
    assert_eq!(allowed(&asked.headers, "origin"), None);
}

#[tokio::test]
async fn without_authentication_a_listed_page_is_let_in_and_another_is_not() {
    let server = listed().start().await;
    for (origin, status) in [("http://localhost:5173", 201), (PAGE, 201), (OTHER, 403)] {
        let reply = server.send(from_page(&server, origin, Method::POST, "/api/runs").json(&json!({}))).await;
        assert_eq!(reply.status, status, "{origin}: {}", reply.text);
    }
    // A name of another host is refused whatever the page (DNS rebinding).
    let rebound = from_page(&server, PAGE, Method::GET, "/api/runs").header("host", "evil.example");
    server.send(rebound).await.refused(403, "host_not_allowed");
}

#[test]
fn an_origin_is_listed_by_itself_or_the_server_does_not_start() {
    assert_eq!(
        serve_args(&["--cors-origin", "https://a.example", "--cors-origin", "https://b.example"]).cors_origin.len(),
        2
    );
}
