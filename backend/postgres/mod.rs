//! The embedded database: a private Postgres cluster in the data directory, for a server without `DATABASE_URL`.
//!
//! Invariant: at most one process owns a data directory (an exclusive lock that the kernel releases), and at most one
//! postmaster runs on its cluster. Both hold after `kill -9` of either: a new owner adopts a postmaster left running,
//! and the owner restarts a dead one. `fsync` and related settings are never turned off.
//!
//! Start reading at [`Cluster::start`], which shows the whole sequence; then `bootstrap` (adopt or launch), `supervise`
//! (what happens later), `initdb` (the first start) and `command` (how privileges are dropped).
//!
//! In the data directory: `runreel.lock` (the owner's pid), `postgres/` (the cluster), `postgres.log`,
//! `postgres.pass` (see `secret`), `socket/`.

#![expect(
    clippy::disallowed_methods,
    reason = "the cluster is files, and its supervisor is a task it keeps the handle of"
)]

mod account;
mod backup;
mod bootstrap;
mod command;
mod data_dir;
mod error;
mod find;
mod initdb;
mod lock;
mod orphans;
mod pidfile;
mod postmaster;
mod restore;
mod secret;
mod socket;
mod supervise;
mod upgrade;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub use backup::{Backup, cluster_bytes};
pub use error::Error;
pub use restore::{ARTIFACTS_NOTE, Restore};
pub use secret::Password;
pub use upgrade::Upgrade;

/// How long a command waits for Postgres to stop before it stops it immediately.
pub const STOP_MAX: Duration = Duration::from_secs(10);

use account::Account;
use bootstrap::Bootstrap;
use data_dir::DataDir;
use lock::Lock;
use pidfile::{Owner, Pidfile, Status};

/// The cluster does not listen on a network, so the port only names the socket file (`.s.PGSQL.5432`).
const PORT: u16 = 5432;
/// The name of both the cluster's superuser and the database created at the first start.
const NAME: &str = "runreel";

/// What is needed to start; this module does not read the environment.
#[derive(Debug, Clone)]
pub struct Options {
    /// Created if absent.
    pub data_dir: PathBuf,
    /// The folder of `initdb` and `postgres` (`--pg-bin`); if given, no other folder is searched.
    pub pg_bin: Option<PathBuf>,
    /// The value of `PATH`.
    pub path_env: Option<OsString>,
}

/// Where the cluster listens, and the credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// An absolute folder; libpq and sqlx take it as the host.
    pub socket_dir: PathBuf,
    pub port: u16,
    /// The superuser.
    pub user: String,
    pub database: String,
    /// The password of the superuser and of every other role that may log in.
    pub password: Password,
}

impl Endpoint {
    fn at(socket_dir: PathBuf, password: Password) -> Self {
        Self { socket_dir, port: PORT, user: NAME.to_owned(), database: NAME.to_owned(), password }
    }
}

/// A running cluster that this process owns.
///
/// Dropping it releases ownership and leaves Postgres running, as `kill -9` would; the next owner adopts it.
#[derive(Debug)]
pub struct Cluster {
    endpoint: Endpoint,
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<Result<(), Error>>,
}

impl Cluster {
    /// Locks the data directory, creates the cluster if there is none, adopts or starts its postmaster and returns
    /// when it accepts connections. From then on a postmaster that dies is restarted, at the same endpoint.
    ///
    /// Dropping the future before it completes leaves nothing running that this call started.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let home = DataDir::open(&options.data_dir)?;
        let lock = Lock::take(&home)?;
        let made_by = home.cluster_major()?;
        let account = Account::choose(&home)?;
        let programs =
            find::find(options.pg_bin.as_deref(), options.path_env.as_deref(), &home, account, made_by).await?;
        let socket_dir = socket::folder(&home, account);
        socket::make(&socket_dir, account)?;
        initdb::remove_unfinished(&home)?;
        if made_by.is_none() {
            initdb::create(&home, &programs, account).await?;
        }
        let site = Bootstrap::new(home, programs, account, socket_dir.clone())?;
        let endpoint = Endpoint::at(socket_dir, site.password().await?);
        let postmaster = site.bring_up().await?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(supervise::supervise(site, postmaster, lock, stopped));
        Ok(Self { endpoint, stop, task })
    }

    /// Constant for the lifetime of this value, across restarts of the postmaster.
    pub fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Stops Postgres (fast shutdown, after `max` an immediate one) and releases the data directory.
    /// Takes at most half a second longer than `max`. Close pools first: open connections are terminated.
    pub async fn stop(self, max: Duration) -> Result<(), Error> {
        // The task has ended only if it panicked; awaiting it reports that.
        let _ = self.stop.send(max);
        self.task.await.map_err(|join| Error::Supervisor { reason: join.to_string() })??;
        // A folder under /tmp would stay forever; the next start creates it again. It is removed only if empty.
        let _ = std::fs::remove_dir(&self.endpoint.socket_dir);
        Ok(())
    }
}

/// The path of a client program of Postgres, such as `psql`, if it is installed.
pub async fn client(name: &str, options: &Options) -> Option<PathBuf> {
    find::client(name, options.pg_bin.as_deref(), options.path_env.as_deref()).await
}

/// Describes the programs [`Cluster::start`] would use. Starts nothing and changes nothing.
pub async fn programs(options: &Options) -> Result<String, Error> {
    let home = DataDir::expected(&options.data_dir)?;
    let made_by = home.cluster_major()?;
    let path = options.path_env.as_deref();
    let account = Account::choose(&home)?;
    let programs = find::find(options.pg_bin.as_deref(), path, &home, account, made_by).await?;
    Ok(format!("Postgres {} in {}", programs.major, programs.folder.display()))
}

/// Whether there may be a cluster in `data_dir`: `false` if the folder is missing or contains none. Changes nothing.
pub fn may_hold_a_cluster(data_dir: &Path) -> bool {
    match DataDir::existing(data_dir).and_then(|home| home.cluster_major()) {
        Ok(made_by) => made_by.is_some(),
        Err(Error::File { source, .. }) => source.kind() != std::io::ErrorKind::NotFound,
        Err(_) => true,
    }
}

/// The endpoint of the cluster of `data_dir`, if it is up: for commands beside the server that owns the lock.
///
/// `None` also if this user may not read the data directory. Takes no lock and changes nothing.
pub fn running_endpoint(data_dir: &Path) -> Option<Endpoint> {
    let home = DataDir::existing(data_dir).ok()?;
    let pidfile = Pidfile::read(&home.cluster())?;
    let alive = pidfile.owner(home.cluster_inode().ok()?) == Owner::Ours;
    (alive && pidfile.status == Status::Ready)
        .then(|| secret::read(&home))
        .flatten()
        .map(|password| Endpoint { port: pidfile.port, ..Endpoint::at(pidfile.socket_dir, password) })
}
