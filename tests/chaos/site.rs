//! The environment of a scenario: a folder, the servers and the Postgres in it. Nothing of it remains in any case.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail};
use runreel::{
    database::Database,
    postgres::{Cluster, Options, STOP_MAX},
};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit, test_kill_process};
use sqlx::postgres::PgConnectOptions;
use tokio::time::{Instant, sleep};

use crate::{proxy::Upstream, wire};

/// Longest wait for a server to become ready, or to end by itself.
pub(crate) const READY_MAX: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest wait for Postgres to end during cleanup.
const LAST_WAIT_MAX: Duration = Duration::from_secs(5);
/// Lines of a log that are shown when a server fails.
const LOG_LINES: usize = 12;

/// A folder and the Postgres that runs in it; dropping it removes both.
#[derive(Debug)]
pub(crate) struct Site {
    dir: tempfile::TempDir,
    database: Option<PgConnectOptions>,
}

impl Site {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new()
            .prefix("runreel-chaos-")
            .permissions(fs::Permissions::from_mode(0o711))
            .tempdir()
            .context("no temporary folder can be made")?;
        Ok(Self { dir, database: None })
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// A file or folder of the scenario; it is removed with the site.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The servers' database is not the embedded one.
    pub(crate) fn lives_on(&mut self, database: PgConnectOptions) {
        self.database = Some(database);
    }

    /// The servers' database, for the harness's own SQL.
    pub(crate) fn database(&self) -> anyhow::Result<PgConnectOptions> {
        if let Some(database) = &self.database {
            return Ok(database.clone());
        }
        Ok(Database::running(&self.data_dir()).context("the database does not run")?.options)
    }

    /// The postmaster of the embedded cluster, if there is one.
    pub(crate) fn postmaster(&self) -> Option<Pid> {
        postmaster_in(&self.data_dir().join("postgres"))
    }

    pub(crate) fn signal_postgres(&self, signal: Signal) -> usize {
        processes_of(self.postmaster()).into_iter().filter(|pid| kill_process(*pid, signal).is_ok()).count()
    }
}

/// The postmaster of the cluster in this folder, if it is running.
pub(crate) fn postmaster_in(cluster: &Path) -> Option<Pid> {
    let text = fs::read_to_string(cluster.join("postmaster.pid")).ok()?;
    let pid = Pid::from_raw(text.lines().next()?.trim().parse().ok()?)?;
    // The pid in a left-over file may be another process's by now.
    let line = fs::read(format!("/proc/{}/cmdline", pid.as_raw_nonzero())).ok()?;
    line.windows(8).any(|word| word == b"postgres").then_some(pid)
}

/// A postmaster and every process it started, itself first.
pub(crate) fn processes_of(postmaster: Option<Pid>) -> Vec<Pid> {
    let Some(postmaster) = postmaster else { return Vec::new() };
    let children = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
        let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        (parent_of(pid)? == postmaster.as_raw_nonzero().get()).then(|| Pid::from_raw(pid))?
    });
    std::iter::once(postmaster).chain(children).collect()
}

impl Drop for Site {
    fn drop(&mut self) {
        self.signal_postgres(Signal::CONT);
        if let Some(postmaster) = self.postmaster() {
            // Immediate shutdown, but in an order that frees its shared memory.
            let _ = kill_process(postmaster, Signal::QUIT);
            let began = std::time::Instant::now();
            while test_kill_process(postmaster).is_ok() && began.elapsed() < LAST_WAIT_MAX {
                std::thread::sleep(LOOK_EVERY);
            }
            self.signal_postgres(Signal::KILL);
        }
    }
}

fn parent_of(pid: i32) -> Option<i32> {
    stat_of(pid)?.split_whitespace().nth(1)?.parse().ok()
}

/// `R`, `S`, `T`, `Z` and others of `proc_pid_stat(5)`, or nothing if there is no such process.
pub(crate) fn state_of(pid: Pid) -> Option<char> {
    stat_of(pid.as_raw_nonzero().get())?.trim_start().chars().next()
}

/// What /proc says of a process, from its state on.
fn stat_of(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain anything.
    Some(stat.rsplit_once(')')?.1.to_owned())
}

/// Where a server's database is.
#[derive(Clone, Debug)]
pub(crate) enum Home {
    /// In its own data directory, started and supervised by the server itself.
    Embedded,
    /// Somewhere else, shared with other servers.
    Shared(String),
}

/// `runreel serve`, the real program.
#[derive(Debug)]
pub(crate) struct Server {
    /// What the next start starts.
    pub(crate) program: PathBuf,
    child: Option<Child>,
    pub(crate) address: SocketAddr,
    home: Home,
    data_dir: PathBuf,
    log: PathBuf,
    flags: Vec<String>,
    env: Vec<(String, String)>,
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub(crate) async fn start(
        program: &Path,
        site: &Site,
        home: Home,
        number: usize,
        flags: &[&str],
    ) -> anyhow::Result<Self> {
        Self::start_with(program, site, home, number, flags, &[]).await
    }

    /// The same with variables of the environment.
    pub(crate) async fn start_with(
        program: &Path,
        site: &Site,
        home: Home,
        number: usize,
        flags: &[&str],
        env: &[(&str, &str)],
    ) -> anyhow::Result<Self> {
        let data_dir = match &home {
            Home::Embedded => site.data_dir(),
            Home::Shared(_) => site.dir.path().join(format!("server-{number}")),
        };
        let mut server = Self {
            program: program.to_owned(),
            child: None,
            address: free_address()?,
            home,
            data_dir,
            log: site.dir.path().join(format!("server-{number}.log")),
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            env: env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        };
        server.spawn()?;
        server.ready().await?;
        Ok(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().map_or(0, Child::id)
    }

    pub(crate) fn spawn(&mut self) -> anyhow::Result<()> {
        let log = fs::File::options().create(true).append(true).open(&self.log)?;
        let mut command = Command::new(&self.program);
        command.arg("serve").arg("--listen").arg(self.address.to_string()).arg("--data-dir").arg(&self.data_dir);
        command.args(&self.flags).env_remove("DATABASE_URL").env_remove("RUNREEL_DATA_DIR");
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Home::Shared(url) = &self.home {
            command.arg("--database-url").arg(url);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.child = Some(command.spawn().with_context(|| format!("{} does not start", self.program.display()))?);
        Ok(())
    }

    /// From now on it may have so many files and sockets open.
    pub(crate) fn limit_descriptors(&self, most: u64) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?).context("the server has no pid")?;
        prlimit(Some(pid), Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) })?;
        Ok(())
    }

    /// Waits until the server reports that it is ready.
    pub(crate) async fn ready(&mut self) -> anyhow::Result<()> {
        let began = Instant::now();
        while !is_ready(self.address).await {
            if let Some(status) = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten()) {
                bail!("the server ended ({status}) before it was ready\n{}", self.log());
            }
            if began.elapsed() > READY_MAX {
                bail!("the server is not ready after {READY_MAX:?}\n{}", self.log());
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    pub(crate) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = Pid::from_raw(i32::try_from(self.pid())?).context("the server has no pid")?;
        Ok(kill_process(pid, signal)?)
    }

    /// As in a crash: no signal handler runs.
    pub(crate) fn kill(&mut self) -> anyhow::Result<()> {
        let mut child = self.child.take().context("there is no server to kill")?;
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    /// Asks the server to end, and waits; `None` if it has not ended in time.
    pub(crate) async fn terminate(&mut self, wait_max: Duration) -> anyhow::Result<Option<ExitStatus>> {
        self.signal(Signal::TERM)?;
        let child = self.child.as_mut().context("there is no server to end")?;
        let began = Instant::now();
        while began.elapsed() < wait_max {
            if let Some(status) = child.try_wait()? {
                self.child = None;
                return Ok(Some(status));
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(None)
    }

    /// What is wrong with the log according to `runreel verify --all`.
    pub(crate) async fn verify(&self) -> anyhow::Result<Option<String>> {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(["verify", "--all", "--data-dir"]).arg(&self.data_dir).stdin(Stdio::null());
        command.env_remove("DATABASE_URL").env_remove("RUNREEL_DATA_DIR");
        if let Home::Shared(url) = &self.home {
            command.arg("--database-url").arg(url);
        }
        let said = command.output().await?;
        let text = || [&said.stdout[..], &said.stderr].map(String::from_utf8_lossy).concat();
        Ok((!said.status.success()).then(|| format!("the log does not verify ({}): {}", said.status, text())))
    }

    /// The last lines the server wrote.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    /// Lines of the log that report a panic.
    pub(crate) fn panics(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().filter(|line| line.contains("panicked")).map(str::to_owned).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A client for many requests.
pub(crate) fn http_client() -> anyhow::Result<reqwest::Client> {
    // It wants one, also for http.
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().no_proxy().build()?)
}

pub(crate) async fn is_ready(address: SocketAddr) -> bool {
    wire::get(address, "/readyz", &[]).await.is_ok_and(|response| response.status == 200)
}

fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// A Postgres for several servers, in the site's data directory.
#[derive(Debug)]
pub(crate) struct Shared {
    cluster: Cluster,
}

impl Shared {
    pub(crate) async fn start(site: &Site) -> anyhow::Result<Self> {
        let path_env = runreel::config::path();
        let cluster = Cluster::start(Options { data_dir: site.data_dir(), pg_bin: None, path_env }).await?;
        Ok(Self { cluster })
    }

    pub(crate) fn url(&self) -> String {
        let endpoint = self.cluster.endpoint();
        let (user, password, port) = (&endpoint.user, endpoint.password.expose(), endpoint.port);
        let (database, host) = (&endpoint.database, endpoint.socket_dir.display());
        format!("postgres://{user}:{password}@localhost/{database}?host={host}&port={port}")
    }

    /// The same through a proxy on this port.
    pub(crate) fn url_through(&self, port: u16) -> String {
        let endpoint = self.cluster.endpoint();
        let (user, password, database) = (&endpoint.user, endpoint.password.expose(), &endpoint.database);
        format!("postgres://{user}:{password}@127.0.0.1:{port}/{database}?sslmode=disable")
    }

    /// Where a proxy leads.
    pub(crate) fn upstream(&self) -> Upstream {
        let endpoint = self.cluster.endpoint();
        Upstream::Unix(endpoint.socket_dir.join(format!(".s.PGSQL.{}", endpoint.port)))
    }

    pub(crate) async fn stop(self) -> anyhow::Result<()> {
        Ok(self.cluster.stop(STOP_MAX).await?)
    }
}
