//! What is imported becomes the caller's own, and nobody else's.

use runreel::domain::principal::Scope;
use serde_json::json;

use super::world::{lines_below, lines_of, piece, run_id_at};
use crate::support::{
    api::stream_of,
    runs::{new_run_id, parsed},
    server::setup,
    shared::shared,
};

#[tokio::test]
async fn somebody_elses_run_is_not_touched_by_an_import_of_the_same_id() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = new_run_id();
    let lines = lines_of(&run, 3);
    alice.import_text(&run, piece(&lines)).await.expect(201);
    let before = alice.events(&run).await;
    let said = bob.import_text(&run, piece(&lines)).await;
    assert_eq!(said.refused(409, "run_exists")["detail"], "this id is already in use");
    let late = format!("{}\n{}\n", lines[0], lines[3]);
    let absent = new_run_id();
    let foreign = bob.import_text(&run, late.clone()).await;
    let nothing = bob.import_text(&absent, late.replace(&run, &absent)).await;
    assert_eq!((foreign.status, &foreign.text), (404, &nothing.text));
    bob.get(&format!("/api/runs/{run}/export")).await.refused(404, "not_found");
    bob.get(&format!("/api/runs/{run}")).await.refused(404, "not_found");
    assert_eq!(alice.events(&run).await, before);
}

#[tokio::test]
async fn a_parent_that_is_somebody_elses_is_like_one_that_is_not_here() {
    let server = shared().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let theirs = alice.start_run().await;
    let mut tree = alice.stream(&format!("{}?tree=true", stream_of(&theirs))).await;
    tree.caught_up().await;
    let (below_theirs, below_nothing) = (new_run_id(), new_run_id());
    let answers = [(&below_theirs, theirs.clone()), (&below_nothing, new_run_id())].map(async |(run, parent)| {
        let reply = bob.import_text(run, piece(&lines_below(run, Some(&parent), &[("log.info", "{}")]))).await;
        let shown = bob.run(run).await;
        assert_eq!(shown["parent_run_id"], json!(parent));
        (reply.status, reply.text.replace(run.as_str(), "RUN"))
    });
    let [foreign, absent] = answers;
    assert_eq!(foreign.await, absent.await);
    alice.complete(&theirs).await;
    let seen = tree.rest().await;
    assert!(seen.iter().all(|frame| !frame.data.contains(&below_theirs)), "nothing of it came into the tree");
    let live = bob.get(&format!("/api/runs?parent_run_id={theirs}")).await.expect(200);
    assert_eq!(live["runs"].as_array().unwrap().len(), 1, "it is bob's alone");
    alice.get(&format!("/api/runs/{below_theirs}")).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_run_below_one_of_ones_own_has_its_root_and_its_depth() {
    let server = setup().jwt().start().await;
    let bob = server.as_subject("bob");
    let (root, child) = (new_run_id(), new_run_id());
    bob.import_text(&root, piece(&lines_of(&root, 1))).await.expect(201);
    bob.import_text(&child, piece(&lines_below(&child, Some(&root), &[]))).await.expect(201);
    assert_eq!(server.db.number("select sum(depth)::bigint from store.run").await, 1);
    let wrong = new_run_id();
    // Its root is said to be its parent, which is no root.
    bob.import_text(&wrong, piece(&lines_below(&wrong, Some(&child), &[]))).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn an_import_needs_the_scope_for_everything() {
    let server = setup().jwt().start().await;
    let run = run_id_at(server.clock.now());
    let (emit, _) = server.api_token("alice", &[Scope::Read, Scope::Emit], None, None).await;
    let (admin, _) = server.api_token("alice", &[Scope::Admin], None, None).await;
    let (limited, _) = server.api_token("alice", &[Scope::Admin], Some(&run), None).await;
    let body = piece(&lines_of(&run, 1));
    emit.import_text(&run, body.clone()).await.refused(403, "forbidden");
    limited.import_text(&run, body.clone()).await.refused(403, "forbidden");
    assert_eq!(admin.import_text(&run, body).await.expect(201)["last_seq"], 3);
    let export = limited.get(&format!("/api/runs/{run}/export")).await;
    assert_eq!((export.status, export.text.lines().count()), (200, 5));
    assert_eq!(parsed(&export.text.lines().last().unwrap())["end"]["status"], "running");
}
