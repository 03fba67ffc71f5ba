//! The embedded database from one major version of Postgres to a later one, with two real ones from npm. `./just peers`
//! installs them.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::support::{
    api::{Api, stream_of},
    page::{blocks, done, shell, task},
    patiently,
    process::{Said, Served, ended, program, serve},
    runs::numbered,
    sse::Stream,
};

/// The data of two releases, and the programs of two versions of Postgres.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Postgres has a user of its own when we are root.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        Self { folder }
    }

    /// The programs of a version, where every user may start them.
    fn programs(&self, major: u32) -> PathBuf {
        let os = if cfg!(target_os = "macos") { "darwin" } else { "linux" };
        let processor = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers/node_modules");
        let package = peers.join(format!("postgres-{major}-{os}-{processor}/native"));
        assert!(package.exists(), "Postgres {major} is not installed: run ./just peers");
        let copy = self.folder.path().join(format!("programs-{major}"));
        if !copy.exists() {
            let copied = std::process::Command::new("cp").arg("-R").args([&package, &copy]).status().unwrap();
            assert!(copied.success());
        }
        copy.join("bin")
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, words: &[&str], postgres: u32) -> tokio::process::Command {
        let (data, programs) = (self.data(), self.programs(postgres));
        let place = ["--data-dir", data.to_str().unwrap(), "--pg-bin", programs.to_str().unwrap()];
        program(&[words, &place].concat())
    }

    async fn serve(&self, postgres: u32) -> Served {
        serve(self.command(&["serve", "--listen", "127.0.0.1:0"], postgres)).await
    }

    async fn said(&self, words: &[&str], postgres: u32) -> Said {
        tokio::time::timeout(Duration::from_mins(1), ended(self.command(words, postgres), "")).await.unwrap()
    }
}

async fn stop(mut served: Served) {
    let pid = i32::try_from(served.child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    assert!(patiently("the server's end", served.child.wait()).await.unwrap().success());
}

/// What an export of everything holds.
async fn exported(api: &Api, runs: &[String]) -> Vec<String> {
    let mut lines = Vec::new();
    for run in runs {
        lines.push(api.get(&format!("/api/runs/{run}/export")).await.text);
    }
    lines
}

#[tokio::test]
async fn a_cluster_of_15_is_taken_to_18_with_its_runs_its_threads_and_its_readers_cursors() {
    let place = Place::new();
    let served = place.serve(15).await;
    let api = Api::new(served.base.clone());
    let mut runs = Vec::new();
    for n in 0..20 {
        let run = api.create(json!({ "thread_id": "t", "title": format!("Träume {n} \u{1f600}") })).await;
        api.emit(&run, json!((0..50).map(numbered).collect::<Vec<_>>())).await;
        runs.push(run);
    }
    api.complete(&runs[0]).await;
    let artifact = api.upload(&runs[1], "a.txt", "bytes").await["artifact_id"].as_str().unwrap().to_owned();
    api.put_checkpoint("t", "1", json!({ "checkpoint": { "t": "x" } })).await;
    let mut feed = api.stream("/api/stream/runs").await;
    feed.caught_up().await;
    api.emit(&runs[2], numbered(50)).await;
    let cursor = feed.next().await.id.unwrap();
    drop(feed);
    let before = exported(&api, &runs).await;
    stop(served).await;

    let refused = place.said(&["serve", "--listen", "127.0.0.1:0"], 18).await;
    assert_ne!(refused.code, Some(0));
    assert!(
        refused.stderr.contains("created by Postgres 15") && refused.stderr.contains("runreel upgrade"),
        "{}",
        refused.stderr
    );
    let to = place.programs(18);
    let pages = blocks(&task("upgrade"), "sh");
    let command = pages[1].lines().find(|line| line.contains("--to")).unwrap();
    let command =
        [(18, &to), (15, &place.programs(15))].iter().fold(command.to_owned(), |command, (major, programs)| {
            let installed = format!("/usr/lib/postgresql/{major}/bin");
            assert!(command.contains(&installed), "{command}");
            command.replace(&installed, programs.to_str().unwrap())
        });
    let mut upgrade = shell(&command);
    upgrade.env("RUNREEL_DATA_DIR", place.data());
    let upgraded = tokio::time::timeout(Duration::from_mins(1), ended(upgrade, "")).await.unwrap();
    assert_eq!(upgraded.code, Some(0), "{}", upgraded.stderr);
    assert!(place.data().join("postgres-15/PG_VERSION").exists() && !place.data().join("upgrade").exists());

    let served = place.serve(18).await;
    let api = Api::new(served.base.clone());
    let check = done(&pages[2], |command| {
        command.env("RUNREEL_URL", &served.base).env("RUNREEL_DATA_DIR", place.data()).env("RUNREEL_PG_BIN", &to);
    });
    assert!(check.await.stdout.contains("is ready"));
    let version = place.said(&["sql", "select current_setting('server_version')"], 18).await;
    assert!(version.stdout.contains("18."), "{version:?}");
    assert_eq!(exported(&api, &runs).await, before);
    assert_eq!(api.download(&artifact, &[]).await.text().await.unwrap(), "bytes");
    api.get("/api/threads/t/checkpoints/latest").await.expect(200);
    // The log goes on as if nothing had been: same history, next number, no event twice.
    let request = api.request(reqwest::Method::GET, "/api/stream/runs").header("last-event-id", &cursor);
    let mut feed = Stream::of(request.send().await.unwrap());
    feed.caught_up().await;
    assert_eq!(api.emit(&runs[2], numbered(51)).await["first_seq"], 54);
    let next = feed.next().await;
    assert_eq!(next.json()["payload"], numbered(51)["payload"]);
    assert!(!next.id.unwrap().contains('.'), "no other history");
    let mut run = api.stream(&format!("{}?after=53", stream_of(&runs[2]))).await;
    assert_eq!(run.next().await.json()["seq"], 54);
    stop(served).await;

    let again = place.said(&["upgrade", "--to", to.to_str().unwrap()], 18).await;
    assert!(again.code != Some(0) && again.stderr.contains("no newer one"), "{again:?}");
}

#[tokio::test]
async fn an_upgrade_that_was_killed_is_repeated() {
    let place = Place::new();
    let served = place.serve(15).await;
    let api = Api::new(served.base.clone());
    let run = api.start_run().await;
    api.emit(&run, json!((0..5_000).map(numbered).collect::<Vec<_>>())).await;
    let before = exported(&api, std::slice::from_ref(&run)).await;
    stop(served).await;
    let to = place.programs(18);
    let words = ["upgrade", "--to", to.to_str().unwrap()];
    let mut child = place.command(&words, 15).spawn().unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
    while !patiently("both clusters", said.next_line()).await.unwrap().unwrap().contains("copying") {}
    child.kill().await.unwrap();
    let again = place.said(&words, 15).await;
    assert_eq!(again.code, Some(0), "{}", again.stderr);
    let served = place.serve(18).await;
    assert_eq!(exported(&Api::new(served.base.clone()), &[run]).await, before);
    stop(served).await;
}

#[tokio::test]
async fn an_upgrade_that_cannot_be_done_changes_nothing() {
    let place = Place::new();
    let to = place.programs(18);
    let words = ["upgrade", "--to", to.to_str().unwrap()];
    std::fs::create_dir(place.data()).unwrap();
    let none = place.said(&words, 15).await;
    assert!(none.code != Some(0) && none.stderr.contains("no cluster"), "{none:?}");
    let served = place.serve(15).await;
    let run = Api::new(served.base.clone()).start_run().await;
    let in_use = place.said(&words, 15).await;
    assert!(in_use.code != Some(0) && in_use.stderr.contains("stop"), "{in_use:?}");
    stop(served).await;
    let older = place.programs(15);
    let not_newer = place.said(&["upgrade", "--to", older.to_str().unwrap()], 15).await;
    assert!(not_newer.code != Some(0) && not_newer.stderr.contains("no newer one"), "{not_newer:?}");
    let served = place.serve(15).await;
    assert_eq!(Api::new(served.base.clone()).run(&run).await["last_seq"], 2);
    stop(served).await;
}
