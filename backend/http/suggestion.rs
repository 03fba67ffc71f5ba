//! Suggests a route for a request with an unknown path: one without `/api`, or with a trailing slash.

use axum::http::Method;
use utoipa::openapi::OpenApi;

/// Every route of the API: its method, and its path with `{names}`.
pub(super) struct Routes(Vec<(Method, String)>);

impl Routes {
    pub(super) fn of(document: &OpenApi) -> Self {
        let routes = document.paths.paths.iter().flat_map(|(path, item)| {
            let methods = [
                (Method::GET, &item.get),
                (Method::HEAD, &item.get),
                (Method::PUT, &item.put),
                (Method::POST, &item.post),
                (Method::DELETE, &item.delete),
            ];
            methods.into_iter().filter(|(_, operation)| operation.is_some()).map(|(method, _)| (method, path.clone()))
        });
        Self(routes.collect())
    }

    /// The intended path, if it exists.
    pub(super) fn meant(&self, method: &Method, path: &str) -> Option<String> {
        let path = path.trim_end_matches('/');
        let meant = if path.starts_with("/api/") { path.to_owned() } else { format!("/api{path}") };
        self.0.iter().any(|(known, route)| known == method && fits(route, &meant)).then_some(meant)
    }
}

fn fits(route: &str, path: &str) -> bool {
    let (mut route, mut path) = (route.split('/'), path.split('/'));
    loop {
        match (route.next(), path.next()) {
            (None, None) => return true,
            (Some(name), Some(part)) if name == part || name.starts_with('{') && !part.is_empty() => {}
            _ => return false,
        }
    }
}
