//! The server's address and the runner's credential.

use tokio_tungstenite::tungstenite::{client::IntoClientRequest as _, handshake::client::Request};

use super::{Error, Settings};
use crate::domain::runner::SUBPROTOCOL;

/// The request that opens a runner's socket, with the token only in a header.
pub(super) fn request(settings: &Settings) -> Result<Request, Error> {
    let address = |text: &str| Error::Address(text.to_owned());
    let url = settings.url.trim_end_matches('/');
    let (scheme, rest) = url.split_once("://").ok_or_else(|| address("it must begin with http:// or https://"))?;
    let scheme = match scheme {
        "http" | "ws" => "ws",
        "https" | "wss" => "wss",
        _ => return Err(address("it must begin with http:// or https://")),
    };
    let request = format!("{scheme}://{rest}/api/runners/connect").into_client_request();
    let mut request = request.map_err(|error| address(&error.to_string()))?;
    let headers = request.headers_mut();
    headers.insert("sec-websocket-protocol", http_value(SUBPROTOCOL)?);
    if let Some(token) = &settings.token {
        let mut bearer = http_value(&format!("Bearer {}", token.trim()))?;
        bearer.set_sensitive(true);
        headers.insert("authorization", bearer);
    }
    Ok(request)
}

fn http_value(text: &str) -> Result<axum::http::HeaderValue, Error> {
    let bad = |_| Error::Address("the token contains characters that are not allowed in a header".to_owned());
    axum::http::HeaderValue::from_str(text).map_err(bad)
}
