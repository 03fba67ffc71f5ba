//! The HTTP client that model calls and tools share.

use std::time::Duration;

use reqwest::Url;

/// Longest wait for a connection.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(10);

/// Two clients: one for plain addresses and one for TLS. Cheap to clone: clones share the connections.
///
/// Neither follows a redirect: a key must not be sent to an address that is not configured.
#[derive(Clone, Debug)]
pub struct Web {
    plain: reqwest::Client,
    /// The reason if there is none: a machine without certificates can still use a plain server.
    tls: Result<reqwest::Client, String>,
}

impl Web {
    pub fn new() -> Result<Self, String> {
        // Only the first call in a process installs the provider; later calls find it installed.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let plain = builder().tls_certs_only([]).no_proxy().build();
        Ok(Self {
            plain: plain.map_err(|error| crate::client::describe(&error))?,
            tls: builder().build().map_err(|error| crate::client::describe(&error)),
        })
    }

    /// The client for an address.
    pub fn client(&self, url: &Url) -> Result<reqwest::Client, String> {
        if url.scheme() == "http" { Ok(self.plain.clone()) } else { self.tls.clone() }
    }
}

fn builder() -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .user_agent(concat!("runreel/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_WAIT_MAX)
}
