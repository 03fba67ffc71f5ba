use super::*;

fn names() -> (OwnerId, ThreadId) {
    (OwnerId::trusted("0f"), "web_Ann".parse().unwrap())
}

/// The lines after the first, which states whose log it is.
fn text(folder: &tempfile::TempDir) -> Option<String> {
    let text = std::fs::read_to_string(path(folder)).ok()?;
    let (whose, lines) = text.split_once('\n').unwrap();
    let whose: serde_json::Value = serde_json::from_str(whose).unwrap();
    assert_eq!((&whose["log_of"], &whose["owner_id"]), (&"web_Ann".into(), &"0f".into()));
    assert!(whose["server"].is_string());
    Some(lines.to_owned())
}

fn path(folder: &tempfile::TempDir) -> PathBuf {
    folder.path().join("logs/0f").join(log_file_name(&names().1))
}

fn new() -> (tempfile::TempDir, SessionLog) {
    let folder = tempfile::tempdir().unwrap();
    let log = SessionLog::new(folder.path().join("logs"));
    (folder, log)
}

#[tokio::test]
async fn lines_stand_in_the_order_they_came() {
    let (folder, log) = new();
    let (owner, thread) = names();
    assert_eq!(text(&folder), None);
    for line in ["one\n", "two\n", "two\n"] {
        log.append(&owner, &thread, line.to_owned(), false).await.unwrap();
    }
    assert_eq!(text(&folder).unwrap(), "one\ntwo\ntwo\n");
}

#[tokio::test]
async fn what_a_crash_left_of_a_line_goes_with_the_next() {
    let (folder, log) = new();
    let (owner, thread) = names();
    log.append(&owner, &thread, "one\n".to_owned(), false).await.unwrap();
    let torn = "x".repeat(200_000);
    let whole = std::fs::read_to_string(path(&folder)).unwrap();
    std::fs::write(path(&folder), format!("{whole}{torn}")).unwrap();
    log.append(&owner, &thread, "two\n".to_owned(), false).await.unwrap();
    assert_eq!(text(&folder).unwrap(), "one\ntwo\n");
    std::fs::write(path(&folder), "torn from the first byte on").unwrap();
    log.append(&owner, &thread, "one\n".to_owned(), true).await.unwrap();
    assert_eq!(text(&folder).unwrap(), "one\n");
}

#[tokio::test]
async fn a_line_that_is_tried_again_stands_once() {
    let (folder, log) = new();
    let (owner, thread) = names();
    for line in ["one\n", "two\n", "one\n", "on\n"] {
        log.append(&owner, &thread, line.to_owned(), true).await.unwrap();
    }
    assert_eq!(text(&folder).unwrap(), "one\ntwo\non\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn many_writers_tear_no_line() {
    let (folder, _) = new();
    let (owner, thread) = names();
    // As other processes do: each with its own handle.
    let writers = (0..8).map(|writer| {
        let (log, owner, thread) = (SessionLog::new(folder.path().join("logs")), owner.clone(), thread.clone());
        async move {
            for n in 0..20 {
                let line = format!("{writer} {n} {}\n", "y".repeat(5_000));
                log.append(&owner, &thread, line, false).await.unwrap();
            }
        }
    });
    futures::future::join_all(writers).await;
    let text = text(&folder).unwrap();
    assert_eq!(text.lines().count(), 160);
    for writer in 0..8 {
        let numbers: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(&format!("{writer} ")) && line.ends_with(&"y".repeat(5_000)))
            .map(|line| line.split(' ').nth(1).unwrap())
            .collect();
        let expected: Vec<String> = (0..20).map(|n| n.to_string()).collect();
        assert_eq!(numbers, expected);
    }
}
