//! TLS by rustls, with HTTP/2 or HTTP/1.1 as the client prefers (ALPN, RFC 7301).

use std::{
    io,
    sync::{Arc, PoisonError, RwLock},
};

use rustls::{
    ServerConfig,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

use crate::config::TlsFiles;

/// The name of HTTP/2 over TLS (RFC 9113, 3.1).
const HTTP2: &[u8] = b"h2";

/// The certificate that is in use. Cheap to clone; clones share it.
#[derive(Clone)]
pub struct Tls {
    files: Arc<TlsFiles>,
    current: Arc<RwLock<Arc<ServerConfig>>>,
}

impl Tls {
    pub fn open(files: TlsFiles) -> Result<Self, String> {
        let current = Arc::new(RwLock::new(read(&files)?));
        Ok(Self { files: Arc::new(files), current })
    }

    /// Reads the files again. New connections use what they contain; after an error, what was there before.
    pub fn reload(&self) -> Result<(), String> {
        let new = read(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    pub(super) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let current = Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner));
        TlsAcceptor::from(current).accept(stream).await
    }
}

/// Whether the two sides have agreed on HTTP/2.
pub(super) fn is_http2(stream: &TlsStream<TcpStream>) -> bool {
    stream.get_ref().1.alpn_protocol() == Some(HTTP2)
}

fn read(files: &TlsFiles) -> Result<Arc<ServerConfig>, String> {
    let TlsFiles { certificate, key } = files;
    let unreadable = |error: rustls::pki_types::pem::Error| format!("cannot read {}: {error}", certificate.display());
    let chain = CertificateDer::pem_file_iter(certificate).map_err(unreadable)?;
    let chain = chain.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    if chain.is_empty() {
        return Err(format!(
            "{} has no certificate: it must be PEM, the server's own certificate first",
            certificate.display()
        ));
    }
    // The file's content is secret, so the error does not include it.
    let key = PrivateKeyDer::from_pem_file(key)
        .map_err(|_| format!("{} is not a readable private key in PEM", key.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|versions| versions.with_no_client_auth().with_single_cert(chain, key));
    let mut config = config.map_err(|error| format!("the certificate and the key do not fit: {error}"))?;
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
