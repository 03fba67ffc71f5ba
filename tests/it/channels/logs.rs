//! Logs of conversations: whole on every server, and a file for people beside.

use std::{os::unix::fs::PermissionsExt as _, path::Path, sync::Arc};

use serde_json::{Value, json};

use super::{WEB, accepted, answer, id, log};
use crate::support::{cluster::Db, runs::parsed, server::setup, until};

/// The only file below a folder.
fn file_below(folder: &Path) -> String {
    let mut path = folder.to_owned();
    while path.is_dir() {
        path = std::fs::read_dir(&path).unwrap().next().unwrap().unwrap().path();
    }
    std::fs::read_to_string(path).unwrap()
}

#[tokio::test]
async fn the_log_of_a_session_is_the_same_on_two_servers_that_share_no_folder() {
    let db = Db::new().await;
    let folder = tempfile::tempdir().unwrap();
    let here = setup().on(&db).config(WEB).start().await;
    let there = setup().on(&Arc::clone(&db)).config(WEB).flags(&["--data-dir", folder.path().to_str().unwrap()]);
    let there = there.start().await;
    let first = accepted(&here, "one").await;
    let session = id(&first, "session_id");
    answer(&here, &id(&first, "run_id"), "first").await;
    until("the answer", || async { log(&here, &session).await.len() == 2 }).await;
    accepted(&there, "two").await;
    let said: Vec<Value> = log(&here, &session).await.into_iter().map(|(_, content)| content).collect();
    assert_eq!(said, ["one", "first", "two"]);
    assert_eq!(log(&there, &session).await, log(&here, &session).await);

    // It names the owners' conversations.
    let mode = std::fs::metadata(folder.path().join("sessions-log")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    // The file of each tells what it took, and its first line whose it is. Either may have given the answer.
    let lines: Vec<Value> = file_below(&folder.path().join("sessions-log")).lines().map(|line| parsed(&line)).collect();
    assert_eq!(lines[0]["log_of"], first["thread_id"]);
    assert!(lines[0]["server"].as_str().is_some_and(|server| !server.is_empty()), "{}", lines[0]);
    assert_eq!(lines.last().unwrap()["content"], "two");
    assert!(lines.iter().all(|line| line["content"] != "one"), "{lines:?}");
}

#[tokio::test]
async fn a_session_is_looked_at_by_its_id() {
    let server = setup().jwt().config(WEB).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let said = accepted(&alice, "hello").await;
    let path = format!("/api/sessions/{}", id(&said, "session_id"));
    let session = alice.get(&path).await.expect(200);
    assert_eq!(alice.get("/api/sessions").await.expect(200)["sessions"], json!([session]));
    assert_eq!(session["thread_id"], said["thread_id"]);
    bob.get(&path).await.refused(404, "not_found");
    alice.get("/api/sessions/nobody").await.refused(404, "not_found");
}
