//! `fetch` over real sockets, and the configuration file as the guide shows it.

use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use runreel::{
    agents::{registry::Agents, tools::ToolError},
    config::File,
    confine::Confinement,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::support::{models::axum_serve, tools::call};

/// Pages, redirects and a body that is too long.
async fn pages() -> u16 {
    async fn back(headers: HeaderMap) -> Response {
        let host = headers[header::HOST].to_str().unwrap().replace("localhost", "127.0.0.1");
        Redirect::to(&format!("http://{host}/page")).into_response()
    }
    let router = Router::new()
        .route("/page", get(|| async { "a page" }))
        .route("/bytes", get(|| async { vec![0_u8, 159, 1] }))
        .route("/long", get(|| async { "é".repeat(1_000) }))
        .route("/missing", get(|| async { (StatusCode::NOT_FOUND, "no") }))
        .route("/here", get(|| async { Redirect::to("/page") }))
        .route("/round", get(|| async { Redirect::to("/round") }))
        .route("/address", get(back))
        .route("/metadata", get(|| async { Redirect::to("http://169.254.169.254/latest/meta-data") }))
        .route("/file", get(|| async { Redirect::to("file:///etc/passwd") }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(axum_serve(listener, router));
    port
}

#[tokio::test]
async fn a_fetch_reaches_allowed_hosts_and_no_private_address_by_any_way() {
    let port = pages().await;
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "[tools.web]\nkind = \"fetch\"\nallow = [\"localhost:{port}\"]\nallow_private = [\"localhost\"]\nbytes_max = 101\n\
         [tools.open]\nkind = \"fetch\"\nallow = [\"*\", \"*:{port}\"]\n\
         [agents.a]\nmodel = \"echo\"\ntools = [\"web\", \"open\"]\n"
    );
    let agents =
        Agents::new(File::parse(&text, dir.path()).unwrap(), dir.path().to_owned(), None, Confinement::default())
            .unwrap();
    let agent = agents.assistant("a").await.unwrap();
    let cancel = CancellationToken::new();
    let get = async |tool: &str, url: String| call(&agent, tool, json!({ "url": url }), &cancel).await;
    let local = |path: &str| format!("http://localhost:{port}{path}");

    let page = get("web", local("/here")).await.unwrap();
    assert_eq!((&page["status"], &page["text"]), (&json!(200), &json!("a page")));
    assert_eq!(page["url"], local("/page"));
    assert_eq!(get("web", local("/bytes")).await.unwrap()["base64"], "AJ8B");
    assert_eq!(get("web", local("/missing")).await.unwrap()["status"], 404);
    let long = get("web", local("/long")).await.unwrap();
    assert_eq!((long["text"].as_str().unwrap().chars().count(), &long["truncated"]), (50, &json!(true)));

    // A redirect is a question of its own: to an address instead of the name, to the metadata service, to a file.
    for way in ["/address", "/metadata", "/file", "/round"] {
        let refused = get("web", local(way)).await;
        assert!(matches!(refused, Err(ToolError::Failed(_))), "{way}: {refused:?}");
    }
    // Every host is allowed, and still nothing private is reached: by name, by address, in any spelling.
    for host in ["localhost", "127.0.0.1", "[::1]", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "0.0.0.0"] {
        let refused = get("open", format!("http://{host}:{port}/page")).await;
        assert!(matches!(refused, Err(ToolError::Failed(_))), "{host}: {refused:?}");
    }
    assert!(matches!(get("web", "not a url".to_owned()).await, Err(ToolError::Arguments(_))));
}

#[test]
fn the_configuration_file_of_the_guide_is_accepted() {
    let guide = include_str!("../../docs/operations.md");
    let section = guide.split("## The configuration file").nth(1).unwrap();
    let example = section.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    let file = File::parse(example, std::path::Path::new("/etc/runreel")).unwrap();
    assert_eq!(file.sections.agents.len(), 4);
    // Every key that can be written is shown.
    let shown: Vec<String> = file.effective().into_iter().map(|(key, _)| key).collect();
    for key in [
        "models.smart.reasoning",
        "tools.fetch.allow_private",
        "mcp.search.headers_env.Authorization",
        "agents.travel.retry",
    ] {
        assert!(shown.iter().any(|name| name == key), "{key}");
    }
}
