//! An import that is cut off leaves the beginning of a log, and goes on from there.

use super::world::{Pair, check, file_of, lines_of, says};
use crate::support::{
    process::program,
    runs::{assert_contiguous, new_run_id},
    until,
};

#[tokio::test]
async fn an_import_that_was_killed_goes_on_where_it_was() {
    let pair = Pair::start().await;
    let ids = [new_run_id(), new_run_id()];
    let text = file_of(&[lines_of(&ids[0], 20_000), lines_of(&ids[1], 10)]);
    let path = pair.path("large");
    std::fs::write(&path, &text).unwrap();
    let mut command = program(&["import", path.to_str().unwrap()]);
    command.env("RUNREEL_URL", &pair.to.base);
    let mut child = command.spawn().unwrap();
    until("a part of it has arrived", || async {
        pair.to.db.number("select coalesce(sum(last_seq), 0)::bigint from store.run").await >= 2_000
    })
    .await;
    child.kill().await.unwrap();
    let left = pair.to.db.number("select coalesce(sum(last_seq), 0)::bigint from store.run").await;
    assert!((2_000..20_012).contains(&left), "it was cut off in the middle: {left}");
    let said = pair.import("large", &[]).await;
    check(&said, 0);
    says(&said, "0 runs already present");
    assert_eq!(pair.export(&pair.to, "copy", &["--all"]).await, text.into_bytes());
    assert_contiguous(&pair.to.events(&ids[0]).await, 20_002);
}

#[tokio::test]
async fn several_imports_of_the_same_at_once_make_one_log() {
    let pair = Pair::start().await;
    let ids = [new_run_id(), new_run_id()];
    let text = file_of(&[lines_of(&ids[0], 4_500), lines_of(&ids[1], 10)]);
    std::fs::write(pair.path("both"), &text).unwrap();
    let (one, two, three) = tokio::join!(pair.import("both", &[]), pair.import("both", &[]), pair.import("both", &[]));
    for said in [&one, &two, &three] {
        check(said, 0);
    }
    assert_eq!(pair.export(&pair.to, "copy", &["--all"]).await, text.into_bytes());
}

#[tokio::test]
async fn an_import_waits_for_a_server_that_is_away() {
    let pair = Pair::start().await;
    let run = new_run_id();
    let text = file_of(&[lines_of(&run, 10)]);
    std::fs::write(pair.path("file"), &text).unwrap();
    let path = pair.path("file");
    let mut command = program(&["import", path.to_str().unwrap(), "--retry-timeout", "1"]);
    command.env("RUNREEL_URL", "http://127.0.0.1:9");
    let said = crate::support::process::run(command, "").await;
    check(&said, 3);
    check(&pair.import("file", &[]).await, 0);
}
