//! `fetch`: GET from the hosts that the configuration names.
//!
//! Addresses are checked after resolution, and the connection uses exactly these; every redirect passes the same
//! checks. Proxies from the environment are not used.

use std::{sync::Arc, time::Duration};

use base64::Engine as _;
use reqwest::{Url, header};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    failed,
    guard::{Host, Hosts, Resolver},
    text,
};
use crate::{
    agents::tools::{Called, Tool, ToolError},
    domain::context::RunContext,
};

/// Maximum redirects of one call.
const REDIRECTS_MAX: usize = 5;
/// Longest wait for a connection.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);

/// What may be fetched.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `example.org`, `*.example.org`, `*`, each also with a port; without one, 80 and 443.
    pub allow: Vec<String>,
    /// Of these, hosts that may resolve to private addresses. Link-local ones stay forbidden.
    pub allow_private: Vec<String>,
    /// Maximum bytes of one response; the rest is dropped, and the result marked truncated.
    pub bytes_max: usize,
    pub time_max: Duration,
}

/// The tool.
pub struct Fetch {
    hosts: Arc<Hosts>,
    http: reqwest::Client,
    settings: Settings,
}

impl Fetch {
    pub fn new(settings: Settings) -> Result<Self, String> {
        let parse = |hosts: &[String]| hosts.iter().map(|host| Host::parse(host)).collect::<Result<Vec<_>, _>>();
        let hosts = Hosts { allowed: parse(&settings.allow)?, private: parse(&settings.allow_private)? };
        let hosts = Arc::new(hosts);
        // Only the first call in a process installs the provider; later calls find it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || {
            reqwest::Client::builder()
                .user_agent(concat!("runreel/", env!("CARGO_PKG_VERSION")))
                .redirect(reqwest::redirect::Policy::none())
                .no_proxy()
                .connect_timeout(CONNECT_WAIT_MAX)
                .dns_resolver(Arc::new(Resolver(Arc::clone(&hosts))))
        };
        // A machine without certificates can still fetch from plain HTTP hosts.
        let http = builder().build().or_else(|_| builder().tls_certs_only([]).build());
        Ok(Self { http: http.map_err(|error| crate::client::describe(&error))?, hosts, settings })
    }

    async fn get(&self, mut url: Url) -> Result<Value, ToolError> {
        for _ in 0..=REDIRECTS_MAX {
            self.hosts.check(&url).map_err(ToolError::Failed)?;
            let answer = self.http.get(url.clone()).send().await;
            let answer = answer.map_err(|error| failed(crate::client::describe(&error)))?;
            let location = answer.headers().get(header::LOCATION).filter(|_| answer.status().is_redirection());
            match location.map(|location| location.to_str().ok().and_then(|to| url.join(to).ok())) {
                Some(Some(next)) => url = next,
                Some(None) => return Err(failed("the host redirects to an invalid URL")),
                None => return self.read(url, answer).await,
            }
        }
        Err(failed(format!("more than {REDIRECTS_MAX} redirects")))
    }

    async fn read(&self, url: Url, mut answer: reqwest::Response) -> Result<Value, ToolError> {
        let status = answer.status().as_u16();
        let media_type = answer.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or("application/octet-stream").to_owned();
        let (mut body, mut truncated) = (Vec::new(), false);
        while let Some(chunk) = answer.chunk().await.map_err(|error| failed(crate::client::describe(&error)))? {
            let room = self.settings.bytes_max.saturating_sub(body.len());
            body.extend_from_slice(chunk.get(..room).unwrap_or(&chunk));
            if chunk.len() > room {
                truncated = true;
                break;
            }
        }
        let mut result = json!({"url": url.as_str(), "status": status, "media_type": media_type});
        match text_of(body, truncated) {
            Ok(text) => result["text"] = Value::String(text),
            Err(bytes) => result["base64"] = Value::String(base64::engine::general_purpose::STANDARD.encode(bytes)),
        }
        if truncated {
            result["truncated"] = Value::Bool(true);
        }
        Ok(result)
    }
}

/// The bytes as text, or the bytes if they are not text. If truncated, an incomplete last character is dropped.
fn text_of(bytes: Vec<u8>, truncated: bool) -> Result<String, Vec<u8>> {
    match String::from_utf8(bytes) {
        Ok(text) if text.contains('\0') => Err(text.into_bytes()),
        Ok(text) => Ok(text),
        Err(error) if truncated && error.utf8_error().error_len().is_none() => {
            let end = error.utf8_error().valid_up_to();
            let mut bytes = error.into_bytes();
            bytes.truncate(end);
            String::from_utf8(bytes).map_err(std::string::FromUtf8Error::into_bytes)
        }
        Err(error) => Err(error.into_bytes()),
    }
}

impl Tool for Fetch {
    fn name(&self) -> &'static str {
        "fetch"
    }

    fn description(&self) -> &'static str {
        "Fetches an http or https URL of an allowed host."
    }

    fn schema(&self) -> Value {
        json!({
            "type": "object", "required": ["url"], "additionalProperties": false,
            "properties": {"url": {"type": "string", "maxLength": 4096}},
        })
    }

    fn time_max(&self) -> Option<Duration> {
        Some(self.settings.time_max)
    }

    fn call<'a>(&'a self, _: &'a RunContext, args: Value, cancel: &'a CancellationToken) -> Called<'a> {
        Box::pin(async move {
            let url = Url::parse(text(&args, "url")).map_err(|error| ToolError::Arguments(format!("url: {error}")))?;
            tokio::select! {
                () = cancel.cancelled() => Err(ToolError::Cancelled),
                got = self.get(url) => got,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text_and_bytes_are_bytes() {
        assert_eq!(text_of("é".into(), false), Ok("é".to_owned()));
        assert_eq!(text_of(vec![b'a', 0xc3], true), Ok("a".to_owned()));
        assert_eq!(text_of(vec![b'a', 0xc3], false), Err(vec![b'a', 0xc3]));
        assert_eq!(text_of(vec![0, 1], false), Err(vec![0, 1]));
    }
}
