//! What the environment of a server says about other programs does not reach its own database.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use tokio::process::Command;

use crate::support::{
    api::Api,
    patiently,
    process::{Said, Served, program, run, served},
    until,
};

/// Variables of libpq (<https://www.postgresql.org/docs/current/libpq-envars.html>), each with a value that would break or
/// mislead a connection.
const HOSTILE: [(&str, &str); 40] = [
    ("PGHOST", "/nowhere"),
    ("PGHOSTADDR", "192.0.2.1"),
    ("PGPORT", "1"),
    ("PGDATABASE", "other"),
    ("PGUSER", "nobody"),
    ("PGPASSWORD", "wrong"),
    ("PGPASSFILE", "/nowhere/pgpass"),
    ("PGREQUIREAUTH", "none"),
    ("PGCHANNELBINDING", "require"),
    ("PGSERVICE", "other"),
    ("PGSERVICEFILE", "/nowhere/service"),
    ("PGOPTIONS", "-c default_transaction_read_only=on -c search_path=nowhere -c no_such_setting=1"),
    ("PGAPPNAME", "hostile"),
    ("PGSSLMODE", "verify-full"),
    ("PGREQUIRESSL", "1"),
    ("PGSSLCOMPRESSION", "1"),
    ("PGSSLCERT", "/nowhere/cert"),
    ("PGSSLKEY", "/nowhere/key"),
    ("PGSSLROOTCERT", "/nowhere/root"),
    ("PGSSLCRL", "/nowhere/crl"),
    ("PGSSLCRLDIR", "/nowhere"),
    ("PGSSLCERTMODE", "require"),
    ("PGSSLSNI", "0"),
    ("PGSSLNEGOTIATION", "direct"),
    ("PGSSLMINPROTOCOLVERSION", "TLSv1.3"),
    ("PGSSLMAXPROTOCOLVERSION", "TLSv1"),
    ("PGREQUIREPEER", "nobody"),
    ("PGGSSENCMODE", "require"),
    ("PGKRBSRVNAME", "other"),
    ("PGGSSLIB", "gssapi"),
    ("PGCONNECT_TIMEOUT", "1"),
    ("PGCLIENTENCODING", "SQL_ASCII"),
    ("PGDATESTYLE", "German"),
    ("PGTZ", "Asia/Kathmandu"),
    ("PGGEQO", "off"),
    ("PGTARGETSESSIONATTRS", "standby"),
    ("PGLOADBALANCEHOSTS", "random"),
    ("PGSYSCONFDIR", "/nowhere"),
    ("PGDATA", "/nowhere"),
    ("PGLOCALEDIR", "/nowhere"),
];

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A command on the data directory, in the hostile environment.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = program(words);
        command.arg("--data-dir").arg(self.data()).envs(HOSTILE);
        command
    }

    fn server(&self) -> Command {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0"]);
        command.arg("--artifacts-dir").arg(self.data().join("artifacts"));
        command
    }
}

#[track_caller]
fn done(said: Said) -> String {
    assert_eq!(said.code, Some(0), "stdout: {}\nstderr: {}", said.stdout, said.stderr);
    said.stdout
}

/// Ends a server as a service manager would, and returns what it logged.
async fn stopped(mut served: Served, log: &Path) -> String {
    let pid = rustix::process::Pid::from_raw(served.child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(patiently("the shutdown", served.child.wait()).await.unwrap().code(), Some(0));
    std::fs::read_to_string(log).unwrap()
}

async fn started(mut command: Command, log: &Path) -> (Served, Api) {
    command.stderr(std::fs::File::create(log).unwrap());
    let served = served(command).await;
    let api = Api::new(served.base.clone());
    until("the server to be ready", || async { api.get("/readyz").await.status == 200 }).await;
    (served, api)
}

/// `PGOPTIONS="-c default_transaction_read_only=on"` kept a server from starting (related: oven-sh/bun#36840).
#[tokio::test]
async fn no_variable_of_libpq_reaches_the_embedded_database() {
    let place = Place::new();
    let log = place.folder.path().join("log");
    let (served, api) = started(place.server(), &log).await;
    let run_id = api.start_run().await;
    let settings = "select current_setting('DateStyle'), current_setting('client_encoding'), count(*) from runs";
    let asked = done(run(place.command(&["sql", "--format", "csv", settings]), "").await);
    assert!(asked.ends_with("\"ISO, MDY\",UTF8,1\r\n"), "{asked}");
    psql_is_told_nothing_else(&place).await;
    let backup = place.folder.path().join("backup");
    done(run(place.command(&["backup", backup.to_str().unwrap(), "--without-artifacts"]), "").await);
    // Folders that name owners are closed to other users of the machine, whatever the umask.
    for folder in ["artifacts", "history"] {
        let mode = std::fs::metadata(place.data().join(folder)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700, "{folder}");
    }
    let logged = stopped(served, &log).await;
    assert!(!logged.contains("on-release"), "{logged}");

    let restored = Place::new();
    done(run(restored.command(&["restore", backup.to_str().unwrap()]), "").await);
    let log = restored.folder.path().join("log");
    let (served, api) = started(restored.server(), &log).await;
    api.get(&format!("/api/runs/{run_id}")).await.expect(200);
    stopped(served, &log).await;
    // By a database that the command starts itself.
    done(run(restored.command(&["verify", "--all"]), "").await);
}

/// psql gets the settings of a reader from this program. One in its place shows what it was given.
async fn psql_is_told_nothing_else(place: &Place) {
    let folder = place.folder.path().join("bin");
    std::fs::create_dir(&folder).unwrap();
    let psql = folder.join("psql");
    std::fs::write(&psql, "#!/bin/sh\nenv | grep ^PG | cut -d= -f1 | sort | tr '\\n' ' '\n").unwrap();
    std::fs::set_permissions(&psql, std::fs::Permissions::from_mode(0o755)).unwrap();
    let (program, data) = (env!("CARGO_BIN_EXE_runreel"), place.data());
    let line = format!("{program} sql --data-dir {} --pg-bin {}", data.display(), folder.display());
    // psql is for terminals.
    let mut terminal = Command::new("script");
    terminal.args(["-qec", &line, "/dev/null"]).envs(HOSTILE).env_remove("DATABASE_URL");
    terminal.kill_on_drop(true).stdout(Stdio::piped()).stderr(Stdio::piped());
    assert_eq!(done(run(terminal, "").await).trim(), "PGOPTIONS PGPASSWORD");
}
