//! The runs of a tree may come in any order, and are a tree in the end.

use serde_json::json;

use super::world::{Pair, check, command, file_of, lines_in, piece, says};
use crate::support::{
    api::{Api, Reply, stream_of},
    runs::new_run_id,
    server::Server,
};

/// Brings a run that says where it belongs.
async fn bring(api: &Api, run: &str, root: &str, parent: Option<&str>) -> Reply {
    api.import_text(run, piece(&lines_in(run, root, parent, &[]))).await
}

#[tokio::test]
async fn no_run_is_brought_above_itself() {
    let server = Server::start().await;
    let [root, a, b, c] = std::array::from_fn(|_| new_run_id());
    bring(&server, &a, &root, Some(&b)).await.expect(201);
    let problem = bring(&server, &b, &root, Some(&a)).await.refused(400, "invalid_request");
    assert_eq!(problem["field"], "parent_run_id");
    server.post("/api/runs", json!({ "run_id": b, "parent_run_id": a })).await.refused(400, "invalid_request");
    bring(&server, &b, &root, Some(&c)).await.expect(201);
    bring(&server, &c, &root, Some(&a)).await.refused(400, "invalid_request");
    bring(&server, &c, &root, Some(&root)).await.expect(201);
    bring(&server, &root, &root, None).await.expect(201);
    let mut tree = server.stream(&format!("{}?tree=true", stream_of(&root))).await;
    tree.caught_up().await;
    check(&command(&server, &["export", "--run", &root], "").await, 0);
}

#[tokio::test]
async fn two_that_would_be_above_each_other_do_not_both_arrive_at_once() {
    let server = Server::start().await;
    for _ in 0..10 {
        let [root, a, b] = std::array::from_fn(|_| new_run_id());
        let (one, other) = tokio::join!(bring(&server, &a, &root, Some(&b)), bring(&server, &b, &root, Some(&a)));
        let mut statuses = [one.status, other.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 400]);
    }
}

#[tokio::test]
async fn a_parent_that_comes_after_its_children_has_their_root() {
    let server = Server::start().await;
    let [root, parent, child] = std::array::from_fn(|_| new_run_id());
    bring(&server, &child, &root, Some(&parent)).await.expect(201);
    bring(&server, &parent, &parent, None).await.refused(400, "invalid_request");
    bring(&server, &parent, &new_run_id(), Some(&new_run_id())).await.refused(400, "invalid_request");
    bring(&server, &parent, &root, Some(&root)).await.expect(201);
    bring(&server, &root, &root, None).await.expect(201);
    let said = command(&server, &["export", "--all"], "").await;
    check(&said, 0);
    says(&said, "3 runs");
}

#[tokio::test]
async fn a_tree_that_comes_from_below_is_no_deeper_than_one_that_grew_here() {
    let server = Server::start().await;
    let runs: Vec<String> = std::iter::repeat_with(new_run_id).take(34).collect();
    // The last is two below what may be the last, so its tree may lack its root and no more.
    for at in (1..34).rev() {
        bring(&server, &runs[at], &runs[0], Some(&runs[at - 1])).await.expect(201);
    }
    bring(&server, &runs[0], &runs[0], None).await.refused(413, "too_large");
    server.post("/api/runs", json!({ "parent_run_id": runs[33] })).await.refused(413, "too_large");
    server.post("/api/runs", json!({ "parent_run_id": runs[32] })).await.expect(201);
}

#[tokio::test]
async fn a_run_that_fits_into_no_tree_is_left_out_of_an_export() {
    let pair = Pair::start().await;
    let [root, parent, child] = std::array::from_fn(|_| new_run_id());
    bring(&pair.from, &child, &root, Some(&parent)).await.expect(201);
    // Who creates a run is asked for its parent only.
    pair.from.post("/api/runs", json!({ "run_id": parent })).await.expect(201);
    let path = pair.path("all");
    let said = command(&pair.from, &["export", "--all", "-o", path.to_str().unwrap()], "").await;
    check(&said, 1);
    says(&said, &format!("run {child} is left out: the root of the run differs from its parent's"));
    let said = pair.import("all", &[]).await;
    check(&said, 0);
    says(&said, "imported 1 run");
    // In a file of its own it is what it was.
    let alone = pair.export(&pair.from, "alone", &["--run", &child]).await;
    assert_eq!(alone, file_of(&[lines_in(&child, &root, Some(&parent), &[])]).into_bytes());
}
