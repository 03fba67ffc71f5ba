//! Imports keep out of the way of others, and a pipe is read no further than it makes sense.

use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::world::{Pair, check, command, file_of, lines_of, piece, says};
use crate::support::{patiently, process::program, runs::new_run_id, server::setup};

#[tokio::test]
async fn imports_wait_for_their_turn_and_emits_do_not() {
    let server = setup().jwt().start().await;
    let (mine, theirs) = (server.as_subject("a"), server.as_subject("b"));
    let owner = server.inner.authenticator.owner("", "a");
    let place = server.inner.imports.try_take(&owner, 1).unwrap();
    let (run, other, live) = (new_run_id(), new_run_id(), mine.start_run().await);
    let body = piece(&lines_of(&run, 3));
    let refusal = mine.import_text(&run, body.clone()).await;
    refusal.refused(429, "busy");
    assert_eq!(refusal.headers["retry-after"], "1");
    mine.emit(&live, json!({ "type": "log.info" })).await;
    theirs.import_text(&other, piece(&lines_of(&other, 3))).await.expect(201);
    drop(place);
    mine.import_text(&run, body).await.expect(201);
    assert!(server.inner.imports.try_take(&owner, 1).is_ok(), "each gives its place back");
}

#[tokio::test]
async fn a_pipe_is_left_at_the_first_wrong_line() {
    let pair = Pair::start().await;
    let whole = file_of(&[lines_of(&new_run_id(), 2_000)]);
    let wrong = whole.replacen("\"seq\":9,", "\"seq\":10,", 1);
    for (text, why) in [
        (wrong.as_str(), "line 11: expected seq 9 here"),
        (&"nonsense ".repeat(100), "not an export"),
        (&format!("{}{}", "x".repeat(257), "ustar ".repeat(100)), "does not begin with log.ndjson"),
    ] {
        let mut command = program(&["import", "-"]);
        command.env("RUNREEL_URL", &pair.to.base).stdin(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        // The pipe stays open behind it, so only what was read so far can have ended the command.
        let _ = input.write_all(text.as_bytes()).await;
        let said = patiently("the command", child.wait_with_output()).await.unwrap();
        let stderr = String::from_utf8(said.stderr).unwrap();
        assert!(said.status.code() == Some(1) && stderr.contains(why), "{stderr}");
        assert!(!stderr.contains("imported"), "{stderr}");
        drop(input);
    }
    let said = command(&pair.to, &["import", "--pipe-max", "1000"], &whole).await;
    check(&said, 1);
    says(&said, "--pipe-max");
    assert_eq!(pair.to.db.number("select count(*) from store.run").await, 0);
    check(&command(&pair.to, &["import"], &whole).await, 0);
}
