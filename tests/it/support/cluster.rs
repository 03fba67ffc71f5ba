//! One Postgres for all tests of the process, and a separate database for each test.
//!
//! The cluster stays up between test runs, so that only the first one pays for creating it. It lives on a thread with
//! its own runtime, because each test's runtime ends with the test.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use runreel::{
    postgres::{Cluster, Endpoint, Options, running_endpoint},
    store::{Settings, Store},
};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};

use super::{PATIENCE, until};

/// How many tests may have a database at once; each has one or two servers, and the cluster has 100 connections.
static PLACES: Semaphore = Semaphore::const_new(5);
static COUNT: AtomicU32 = AtomicU32::new(0);

struct Shared {
    options: PgConnectOptions,
    endpoint: Option<Endpoint>,
    url: Option<String>,
    /// Whether the reading roles may log in: on a cluster that was created for the tests.
    readers_log_in: bool,
    /// A database with the schema, so that a test does not wait for the migrations.
    template: String,
    create: mpsc::UnboundedSender<Creation>,
    drop_later: mpsc::UnboundedSender<String>,
}

/// The text that creates a database, and who waits for it.
type Creation = (String, oneshot::Sender<()>);

/// A database of one test; dropped with it.
pub struct Db {
    pub name: String,
    /// Where its artifacts are.
    pub artifacts: tempfile::TempDir,
    /// The data directory of its servers.
    pub data: tempfile::TempDir,
    shared: &'static Shared,
    _place: Option<SemaphorePermit<'static>>,
}

impl Db {
    pub async fn new() -> Arc<Self> {
        Self::at(Some(PLACES.acquire().await.unwrap())).await
    }

    /// One that outlives the test, beside those of the tests.
    pub async fn beside() -> Arc<Self> {
        Self::at(None).await
    }

    /// Two, acquired together, so that no two tests wait for each other's second one.
    pub async fn two() -> [Arc<Self>; 2] {
        let mut places = PLACES.acquire_many(2).await.unwrap();
        let place = places.split(1).unwrap();
        [Self::at(Some(places)).await, Self::at(Some(place)).await]
    }

    async fn at(place: Option<SemaphorePermit<'static>>) -> Arc<Self> {
        // The first test waits while the cluster is created or recovers; that has a bound of its own.
        let shared = tokio::task::spawn_blocking(shared).await.unwrap();
        let name = format!("it_{}_{}", std::process::id(), COUNT.fetch_add(1, Ordering::SeqCst));
        let (done, is_done) = oneshot::channel();
        shared.create.send((format!("create database {name} template {}", shared.template), done)).unwrap();
        is_done.await.unwrap();
        let (artifacts, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        Arc::new(Self { name, artifacts, data, shared, _place: place })
    }

    /// How the superuser connects to the database.
    pub fn options(&self) -> PgConnectOptions {
        self.shared.options.clone().database(&self.name)
    }

    /// How `runreel sql` connects: on an embedded cluster the session belongs to the reading role.
    pub fn reader(&self) -> PgConnectOptions {
        self.reader_as("runreel_reader")
    }

    /// The same with another reading role.
    pub fn reader_as(&self, role: &str) -> PgConnectOptions {
        if self.is_ours() { self.options().username(role) } else { self.options() }
    }

    /// Whether the cluster was created for the tests, and readers may log in.
    pub fn is_ours(&self) -> bool {
        self.shared.readers_log_in
    }

    /// The same as a URL.
    pub fn url(&self) -> String {
        if let Some(endpoint) = &self.shared.endpoint {
            let host = endpoint.socket_dir.display().to_string().replace('/', "%2F");
            let (user, password) = (&endpoint.user, endpoint.password.expose());
            return format!("postgres://{user}:{password}@localhost/{}?host={host}&port={}", self.name, endpoint.port);
        }
        let mut url = reqwest::Url::parse(self.shared.url.as_deref().unwrap()).unwrap();
        url.set_path(&self.name);
        url.to_string()
    }

    /// The URL through a proxy on a TCP port.
    pub fn url_through(&self, port: u16) -> String {
        let user = self.shared.options.get_username();
        let password = self.shared.endpoint.as_ref().map_or("", |endpoint| endpoint.password.expose());
        format!("postgres://{user}:{password}@127.0.0.1:{port}/{}?sslmode=disable", self.name)
    }

    /// Where the socket file is, for a proxy.
    pub fn upstream(&self) -> super::proxy::Upstream {
        match &self.shared.endpoint {
            Some(endpoint) => {
                super::proxy::Upstream::Unix(endpoint.socket_dir.join(format!(".s.PGSQL.{}", endpoint.port)))
            }
            None => super::proxy::Upstream::Tcp(format!(
                "{}:{}",
                self.shared.options.get_host(),
                self.shared.options.get_port()
            )),
        }
    }

    pub async fn connect(&self) -> PgConnection {
        PgConnection::connect_with(&self.options()).await.unwrap()
    }

    /// One value of one query, as the superuser.
    pub async fn number(&self, query: &'static str) -> i64 {
        let mut connection = self.connect().await;
        let number = sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        number
    }

    /// Waits until a count has this value.
    pub async fn until_number(&self, what: &str, query: &'static str, wanted: i64) {
        // One connection for all queries: Postgres starts a process for each connection.
        let mut connection = self.connect().await;
        let mut last = 0;
        let reached = tokio::time::timeout(PATIENCE, async {
            loop {
                last = sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap();
                if last == wanted {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        let reached = reached.await;
        assert!(reached.is_ok(), "waited {PATIENCE:?} for {what}: {wanted} expected, last seen {last}");
        connection.close().await.unwrap();
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        let _ = self.shared.drop_later.send(self.name.clone());
    }
}

/// Lets an owner of a second database of this cluster use the roles that the first one created, as docs/operations.md says.
pub async fn share_roles(superuser: &mut PgConnection, role: &str) {
    let version: i32 = sqlx::query_scalar("select current_setting('server_version_num')::int")
        .fetch_one(&mut *superuser)
        .await
        .unwrap();
    // Since then a role passes on only what it created.
    if version >= 160_000 {
        let all = "runreel_app, runreel_writer, runreel_retention, runreel_reader, runreel_scoped, runreel_viewer";
        let grants = format!("grant {all} to {role}; grant runreel_scoped to {role} with admin option");
        execute(superuser, grants).await;
    }
}

/// SQL text composed by a test.
pub async fn execute(connection: &mut PgConnection, text: String) {
    sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(connection).await.unwrap();
}

fn shared() -> &'static Shared {
    static SHARED: OnceLock<Shared> = OnceLock::new();
    SHARED.get_or_init(|| {
        let (ready, is_ready) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(keep(&ready));
        });
        is_ready.recv().expect("the cluster starts")
    })
}

async fn keep(ready: &std::sync::mpsc::Sender<Shared>) {
    let (create, creations) = mpsc::unbounded_channel();
    let (drop_later, mut names) = mpsc::unbounded_channel::<String>();
    let given = std::env::var("RUNREEL_TEST_DATABASE_URL").ok();
    let (options, endpoint, _cluster) = if let Some(url) = &given {
        (url.parse().expect("RUNREEL_TEST_DATABASE_URL is a URL of Postgres"), None, None)
    } else {
        let (endpoint, cluster) = own_or_visit().await;
        let options = PgConnectOptions::new_without_pgpass()
            .socket(&endpoint.socket_dir)
            .port(endpoint.port)
            .username(&endpoint.user)
            .password(endpoint.password.expose())
            .database(&endpoint.database);
        (options, Some(endpoint), cluster)
    };
    let template = template(&options).await;
    let readers_log_in = endpoint.is_some() || std::env::var_os("RUNREEL_TEST_DATABASE_IS_SCRATCH").is_some();
    if readers_log_in {
        // As `serve` does on its embedded cluster.
        runreel::store::query::enable_reader_login(&options).await.unwrap();
    }
    let shared =
        Shared { options: options.clone(), endpoint, url: given, readers_log_in, template, create, drop_later };
    ready.send(shared).expect("somebody waits for the cluster");
    tokio::spawn(sweep(options.clone()));
    tokio::spawn(create_databases(options.clone(), creations));
    // One connection for all: Postgres starts a process for each.
    let mut connection = PgConnection::connect_with(&options).await.expect("the cluster answers");
    while let Some(name) = names.recv().await {
        let text = format!("drop database if exists {name} with (force)");
        let _ = sqlx::raw_sql(sqlx::AssertSqlSafe(text)).execute(&mut connection).await;
    }
}

async fn create_databases(options: PgConnectOptions, mut creations: mpsc::UnboundedReceiver<Creation>) {
    let mut connection = PgConnection::connect_with(&options).await.expect("the cluster answers");
    while let Some((text, done)) = creations.recv().await {
        execute(&mut connection, text).await;
        let _ = done.send(());
    }
}

/// Our own cluster, or the one that another process of these tests is running.
async fn own_or_visit() -> (Endpoint, Option<Cluster>) {
    let named = std::env::var_os("RUNREEL_TEST_CLUSTER").map(PathBuf::from);
    let data_dir = named.unwrap_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("cluster"));
    let options = Options { data_dir: data_dir.clone(), pg_bin: None, path_env: std::env::var_os("PATH") };
    match Cluster::start(options).await {
        Ok(cluster) => (cluster.endpoint().clone(), Some(cluster)),
        Err(runreel::postgres::Error::InUse { .. }) => {
            until("the cluster of another test process", || async { running_endpoint(&data_dir).is_some() }).await;
            (running_endpoint(&data_dir).unwrap(), None)
        }
        Err(error) => panic!("the cluster does not start: {error}"),
    }
}

async fn template(options: &PgConnectOptions) -> String {
    let name = format!("it_{}_template", std::process::id());
    let mut connection = PgConnection::connect_with(options).await.unwrap();
    execute(&mut connection, format!("create database {name}")).await;
    let settings = Settings::few(options.clone().database(&name));
    Store::connect(settings).await.unwrap().close().await;
    name
}

/// Removes what earlier test processes left behind.
async fn sweep(options: PgConnectOptions) {
    let mut connection = PgConnection::connect_with(&options).await.expect("the cluster answers");
    let names: Vec<String> = sqlx::query_scalar("select datname from pg_database where datname like 'it\\_%'")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    for name in names {
        let pid = name.split('_').nth(1).unwrap_or_default();
        if !Path::new("/proc").join(pid).exists() {
            execute(&mut connection, format!("drop database if exists {name} with (force)")).await;
        }
    }
}
