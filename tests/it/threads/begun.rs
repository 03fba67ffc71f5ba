//! Threads that come with the run that names them first.

use serde_json::json;

use crate::support::{cluster::execute, server::Server, shared::shared};

#[tokio::test]
async fn a_run_is_not_seen_before_its_thread_is_there() {
    let server = Server::start().await;
    let mut lock = server.db.connect().await;
    execute(&mut lock, "begin; lock table store.thread in share row exclusive mode".to_owned()).await;
    let api = (*server).clone();
    let creating = tokio::spawn(async move { api.post("/api/runs", json!({ "thread_id": "t" })).await });
    let waiting = "select count(*) from pg_locks where not granted and relation = 'store.thread'::regclass
                   and database = (select oid from pg_database where datname = current_database())";
    server.db.until_number("the creation to wait for the table of threads", waiting, 1).await;
    assert_eq!(server.get("/api/runs").await.expect(200)["runs"], json!([]), "no thread yet, so no run");
    execute(&mut lock, "rollback".to_owned()).await;
    let run = creating.await.unwrap().expect(201)["run_id"].clone();
    assert_eq!(server.get("/api/threads/t/runs").await.expect(200)["runs"][0]["run_id"], run);
}

#[tokio::test]
async fn a_run_that_is_refused_leaves_no_thread() {
    let server = shared().await;
    server.create(json!({ "external_id": "taken", "thread_id": "first" })).await;
    let body = |thread: &str| json!({ "external_id": "taken", "thread_id": thread });
    server.post("/api/runs", body("new")).await.refused(409, "external_id_taken");
    server.get("/api/threads/new").await.refused(404, "not_found");
    server.put("/api/threads/known", json!({})).await.expect(201);
    server.post("/api/runs", body("known")).await.refused(409, "external_id_taken");
    assert_eq!(server.thread("known").await["metadata"], json!({}));
}

#[tokio::test]
async fn runs_that_are_refused_at_the_same_time_leave_no_thread() {
    let server = shared().await;
    server.create(json!({ "external_id": "taken", "thread_id": "first" })).await;
    let mut refused = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let api = (*server).clone();
        let body = json!({ "external_id": "taken", "thread_id": "new" });
        refused.spawn(async move { api.post("/api/runs", body).await.refused(409, "external_id_taken") });
    }
    refused.join_all().await;
    server.get("/api/threads/new").await.refused(404, "not_found");
}

#[tokio::test]
async fn a_run_does_not_wait_long_for_a_thread_that_others_are_writing_and_holds_nobody_up() {
    let server = Server::start().await;
    let owner = server.run(&server.start_run().await).await["owner_id"].as_str().unwrap().to_owned();
    let mut writing = server.db.connect().await;
    let insert = format!(
        "begin; insert into store.thread (owner_id, thread_id, created_at, updated_at) values ('{owner}', 't', now(), now())"
    );
    execute(&mut writing, insert).await;
    let api = (*server).clone();
    let creation = tokio::spawn(async move { api.post("/api/runs", json!({ "thread_id": "t" })).await });
    for n in 0..16 {
        server.create(json!({ "title": format!("{n}") })).await;
    }
    creation.await.unwrap().refused(503, "unavailable");
    assert_eq!(server.get("/api/threads").await.expect(200)["threads"], json!([]));
    execute(&mut writing, "rollback".to_owned()).await;
    server.create(json!({ "thread_id": "t" })).await;
}

#[tokio::test]
async fn runs_that_name_a_new_thread_at_the_same_time_are_all_in_it() {
    let server = shared().await;
    let mut created = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let api = (*server).clone();
        created.spawn(async move { api.post("/api/runs", json!({ "thread_id": "t" })).await.expect(201) });
    }
    created.join_all().await;
    assert_eq!(server.get("/api/threads").await.expect(200)["threads"].as_array().unwrap().len(), 1);
    let runs = server.get("/api/threads/t/runs").await.expect(200)["runs"].as_array().unwrap().len();
    assert_eq!(runs, 16);
}
