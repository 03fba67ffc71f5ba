//! TLS without a proxy: both versions of HTTP, a renewed certificate, and peers that speak something else.

use std::{fs, path::Path, sync::Arc};

use reqwest::{Certificate, Client, Version};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::support::{
    api::{Api, stream_of},
    cluster::Db,
    patiently,
    process::{Served, program, serve},
    sse::Stream,
    until,
};

/// Writes a new certificate and its key; returns the certificate.
fn issue(folder: &Path) -> String {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let certificate = issued.cert.pem();
    fs::write(folder.join("cert.pem"), &certificate).unwrap();
    fs::write(folder.join("key.pem"), issued.signing_key.serialize_pem()).unwrap();
    certificate
}

/// A server with a certificate.
struct Secured {
    served: Served,
    certificate: String,
    folder: TempDir,
    _db: Arc<Db>,
}

impl Secured {
    async fn start() -> Self {
        let (db, folder) = (Db::new().await, tempfile::tempdir().unwrap());
        let certificate = issue(folder.path());
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (cert, key, data, url) = (path("cert.pem"), path("key.pem"), path("data"), db.url());
        let flags = ["serve", "--listen", "127.0.0.1:0", "--tls-cert", &cert, "--tls-key", &key, "--data-dir", &data];
        let served = serve(program(&[flags.as_slice(), &["--database-url", &url]].concat())).await;
        Self { served, certificate, folder, _db: db }
    }

    /// A client that believes this certificate, with HTTP/2 if it may.
    fn client(&self, certificate: &str, is_old: bool) -> Api {
        let builder = Client::builder().no_proxy();
        let builder = builder.tls_certs_only([Certificate::from_pem(certificate.as_bytes()).unwrap()]);
        let http = if is_old { builder.http1_only() } else { builder }.build().unwrap();
        Api { http, ..Api::new(self.served.base.clone()) }
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.served.child.id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

#[tokio::test]
async fn both_versions_of_http_read_write_and_follow() {
    let server = Secured::start().await;
    assert!(server.served.base.starts_with("https://"), "{}", server.served.base);
    for (is_old, version) in [(false, Version::HTTP_2), (true, Version::HTTP_11)] {
        let api = server.client(&server.certificate, is_old);
        let run = api.start_run().await;
        // More than the six connections that a browser opens to a server of HTTP/1.1.
        let mut streams = Vec::new();
        for _ in 0..20 {
            streams.push(api.stream(&stream_of(&run)).await);
        }
        for stream in &mut streams {
            assert_eq!(stream.response.version(), version);
            stream.caught_up().await;
        }
        api.emit(&run, json!({ "type": "custom.n" })).await;
        for stream in &mut streams {
            assert_eq!(stream.next().await.event, "custom.n");
        }
        api.complete(&run).await;
        for mut stream in streams {
            assert_eq!(stream.rest().await.last().unwrap().event, "stream.end");
        }
    }
}

#[tokio::test]
async fn a_stop_ends_streams_of_http_2_too() {
    let mut server = Secured::start().await;
    let api = server.client(&server.certificate, false);
    let run = api.start_run().await;
    let mut stream: Stream = api.stream(&stream_of(&run)).await;
    stream.caught_up().await;
    server.signal(Signal::TERM);
    stream.rest().await;
    assert!(patiently("the end", server.served.child.wait()).await.unwrap().success());
}

#[tokio::test]
async fn a_renewed_certificate_is_used_after_a_signal_and_a_broken_one_is_not() {
    let server = Secured::start().await;
    let is_believed = async |certificate: &str| {
        let api = server.client(certificate, false);
        api.http.get(format!("{}/livez", api.base)).send().await.is_ok()
    };
    assert!(is_believed(&server.certificate).await);
    let renewed = issue(server.folder.path());
    assert!(!is_believed(&renewed).await, "nobody has told the server");
    server.signal(Signal::HUP);
    until("the new certificate", || is_believed(&renewed)).await;
    assert!(!is_believed(&server.certificate).await);
    fs::write(server.folder.path().join("key.pem"), "no key").unwrap();
    server.signal(Signal::HUP);
    let reply = server.client(&renewed, false).get("/readyz").await;
    assert_eq!(reply.status, 200, "{}", reply.text);
}

#[tokio::test]
async fn who_speaks_no_tls_gets_nothing_and_disturbs_nobody() {
    let server = Secured::start().await;
    let address = server.served.base.trim_start_matches("https://");
    let mut silent = TcpStream::connect(address).await.unwrap();
    let mut plain = TcpStream::connect(address).await.unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut said = Vec::new();
    let _ = patiently("the end of the plain connection", plain.read_to_end(&mut said)).await;
    assert!(!said.starts_with(b"HTTP/"), "{said:?}");
    let api = server.client(&server.certificate, false);
    assert_eq!(api.get("/livez").await.status, 200);
    // Whoever does not begin is cut off like a request without a head.
    let _ = patiently("the end of the silent connection", silent.read_to_end(&mut said)).await;
}

#[tokio::test]
async fn a_wrong_file_is_named_before_a_database_is_touched() {
    let folder = tempfile::tempdir().unwrap();
    issue(folder.path());
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (cert, key, empty) = (path("cert.pem"), path("key.pem"), path("empty.pem"));
    fs::write(&empty, "").unwrap();
    for (cert, key, wrong) in [(&empty, &key, &empty), (&cert, &empty, &empty), (&cert, &cert, &cert)] {
        let data = path("data");
        let flags = ["serve", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--data-dir", &data];
        let said = crate::support::process::run(program(&flags), "").await;
        assert_eq!(said.code, Some(1), "{}", said.stderr);
        assert!(said.stderr.contains(wrong.as_str()), "{}", said.stderr);
        assert!(!Path::new(&data).exists());
    }
    let alone = crate::support::process::run(program(&["serve", "--tls-cert", &cert]), "").await;
    assert_eq!(alone.code, Some(2), "{}", alone.stderr);
}

#[tokio::test]
async fn a_request_that_names_two_hosts_is_refused() {
    let server = Secured::start().await;
    let api = server.client(&server.certificate, false);
    let reply = api.send(api.request(reqwest::Method::GET, "/api/runs").header("host", "evil.example")).await;
    let problem: Value = reply.refused(400, "invalid_request");
    assert!(problem["detail"].as_str().unwrap().contains("Host"), "{problem}");
}
