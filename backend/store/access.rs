//! Connections and their session settings.
//!
//! A statement applies the settings once the connection is open, instead of startup parameters: a pooler rejects those,
//! or silently drops them if it is configured to, and the roles would not be kept apart.

use sqlx::{
    Connection as _, Executor as _, PgConnection, PgPool, Row as _,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::Error;

/// How often two connections are compared, each time with one more statement in between: a pooler may lend its
/// connections in rotation, and other clients may use them meanwhile.
const COMPARISONS: usize = 4;

/// How to open connections of one kind.
#[derive(Clone, Debug)]
pub(super) struct Access {
    options: PgConnectOptions,
    settings: Vec<(&'static str, String)>,
}

impl Access {
    /// Connections as the user of `options`.
    pub(super) fn new(options: &PgConnectOptions) -> Self {
        // Poolers do not know this parameter, which only matters before Postgres 12.
        let options = options.clone().application_name("runreel").extra_float_digits(None);
        // Set explicitly: the default path begins with a schema named like the user, and there may be one.
        Self { options, settings: vec![("search_path", "public".to_owned())] }
    }

    /// The same with more settings; for duplicate names the last value wins.
    pub(super) fn with<V: Into<String>>(&self, settings: impl IntoIterator<Item = (&'static str, V)>) -> Self {
        let mut access = self.clone();
        access.settings.extend(settings.into_iter().map(|(name, value)| (name, value.into())));
        access
    }

    /// The same in one of the program's roles, with the timeouts of a request.
    ///
    /// A connection caches the plans of its statements, which may date from when a table was small. Postgres assumes
    /// that a never vacuumed table will grow, and plans again when there are new statistics; between two runs of
    /// autovacuum a plan can be stale. So statements are written so that only tables of a few rows are scanned in full,
    /// and plans are discarded regularly: see [`crate::domain::limits::PLANS_MS_MAX`]. A test checks all of them.
    pub(super) fn as_role(&self, role: &'static str) -> Self {
        self.with([
            ("role", role),
            ("statement_timeout", "4000"),
            ("lock_timeout", "3000"),
            // A server that stops in the middle of a transaction, or is cut off by the network, must not keep its
            // locks.
            ("idle_in_transaction_session_timeout", "2000"),
            ("tcp_keepalives_idle", "2"),
            ("tcp_keepalives_interval", "1"),
            ("tcp_keepalives_count", "2"),
            ("tcp_user_timeout", "4000"),
            // Most reads come from memory, or from a disk without a seek time.
            ("random_page_cost", "1.1"),
            // Compiling a statement takes longer than executing it.
            ("jit", "off"),
            // Pages are read in index order. A bitmap scan would collect all remaining rows of a run for each page, and
            // Postgres prefers it for a table without statistics.
            ("enable_bitmapscan", "off"),
        ])
    }

    pub(super) async fn open(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        set(&mut connection, &self.settings).await?;
        Ok(connection)
    }

    /// A pool of such connections, which opens none yet.
    pub(super) fn pool(self, pool: PgPoolOptions) -> PgPool {
        let Self { options, settings } = self;
        let settings = std::sync::Arc::new(settings);
        pool.after_connect(move |connection, _| {
            let settings = std::sync::Arc::clone(&settings);
            Box::pin(async move { set(connection, &settings).await })
        })
        .connect_lazy_with(options)
    }

    /// Whether a program that passes the settings as startup parameters, such as psql, gets this role.
    pub(super) async fn starts_as(&self, role: &str) -> Result<bool, sqlx::Error> {
        let options = self.options.clone().options(self.settings.iter().map(|(name, value)| (name, value)));
        let mut connection = PgConnection::connect_with(&options).await?;
        let started: String =
            connection.fetch_one(sqlx::raw_sql("select current_setting('role')")).await?.try_get(0)?;
        connection.close().await?;
        Ok(started == role)
    }

    /// Opens a connection, and rejects a pooler that lends connections for less than a session: our settings, among
    /// them role and owner, would apply to other clients. Needs a second connection meanwhile.
    pub(super) async fn open_checked(&self) -> Result<PgConnection, Error> {
        let mut first = PgConnection::connect_with(&self.options).await?;
        let mut second = PgConnection::connect_with(&self.options).await?;
        // Unprepared statements, which such a pooler forwards.
        let mark = "select set_config('runreel.session', gen_random_uuid()::text, false)";
        for between in 1..=COMPARISONS {
            let marked: String = first.fetch_one(sqlx::raw_sql(mark)).await?.try_get(0)?;
            for _ in 0..between {
                second.execute(sqlx::raw_sql(mark)).await?;
            }
            let read = sqlx::raw_sql("select current_setting('runreel.session', true)");
            let read: Option<String> = first.fetch_one(read).await?.try_get(0)?;
            if read != Some(marked) {
                return Err(Error::Incompatible(
                    "the pooler in front of the database lends its connections for a transaction or a statement, and \
                     connections that are shared would mix the roles and owners they are set to; set pool_mode = \
                     session for this database, or give the URL of Postgres itself"
                        .to_owned(),
                ));
            }
        }
        second.close().await?;
        set(&mut first, &self.settings).await?;
        Ok(first)
    }
}

async fn set(connection: &mut PgConnection, settings: &[(&'static str, String)]) -> Result<(), sqlx::Error> {
    let (names, values): (Vec<String>, Vec<String>) =
        settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).unzip();
    sqlx::query!(
        "select set_config(name, value, false) from unnest($1::text[], $2::text[]) as setting (name, value)",
        &names,
        &values
    )
    .fetch_all(connection)
    .await?;
    Ok(())
}
