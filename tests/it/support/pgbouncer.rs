//! A real `PgBouncer` in front of a test's database.

use std::{fs::Permissions, net::TcpListener, os::unix::fs::PermissionsExt as _, path::Path, process::Stdio};

use tokio::process::{Child, Command};

use super::{cluster::Db, proxy::Proxy, until};

/// It ends with the test.
pub struct PgBouncer {
    /// The database's URL through it.
    pub url: String,
    _child: Child,
    _folder: tempfile::TempDir,
    _database: Proxy,
    /// Reserves the port: `PgBouncer` uses it on another address of this machine.
    _port: TcpListener,
}

impl PgBouncer {
    /// As installed, but for `settings`.
    pub async fn before(db: &Db, settings: &str) -> Self {
        let database = Proxy::to(db.upstream()).await;
        let port = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = port.local_addr().unwrap().port();
        let url = db.url_through(number).replace("@127.0.0.1:", "@127.0.0.2:");
        let login = reqwest::Url::parse(&url).unwrap();
        let (user, password) = (login.username(), login.password().unwrap_or_default());
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let file = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={} user={user} password='{password}'\n\
             [pgbouncer]\nlisten_addr = 127.0.0.2\nlisten_port = {number}\nunix_socket_dir =\nauth_type = any\n{settings}\n",
            database.port
        );
        std::fs::write(&file, text).unwrap();
        let installed = Path::new("/usr/sbin/pgbouncer");
        let mut command = Command::new(if installed.exists() { installed } else { Path::new("pgbouncer") });
        if rustix::process::geteuid().is_root() {
            // It refuses root.
            command.args(["-u", "nobody"]);
        }
        command.arg("-q").arg(&file).kill_on_drop(true).stdin(Stdio::null());
        let child = command.spawn().expect("PgBouncer starts; if it is missing: apt-get install pgbouncer");
        let address = format!("127.0.0.2:{number}");
        until("PgBouncer", || async { tokio::net::TcpStream::connect(&address).await.is_ok() }).await;
        Self { url, _child: child, _folder: folder, _database: database, _port: port }
    }
}
