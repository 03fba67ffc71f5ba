//! An operator's own Postgres: it listens on TCP, is copied, followed by a standby, stopped and started by hand.
//!
//! Unlike the embedded one it is not restarted, and its folder may be anywhere, also on a disk that gets full.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::Context as _;
use runreel::postgres::{self, Options};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::{
    process::Command,
    time::{sleep, timeout},
};

use crate::site;

/// The superuser and the database have the same name.
const NAME: &str = "runreel";
/// The programs of [`Cluster::copy`] and [`Cluster::dump_into`].
pub(crate) const COPIES: [&str; 1] = ["pg_basebackup"];
pub(crate) const DUMPS: [&str; 4] = ["pg_dumpall", "pg_dump", "psql", "pg_restore"];
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest wait for the log to be archived, or to be recovered from.
const RECOVERY_WAIT_MAX: Duration = Duration::from_mins(1);
const LAST_WAIT_MAX: Duration = Duration::from_secs(5);

/// One cluster; it is stopped when this value is dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// Its data directory.
    pub(crate) dir: PathBuf,
    pub(crate) port: u16,
    programs: PathBuf,
    account: Option<(u32, u32)>,
    /// Variables of its programs.
    env: Vec<(String, String)>,
}

impl Cluster {
    /// Creates and starts a cluster in `dir`, whose parent exists; its write-ahead log may be elsewhere.
    pub(crate) async fn create(dir: &Path, wal_dir: Option<&Path>) -> anyhow::Result<Self> {
        Self::create_with(dir, wal_dir, &[]).await
    }

    /// The same with variables for its programs.
    pub(crate) async fn create_with(dir: &Path, wal_dir: Option<&Path>, env: &[(&str, &str)]) -> anyhow::Result<Self> {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let options = Options { data_dir: dir.to_owned(), pg_bin: None, path_env: runreel::config::path() };
        let initdb = postgres::client("initdb", &options).await.context("there is no initdb")?;
        // Links in a folder of PATH may be missing for some of them.
        let initdb = fs::canonicalize(initdb)?;
        let programs = initdb.parent().context("initdb has no folder")?.to_owned();
        let cluster = Self { dir: dir.to_owned(), port: free_port()?, programs, account: account()?, env };
        cluster.make_dir(dir)?;
        let mut initdb = cluster.program("initdb");
        initdb
            .args(["-U", NAME, "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--wal-segsize=1", "-D"])
            .arg(dir);
        if let Some(wal_dir) = wal_dir {
            cluster.make_dir(wal_dir)?;
            initdb.arg("-X").arg(wal_dir);
        }
        run(initdb).await?;
        let settings = "listen_addresses = '127.0.0.1,127.0.0.2,127.0.0.3'\nunix_socket_directories = ''\n\
                        max_connections = 120\nmin_wal_size = 4MB\nmax_wal_size = 32MB\n";
        append(&dir.join("postgresql.conf"), settings)?;
        append(&dir.join("pg_hba.conf"), "host all all 127.0.0.0/8 trust\nhost replication all 127.0.0.0/8 trust\n")?;
        cluster.start().await?;
        let mut postgres = PgConnection::connect_with(&cluster.options().database("postgres")).await?;
        sqlx::raw_sql("create database runreel").execute(&mut postgres).await?;
        postgres.close().await?;
        // Files created without Postgres must survive a failing disk, as everything that Postgres creates does.
        let mut sync = Command::new("sync");
        sync.arg("-f").arg(dir);
        run(sync).await?;
        Ok(cluster)
    }

    /// Whether there are these programs; a Postgres from npm comes without [`COPIES`] and [`DUMPS`].
    pub(crate) fn has(&self, programs: &[&str]) -> bool {
        programs.iter().all(|name| self.programs.join(name).exists())
    }

    /// A copy of this cluster as it is now, not started; one that follows it if it is a standby.
    pub(crate) async fn copy(&self, dir: &Path, is_standby: bool) -> anyhow::Result<Self> {
        self.make_dir(dir)?;
        let mut copy = self.program("pg_basebackup");
        let source = format!("host=127.0.0.1 port={} user={NAME}", self.port);
        copy.args(["-c", "fast", "-X", "stream", "--no-sync", "-d"]).arg(source).arg("-D").arg(dir);
        if is_standby {
            copy.arg("-R");
        }
        run(copy).await?;
        let port = if is_standby { free_port()? } else { self.port };
        let (programs, env) = (self.programs.clone(), self.env.clone());
        Ok(Self { dir: dir.to_owned(), port, programs, account: self.account, env })
    }

    /// Keeps all of its log from now on, and that of its copies.
    pub(crate) async fn archive(&self) -> anyhow::Result<()> {
        let folder = self.archived();
        self.make_dir(&folder)?;
        let to = folder.display();
        let settings = format!("archive_mode = on\narchive_command = 'test ! -f {to}/%f && cp %p {to}/%f'\n");
        append(&self.dir.join("postgresql.conf"), &settings)?;
        self.crash().await?;
        self.start().await
    }

    /// Beside the cluster and its copies.
    fn archived(&self) -> PathBuf {
        self.dir.with_file_name("archive")
    }

    /// Waits until all of its log so far is archived.
    pub(crate) async fn archive_all(&self) -> anyhow::Result<()> {
        let mut database = self.connect().await?;
        let last: String =
            sqlx::query_scalar("select pg_walfile_name(pg_switch_wal())").fetch_one(&mut database).await?;
        let is_done = "select coalesce(last_archived_wal >= $1, false) from pg_stat_archiver";
        let archived = async {
            while !sqlx::query_scalar::<_, bool>(is_done).bind(&last).fetch_one(&mut database).await? {
                sleep(LOOK_EVERY).await;
            }
            anyhow::Ok(())
        };
        timeout(RECOVERY_WAIT_MAX, archived).await.context("its log is not archived")??;
        Ok(database.close().await?)
    }

    /// The time by its clock.
    pub(crate) async fn now(&self) -> anyhow::Result<String> {
        let mut database = self.connect().await?;
        let now = sqlx::query_scalar("select clock_timestamp()::text").fetch_one(&mut database).await?;
        database.close().await?;
        Ok(now)
    }

    /// When this copy is started, it goes on by the archived log until then.
    pub(crate) fn recover_until(&self, moment: &str) -> anyhow::Result<()> {
        let (from, signal) = (self.archived(), self.dir.join("recovery.signal"));
        let settings = format!(
            "restore_command = 'cp {}/%f %p'\nrecovery_target_time = '{moment}'\nrecovery_target_action = 'promote'\n",
            from.display()
        );
        append(&self.dir.join("postgresql.auto.conf"), &settings)?;
        fs::write(&signal, "")?;
        if let Some((uid, gid)) = self.account {
            chown(&signal, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    /// Waits until it has got there, and accepts writes.
    pub(crate) async fn is_recovered(&self) -> anyhow::Result<()> {
        let mut database = self.connect().await?;
        let recovered = async {
            while sqlx::query_scalar::<_, bool>("select pg_is_in_recovery()").fetch_one(&mut database).await? {
                sleep(LOOK_EVERY).await;
            }
            anyhow::Ok(())
        };
        timeout(RECOVERY_WAIT_MAX, recovered).await.context("it does not get there")??;
        Ok(database.close().await?)
    }

    /// Loads the roles and the database into another cluster.
    pub(crate) async fn dump_into(&self, other: &Self) -> anyhow::Result<()> {
        let (roles, dump) = (self.dir.with_extension("roles"), self.dir.with_extension("dump"));
        for (cluster, name, words, file) in [
            (self, "pg_dumpall", &["-l", "postgres", "--roles-only", "-f"][..], &roles),
            (self, "pg_dump", &["-d", NAME, "-Fc", "-f"], &dump),
            (other, "psql", &["-X", "-q", "-d", "postgres", "-f"], &roles),
            (other, "pg_restore", &["-d", NAME, "--exit-on-error"], &dump),
        ] {
            let mut command = Command::new(cluster.programs.join(name));
            command.args(["-h", "127.0.0.1", "-p", &cluster.port.to_string(), "-U", NAME]).args(words).arg(file);
            command.stdout(Stdio::null());
            run(command).await?;
        }
        Ok(())
    }

    /// Starts it and returns when it accepts connections.
    pub(crate) async fn start(&self) -> anyhow::Result<()> {
        let mut start = self.program("pg_ctl");
        start.args(["-w", "-t", "60", "-s", "-o"]).arg(format!("-p {}", self.port)).arg("-D").arg(&self.dir);
        let log = self.dir.with_extension("log");
        start.arg("-l").arg(&log).arg("start");
        run(start).await.with_context(|| {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.lines().rev().take(8).collect::<Vec<_>>().join(" < ")
        })
    }

    /// As in a crash of the machine: nothing is written any more.
    pub(crate) async fn crash(&self) -> anyhow::Result<()> {
        let Some(postmaster) = self.postmaster() else { return Ok(()) };
        kill_process(postmaster, Signal::QUIT)?;
        while self.postmaster().is_some() {
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Promotes a standby to primary.
    pub(crate) async fn promote(&self) -> anyhow::Result<()> {
        let mut promote = self.program("pg_ctl");
        promote.args(["-w", "-t", "60", "-s", "-D"]).arg(&self.dir).arg("promote");
        run(promote).await
    }

    /// Disconnects a standby from its primary.
    pub(crate) async fn cut_off(&self) -> anyhow::Result<()> {
        let mut standby = self.connect().await?;
        sqlx::raw_sql("alter system set primary_conninfo = ''").execute(&mut standby).await?;
        sqlx::raw_sql("select pg_reload_conf()").execute(&mut standby).await?;
        let receivers = "select count(*) from pg_stat_wal_receiver";
        while sqlx::query_scalar::<_, i64>(receivers).fetch_one(&mut standby).await? > 0 {
            sleep(LOOK_EVERY).await;
        }
        Ok(standby.close().await?)
    }

    /// Waits until a standby has replayed everything its primary has written.
    pub(crate) async fn catch_up(&self, primary: &Self) -> anyhow::Result<()> {
        let (mut primary, mut standby) = (primary.connect().await?, self.connect().await?);
        let lsn: String = sqlx::query_scalar("select pg_current_wal_flush_lsn()::text").fetch_one(&mut primary).await?;
        let replayed = "select coalesce(pg_last_wal_replay_lsn() >= $1::pg_lsn, false)";
        while !sqlx::query_scalar::<_, bool>(replayed).bind(&lsn).fetch_one(&mut standby).await? {
            sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// How the harness connects to it.
    pub(crate) fn options(&self) -> PgConnectOptions {
        let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(self.port);
        options.username(NAME).database(NAME).ssl_mode(sqlx::postgres::PgSslMode::Disable)
    }

    pub(crate) async fn connect(&self) -> anyhow::Result<PgConnection> {
        Ok(PgConnection::connect_with(&self.options()).await?)
    }

    /// The postmaster, if it is running.
    pub(crate) fn postmaster(&self) -> Option<Pid> {
        site::postmaster_in(&self.dir)
    }

    pub(crate) fn signal(&self, signal: Signal) -> usize {
        site::processes_of(self.postmaster()).into_iter().filter(|pid| kill_process(*pid, signal).is_ok()).count()
    }

    fn make_dir(&self, dir: &Path) -> anyhow::Result<()> {
        fs::create_dir_all(dir)?;
        fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
        let log = dir.with_extension("log");
        fs::write(&log, "")?;
        if let Some((uid, gid)) = self.account {
            chown(dir, Some(uid), Some(gid))?;
            chown(&log, Some(uid), Some(gid))?;
        }
        Ok(())
    }

    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid);
        }
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
        command
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.signal(Signal::CONT);
        if let Some(postmaster) = self.postmaster() {
            let _ = kill_process(postmaster, Signal::QUIT);
            let began = std::time::Instant::now();
            while self.postmaster().is_some() && began.elapsed() < LAST_WAIT_MAX {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

/// The URL with which a server connects to a cluster at this address.
pub(crate) fn url_at(address: SocketAddr) -> String {
    format!("postgres://{NAME}@{address}/{NAME}?sslmode=disable")
}

/// Postgres refuses to run as root.
fn account() -> anyhow::Result<Option<(u32, u32)>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let passwd = fs::read_to_string("/etc/passwd")?;
    let named = |name: &str| passwd.lines().find(|line| line.starts_with(name));
    let line = named("postgres:").or_else(|| named("nobody:")).context("there is no account for Postgres")?;
    let field = |index| line.split(':').nth(index).and_then(|id| id.parse().ok()).context("an account without ids");
    Ok(Some((field(2)?, field(3)?)))
}

fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn append(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;
    Ok(fs::File::options().append(true).open(path)?.write_all(text.as_bytes())?)
}

/// Runs a program to its end.
pub(crate) async fn run(mut command: Command) -> anyhow::Result<()> {
    // A daemon inherits its starter's descriptors, so output goes into a file and not into a pipe.
    let said = tempfile::tempfile()?;
    let status = command.stderr(said.try_clone()?).status().await?;
    if !status.success() {
        use std::io::{Read as _, Seek as _};
        let (mut said, mut text) = (said, String::new());
        said.rewind()?;
        said.read_to_string(&mut text)?;
        anyhow::bail!("{command:?} ended with {status}: {text}");
    }
    Ok(())
}
