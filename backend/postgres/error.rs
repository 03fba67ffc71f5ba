//! The errors of the embedded database; each message states what the reader can do about it.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error("cannot use {}: {source}; choose another folder with --data-dir, or fix its permissions", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "another runreel{} already uses the data directory {}; stop it first, or give this one its own --data-dir",
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default(), data_dir.display()
    )]
    InUse { pid: Option<u32>, data_dir: PathBuf },
    #[error(
        "no Postgres programs found (searched {looked}); install them with `apt-get install postgresql` \
         (Debian/Ubuntu) or `brew install postgresql`, specify their folder with --pg-bin, \
         or set DATABASE_URL to your own server"
    )]
    NoPrograms { looked: String },
    #[error(
        "the Postgres programs found are too old ({found}; {least} or newer is needed); install a newer Postgres, \
         specify its folder with --pg-bin, or set DATABASE_URL to your own server"
    )]
    TooOld { found: String, least: u32 },
    #[error(
        "the cluster {} was created by Postgres {cluster}, but only other versions were found ({found}); \
         install that one (`apt-get install postgresql-{cluster}` or `brew install postgresql@{cluster}`), or specify \
         its folder with --pg-bin; with both installed, `runreel upgrade` moves the data to the newer one",
        path.display()
    )]
    Version { path: PathBuf, cluster: u32, found: String },
    #[error("there is no cluster in {} yet; `runreel serve` creates one", path.display())]
    NoCluster { path: PathBuf },
    #[error(
        "the cluster {} was created by Postgres {cluster}, and no newer one was found ({found}); \
         install one, or specify its folder with --to", path.display()
    )]
    NotNewer { path: PathBuf, cluster: u32, found: String },
    #[error("{} exists, from an upgrade before; remove it once its data is not needed, then try again", path.display())]
    Replaced { path: PathBuf },
    #[error(
        "the cluster {} is of Postgres {major}, and a backup needs {least} or newer; `runreel upgrade` moves the data",
        path.display()
    )]
    NoBackup { path: PathBuf, major: u32, least: u32 },
    #[error("{} is a link, which a backup cannot hold; put what it points to in its place", path.display())]
    Link { path: PathBuf },
    #[error(
        "{} does not have all of the log of this backup any more: it took too long; try again, to a faster place",
        path.display()
    )]
    LogLost { path: PathBuf },
    #[error("{} is not a whole backup: {reason}; use another one", path.display())]
    Backup { path: PathBuf, reason: String },
    #[error(
        "{} exists; restore into another data directory (--data-dir), or stop the server and move it away",
        path.display()
    )]
    Occupied { path: PathBuf },
    #[error(
        "{} is not a Postgres cluster (it has no readable PG_VERSION); move it away and runreel creates a new one",
        path.display()
    )]
    NotACluster { path: PathBuf },
    #[error(
        "{} belongs to uid {owner}, and runreel runs as uid {me}; \
         run it as that user, or change the folder's owner with `chown -R`{}",
        path.display(), if *me == 0 { " (Postgres refuses to run as root: choose `postgres`)" } else { "" }
    )]
    Owner { path: PathBuf, owner: u32, me: u32 },
    #[error(
        "Postgres refuses to run as root, and /etc/passwd has neither `postgres` nor `nobody`; \
         add one with `useradd --system postgres`, run runreel as an ordinary user, or set DATABASE_URL"
    )]
    NoAccount,
    #[error("the socket folder {} cannot be trusted: {reason}; remove it and start again", path.display())]
    SocketDir { path: PathBuf, reason: String },
    #[error("cannot run {}: {source}; specify a folder of working Postgres programs: --pg-bin", program.display())]
    Run { program: PathBuf, source: io::Error },
    #[error("{} failed, so no cluster was created (the next start tries again): {output}", program.display())]
    Create { program: PathBuf, output: String },
    #[error("Postgres did not start; the end of {}: {tail}", log.display())]
    Launch { log: PathBuf, tail: String },
    #[error("Postgres (pid {pid}) was not ready within {waited_s} s and was stopped; see {}", log.display())]
    Slow { pid: i32, waited_s: u64, log: PathBuf },
    #[error(
        "a Postgres left running (pid {pid}) uses this data directory but does not answer; if it is \
         suspended, continue it with `kill -CONT {pid}`, else stop it with `kill -QUIT {pid}`, then start again"
    )]
    Stuck { pid: i32 },
    #[error(
        "a Postgres that runreel did not start (pid {pid}) uses {}; \
         stop it (`kill -INT {pid}`), then start again", cluster.display()
    )]
    Stranger { pid: i32, cluster: PathBuf },
    #[error("Postgres (pid {pid}) did not stop when asked; stop it with `kill -QUIT {pid}`, the next start recovers")]
    StopTimeout { pid: i32 },
    #[error("the task that supervises Postgres failed: {reason}; start again, the next start adopts the cluster")]
    Supervisor { reason: String },
}

impl Error {
    /// For `map_err`: names the path an operation failed on.
    pub(super) fn file(path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { path, source }
    }

    pub(super) fn run(program: &Path) -> impl FnOnce(io::Error) -> Self {
        let program = program.to_path_buf();
        move |source| Self::Run { program, source }
    }
}
