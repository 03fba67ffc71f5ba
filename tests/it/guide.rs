//! The guide: made of the repository's documents when the UI is built, and served as the UI's files are.

use std::collections::BTreeSet;

use reqwest::Method;

use crate::support::server::Server;

/// What stands between the two in a text, each time.
fn between<'a>(text: &'a str, before: &str, after: &str) -> Vec<&'a str> {
    text.split(before).skip(1).filter_map(|rest| Some(rest.split_once(after)?.0)).collect()
}

#[tokio::test]
async fn every_page_of_the_guide_that_another_one_links_to_is_there_with_the_policy_of_the_ui() {
    let server = Server::start().await;
    let (mut seen, mut next) = (BTreeSet::new(), vec!["/docs/guide".to_owned()]);
    while let Some(path) = next.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let page = server.get(&path).await;
        assert_eq!((page.status, page.headers["content-type"].as_bytes()), (200, &b"text/html; charset=utf-8"[..]));
        assert_eq!(page.headers["cache-control"], "no-cache", "{path}");
        assert_eq!(page.headers["x-content-type-options"], "nosniff", "{path}");
        assert!(page.headers.contains_key("etag"), "{path}");
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'self';") && policy.contains("require-trusted-types-for"), "{policy}");
        assert!(!policy.contains("unsafe-") && !page.text.contains(" style="), "{path}");
        assert_eq!(page.text.matches("<h1").count(), 1, "{path}");
        let links = between(&page.text, "href=\"/docs/guide", "\"").into_iter();
        let links = links.map(|link| format!("/docs/guide{}", link.split('#').next().unwrap_or_default()));
        next.extend(links);
    }
    for page in ["/docs/guide/protocol", "/docs/guide/retention", "/docs/guide/python", "/docs/guide/0003-json-is-text"]
    {
        assert!(seen.contains(page), "{page} is linked to");
    }
    assert_eq!(server.get("/docs/guide/").await.text, server.get("/docs/guide").await.text);
}

#[tokio::test]
async fn the_search_of_the_guide_has_an_index_of_its_own_that_is_compressed_and_kept() {
    let server = Server::start().await;
    let page = server.get("/docs/guide/sql").await.text;
    let [index] = between(&page, "data-index=\"", "\"")[..] else { panic!("a page names one index") };
    assert!(!between(&page, "src=\"", "\"").contains(&index), "nothing loads it with the page");
    let reply = server.send(server.request(Method::GET, index).header("accept-encoding", "br")).await;
    assert_eq!((reply.status, &reply.headers["content-encoding"] == "br"), (200, true));
    assert_eq!(reply.headers["content-type"], "application/json");
    assert_eq!(reply.headers["cache-control"], "public, max-age=31536000, immutable");
    let index = server.get(index).await.expect(200);
    assert!(index["index"]["documentCount"].as_u64().unwrap() > 200);
}

#[tokio::test]
async fn a_page_that_the_guide_does_not_have_is_missing_and_none_can_be_written() {
    let server = Server::start().await;
    for path in ["/docs/guide/nothing", "/docs/guide/index.html", "/docs/guide/sql/more", "/docs/guides"] {
        server.get(path).await.refused(404, "not_found");
        let shown = server.send(server.request(Method::GET, path).header("accept", "text/html")).await;
        assert_eq!((shown.status, shown.text), (404, server.get("/").await.text), "{path}");
    }
    server.send(server.request(Method::POST, "/docs/guide/sql")).await.refused(405, "method_not_allowed");
}
