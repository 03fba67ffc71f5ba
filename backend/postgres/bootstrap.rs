//! Bringing a postmaster up on the cluster: the one left running by a killed owner, or a new one.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, Signal};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::account::Account;
use super::command;
use super::data_dir::DataDir;
use super::error::Error;
use super::find::Programs;
use super::orphans;
use super::pidfile::{self, Owner, Pidfile, Status};
use super::postmaster::Postmaster;
use super::secret::{self, Password};
use super::socket;
use super::{PORT, STOP_MAX};

/// Recovery after a crash replays up to `max_wal_size`, on slow disks for minutes.
const READY_MAX: Duration = Duration::from_mins(5);
/// A postmaster left from before that does not answer for so long is stuck (stopped by a signal, say).
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Backends of a killed postmaster notice within moments, except those busy with a long statement.
const ORPHANS_PATIENCE: Duration = Duration::from_secs(1);
const ORPHANS_MAX: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// How Postgres refuses to start because a backend of a dead postmaster still uses the cluster.
const ORPHANED: &str = "pre-existing shared memory block";
/// A pid file that nobody finishes writing in this time was cut by a power loss.
const PIDFILE_WRITE_MAX: Duration = Duration::from_secs(1);

/// Set on the command line, so that a cluster made by an older runreel runs as this one expects.
/// Durability (`fsync`, `synchronous_commit`, `full_page_writes`) is on by default and stays so.
const SETTINGS: [&str; 11] = [
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "cluster_name=runreel",
    "logging_collector=off",
    "max_connections=100",
    "shared_buffers=128MB",
    // Inside the data directory, not in a folder that is open to every program of the same user.
    "dynamic_shared_memory_type=mmap",
    "max_wal_size=2GB",
    "timezone=UTC",
    "log_timezone=UTC",
    "jit=off",
];

/// Everything that starting the postmaster takes, also when it is started again.
#[derive(Debug)]
pub(super) struct Bootstrap {
    home: DataDir,
    programs: Programs,
    account: Account,
    socket_dir: PathBuf,
    cluster_inode: u64,
}

enum Answer {
    Yes,
    /// Nobody listens on the socket (its folder was cleaned away, or it is another folder by now).
    Closed,
    Silent,
}

impl Bootstrap {
    pub(super) fn new(home: DataDir, programs: Programs, account: Account, socket_dir: PathBuf) -> Result<Self, Error> {
        let cluster_inode = home.cluster_inode()?;
        Ok(Self { home, programs, account, socket_dir, cluster_inode })
    }

    /// Returns a postmaster that accepts connections at the endpoint.
    pub(super) async fn bring_up(&self) -> Result<Postmaster, Error> {
        if let Some(postmaster) = self.adopt().await? {
            return Ok(postmaster);
        }
        let refused_since = Instant::now();
        loop {
            match self.launch().await {
                Err(Error::Launch { tail, .. }) if tail.contains(ORPHANED) && refused_since.elapsed() < ORPHANS_MAX => {
                    if refused_since.elapsed() > ORPHANS_PATIENCE {
                        orphans::end(&self.home.cluster());
                    }
                    sleep(10 * POLL_EVERY).await;
                }
                done => return done,
            }
        }
    }

    /// The cluster's password. Where none holds, one is made, for which a postmaster left running has to end.
    pub(super) async fn password(&self) -> Result<Password, Error> {
        if let Some(password) = secret::standing(&self.home) {
            return Ok(password);
        }
        if let Some(mut postmaster) = self.adopt().await? {
            postmaster.stop(STOP_MAX).await?;
        }
        secret::make(&self.home, &self.programs, self.account).await
    }

    /// The postmaster that already runs here, once it is ready; `None` when there is none or no longer one.
    async fn adopt(&self) -> Result<Option<Postmaster>, Error> {
        let cluster = self.home.cluster();
        let since = Instant::now();
        while pidfile::path(&cluster).exists() {
            let Some(found) = Pidfile::read(&cluster) else {
                if since.elapsed() > PIDFILE_WRITE_MAX {
                    return self.remove_stale().map(|()| None);
                }
                sleep(POLL_EVERY).await;
                continue;
            };
            let pid = found.pid.as_raw_nonzero().get();
            match found.owner(self.cluster_inode) {
                Owner::Nobody => return Ok(None),
                Owner::Foreign => return self.remove_stale().map(|()| None),
                Owner::Stranger => return Err(Error::Stranger { pid, cluster }),
                Owner::Ours => {}
            }
            let mut postmaster = Postmaster::adopted(found.pid, self.cluster_inode);
            if found.status == Status::Stopping {
                // Its owner was killed while stopping it.
                if since.elapsed() > ANSWER_MAX {
                    postmaster.end_at_once().await?;
                }
                sleep(POLL_EVERY).await;
                continue;
            }
            match self.ask().await {
                Answer::Silent => return Err(Error::Stuck { pid }),
                Answer::Yes if found.status == Status::Ready => {
                    info!(pid, "adopted a Postgres that was left running");
                    return Ok(Some(postmaster));
                }
                Answer::Closed if found.status == Status::Ready => {
                    warn!(pid, "the Postgres that was left running does not listen on its socket; restarting it");
                    postmaster.stop(STOP_MAX).await?;
                }
                Answer::Yes | Answer::Closed if since.elapsed() > READY_MAX => {
                    return Err(Error::Stuck { pid });
                }
                Answer::Yes | Answer::Closed => sleep(POLL_EVERY).await,
            }
        }
        Ok(None)
    }

    /// Postgres refuses a file cut short, and takes any living process of its user for the one in the file. We know
    /// better, and an orphaned backend would still be found by the shared memory, whose key is the cluster's inode.
    fn remove_stale(&self) -> Result<(), Error> {
        let path = pidfile::path(&self.home.cluster());
        info!(path = %path.display(), "removing the pid file of a dead Postgres");
        fs::remove_file(&path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(Error::File { path, source: error }),
        })
    }

    /// A stopped postmaster's socket still takes connections (the kernel does), so only an answer counts. Asking
    /// for TLS is the shortest question: one byte comes back, before any login.
    async fn ask(&self) -> Answer {
        const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
        let exchange = async {
            let mut stream = UnixStream::connect(self.socket_dir.join(socket::file_name(PORT))).await?;
            stream.write_all(&SSL_REQUEST).await?;
            stream.read_u8().await
        };
        match timeout(ANSWER_MAX, exchange).await {
            Ok(Ok(_)) => Answer::Yes,
            Ok(Err(_)) => Answer::Closed,
            Err(_) => Answer::Silent,
        }
    }

    async fn launch(&self) -> Result<Postmaster, Error> {
        // Again at every start: something may have cleaned `/tmp` since the last.
        socket::make(&self.socket_dir, self.account)?;
        socket::remove_stale_lock(&self.socket_dir)?;
        let program = self.programs.postgres();
        let (log, logged) = self.home.open_log()?;
        let errors = log.try_clone().map_err(Error::file(&self.home.log()))?;
        let mut on = command::on_directory(&program, &self.home.cluster(), self.account)?;
        on.command.arg("-D").arg(&on.directory).arg("-p").arg(PORT.to_string());
        on.command.arg("-k").arg(&self.socket_dir);
        for setting in SETTINGS {
            on.command.args(["-c", setting]);
        }
        on.command.arg("-c").arg(pidfile::mark(self.cluster_inode));
        let child = on.command.stdout(log).stderr(errors).spawn().map_err(Error::run(&program))?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        let Some(pid) = pid else {
            return Err(self.launch_failed(logged));
        };
        let mut starting = Starting(Some(Postmaster::spawned(pid, self.cluster_inode, child)));
        self.wait_ready(&mut starting, pid, logged).await
    }

    async fn wait_ready(&self, starting: &mut Starting, pid: Pid, logged: u64) -> Result<Postmaster, Error> {
        let cluster = self.home.cluster();
        let since = Instant::now();
        while since.elapsed() < READY_MAX {
            let Some(postmaster) = &mut starting.0 else {
                break;
            };
            if timeout(POLL_EVERY, postmaster.ended()).await.is_ok() {
                starting.0 = None;
                return Err(self.launch_failed(logged));
            }
            let ready = Pidfile::read(&cluster).is_some_and(|it| it.pid == pid && it.status == Status::Ready);
            if ready && let Some(postmaster) = starting.0.take() {
                let pid = pid.as_raw_nonzero();
                info!(pid, ms = since.elapsed().as_millis(), "Postgres is ready");
                return Ok(postmaster);
            }
        }
        if let Some(mut postmaster) = starting.0.take() {
            postmaster.end_at_once().await?;
        }
        let pid = pid.as_raw_nonzero().get();
        Err(Error::Slow { pid, waited_s: READY_MAX.as_secs(), log: self.home.log() })
    }

    fn launch_failed(&self, logged: u64) -> Error {
        Error::Launch { log: self.home.log(), tail: self.home.log_tail(logged) }
    }
}

/// A start that is given up (Ctrl-C during recovery) must not leave a Postgres behind that nobody owns.
struct Starting(Option<Postmaster>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(postmaster) = &self.0 {
            postmaster.signal(Signal::INT);
        }
    }
}
