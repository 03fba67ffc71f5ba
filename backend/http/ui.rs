//! The UI's files, embedded in the binary.

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use rust_embed::{EmbeddedFile, RustEmbed};

use super::{
    Server,
    extract::refuse_token_in_url,
    problem::{Code, Problem},
    suggestion::Routes,
};
use crate::domain::id::RunId;

/// The output of `npm run build` in `web/dist`. A build without it serves a page that says so.
#[derive(RustEmbed)]
#[folder = "web/dist/"]
#[allow_missing = true]
struct Files;

/// Scripts cannot turn text into markup, except through the policy with which Svelte inserts its own templates.
const CSP: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    object-src 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html";

/// Everything that no route handles: a file of the UI, or its page for the paths it renders itself.
pub(super) fn serve(routes: &Routes, server: &Server, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let path = parts.uri.path().strip_prefix('/').unwrap_or_default();
    let file = Files::get(path).filter(|_| !path.is_empty());
    let page = page(path);
    if file.is_none() && page.is_none() {
        return match refuse_token_in_url(&parts, server) {
            Ok(()) => none(routes, &parts, Problem::not_found()).into_response(),
            Err(problem) => problem.into_response(),
        };
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        let refusal = Problem::new(Code::MethodNotAllowed, "this path is a read-only page");
        return ([(header::ALLOW, "GET, HEAD")], none(routes, &parts, refusal)).into_response();
    }
    if let Some(file) = file {
        return reply(path, file, &parts.headers);
    }
    let index = Files::get("index.html");
    let mut response = index.map_or_else(missing, |index| reply("index.html", index, &parts.headers));
    if page == Some(Page::Missing) {
        *response.status_mut() = StatusCode::NOT_FOUND;
    }
    response
}

/// A page of the UI.
#[derive(Clone, Copy, PartialEq)]
enum Page {
    There,
    /// Of a run that cannot exist; the UI says so.
    Missing,
}

/// The page that the UI renders for a path: its list, or a run.
fn page(path: &str) -> Option<Page> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["" | "runs"] | ["runs", ""] => Some(Page::There),
        ["runs", run] | ["runs", run, ""] if run.parse::<RunId>().is_ok() => Some(Page::There),
        ["runs", _] | ["runs", _, ""] => Some(Page::Missing),
        _ => None,
    }
}

/// A rejection that names the route that was meant, if there is one.
fn none(routes: &Routes, parts: &Parts, refusal: Problem) -> Problem {
    match routes.meant(&parts.method, parts.uri.path()) {
        Some(meant) => {
            let detail = format!("nothing was done: the route is {} {meant}", parts.method);
            Problem::new(refusal.code(), detail).hint("API paths begin with /api and do not end in a slash")
        }
        None => refusal,
    }
}

fn reply(path: &str, file: EmbeddedFile, headers: &HeaderMap) -> Response {
    let etag = format!("\"{}\"", &file.metadata.sha256_hash().map(|byte| format!("{byte:02x}")).concat()[..32]);
    if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == etag.as_bytes()) {
        return StatusCode::NOT_MODIFIED.into_response();
    }
    // Names under assets/ contain a hash of their content; everything else must be revalidated.
    let cache = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    let mut response = Body::from(file.data).into_response();
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(path)));
    fields.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    fields.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(CSP));
    fields.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(etag) = HeaderValue::from_str(&etag) {
        fields.insert(header::ETAG, etag);
    }
    response
}

/// The kinds of files in a build of the UI.
fn media_type(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        Some("png") => "image/png",
        Some("json" | "webmanifest") => "application/json",
        Some("woff2") => "font/woff2",
        _ => "application/octet-stream",
    }
}

fn missing() -> Response {
    let page = "<!doctype html><title>Runreel</title><h1>Runreel is up</h1>\
        <p>This build has no user interface. Build it with <code>./just web</code> and build the server again.</p>\
        <p>The API is described at <a href=\"/docs\">/docs</a>.</p>";
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, CSP)], page).into_response()
}
