//! The server's address and TLS, allowed CORS origins, and the connections to a read replica and a NATS server.

use std::{fmt, net::SocketAddr, path::PathBuf, str::FromStr};

use clap::Args;

use super::{Error, ServeArgs, error, secret_from_file};

/// Parses the address to listen on. A port alone, or `localhost:PORT`, means 127.0.0.1.
pub fn listen(text: &str) -> Result<SocketAddr, Error> {
    let local = text.strip_prefix("localhost:").or_else(|| text.strip_prefix(':')).unwrap_or(text);
    match (text.parse(), local.parse()) {
        (Ok(address), _) => Ok(address),
        (_, Ok(port)) => Ok(SocketAddr::from(([127, 0, 0, 1], port))),
        _ => Err(error("an IP address and a port are needed, such as 127.0.0.1:7717 or 0.0.0.0:7717, or a port alone")),
    }
}

/// Whether the server speaks TLS itself.
#[derive(Clone, Debug, Args)]
pub struct TlsArgs {
    /// The certificate chain in PEM, the server's own first. With it, the server speaks https and HTTP/2; SIGHUP reads
    /// both files again.
    #[arg(long, env = "RUNREEL_TLS_CERT", value_name = "FILE", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// The private key of the certificate in PEM.
    #[arg(long, env = "RUNREEL_TLS_KEY", value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
}

/// A certificate and its key.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl TlsArgs {
    /// The files, if the server speaks TLS.
    pub fn files(&self) -> Option<TlsFiles> {
        Some(TlsFiles { certificate: self.tls_cert.clone()?, key: self.tls_key.clone()? })
    }

    /// The scheme of the server's URLs.
    pub fn scheme(&self) -> &'static str {
        if self.tls_cert.is_some() { "https" } else { "http" }
    }
}

impl ServeArgs {
    /// The URL of a read replica, from the flag, the variable or the file named by `RUNREEL_REPLICA_URL_FILE`.
    pub fn replica_url(&self) -> Result<Option<String>, Error> {
        match &self.replica_url {
            Some(url) if !url.is_empty() => Ok(Some(url.clone())),
            _ => secret_from_file("RUNREEL_REPLICA_URL"),
        }
    }

    /// The URL of a NATS server, from the flag, the variable or the file named by `RUNREEL_LIVE_FILE`.
    pub fn live(&self) -> Result<Option<String>, Error> {
        let url = match &self.live {
            Some(url) if !url.is_empty() => Some(url.clone()),
            _ => secret_from_file("RUNREEL_LIVE")?,
        };
        match &url {
            Some(url) if !url.starts_with("nats://") && !url.starts_with("tls://") => {
                Err(error("--live takes the URL of a NATS server, such as nats://127.0.0.1:4222"))
            }
            _ => Ok(url),
        }
    }
}

/// The origin of a page as browsers send it (RFC 6454, 6.2): scheme, host and, unless it is the scheme's default, the
/// port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CorsOrigin(String);

impl CorsOrigin {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CorsOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for CorsOrigin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        if text == "*" {
            return Err(error("list each origin; * would let every page on the web use its visitors' access"));
        }
        let refused = || error(format!("an origin is a scheme, a host and maybe a port (https://app.example): {text}"));
        let uri = text.parse::<hyper::Uri>().map_err(|_| refused())?;
        let (scheme, authority) = (uri.scheme_str().unwrap_or_default(), uri.authority().ok_or_else(refused)?);
        let default_port = match scheme {
            "http" => Some(80),
            "https" => Some(443),
            _ => return Err(refused()),
        };
        let host = authority.host();
        let bare = authority.port_u16().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        let is_name = host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
        // No user, path or pattern: the text must be exactly an origin.
        if !is_name || bare != authority.as_str() || text.trim_end_matches('/') != format!("{scheme}://{bare}") {
            return Err(refused());
        }
        let port = authority.port_u16().filter(|port| Some(*port) != default_port);
        let host = host.to_ascii_lowercase();
        Ok(Self(port.map_or_else(|| format!("{scheme}://{host}"), |port| format!("{scheme}://{host}:{port}"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_may_be_a_port_alone_and_a_name_of_another_machine_is_refused() {
        let addresses = [
            ("127.0.0.1:1", "127.0.0.1:1"),
            ("[::]:1", "[::]:1"),
            ("localhost:1", "127.0.0.1:1"),
            (":1", "127.0.0.1:1"),
        ];
        for (text, address) in addresses.into_iter().chain([("1", "127.0.0.1:1")]) {
            assert_eq!(listen(text).unwrap(), address.parse().unwrap());
        }
        for text in ["", "localhost", "example.org:1", "127.0.0.1", "65536", "::1"] {
            assert!(listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_origin_is_written_as_browsers_send_it() {
        for (text, origin) in [
            ("https://app.example", "https://app.example"),
            ("https://App.Example/", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("http://localhost:5173", "http://localhost:5173"),
            ("http://[::1]:80", "http://[::1]"),
        ] {
            assert_eq!(text.parse::<CorsOrigin>().unwrap().as_str(), origin);
        }
    }

    #[test]
    fn what_is_no_single_origin_is_refused() {
        for text in [
            "*",
            "null",
            "",
            "app.example",
            "https://",
            "https://*.example",
            "https://app.example/path",
            "https://app.example?x",
            "https://user@app.example",
            "ftp://app.example",
            "https://app.example:99999",
        ] {
            assert!(text.parse::<CorsOrigin>().is_err(), "{text}");
        }
    }
}
