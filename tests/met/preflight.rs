//! What browsers ask before they send what a page of another origin wants to send.

use reqwest::{Method, header::HeaderMap};

use crate::support::{
    api::{Api, Reply},
    server::setup,
};

const PAGE: &str = "https://app.example";

async fn preflight(api: &Api, origin: &str, names: &[&str]) -> Reply {
    let mut request = api.http.request(Method::OPTIONS, format!("{}/v1/responses", api.base)).header("origin", origin);
    request = request.header("access-control-request-method", "POST");
    for names in names {
        request = request.header("access-control-request-headers", *names);
    }
    api.send(request).await
}

fn names<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    let list = headers.get(name).map(|list| list.to_str().unwrap()).unwrap_or_default();
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
}

/// Official clients say in headers which client they are, and others add more (ollama/ollama#4388, vercel/ai#9256).
#[tokio::test]
async fn a_page_of_a_listed_origin_may_send_the_headers_it_asks_for() {
    let server = setup().jwt().flags(&["--cors-origin", PAGE]).start().await;
    let asked = "authorization,content-type,x-stainless-arch,x-stainless-os,x-stainless-retry-count,user-agent";
    let reply = preflight(&server, PAGE, &[asked]).await;
    assert_eq!((reply.status, reply.headers["access-control-allow-origin"].to_str().unwrap()), (200, PAGE));
    assert_eq!(names(&reply.headers, "access-control-allow-headers"), asked.split(',').collect::<Vec<_>>());
    assert!(!reply.headers.contains_key("access-control-allow-credentials"));
    let vary = reply.headers.get_all("vary").iter().map(|vary| vary.to_str().unwrap()).collect::<Vec<_>>().join(",");
    assert!(vary.contains("access-control-request-headers"), "{vary}");
    let reply = preflight(&server, PAGE, &["X-One, x-two", "x-three"]).await;
    assert_eq!(names(&reply.headers, "access-control-allow-headers"), ["x-one", "x-two", "x-three"]);
    let reply = preflight(&server, PAGE, &[]).await;
    assert_eq!((reply.status, names(&reply.headers, "access-control-allow-headers")), (200, vec![]));
    let reply = preflight(&server, "https://evil.example", &[asked]).await;
    assert!(!reply.headers.contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn only_names_of_headers_are_repeated_and_not_without_end() {
    let server = setup().jwt().flags(&["--cors-origin", PAGE]).start().await;
    let reply = preflight(&server, PAGE, &["x-good, not a name, <script>, , x:y, \"q\"", "x-last"]).await;
    assert_eq!(names(&reply.headers, "access-control-allow-headers"), ["x-good", "x-last"]);
    let many = (0..500).map(|n| format!("x-{n}")).collect::<Vec<_>>().join(",");
    let reply = preflight(&server, PAGE, &[&many]).await;
    assert_eq!(names(&reply.headers, "access-control-allow-headers").len(), 64);
}

#[tokio::test]
async fn a_page_of_a_listed_origin_can_read_every_header_of_the_contract() {
    let server = setup().flags(&["--cors-origin", PAGE]).start().await;
    let request = server.request(Method::GET, "/api/runs").header("origin", PAGE);
    let reply = server.send(request).await;
    let exposed = names(&reply.headers, "access-control-expose-headers");
    for name in
        ["runreel-truncated", "x-vercel-ai-ui-message-stream", "retry-after", "etag", "location", "content-range"]
    {
        assert!(exposed.contains(&name), "{name}: {exposed:?}");
    }
}
