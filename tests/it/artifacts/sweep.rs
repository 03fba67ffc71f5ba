//! What is nobody's goes, what is somebody's stays, whoever passes whom.

use std::{path::PathBuf, time::Duration};

use runreel::{
    artifacts::sweep::SweepResult,
    domain::{artifact::Hash, principal::OwnerId},
    store::{Store, artifacts::Artifact},
};
use serde_json::json;
use sqlx::Connection as _;

use super::hash;
use crate::support::{
    artifacts::{files, hashes},
    cluster::{Db, execute},
    patiently,
    server::{Server, manual_clock, setup},
};

const LONG: Duration = Duration::from_hours(2);

async fn start() -> Server {
    setup().clock(&manual_clock()).start().await
}

fn store(server: &Server) -> &Store {
    server.inner.timeline.store()
}

async fn sweep(server: &Server) -> SweepResult {
    patiently("a sweep", server.inner.timeline.artifacts().sweep()).await.unwrap()
}

fn digest(bytes: &[u8]) -> Hash {
    hash(bytes).parse().unwrap()
}

/// Where a content lies.
fn file(server: &Server, bytes: &[u8]) -> PathBuf {
    let name = hash(bytes);
    files(server.db.artifacts.path()).into_iter().find(|path| path.ends_with(&name)).unwrap()
}

#[tokio::test]
async fn bytes_go_with_the_last_run_that_has_them_and_not_before_their_time() {
    let server = start().await;
    let (first, second) = (server.start_run().await, server.start_run().await);
    let shared = server.upload(&first, "a", "shared").await;
    server.upload(&first, "b", "alone").await;
    let kept = server.upload(&second, "c", "shared").await;
    for run in [&first, &second] {
        server.complete(run).await;
    }
    server.pass(LONG);
    assert_eq!(sweep(&server).await, SweepResult::default());
    server.delete(&format!("/api/runs/{first}")).await.expect(204);
    server.get(shared["url"].as_str().unwrap()).await.refused(404, "not_found");
    server.get(&format!("/api/runs/{first}/artifacts")).await.refused(404, "not_found");
    assert_eq!(hashes(server.db.artifacts.path()).len(), 2, "nothing goes at once");
    server.pass(LONG);
    assert_eq!(sweep(&server).await.contents, 1);
    assert_eq!(hashes(server.db.artifacts.path()), [hash(b"shared")]);
    assert_eq!(server.bytes_of(&kept).await, b"shared");
    server.delete(&format!("/api/runs/{second}")).await.expect(204);
    server.pass(LONG);
    assert_eq!(sweep(&server).await.contents, 1);
    assert_eq!(files(server.db.artifacts.path()), Vec::<PathBuf>::new());
    assert_eq!(server.db.number("select count(*) from store.content").await, 0);
}

#[tokio::test]
async fn an_upload_waits_for_the_removal_of_the_same_bytes_and_brings_them_anew() {
    let server = start().await;
    let old = server.ended_run(0).await;
    let run = server.start_run().await;
    server.upload(&run, "first", "bytes").await;
    execute(&mut server.db.connect().await, "delete from store.artifact".to_owned()).await;
    server.pass(LONG);
    let before = server.clock.now() - chrono::TimeDelta::hours(1);
    let seized =
        store(&server).artifacts().seize_content(digest(b"bytes"), before).await.unwrap().expect("it is loose");
    assert!(
        store(&server).artifacts().seize_content(digest(b"bytes"), before).await.unwrap().is_none(),
        "one at a time"
    );
    // It may last longer than a transaction may otherwise stand idle.
    assert_eq!(server.db.number("select count(*) from pg_sleep(2.5)").await, 1);
    let idle = "select count(*) from pg_stat_activity where datname = current_database()
        and state = 'idle in transaction' and query like '%store.content%'";
    assert_eq!(server.db.number(idle).await, 1);
    let upload = server.upload(&run, "second", "bytes");
    let removal = async {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database()
            and wait_event_type = 'Lock' and query like '%insert into store.content%'";
        server.db.until_number("the upload to wait", waiting, 1).await;
        std::fs::remove_file(file(&server, b"bytes")).unwrap();
        seized.gone().await.unwrap();
    };
    let (artifact, ()) = tokio::join!(upload, removal);
    assert_eq!(server.bytes_of(&artifact).await, b"bytes");
    server.delete(&format!("/api/runs/{old}")).await.expect(204);
}

#[tokio::test]
async fn a_removal_passes_over_bytes_that_an_upload_has_claimed_or_is_inserting() {
    let server = start().await;
    let run = server.start_run().await;
    server.upload(&run, "a", "bytes").await;
    let mut connection = server.db.connect().await;
    execute(&mut connection, "create table copy as table store.artifact; delete from store.artifact".to_owned()).await;
    server.pass(LONG);
    // Claimed a moment ago.
    let (owner, content) = (OwnerId::trusted("a"), [(digest(b"bytes"), 5)]);
    store(&server).artifacts().claim_content(&owner, &content, server.clock.now()).await.unwrap();
    assert_eq!(sweep(&server).await.contents, 0);
    // Claimed long ago, and inserted at this moment.
    server.pass(LONG);
    let mut tx = connection.begin().await.unwrap();
    sqlx::raw_sql("insert into store.artifact select * from copy").execute(&mut *tx).await.unwrap();
    assert_eq!(sweep(&server).await.contents, 0, "its row is held by the insert");
    tx.commit().await.unwrap();
    assert_eq!(sweep(&server).await.contents, 0, "an artifact has it");
    assert_eq!(server.db.number("select count(*) from store.content where loose_since is null").await, 1);
    assert_eq!(hashes(server.db.artifacts.path()), [hash(b"bytes")]);
}

fn artifact(server: &Server, run: &str, event: &str, bytes: &[u8]) -> Artifact {
    Artifact {
        artifact_id: server.inner.timeline.artifacts().new_id(),
        run_id: run.parse().unwrap(),
        event_id: event.parse().unwrap(),
        name: "a".parse().unwrap(),
        media_type: "text/plain".parse().unwrap(),
        size: bytes.len() as u64,
        sha256: digest(bytes),
        created_at: server.clock.now(),
    }
}

#[tokio::test]
async fn an_artifact_is_not_inserted_once_its_bytes_are_gone() {
    let server = start().await;
    let run = server.start_run().await;
    let owner = server.run(&run).await["owner_id"].as_str().map(OwnerId::trusted).unwrap();
    let late = artifact(&server, &run, "e", b"late");
    assert!(!store(&server).artifacts().insert(&owner, std::slice::from_ref(&late)).await.unwrap());
    assert_eq!(server.db.number("select count(*) from store.artifact").await, 0);
}

#[tokio::test]
async fn an_artifact_whose_event_never_came_goes_when_it_is_old() {
    let server = start().await;
    let run = server.start_run().await;
    let owner = server.run(&run).await["owner_id"].as_str().map(OwnerId::trusted).unwrap();
    server.upload(&run, "told", "told").await;
    server.emit(&run, json!({ "type": "log.info", "event_id": "another" })).await;
    // As a server leaves them that dies between the insert and the emit, and one whose repeat found an earlier event.
    for event in ["never", "another"] {
        let content = [(digest(b"untold"), 6)];
        store(&server).artifacts().claim_content(&owner, &content, server.clock.now()).await.unwrap();
        let untold = [artifact(&server, &run, event, b"untold")];
        assert!(store(&server).artifacts().insert(&owner, &untold).await.unwrap());
    }
    assert_eq!(server.artifacts(&run).await.len(), 1, "only what the log tells of is listed");
    assert_eq!(server.db.number("select count(*) from runreel.artifacts").await, 1);
    assert_eq!(sweep(&server).await, SweepResult::default());
    server.pass(LONG);
    // The database's clock was not moved, so the bytes became loose two hours ago by the server's.
    assert_eq!(sweep(&server).await, SweepResult { artifacts: 2, contents: 1, uploads: 0 });
    assert_eq!(server.bytes_of(&server.artifacts(&run).await[0]).await, b"told");
}

#[tokio::test]
async fn unfinished_uploads_and_unknown_bytes_go_when_they_are_old() {
    let server = start().await;
    let run = server.start_run().await;
    server.upload(&run, "known", "known").await;
    let content = file(&server, b"known");
    let home = content.ancestors().nth(3).unwrap().to_owned();
    std::fs::write(home.join("tmp/0198"), "half of").unwrap();
    let unknown = hash(b"unknown");
    std::fs::create_dir_all(home.join("sha256").join(&unknown[..2])).unwrap();
    let unknown = home.join("sha256").join(&unknown[..2]).join(&unknown);
    std::fs::write(&unknown, "unknown").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", home.join("tmp/link")).unwrap();
    let artifacts = server.inner.timeline.artifacts();
    assert_eq!(artifacts.audit().await.unwrap(), 1);
    assert_eq!(artifacts.audit().await.unwrap(), 0, "it is known now");
    assert_eq!(sweep(&server).await, SweepResult::default());
    server.pass(LONG);
    assert_eq!(sweep(&server).await, SweepResult { artifacts: 0, contents: 1, uploads: 1 });
    assert!(content.exists() && !unknown.exists() && !home.join("tmp/0198").exists());
    assert!(home.join("tmp/link").is_symlink(), "what is not ours is left alone");
}

#[tokio::test]
async fn two_servers_sweep_at_once_and_each_thing_goes_once() {
    let (db, clock) = (Db::new().await, manual_clock());
    let (a, b) = (setup().on(&db).clock(&clock).start().await, setup().on(&db).clock(&clock).start().await);
    let run = a.start_run().await;
    for n in 0..20 {
        b.upload(&run, "n", format!("content {n}")).await;
    }
    a.complete(&run).await;
    b.delete(&format!("/api/runs/{run}")).await.expect(204);
    let other = b.start_run().await;
    a.pass(LONG);
    let uploads =
        futures::future::join_all((0..10).map(async |n| b.upload(&other, "again", format!("content {n}")).await));
    let (one, two, again) = tokio::join!(sweep(&a), sweep(&b), uploads);
    assert!((10..=20).contains(&(one.contents + two.contents)), "{one:?} {two:?}");
    for (n, artifact) in again.iter().enumerate() {
        assert_eq!(a.bytes_of(artifact).await, format!("content {n}").into_bytes());
    }
    sweep(&a).await;
    assert_eq!(hashes(db.artifacts.path()).len(), 10);
}
