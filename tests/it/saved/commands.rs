//! `runreel session`, as a person or a script calls it.

use serde_json::{Value, json};

use super::{Ground, foreign};
use crate::support::{
    process::{Said, program, run},
    server::Server,
};

async fn session(server: &Server, words: &[&str]) -> Said {
    let mut command = program(&[&["session"], words].concat());
    command.env("RUNREEL_URL", &server.base);
    run(command, "").await
}

/// The command's stdout, provided that it did what it was asked for.
async fn done(server: &Server, words: &[&str]) -> String {
    let said = session(server, words).await;
    assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
    said.stdout
}

#[tokio::test]
async fn a_session_goes_from_a_thread_to_a_file_and_back_by_commands() {
    let ground = Ground::new();
    let server = ground.server().await;
    let said = session(&server, &["list"]).await;
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (Some(0), "", "no saved sessions\n"));
    let talk = server.create(json!({ "thread_id": "t" })).await;
    let told = json!([
        { "type": "message.completed", "payload": { "role": "user", "content": "find it \u{1b}[2Jnow" } },
        { "type": "tool.started", "span_id": "c", "payload": { "name": "search", "args": { "q": 1 } } },
        { "type": "message.completed", "payload": { "role": "assistant", "content": [{ "type": "text", "text": "found" }] } },
    ]);
    server.emit(&talk, told).await;
    server.put_checkpoint("t", "1", json!({ "checkpoint": foreign() })).await;
    let said = session(&server, &["save", "trip", "--thread", "t", "--description", "a plan"]).await;
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("fallback") && said.stderr.contains("2 messages"), "{}", said.stderr);
    let listed = done(&server, &["list"]).await;
    assert!(listed.contains("trip") && listed.contains("a plan") && listed.contains("messages"), "{listed}");
    let row: Value = serde_json::from_str(&done(&server, &["list", "--json"]).await).unwrap();
    assert_eq!((&row["name"], &row["message_count"], &row["fallback"]), (&json!("trip"), &json!(2), &json!(true)));
    let shown = done(&server, &["show", "trip"]).await;
    assert!(shown.contains("\nuser\n  find it now\n\nassistant\n  found\n  → search {\"q\":1}\n"), "{shown}");
    let markdown = done(&server, &["export", "trip", "--format", "markdown"]).await;
    assert!(markdown.starts_with("# trip\n\na plan\n") && !markdown.contains('\u{1b}'), "{markdown}");

    let file = ground.dir.path().join("elsewhere.json");
    let exported = done(&server, &["export", "trip"]).await;
    assert_eq!(exported, std::fs::read_to_string(ground.file("trip.json")).unwrap());
    done(&server, &["export", "trip", "-o", file.to_str().unwrap()]).await;
    assert_eq!(exported, std::fs::read_to_string(&file).unwrap());
    std::fs::write(&file, "mine").unwrap();
    let said = session(&server, &["export", "trip", "-o", file.to_str().unwrap()]).await;
    assert!(said.code == Some(1) && said.stderr.contains("already exists") && said.stderr.contains("--force"));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
    done(&server, &["export", "trip", "--force", "-o", file.to_str().unwrap()]).await;
    assert_eq!(exported, std::fs::read_to_string(&file).unwrap());
    let thread = done(&server, &["restore", "trip"]).await;
    assert!(thread.starts_with("trip-") && thread.ends_with('\n') && thread.lines().count() == 1, "{thread}");
    assert!(server.thread(thread.trim()).await["latest_checkpoint_id"].is_string());
    assert_eq!(done(&server, &["restore", "trip", "--thread", "u"]).await, "u\n");
    done(&server, &["delete", "trip"]).await;
    assert_eq!(session(&server, &["show", "trip"]).await.code, Some(4));
    done(&server, &["import", file.to_str().unwrap()]).await;
    assert_eq!(done(&server, &["export", "trip"]).await, exported);
    done(&server, &["import", file.to_str().unwrap(), "--name", "trip-2"]).await;
    assert!(done(&server, &["export", "trip-2"]).await.contains("\"name\": \"trip-2\""));
}

#[tokio::test]
async fn what_was_saved_with_nothing_in_it_is_told_and_so_is_how_to_go_on() {
    let ground = Ground::new();
    let server = ground.setup("[channels.web]\n").start().await;
    server.create(json!({ "thread_id": "t" })).await;
    let said = session(&server, &["save", "trip", "--thread", "t"]).await;
    assert!(said.stderr.contains("0 messages") && said.stderr.contains("warning: trip is empty"), "{}", said.stderr);
    let said = session(&server, &["restore", "trip"]).await;
    assert!(said.stderr.contains("POST /api/runs") && said.stderr.contains("\"start\":false"), "{}", said.stderr);
    let said = session(&server, &["restore", "trip", "--thread", "web_5"]).await;
    assert!(said.stdout == "web_5\n" && said.stderr.contains("runreel chat"), "{}", said.stderr);
    let said = session(&server, &["save", "TRIP", "--thread", "t"]).await;
    assert!(said.code == Some(1) && said.stderr.contains("a session named trip exists"), "{}", said.stderr);
}

#[tokio::test]
async fn what_goes_wrong_is_told_with_its_place_and_its_exit_code() {
    let ground = Ground::new();
    let server = ground.server().await;
    for (words, code) in [
        (["restore", "trip"].as_slice(), 4),
        (&["delete", "trip"], 4),
        (&["save", "trip", "--thread", "none"], 4),
        (&["show", "../trip"], 2),
        (&["save", "trip", "--thread", "a b"], 2),
        (&["import", "/nowhere/at-all.json"], 1),
    ] {
        let said = session(&server, words).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(code), ""), "{words:?}: {}", said.stderr);
    }
    let file = ground.dir.path().join("trip.json");
    std::fs::write(&file, "{\n  \"thread\": {\n    \"messages\": [,]\n  }\n}\n").unwrap();
    let said = session(&server, &["import", file.to_str().unwrap()]).await;
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("trip.json: line 3, column "), "{}", said.stderr);
    std::fs::create_dir_all(ground.folder()).unwrap();
    std::fs::copy(&file, ground.file("trip.json")).unwrap();
    let said = session(&server, &["list"]).await;
    assert!(said.stderr.contains("trip cannot be read: line 3, column "), "{}", said.stderr);
    let said = session(&server, &["restore", "trip"]).await;
    assert_eq!(said.code, Some(1));
    assert!(said.stderr.contains("line 3") && said.stderr.contains("unreadable_session"), "{}", said.stderr);
}
