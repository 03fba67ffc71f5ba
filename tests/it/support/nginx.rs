//! A real nginx in front of a server.

use std::{net::TcpListener, path::Path, process::Stdio};

use tokio::process::{Child, Command};

use super::{api::Api, until};

/// A separate nginx; it ends with the test.
pub struct Nginx {
    pub api: Api,
    _child: Child,
    _folder: tempfile::TempDir,
    /// Reserves the port: nginx uses it on another address of this machine.
    _port: TcpListener,
}

impl Nginx {
    /// nginx with this `server` block, which leads to `127.0.0.1:7717`, in front of a server.
    pub async fn before(server: &Api, block: &str) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("127.0.0.2:{}", port.local_addr().unwrap().port());
        let folder = tempfile::tempdir().unwrap();
        let upstream = server.base.trim_start_matches("http://");
        let block = block.replace("127.0.0.1:7717", upstream).replacen("server {", &listen(&address), 1);
        std::fs::write(folder.path().join("nginx.conf"), around(folder.path(), &block)).unwrap();
        let mut command = Command::new(if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" });
        command.arg("-p").arg(folder.path()).arg("-c").arg(folder.path().join("nginx.conf"));
        command.args(["-e", "stderr"]).kill_on_drop(true).stdin(Stdio::null());
        let child = command.spawn().expect("nginx starts; if it is missing: apt-get install nginx");
        let api = Api { base: format!("http://{address}"), ..server.clone() };
        until("nginx", || async { tokio::net::TcpStream::connect(&address).await.is_ok() }).await;
        Self { api, _child: child, _folder: folder, _port: port }
    }
}

fn listen(address: &str) -> String {
    format!("server {{\n    listen {address};")
}

/// What a `server` block needs around it, with every file in the test's folder.
fn around(folder: &Path, block: &str) -> String {
    let folder = folder.display();
    let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary = temporary.map(|kind| format!("    {kind}_temp_path {folder}/{kind};\n")).concat();
    format!(
        "daemon off;\nmaster_process off;\npid {folder}/pid;\nevents {{}}\nhttp {{\n    access_log off;\n{temporary}{block}\n}}\n"
    )
}
