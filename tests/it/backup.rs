//! A backup of a server's data directory under load, and what the server that is restored from it tells readers.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use serde_json::json;
use tokio::process::Command;

use crate::support::{
    api::{Api, stream_of},
    page::task,
    patiently,
    process::{Said, Served, program, run, serve},
    runs::{assert_contiguous, numbered, seqs},
    sse::envelopes,
    until,
};

const LATEST: &str = "/api/threads/t/checkpoints/latest";

/// Data directories, and files beside them.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Postgres has a user of its own when we are root.
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
        Self(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A command here, where no folder has the name of one that the server uses.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = program(words);
        command.current_dir(self.0.path());
        command
    }

    async fn serve(&self, data: &str) -> (Served, Api) {
        self.serve_in("", data).await
    }

    async fn serve_in(&self, working_directory: &str, data: &str) -> (Served, Api) {
        let mut command = self.command(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &self.text(data)]);
        command.current_dir(self.path(working_directory));
        let served = serve(command).await;
        let api = Api::new(served.base.clone());
        until("the server to be ready", || async { api.get("/readyz").await.status == 200 }).await;
        (served, api)
    }

    async fn backup(&self, data: &str, file: &str) -> Said {
        run(self.command(&["backup", &self.text(file), "--data-dir", &self.text(data)]), "").await
    }

    async fn restore(&self, file: &str, data: &str) -> Said {
        run(program(&["restore", &self.text(file), "--data-dir", &self.text(data)]), "").await
    }
}

impl Drop for Place {
    /// A test that failed leaves none of its clusters running.
    fn drop(&mut self) {
        for data in fs::read_dir(self.0.path()).unwrap().flatten() {
            let pidfile = data.path().join("postgres/postmaster.pid");
            let pid = fs::read_to_string(pidfile).ok().and_then(|text| text.lines().next()?.parse().ok());
            if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::QUIT);
            }
        }
    }
}

async fn stop(mut served: Served) {
    let pid = rustix::process::Pid::from_raw(served.child.id().unwrap().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(patiently("the shutdown", served.child.wait()).await.unwrap().code(), Some(0));
}

fn done(said: &Said) {
    assert_eq!(said.code, Some(0), "{}", said.stderr);
}

fn refused(said: &Said, with: &str) {
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains(with), "{}", said.stderr);
}

/// Emits one event after the other until it is told to stop; returns how many the server has acknowledged.
async fn writing(api: &Api, run: &str, stop: &AtomicBool) -> usize {
    let mut acknowledged = 0;
    while !stop.load(Ordering::Relaxed) {
        api.emit(run, numbered(acknowledged)).await;
        acknowledged += 1;
    }
    acknowledged
}

async fn last_seq(api: &Api, run: &str) -> i64 {
    api.get(&format!("/api/runs/{run}")).await.expect(200)["last_seq"].as_i64().unwrap()
}

async fn cursor_of(api: &Api, path: &str, seq: i64) -> String {
    let mut stream = api.stream(path).await;
    let frames = stream.durable(usize::try_from(seq).unwrap()).await;
    frames.last().unwrap().id.clone().unwrap()
}

#[tokio::test]
async fn a_backup_taken_under_load_has_all_that_was_acknowledged_before_and_misleads_no_reader() {
    let place = Place::new();
    let (served, api) = place.serve("data").await;
    let written = api.create(json!({})).await;
    let kept = api.create(json!({ "thread_id": "t" })).await;
    let artifact = api.upload(&kept, "a.txt", "bytes").await["artifact_id"].as_str().unwrap().to_owned();
    api.put_checkpoint("t", "1", json!({ "checkpoint": { "t": "x" } })).await;
    let checkpoint = api.get(LATEST).await.expect(200);
    for n in 0..50 {
        api.emit(&written, numbered(n)).await;
    }
    let before = last_seq(&api, &written).await;
    let is_over = AtomicBool::new(false);
    let during = async {
        let said = place.backup("data", "one.tar").await;
        is_over.store(true, Ordering::Relaxed);
        said
    };
    let (said, acknowledged) = tokio::join!(during, writing(&api, &written, &is_over));
    done(&said);
    assert!(acknowledged > 0, "nothing was emitted meanwhile");
    for n in 0..20 {
        api.emit(&written, numbered(n)).await;
    }
    let after = last_seq(&api, &written).await;
    let own = cursor_of(&api, &stream_of(&written), after).await;
    let of_all = cursor_of(&api, "/api/stream/runs", after).await;
    assert_eq!(fs::metadata(place.path("one.tar")).unwrap().permissions().mode() & 0o777, 0o600);
    stop(served).await;

    done(&place.restore("one.tar", "restored").await);
    let (served, restored) = place.serve("restored").await;
    let stands = last_seq(&restored, &written).await;
    assert!((before..after).contains(&stands), "{before} before, {after} after, {stands} restored");
    let frames = restored.stream(&stream_of(&written)).await.durable(usize::try_from(stands).unwrap()).await;
    assert_contiguous(&envelopes(&frames), stands);
    assert_eq!(restored.get(&format!("/api/artifacts/{artifact}")).await.text, "bytes");
    assert_eq!(restored.get(LATEST).await.expect(200), checkpoint);

    // Whoever has seen what is gone is told so, also after the log has outgrown it; whoever has not goes on.
    let misled = async || {
        restored.no_stream(&stream_of(&written), Some(&own)).await.refused(409, "cursor_ahead");
        restored.no_stream("/api/stream/runs", Some(&of_all)).await.refused(409, "cursor_ahead");
    };
    misled().await;
    for _ in stands..=after {
        restored.emit(&written, numbered(0)).await;
    }
    misled().await;
    let mut resumed = restored.stream_after(&stream_of(&written), Some(&before.to_string())).await;
    assert_eq!(seqs(&envelopes(&resumed.durable(3).await)), [before + 1, before + 2, before + 3]);
    stop(served).await;
}

#[tokio::test]
async fn a_backup_of_a_stopped_server_can_be_restored_twice_and_replaces_nothing() {
    let place = Place::new();
    let (served, api) = place.serve("data").await;
    let run = api.create(json!({ "title": "kept" })).await;
    stop(served).await;
    done(&place.backup("data", "one.tar").await);
    refused(&place.restore("one.tar", "data").await, "exists");
    done(&place.restore("one.tar", "a").await);
    done(&place.restore("one.tar", "b").await);
    refused(&place.restore("one.tar", "b").await, "exists");
    for data in ["a", "b"] {
        let (served, api) = place.serve(data).await;
        assert_eq!(api.get(&format!("/api/runs/{run}")).await.expect(200)["title"], "kept");
        stop(served).await;
    }
    // The restored one can be backed up and restored in its turn.
    done(&place.backup("a", "two.tar").await);
    done(&place.restore("two.tar", "c").await);
    let (served, api) = place.serve("c").await;
    assert_eq!(api.get(&format!("/api/runs/{run}")).await.expect(200)["title"], "kept");
    stop(served).await;
}

#[tokio::test]
async fn a_backup_that_was_cut_or_changed_is_refused_and_nothing_is_made_of_it() {
    let place = Place::new();
    stop(place.serve("data").await.0).await;
    done(&place.backup("data", "one.tar").await);
    let whole = fs::read(place.path("one.tar")).unwrap();
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    let changed = [
        ("cut in the middle", whole[..whole.len() / 2].to_vec()),
        ("cut at the end", whole[..whole.len() - 3000].to_vec()),
        ("a byte in the middle", flipped(whole.len() / 2)),
        ("a byte of a name", flipped(0)),
        ("empty", Vec::new()),
        ("no tar", vec![b'x'; 4096]),
    ];
    for (what, bytes) in changed {
        fs::write(place.path("bad.tar"), bytes).unwrap();
        let said = place.restore("bad.tar", "restored").await;
        assert_eq!(said.code, Some(1), "{what}: {}", said.stderr);
        assert!(said.stderr.contains("not a whole backup"), "{what}: {}", said.stderr);
        assert!(!place.path("restored").join("postgres").exists(), "{what}");
    }
    let said = run(program(&["restore", "--check", &place.text("one.tar")]), "").await;
    done(&said);
    assert!(said.stderr.contains("the backup is whole"), "{}", said.stderr);
}

#[tokio::test]
async fn artifacts_are_in_the_backup_wherever_they_are_or_it_is_refused() {
    let place = Place::new();
    let (served, api) = place.serve("data").await;
    let of = api.start_run().await;
    let id = api.upload(&of, "report.txt", "kept").await["artifact_id"].as_str().unwrap().to_owned();
    stop(served).await;
    let (here, elsewhere) = (place.path("data/artifacts"), place.path("elsewhere"));
    fs::rename(&here, &elsewhere).unwrap();
    let named = place.text("elsewhere");
    let backup = async |more: &[&str]| {
        let words = ["backup", &place.text("one.tar"), "--data-dir", &place.text("data")];
        run(place.command(&[&words[..], more].concat()), "").await
    };
    for (more, hint) in [(&[][..], "--without-artifacts"), (&["--artifacts-dir", "/nowhere"], "no folder")] {
        let said = backup(more).await;
        assert_eq!(said.code, Some(2), "{}", said.stderr);
        assert!(said.stderr.contains(hint) && !place.path("one.tar").exists(), "{}", said.stderr);
    }
    done(&backup(&["--without-artifacts"]).await);
    done(&backup(&["--artifacts-dir", &named]).await);
    done(&place.restore("one.tar", "a").await);
    std::os::unix::fs::symlink(&elsewhere, &here).unwrap();
    done(&backup(&[]).await);
    done(&place.restore("one.tar", "b").await);
    for data in ["a", "b"] {
        let (served, api) = place.serve(data).await;
        assert_eq!(api.get(&format!("/api/artifacts/{id}")).await.text, "kept", "{data}");
        stop(served).await;
    }
    // A link inside would be left out of the backup without a word.
    std::os::unix::fs::symlink("/etc/hostname", elsewhere.join("link")).unwrap();
    refused(&backup(&[]).await, "is a link");
}

#[tokio::test]
async fn a_server_and_a_backup_mean_the_same_folder_of_artifacts_wherever_they_are_started() {
    let place = Place::new();
    for folder in ["one/artifacts", "other/artifacts"] {
        fs::create_dir_all(place.path(folder)).unwrap();
    }
    let (served, api) = place.serve_in("one", "data").await;
    let of = api.start_run().await;
    let id = api.upload(&of, "report.txt", "kept").await["artifact_id"].as_str().unwrap().to_owned();
    stop(served).await;
    for from in ["other", ""] {
        let (served, api) = place.serve_in(from, "data").await;
        assert_eq!(api.get(&format!("/api/artifacts/{id}")).await.text, "kept", "{from}");
        stop(served).await;
    }
    done(&place.backup("data", "one.tar").await);
    done(&place.restore("one.tar", "restored").await);
    assert_eq!(fs::read_dir(place.path("other/artifacts")).unwrap().count(), 0);
    let (served, api) = place.serve("restored").await;
    assert_eq!(api.get(&format!("/api/artifacts/{id}")).await.text, "kept");
    stop(served).await;
    assert_eq!(fs::read_to_string(place.path("restored/artifacts.folder")).unwrap(), "artifacts\n");

    // A copy of the data directory has none of its original's folder, which its sweeps would empty.
    copied(&place.path("data"), &place.path("copy"));
    let (served, api) = place.serve("copy").await;
    assert_eq!(api.get(&format!("/api/artifacts/{id}")).await.status, 500);
    stop(served).await;
    assert_eq!(fs::read_to_string(place.path("copy/artifacts.folder")).unwrap(), "artifacts\n");
    // What was noted of a database that is gone is nothing to one that is restored in its place.
    fs::remove_dir_all(place.path("data/postgres")).unwrap();
    done(&place.restore("one.tar", "data").await);
    let (served, api) = place.serve_in("other", "data").await;
    assert_eq!(api.get(&format!("/api/artifacts/{id}")).await.text, "kept");
    stop(served).await;
}

fn copied(from: &Path, to: &Path) {
    let done = std::process::Command::new("cp").arg("-a").args([from, to]).status().unwrap();
    assert!(done.success());
}

#[tokio::test]
async fn a_restore_that_was_killed_while_it_gave_the_folders_their_names_is_repeated() {
    let place = Place::new();
    stop(place.serve("data").await.0).await;
    done(&place.backup("data", "one.tar").await);
    for folder in ["restored", "restored/restore", "restored/artifacts"] {
        fs::create_dir(place.path(folder)).unwrap();
    }
    // Not of a restore: it stays, and so does all else.
    refused(&place.restore("one.tar", "restored").await, "exists");
    assert!(place.path("restored/artifacts").exists());
    fs::write(place.path("restored/restore.moving"), "artifacts\nsessions\npostgres").unwrap();
    done(&place.restore("one.tar", "restored").await);
    assert!(!place.path("restored/restore.moving").exists());
    stop(place.serve("restored").await.0).await;
}

#[tokio::test]
async fn what_is_no_cluster_is_not_backed_up() {
    let place = Place::new();
    let said = place.backup("nothing", "one.tar").await;
    refused(&said, "there is no cluster");
    assert!(!place.path("one.tar").exists() && !Path::new(&place.path("nothing")).exists());
    let words = ["backup", &place.text("one.tar"), "--database-url", "postgres://x@localhost/x"];
    let said = run(program(&words), "").await;
    assert_eq!(said.code, Some(2), "{}", said.stderr);
    assert!(said.stderr.contains("pg_basebackup"), "{}", said.stderr);
    assert!(task("backup").contains("runreel restore"), "the page names the command");
}
