//! Whether acknowledged data survives a power failure of the database.

use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};

use super::{Error, access::Access};

/// The settings of a database on which an acknowledged event depends.
#[derive(Clone, Debug)]
pub struct Durability {
    fsync: String,
    full_page_writes: String,
    synchronous_commit: String,
}

/// The version of Postgres and its durability settings, if it can be used at all.
pub async fn look(options: &PgConnectOptions) -> Result<(String, Durability), Error> {
    let mut connection = Access::new(options).open_checked().await?;
    let version = sqlx::query_scalar("show server_version").fetch_one(&mut connection).await?;
    let durability = Durability::of(&mut connection).await?;
    connection.close().await?;
    Ok((version, durability))
}

/// Whether the database accepts such a connection.
pub async fn accepts(options: &PgConnectOptions) -> bool {
    Access::new(options).open().await.is_ok()
}

impl Durability {
    /// The settings as they are on this connection.
    pub async fn of(connection: &mut PgConnection) -> Result<Self, Error> {
        Ok(sqlx::query_as!(
            Self,
            r#"select current_setting('fsync') as "fsync!", current_setting('full_page_writes') as "full_page_writes!",
                      current_setting('synchronous_commit') as "synchronous_commit!""#
        )
        .fetch_one(connection)
        .await?)
    }

    /// Rejects a database that may lose or corrupt acknowledged data, which the server cannot compensate for.
    pub fn check(&self) -> Result<(), Error> {
        for (name, value) in [("fsync", &self.fsync), ("full_page_writes", &self.full_page_writes)] {
            if value != "on" {
                return Err(Error::Incompatible(format!(
                    "the database runs with {name} = {value} and would lose acknowledged events in a power loss; set \
                     {name} = on (alter system set {name} = on; select pg_reload_conf()) and start again"
                )));
            }
        }
        Ok(())
    }

    /// The `synchronous_commit` to use: the operator's, but at least until the commit is on the database's own disk.
    pub fn commit_level(&self) -> &str {
        if self.synchronous_commit == "off" { "on" } else { &self.synchronous_commit }
    }

    /// Whether connections with the operator's `synchronous_commit` wait for their commits.
    pub fn is_commit_waited_for(&self) -> bool {
        self.synchronous_commit != "off"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_waited_for_at_least_until_it_is_on_the_disk() {
        let level = |setting: &str| {
            let on = || "on".to_owned();
            let settings = Durability { fsync: on(), full_page_writes: on(), synchronous_commit: setting.to_owned() };
            settings.commit_level().to_owned()
        };
        assert_eq!(["off", "local", "on", "remote_apply"].map(level), ["on", "local", "on", "remote_apply"]);
    }
}
