//! Errors of these routes in the form of `OpenAI`: `{"error": {message, type, param, code}}`, with the problem's usual
//! status.

use axum::{
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderValue, StatusCode, header},
    middleware::Next,
    response::Response,
};
use serde_json::{Value, json};

/// More than the size of any problem, in bytes.
const PROBLEM_BYTES_MAX: usize = 64 * 1024;

/// Rewrites the problems of the routes below `/v1/`.
pub(in crate::http) async fn errors_in_its_words(request: Request, next: Next) -> Response {
    let is_ours = request.uri().path().starts_with("/v1/");
    let response = next.run(request).await;
    let is_problem = |kind: &HeaderValue| kind.as_bytes() == b"application/problem+json";
    if !is_ours || !response.headers().get(header::CONTENT_TYPE).is_some_and(is_problem) {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let body = to_bytes(body, PROBLEM_BYTES_MAX).await.unwrap_or_default();
    let problem: Value = serde_json::from_slice(&body).unwrap_or_default();
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    head.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(head.clone(), Body::from(error(head.status, &problem).to_string()))
}

fn error(status: StatusCode, problem: &Value) -> Value {
    let words = ["detail", "hint"].into_iter().filter_map(|member| problem[member].as_str());
    let kind = match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    json!({"error": {"message": words.collect::<Vec<_>>().join("; "), "type": kind, "param": problem["field"],
        "code": problem["code"]}})
}
