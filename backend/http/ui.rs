//! The UI's files, embedded in the binary, among them the page that describes the API and those of the guide.

use std::{borrow::Cow, io::Read as _};

use axum::{
    body::Body,
    extract::Request,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
    response::{IntoResponse, Response},
};
use flate2::read::GzDecoder;
use rust_embed::{EmbeddedFile, RustEmbed};

use super::{
    Server,
    compression::accepts,
    extract::CleanUrl,
    problem::{Code, Problem},
    suggestion::Routes,
};
use crate::domain::id::RunId;

/// The output of `npm run build` in `web/dist`: files in both compressed forms, and uncompressed only where these are
/// not smaller. A build without it serves a page that says so.
#[derive(RustEmbed)]
#[folder = "web/dist/"]
#[allow_missing = true]
struct Files;

/// Content codings of files, the smallest first, and the suffixes of their names.
const CODINGS: [(&str, &str); 2] = [("br", ".br"), ("gzip", ".gz")];

/// Scripts cannot turn text into markup, except by two policies: Svelte's for its templates, and the stream worker's.
const CSP: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    object-src 'none'; require-trusted-types-for 'script'; trusted-types svelte-trusted-html runreel-stream";

/// Swagger UI writes inline styles, draws data-URL images and builds markup from text; scripts come from here alone.
const DOCS_CSP: &str = "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
    frame-ancestors 'none'; base-uri 'none'; object-src 'none'";

/// The page that describes the API.
const DOCS: &str = "docs.html";

/// Everything that no route handles: a file of the UI, or its page for the paths it renders itself.
pub(super) fn serve(routes: &Routes, server: &Server, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let path = parts.uri.path().strip_prefix('/').unwrap_or_default();
    let guide = guide(path);
    let path = guide.as_deref().unwrap_or(path);
    let file = File::find(path, &parts.headers).filter(|_| !path.is_empty());
    let page = page(path);
    if file.is_none() && page.is_none() {
        return match CleanUrl::check(&parts, server) {
            Ok(()) if wants_page(&parts) => missing_page(&parts.headers),
            Ok(()) => none(routes, &parts, Problem::not_found()).into_response(),
            Err(problem) => problem.into_response(),
        };
    }
    if parts.method != Method::GET && parts.method != Method::HEAD {
        let refusal = Problem::new(Code::MethodNotAllowed, "this path is a read-only page");
        return ([(header::ALLOW, "GET, HEAD")], none(routes, &parts, refusal)).into_response();
    }
    if let Some(file) = file {
        return file.reply(path, &parts.headers);
    }
    if page == Some(Page::Missing) {
        return missing_page(&parts.headers);
    }
    let name = if page == Some(Page::Docs) { DOCS } else { "index.html" };
    File::find(name, &parts.headers).map_or_else(no_ui, |file| file.reply(name, &parts.headers))
}

/// The UI, which says that there is no such page. A browser's cached copy is of another page, so it is not revalidated.
fn missing_page(headers: &HeaderMap) -> Response {
    let index = File::find("index.html", headers);
    let mut response = index.map_or_else(no_ui, |index| index.reply("index.html", &HeaderMap::new()));
    *response.status_mut() = StatusCode::NOT_FOUND;
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    response
}

/// A page of the UI.
#[derive(Clone, Copy, PartialEq)]
enum Page {
    There,
    /// The description of the API.
    Docs,
    /// Of a run that cannot exist.
    Missing,
}

/// The pages of the UI whose path is one name.
const PAGES: [&str; 12] = [
    "",
    "runs",
    "compare",
    "threads",
    "inbox",
    "sessions",
    "artifacts",
    "sql",
    "insights",
    "agents",
    "settings",
    "tokens",
];

/// The page that the UI renders for a path: a named one, a run, a thread, a session, the API.
fn page(path: &str) -> Option<Page> {
    match path.strip_suffix('/').filter(|path| !path.is_empty()).unwrap_or(path).split('/').collect::<Vec<_>>()[..] {
        [name] if PAGES.contains(&name) => Some(Page::There),
        ["docs"] => Some(Page::Docs),
        ["runs", run] if run.parse::<RunId>().is_ok() => Some(Page::There),
        ["runs", _] => Some(Page::Missing),
        ["threads" | "sessions", _] => Some(Page::There),
        _ => None,
    }
}

/// The file of a page of the guide, which may not exist. Its URL has no suffix.
fn guide(path: &str) -> Option<String> {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["docs", "guide"] | ["docs", "guide", ""] => Some("guide/index.html".to_owned()),
        ["docs", "guide", page] | ["docs", "guide", page, ""] => Some(format!("guide/{page}.html")),
        _ => None,
    }
}

/// Whether a browser shows the response to a person, for whom a problem document is useless.
fn wants_page(parts: &Parts) -> bool {
    let accepted = parts.headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
    is_read && !parts.uri.path().starts_with("/api/") && accepted.into_iter().any(|types| types.contains("text/html"))
}

/// A rejection that names the intended route, if there is one.
fn none(routes: &Routes, parts: &Parts, refusal: Problem) -> Problem {
    match routes.meant(&parts.method, parts.uri.path()) {
        Some(meant) => {
            let detail = format!("nothing was done: the route is {} {meant}", parts.method);
            Problem::new(refusal.code(), detail).hint("API paths begin with /api and do not end in a slash")
        }
        None => refusal,
    }
}

/// A file of the UI, in the form in which it is sent.
struct File {
    data: Cow<'static, [u8]>,
    /// Identifies its content in this form.
    etag: String,
    /// Its compression; `None` if it is sent as it is.
    coding: Option<&'static str>,
}

impl File {
    /// The smallest form that the client accepts. The compressed forms have no paths of their own.
    fn find(path: &str, headers: &HeaderMap) -> Option<Self> {
        if CODINGS.iter().any(|(_, ending)| path.ends_with(ending)) {
            return None;
        }
        let accepted = CODINGS.iter().filter(|(coding, _)| accepts(headers, coding));
        let mut compressed =
            accepted.filter_map(|(coding, ending)| Some((Files::get(&format!("{path}{ending}"))?, *coding)));
        if let Some((embedded, coding)) = compressed.next() {
            return Some(Self { etag: etag(&embedded, coding), data: embedded.data, coding: Some(coding) });
        }
        if let Some(embedded) = Files::get(path) {
            return Some(Self { etag: etag(&embedded, ""), data: embedded.data, coding: None });
        }
        let embedded = Files::get(&format!("{path}.gz"))?;
        let mut data = Vec::new();
        GzDecoder::new(&*embedded.data).read_to_end(&mut data).ok()?;
        Some(Self { etag: etag(&embedded, "plain"), data: data.into(), coding: None })
    }

    fn reply(self, path: &str, headers: &HeaderMap) -> Response {
        if headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == self.etag.as_bytes()) {
            return (StatusCode::NOT_MODIFIED, [(header::VARY, "accept-encoding")]).into_response();
        }
        // Names under assets/ contain a hash of their content; everything else must be revalidated.
        let cache = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
        let csp = if path == DOCS { DOCS_CSP } else { CSP };
        let mut response = Body::from(self.data).into_response();
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type(path)));
        fields.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
        fields.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        fields.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(csp));
        fields.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        if let Some(coding) = self.coding {
            fields.insert(header::CONTENT_ENCODING, HeaderValue::from_static(coding));
        }
        if let Ok(etag) = HeaderValue::from_str(&self.etag) {
            fields.insert(header::ETAG, etag);
        }
        response
    }
}

/// Identifies an embedded file's content in one of its forms.
fn etag(embedded: &EmbeddedFile, form: &str) -> String {
    let hash = embedded.metadata.sha256_hash();
    format!("\"{}{form}\"", &hash.map(|byte| format!("{byte:02x}")).concat()[..32])
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

/// The page of a build without the UI.
fn no_ui() -> Response {
    let page = "<!doctype html><title>Runreel</title><h1>Runreel is up</h1>\
        <p>This build has no user interface. Build it with <code>./just web</code> and build the server again.</p>\
        <p>The API is described at <a href=\"/openapi.json\">/openapi.json</a>.</p>";
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, CSP)], page).into_response()
}
