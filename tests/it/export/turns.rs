//! Imports keep out of the way of others, and a pipe is read no further than it makes sense.

use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::world::{Pair, check, command, file_of, lines_of, piece, says};
use crate::support::{patiently, process::program, runs::new_run_id, server::Server};

#[tokio::test]
async fn imports_wait_for_their_turn_and_emits_do_not() {
    let server = Server::start().await;
    let places = server.inner.imports.available_permits();
    let all = server.inner.imports.acquire_many(u32::try_from(places).unwrap()).await.unwrap();
    let (run, live) = (new_run_id(), server.start_run().await);
    let body = piece(&lines_of(&run, 3));
    server.import_text(&run, body.clone()).await.refused(429, "busy");
    server.emit(&live, json!({ "type": "log.info" })).await;
    drop(all);
    server.import_text(&run, body).await.expect(201);
    assert_eq!(server.inner.imports.available_permits(), places, "each gives its place back");
}

#[tokio::test]
async fn a_pipe_is_left_at_the_first_wrong_line() {
    let pair = Pair::start().await;
    let whole = file_of(&[lines_of(&new_run_id(), 2_000)]);
    let wrong = whole.replacen("\"seq\":9,", "\"seq\":10,", 1);
    for (text, why) in [
        (wrong.as_str(), "line 11: the seq 9 is wanted here"),
        (&"nonsense ".repeat(100), "this is no export"),
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
