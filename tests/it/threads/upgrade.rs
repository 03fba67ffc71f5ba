//! A database of the time before there were threads.

use std::path::Path;

use runreel::{auth::LOCAL_SUBJECT, domain::principal::OwnerId};
use serde_json::json;
use sqlx::migrate::Migrator;

use crate::support::{
    api::Api,
    cluster::{Db, execute},
    process::{program, serve},
    threads::{column, state},
};

const PEPPER: &str = "a pepper of at least sixteen bytes";

#[tokio::test]
async fn the_threads_that_runs_have_named_so_far_are_there_after_an_upgrade() {
    let db = Db::new().await;
    let mut connection = db.connect().await;
    execute(
        &mut connection,
        "drop schema store cascade; drop schema runreel cascade; drop schema runreel_bounded cascade;
         drop table _sqlx_migrations"
            .to_owned(),
    )
    .await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations");
    let mut before = Migrator::new(folder).await.unwrap();
    before.migrations.to_mut().retain(|migration| migration.version < 5);
    assert_eq!(before.migrations.len(), 4);
    before.run(&mut connection).await.unwrap();
    let owner = OwnerId::derive(PEPPER.as_bytes(), "", LOCAL_SUBJECT);
    for (n, (owner, thread)) in [
        (owner.as_str(), "'t'"),
        (owner.as_str(), "'t'"),
        (owner.as_str(), "'u'"),
        (owner.as_str(), "null"),
        ("x", "'t'"),
    ]
    .into_iter()
    .enumerate()
    {
        let (run, day) = (uuid::Uuid::now_v7(), n + 1);
        execute(
            &mut connection,
            format!(
                "insert into store.run (run_id, lane, owner_id, root_run_id, thread_id, role, metadata, tags,
                     request_hash, status, last_seq, last_position, created_at, last_event_at)
                 values ('{run}', 0, '{owner}', '{run}', {thread}, 'agent', '{{}}', '{{}}', '', 'completed', 1, 1,
                     '2026-01-0{day} 00:00:00+00', '2026-02-0{day} 00:00:00+00')"
            ),
        )
        .await;
    }
    let mut command = program(&["serve", "--listen", "127.0.0.1:0", "--database-url", &db.url()]);
    command.env("RUNREEL_PEPPER", PEPPER);
    let served = serve(command).await;
    let api = Api::new(served.base.clone());
    assert_eq!(column(&api.pages("/api/threads?limit=1", "threads").await, "thread_id"), ["u", "t"]);
    let thread = api.thread("t").await;
    assert_eq!((&thread["metadata"], &thread["ttl_s"]), (&json!({}), &json!(null)));
    assert_eq!(thread["created_at"], "2026-01-01T00:00:00.000000Z");
    assert_eq!(thread["updated_at"], "2026-02-02T00:00:00.000000Z");
    assert_eq!(api.pages("/api/threads/t/runs", "runs").await.len(), 2);
    api.create(json!({ "thread_id": "t" })).await;
    api.put_checkpoint("t", "1", state("x")).await;
    assert_eq!(api.pages("/api/threads/t/runs", "runs").await.len(), 3);
}
