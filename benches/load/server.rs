//! The server that is measured: started on a folder of its own, or one that runs already.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::http::Connection;

const READY_MAX: Duration = Duration::from_mins(1);
const END_MAX: Duration = Duration::from_secs(15);

/// A server and, when it is ours, its process and its database.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    child: Option<Child>,
    dir: Option<tempfile::TempDir>,
    program: PathBuf,
    database_url: Option<String>,
}

impl Server {
    /// A server of somebody else.
    pub(crate) fn at(address: SocketAddr) -> Self {
        Self { address, child: None, dir: None, program: PathBuf::new(), database_url: None }
    }

    /// Starts one in a folder that goes away with it, with an embedded Postgres there unless another is named; also says
    /// how long that took.
    pub(crate) async fn start(program: &Path, database_url: Option<&str>) -> anyhow::Result<(Self, Duration)> {
        let dir = tempfile::Builder::new()
            .prefix("runreel-load-")
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let (program, database_url) = (program.to_owned(), database_url.map(str::to_owned));
        let mut server = Self { address, child: None, dir: Some(dir), program, database_url };
        let took = server.spawn().await?;
        Ok((server, took))
    }

    /// Starts the process and waits until it is ready.
    pub(crate) async fn spawn(&mut self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let dir = self.dir.as_ref().context("this server is not ours to start")?;
        let log = fs::File::options().create(true).append(true).open(dir.path().join("server.log"))?;
        let mut command = Command::new(&self.program);
        command
            .arg("serve")
            .arg("--listen")
            .arg(self.address.to_string())
            .arg("--data-dir")
            .arg(dir.path().join("data"));
        command.env_remove("DATABASE_URL").env_remove("RUNREEL_DATA_DIR");
        if let Some(url) = &self.database_url {
            command.env("DATABASE_URL", url);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let child = command.spawn();
        self.child =
            Some(child.with_context(|| format!("{} (cargo build --release makes it)", self.program.display()))?);
        loop {
            if let Ok(mut connection) = Connection::open(self.address).await
                && connection.get("/readyz").await.is_ok()
            {
                return Ok(began.elapsed());
            }
            anyhow::ensure!(began.elapsed() < READY_MAX, "the server is not ready after {READY_MAX:?}");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// Where its embedded Postgres is, if it has one.
    pub(crate) fn data_dir(&self) -> Option<PathBuf> {
        if self.database_url.is_some() {
            return None;
        }
        self.dir.as_ref().map(|dir| dir.path().join("data"))
    }

    pub(crate) fn postmaster(&self) -> Option<u32> {
        let text = fs::read_to_string(self.data_dir()?.join("postgres/postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    /// Creates a run and gives its id.
    pub(crate) async fn create_run(&self) -> anyhow::Result<String> {
        let mut connection = Connection::open(self.address).await?;
        let run: Value = serde_json::from_slice(connection.post("/api/runs", "application/json", "{}").await?)?;
        Ok(run["run_id"].as_str().context("a run without an id")?.to_owned())
    }

    /// The last seq of a run, as the server tells it.
    pub(crate) async fn last_seq(&self, run_id: &str) -> anyhow::Result<u64> {
        let mut connection = Connection::open(self.address).await?;
        let run: Value = serde_json::from_slice(connection.get(&format!("/api/runs/{run_id}")).await?)?;
        run["last_seq"].as_u64().context("a run without its last seq")
    }

    /// Ends the server in good order; its Postgres ends with it.
    pub(crate) fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let began = Instant::now();
        while matches!(child.try_wait(), Ok(None)) && began.elapsed() < END_MAX {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
        // Left only if the server had to be killed.
        if let Some(pid) = self.postmaster().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::QUIT);
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}
