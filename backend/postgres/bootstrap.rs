//! Brings up a postmaster on the cluster: adopts the one left running by a killed owner, or starts a new one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
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

/// Recovery after a crash replays up to `max_wal_size`, which takes minutes on slow disks.
const READY_MAX: Duration = Duration::from_mins(5);
/// A postmaster left running that does not answer for this long is stuck (stopped by a signal, say).
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Backends of a killed postmaster notice its death within moments, except those busy with a long statement.
const ORPHANS_PATIENCE: Duration = Duration::from_secs(1);
const ORPHANS_MAX: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(10);

/// The message with which Postgres refuses to start while a backend of a dead postmaster still uses the cluster.
const ORPHANED: &str = "pre-existing shared memory block";
/// A pid file still incomplete after this time was truncated by a power loss.
const PIDFILE_WRITE_MAX: Duration = Duration::from_secs(1);

/// Starts a program whose processes have at most 512 MiB of address space, where the system enforces it; 128 MB are
/// shared. A query that needs more fails alone, before the kernel runs out of memory and kills a process.
const BOUNDED: &str = "ulimit -v 524288; exec \"$0\" \"$@\"";

/// Set on the command line, so that a cluster created by an older runreel runs as this one expects.
/// Durability (`fsync`, `synchronous_commit`, `full_page_writes`) is on by default and stays on.
const SETTINGS: [&str; 12] = [
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "cluster_name=runreel",
    "logging_collector=off",
    "max_connections=100",
    "shared_buffers=128MB",
    // Inside the data directory, not in a folder that every program of the same user can open.
    "dynamic_shared_memory_type=mmap",
    "max_wal_size=2GB",
    // A backup whose reader hangs fails at this size instead of filling the disk.
    "max_slot_wal_keep_size=16GB",
    "timezone=UTC",
    "log_timezone=UTC",
    "jit=off",
];

/// Everything needed to start and restart the postmaster.
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
    /// Nothing listens on the socket (its folder was removed, or another one is there now).
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

    /// The cluster's password. If none is valid, a new one is set, for which a running postmaster is stopped.
    pub(super) async fn password(&self) -> Result<Password, Error> {
        if let Some(password) = secret::standing(&self.home) {
            return Ok(password);
        }
        if let Some(mut postmaster) = self.adopt().await? {
            postmaster.stop(STOP_MAX).await?;
        }
        secret::make(&self.home, &self.programs, self.account).await
    }

    /// The postmaster that already runs here, once it is ready; `None` if there is none, or it has ended.
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

    /// Postgres refuses a truncated file, and takes any living process of its user for the one in the file. Here it is
    /// known to be stale, and Postgres still detects an orphaned backend by the shared memory, whose key is the
    /// cluster's inode.
    fn remove_stale(&self) -> Result<(), Error> {
        let path = pidfile::path(&self.home.cluster());
        info!(path = %path.display(), "removing the pid file of a dead Postgres");
        fs::remove_file(&path).or_else(|error| match error.kind() {
            io::ErrorKind::NotFound => Ok(()),
            _ => Err(Error::File { path, source: error }),
        })
    }

    /// The kernel accepts connections even for a suspended postmaster, so only an answer counts. A TLS request is the
    /// shortest query: one byte comes back, before any login.
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
        // At every start, since something may have cleaned `/tmp` in between.
        socket::make(&self.socket_dir, self.account)?;
        socket::remove_stale_lock(&self.socket_dir)?;
        let program = self.programs.postgres();
        let (log, logged) = self.home.open_log()?;
        let errors = log.try_clone().map_err(Error::file(&self.home.log()))?;
        let mut on = command::on_directory(Path::new("/bin/sh"), &self.home.cluster(), self.account)?;
        on.command.args(["-c", BOUNDED]).arg(&program);
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

/// An abandoned start (Ctrl-C during recovery) must not leave an unowned Postgres behind.
struct Starting(Option<Postmaster>);

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(postmaster) = &self.0 {
            postmaster.signal(Signal::INT);
        }
    }
}
