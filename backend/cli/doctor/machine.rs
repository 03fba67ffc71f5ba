//! This machine: limits, folders, programs, the database.

use super::{CheckResult, PATIENCE};
use crate::{
    config::{DataArgs, Secrets},
    confine,
    database::Database,
    postgres, store,
};

pub(super) fn secrets() -> CheckResult {
    match Secrets::read() {
        Ok(_) => CheckResult::Good("the environment is consistent".to_owned()),
        Err(error) => CheckResult::Bad(error.to_string(), "correct the variable and try again"),
    }
}

/// The server raises its limit to the maximum, so only that matters.
pub(super) fn descriptors() -> CheckResult {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    match limit {
        Some(limit) if limit < 4_096 => CheckResult::Bad(
            format!("only {limit} open files are allowed, and every stream needs one"),
            "ulimit -Hn 65536 as root, or LimitNOFILE= in the service's unit",
        ),
        Some(limit) => CheckResult::Good(format!("{limit} open files allowed")),
        None => CheckResult::Good("no limit on open files".to_owned()),
    }
}

pub(super) fn data_dir(data: &DataArgs) -> CheckResult {
    let dir = match data.data_dir() {
        Ok(dir) => dir,
        Err(error) => return CheckResult::Bad(error.to_string(), "name a folder with --data-dir"),
    };
    let existing = dir.ancestors().find(|dir| dir.exists()).map(std::path::Path::to_owned).unwrap_or_default();
    let writable = rustix::fs::access(&existing, rustix::fs::Access::WRITE_OK).is_ok();
    if writable {
        CheckResult::Good(format!("{} is writable", dir.display()))
    } else {
        CheckResult::Bad(
            format!("{} is not writable", dir.display()),
            "choose another with --data-dir, or change its owner",
        )
    }
}

pub(super) async fn programs(data: &DataArgs) -> CheckResult {
    match data.database_url() {
        Ok(Some(_)) => return CheckResult::Open("not needed: DATABASE_URL is set".to_owned()),
        Err(error) => return CheckResult::Bad(error.to_string(), "correct the variable and try again"),
        Ok(None) => {}
    }
    let options = match data.postgres() {
        Ok(options) => options,
        Err(error) => return CheckResult::Bad(error.to_string(), "name a folder with --data-dir"),
    };
    match postgres::programs(&options).await {
        Ok(found) => CheckResult::Good(found),
        Err(error) => {
            CheckResult::Bad(error.to_string(), "apt-get install postgresql, or --pg-bin DIR, or DATABASE_URL")
        }
    }
}

/// What keeps programs started by tools away from the data.
pub(super) async fn confinement(data: &DataArgs) -> CheckResult {
    let running = data.data_dir().ok().and_then(|dir| Database::running(&dir));
    if let Some(database) = running {
        let open = database.options.password("");
        let check = tokio::time::timeout(PATIENCE, store::durability::accepts(&open));
        if matches!(check.await, Ok(true)) {
            let what = "the embedded database accepts every program of its user".to_owned();
            return CheckResult::Bad(what, "stop the server, remove postgres.pass in the data directory, start again");
        }
    }
    if confine::hold() {
        return CheckResult::Good("Landlock keeps programs of tools away from data and secrets".to_owned());
    }
    CheckResult::Open("no Landlock here: programs of tools can read what the server's user can".to_owned())
}

pub(super) async fn database(data: &DataArgs) -> CheckResult {
    let running = data.data_dir().ok().and_then(|dir| Database::running(&dir));
    let options = match data.database_url() {
        Ok(Some(url)) => match url.parse::<sqlx::postgres::PgConnectOptions>() {
            Ok(options) => options,
            Err(_) => {
                return CheckResult::Bad(
                    "DATABASE_URL is malformed".to_owned(),
                    "postgres://user:password@host:port/database",
                );
            }
        },
        _ => match running {
            Some(database) => database.options,
            None => {
                return CheckResult::Open("the embedded database is not running; runreel serve starts it".to_owned());
            }
        },
    };
    match tokio::time::timeout(PATIENCE, store::durability::look(&options)).await {
        Ok(Ok((version, durability))) => match durability.check() {
            Err(unfit) => CheckResult::Bad(
                unfit.to_string(),
                "alter system set fsync = on; alter system set full_page_writes = on; select pg_reload_conf()",
            ),
            Ok(()) if durability.is_commit_waited_for() => {
                CheckResult::Good(format!("Postgres {version} is reachable, and keeps what it has acknowledged"))
            }
            Ok(()) => CheckResult::Good(format!(
                "Postgres {version} is reachable; its synchronous_commit is off, which runreel turns on for itself"
            )),
        },
        Ok(Err(store::Error::Incompatible(unfit))) => CheckResult::Bad(unfit, "change DATABASE_URL, or the pooler"),
        Ok(Err(_)) => CheckResult::Bad(
            "the database rejects the connection".to_owned(),
            "check DATABASE_URL: host, port, user, password",
        ),
        Err(_) => {
            CheckResult::Bad("the database does not answer".to_owned(), "check that it runs and is reachable from here")
        }
    }
}
