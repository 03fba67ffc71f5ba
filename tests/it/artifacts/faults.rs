//! Uploads that are cut, killed or have no room; a store that somebody else has been at.

use std::path::Path;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Command,
};

use super::hash;
use crate::support::{
    api::Api,
    artifacts::files,
    cluster::Db,
    patiently,
    process::{Served, program, run, serve},
    runs::parsed,
    server::Server,
    until,
};

/// Begins an upload of `length` bytes and sends these of them.
async fn begin(api: &Api, run: &str, length: usize, bytes: &[u8]) -> TcpStream {
    let authority = api.base.trim_start_matches("http://");
    let mut connection = TcpStream::connect(authority).await.unwrap();
    let head = format!(
        "POST /api/runs/{run}/artifacts?name=cut HTTP/1.1\r\nhost: {authority}\r\ncontent-length: {length}\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await.unwrap();
    connection.write_all(bytes).await.unwrap();
    connection
}

fn bytes_on_disk(folder: &Path) -> u64 {
    files(folder).iter().filter_map(|file| file.metadata().ok()).map(|meta| meta.len()).sum()
}

#[tokio::test]
async fn an_upload_that_is_cut_leaves_nothing() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let folder = server.db.artifacts.path();
    for sent in [0, 1, 3 * 1024 * 1024] {
        let connection = begin(&server.api, &run, 8 * 1024 * 1024, &vec![7; sent]).await;
        until("an upload to be under way", || async { files(folder).len() == 1 }).await;
        drop(connection);
        until("it to be gone", || async { files(folder).is_empty() }).await;
    }
    assert_eq!(server.run(&run).await["last_seq"], 2);
    assert_eq!(server.db.number("select count(*) from store.content").await, 0);
    assert_eq!(server.artifacts(&run).await, Vec::<Value>::new());
}

#[tokio::test]
async fn an_upload_over_its_bound_is_refused_before_it_comes() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let mut connection = begin(&server.api, &run, 1024 * 1024 * 1024 + 1, b"x").await;
    let mut answer = vec![0; 12];
    patiently("a refusal", connection.read_exact(&mut answer)).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    assert!(files(server.db.artifacts.path()).is_empty());
}

fn on(db: &Db) -> Command {
    let dir = db.artifacts.path().display().to_string();
    program(&["serve", "--listen", "127.0.0.1:0", "--database-url", &db.url(), "--artifacts-dir", &dir])
}

async fn kill(mut served: Served) {
    served.child.start_kill().unwrap();
    patiently("the end of the server", served.child.wait()).await.unwrap();
}

#[tokio::test]
async fn a_server_that_is_killed_during_an_upload_leaves_no_pointer_to_it() {
    let db = Db::new().await;
    let served = serve(on(&db)).await;
    let api = Api::new(served.base.clone());
    let run = api.start_run().await;
    let kept = api.upload(&run, "kept", "kept").await;
    let _upload = begin(&api, &run, 8 * 1024 * 1024, &vec![7; 4 * 1024 * 1024]).await;
    until("the bytes to come", || async { bytes_on_disk(db.artifacts.path()) > 1024 * 1024 }).await;
    kill(served).await;
    let served = serve(on(&db)).await;
    let api = Api::new(served.base.clone());
    assert_eq!(api.artifacts(&run).await.len(), 1);
    assert_eq!(api.bytes_of(&kept).await, b"kept");
    assert_eq!(api.run(&run).await["last_seq"], 3);
}

#[tokio::test]
async fn whatever_moment_a_server_is_killed_at_every_pointer_has_its_bytes() {
    let db = Db::new().await;
    let mut served = serve(on(&db)).await;
    let run = Api::new(served.base.clone()).start_run().await;
    let mut acknowledged = Vec::new();
    for round in 0..4usize {
        let api = Api::new(served.base.clone());
        let (sender, mut acks) = tokio::sync::mpsc::unbounded_channel();
        let writers = (0..6).map(|writer| {
            let (api, run, sender) = (api.clone(), run.clone(), sender.clone());
            tokio::spawn(async move {
                for n in 0.. {
                    let bytes = format!("{round} {writer} {n} ").repeat(20_000);
                    let large = json!({ "type": "custom.x", "payload": bytes });
                    let path = format!("/api/runs/{run}/artifacts?name=n");
                    let request = match n % 2 {
                        0 => api.request(reqwest::Method::POST, &path).body(bytes.clone()),
                        _ => api.request(reqwest::Method::POST, &format!("/api/runs/{run}/events")).json(&large),
                    };
                    let Ok(response) = request.send().await else { return };
                    if response.status().is_success() && n % 2 == 0 {
                        let _ = sender.send(hash(bytes.as_bytes()));
                    }
                }
            })
        });
        let writers: Vec<_> = writers.collect();
        for _ in 0..10 + 7 * round {
            acknowledged.push(patiently("an upload", acks.recv()).await.unwrap());
        }
        kill(served).await;
        patiently("the writers to notice", futures::future::join_all(writers)).await;
        while let Ok(ack) = acks.try_recv() {
            acknowledged.push(ack);
        }
        served = serve(on(&db)).await;
    }
    let api = Api::new(served.base.clone());
    let mut pointers = 0;
    for event in api.events(&run).await.iter().map(parsed) {
        let payload = &event["payload"];
        let pointer = if payload["$artifact"].is_object() { &payload["$artifact"] } else { payload };
        if pointer["artifact_id"].is_string() {
            assert_eq!(hash(&api.bytes_of(pointer).await), pointer["sha256"].as_str().unwrap());
            acknowledged.retain(|ack| *ack != pointer["sha256"]);
            pointers += 1;
        }
    }
    assert!(pointers > 40 && acknowledged.is_empty(), "{pointers} pointers, lost {acknowledged:?}");
}

#[tokio::test]
async fn a_disk_without_room_is_told_and_keeps_nothing_half() {
    let db = Db::new().await;
    // A limit on the size of files stands in for a full disk: 2 MiB, in blocks of 512 bytes.
    let limited = "trap '' XFSZ; ulimit -f 4096; exec \"$0\" \"$@\"";
    let program = on(&db);
    let mut command = Command::new("bash");
    command.arg("-c").arg(limited.replace("4096", "2048")).arg(program.as_std().get_program());
    command.args(program.as_std().get_args()).kill_on_drop(true).stdout(std::process::Stdio::piped());
    let served = serve(command).await;
    let api = Api::new(served.base.clone());
    let run = api.start_run().await;
    let kept = api.upload(&run, "fits", vec![1; 1024 * 1024]).await;
    api.try_upload(&run, "large", "", vec![2; 4 * 1024 * 1024]).await.refused(507, "storage_full");
    let large = json!([{ "type": "log.info" }, { "type": "custom.x", "payload": "y".repeat(4 * 1024 * 1024) }]);
    api.try_emit(&run, large).await.refused(507, "storage_full");
    assert_eq!(files(db.artifacts.path()).len(), 1);
    assert_eq!(api.run(&run).await["last_seq"], 3);
    assert_eq!(api.bytes_of(&kept).await.len(), 1024 * 1024);
    api.upload(&run, "fits again", "small").await;
}

#[tokio::test]
async fn a_link_or_a_pipe_that_somebody_planted_leads_nowhere() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let artifact = server.upload(&run, "a", "genuine").await;
    let url = artifact["url"].as_str().unwrap();
    let file = files(server.db.artifacts.path()).remove(0);
    let elsewhere = tempfile::tempdir().unwrap();
    let bait = elsewhere.path().join("bait");
    std::fs::write(&bait, "planted").unwrap();
    std::fs::remove_file(&file).unwrap();
    server.get(url).await.refused(500, "internal");
    std::os::unix::fs::symlink(&bait, &file).unwrap();
    let refusal = server.get(url).await;
    refusal.refused(500, "internal");
    assert!(!refusal.text.contains("planted") && !refusal.text.contains("sha256"), "{}", refusal.text);
    std::fs::remove_file(&file).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, &file, rustix::fs::Mode::RUSR).unwrap();
    server.get(url).await.refused(500, "internal");
    // A folder that leads elsewhere: nothing is read there and nothing written.
    let folder = file.parent().unwrap();
    std::fs::remove_dir_all(folder).unwrap();
    std::os::unix::fs::symlink(elsewhere.path(), folder).unwrap();
    std::fs::write(elsewhere.path().join(file.file_name().unwrap()), "genuine").unwrap();
    server.get(url).await.refused(503, "storage_unavailable");
    server.try_upload(&run, "b", "", "genuine").await.refused(503, "storage_unavailable");
    assert_eq!(files(elsewhere.path()).len(), 2);
    std::fs::remove_file(folder).unwrap();
    server.upload(&run, "c", "genuine").await;
    assert_eq!(server.bytes_of(&artifact).await, b"genuine", "the same bytes have healed it");
    assert_eq!(server.artifacts(&run).await.len(), 2);
}

#[tokio::test]
async fn a_store_that_cannot_be_used_is_told_at_the_start() {
    let db = Db::new().await;
    let taken = db.artifacts.path().join("file");
    std::fs::write(&taken, "").unwrap();
    for (flags, expected) in [
        (["--artifacts-dir", taken.to_str().unwrap()], "--artifacts-dir"),
        (["--artifact-store", "http://bucket"], "s3://bucket/prefix"),
        (["--artifact-store", "s3://bucket/../x"], "s3://bucket/prefix"),
    ] {
        let mut command = program(&["serve", "--listen", "127.0.0.1:0", "--database-url", &db.url()]);
        command.args(flags);
        let said = run(command, "").await;
        assert!(said.code != Some(0) && said.stderr.contains(expected), "{flags:?}: {said:?}");
    }
    let mut command = program(&["config", "--artifact-store", "s3://b/p"]);
    command.env("RUNREEL_S3_ACCESS_KEY_ID", "AKIDSECRET").env("RUNREEL_S3_SECRET_ACCESS_KEY", "SECRETSECRET");
    command.env("RUNREEL_S3_ENDPOINT", "http://me:SECRETSECRET@127.0.0.1:9000");
    let said = run(command, "").await;
    assert!(said.stdout.contains("s3://b/p") && said.stdout.contains("RUNREEL_S3_REGION"), "{said:?}");
    assert!(
        !said.stdout.contains("SECRET,")
            && !said.stdout.contains("AKIDSECRET")
            && !said.stdout.contains("SECRETSECRET"),
        "{said:?}"
    );
}
