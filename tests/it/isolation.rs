//! The second wall: what the database itself refuses, whatever the program asks.

use serde_json::json;
use sqlx::PgConnection;

use crate::support::{
    cluster::{Db, execute},
    runs::new_run_id,
    server::{Server, setup},
};

const TABLES: [&str; 5] = ["store.run", "store.run_event", "store.api_token", "store.removed", "store.artifact"];

async fn as_role(db: &Db, role: &str, owner: Option<&str>) -> PgConnection {
    let mut connection = db.connect().await;
    execute(&mut connection, format!("set role {role}")).await;
    if let Some(owner) = owner {
        sqlx::query("select set_config('runreel.owner', $1, false)")
            .bind(owner)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    connection
}

async fn count(connection: &mut PgConnection, table: &str) -> i64 {
    let query = sqlx::AssertSqlSafe(format!("select count(*) from {table}"));
    sqlx::query_scalar(query).fetch_one(connection).await.unwrap()
}

async fn error(connection: &mut PgConnection, text: &str) -> String {
    let done = sqlx::raw_sql(sqlx::AssertSqlSafe(text.to_owned())).execute(connection).await;
    match done {
        Ok(done) => panic!("{text} was done ({} rows)", done.rows_affected()),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn the_application_sees_only_rows_of_the_owner_it_has_named() {
    let server = setup().jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = alice.start_run().await;
    alice.upload(&run, "a", "bytes").await;
    alice.emit(&run, json!([{ "type": "log.info" }, { "type": "run.completed" }])).await;
    bob.ended_run(1).await;
    server.api_token("alice", &[runreel::domain::principal::Scope::Read], None, None).await;
    let gone = alice.ended_run(0).await;
    alice.delete(&format!("/api/runs/{gone}")).await;
    let owner = alice.run(&run).await["owner_id"].as_str().unwrap().to_owned();
    let nobody = "0".repeat(64);
    for wrong in [None, Some(""), Some(nobody.as_str()), Some("%"), Some(&owner[..63])] {
        let mut connection = as_role(&server.db, "runreel_app", wrong).await;
        for table in TABLES {
            assert_eq!(count(&mut connection, table).await, 0, "{table} as {wrong:?}");
        }
    }
    let mut connection = as_role(&server.db, "runreel_app", Some(&owner)).await;
    let mut counts = Vec::new();
    for table in TABLES {
        counts.push(count(&mut connection, table).await);
    }
    assert_eq!(counts, [1, 5, 1, 1, 1]);
    let mut retention = as_role(&server.db, "runreel_retention", None).await;
    assert_eq!(sqlx::query("delete from store.run_event").execute(&mut retention).await.unwrap().rows_affected(), 0);
}

#[tokio::test]
async fn row_level_security_is_on_and_forced() {
    let server = Server::start().await;
    let forced = "select count(*) from pg_class where oid in ('store.run'::regclass, 'store.run_event'::regclass,
        'store.api_token'::regclass, 'store.removed'::regclass,
        'store.artifact'::regclass) and relrowsecurity and relforcerowsecurity";
    assert_eq!(server.db.number(forced).await, 5);
    let risky = "select count(*) from pg_roles where rolname like 'runreel\\_%'
        and (rolsuper or rolbypassrls or (rolcanlogin and rolname <> 'runreel_scoped' and rolname not like 'runreel\\_reader%') or rolcreaterole or rolcreatedb)";
    assert_eq!(server.db.number(risky).await, 0);
}

#[tokio::test]
async fn no_role_can_change_an_event() {
    let server = Server::start().await;
    let run = server.ended_run(3).await;
    let owner = server.run(&run).await["owner_id"].as_str().unwrap().to_owned();
    let partition: String = sqlx::query_scalar("select tableoid::regclass::text from store.run_event limit 1")
        .fetch_one(&mut server.db.connect().await)
        .await
        .unwrap();
    let statements = |table: &str| {
        [
            format!("update {table} set payload = '{{}}'"),
            format!("update {table} set seq = seq where false or seq = 1"),
            format!("delete from {table}"),
            format!("truncate {table}"),
            format!("insert into {table} select * from {table} on conflict (run_id, seq) do update set payload = '1'"),
        ]
    };
    for role in ["runreel_app", "runreel_writer", "runreel_reader"] {
        let mut connection = as_role(&server.db, role, Some(&owner)).await;
        for statement in statements("store.run_event").iter().chain(&statements(&partition)) {
            let said = error(&mut connection, statement).await;
            assert!(said.contains("permission denied"), "{role}: {statement}: {said}");
        }
    }
    let mut retention = as_role(&server.db, "runreel_retention", Some(&owner)).await;
    for statement in
        ["update store.run_event set payload = '1'", "truncate store.run_event", "update store.run set title = 'x'"]
    {
        error(&mut retention, statement).await;
    }
    // Who owns the tables is stopped by triggers, and no session setting turns those off.
    let mut superuser = server.db.connect().await;
    for mode in ["origin", "replica"] {
        execute(&mut superuser, format!("set session_replication_role = {mode}")).await;
        for statement in statements("store.run_event").iter().chain(&statements(&partition)) {
            let said = error(&mut superuser, statement).await;
            assert!(said.contains("append-only"), "{mode}: {statement}: {said}");
        }
    }
    assert_eq!(server.events(&run).await.len(), 6);
}

#[tokio::test]
async fn a_new_partition_is_as_closed_as_the_others() {
    let server = Server::start().await;
    let mut superuser = server.db.connect().await;
    let later = "2031-07-15 00:00:00+00";
    execute(&mut superuser, format!("select store.ensure_partitions('{later}', 1)")).await;
    execute(
        &mut superuser,
        format!(
            "insert into store.run_event (run_id, seq, lane, position, owner_id, type, role, at, payload)
             values (store.first_run_id('{later}'), 1, 0, 1000000, 'o', 'a.b', 'agent', now(), '1')"
        ),
    )
    .await;
    let open = "select count(*) from pg_class c join pg_inherits i on i.inhrelid = c.oid
        where i.inhparent = 'store.run_event'::regclass
          and 2 > (select count(*) from pg_trigger t where t.tgrelid = c.oid and t.tgenabled = 'A')";
    assert_eq!(server.db.number(open).await, 0, "each partition has both triggers, always on");
    execute(&mut superuser, "set session_replication_role = replica".to_owned()).await;
    for statement in ["update", "delete", "truncate"] {
        for table in ["store.run_event", "store.run_event_2031_07"] {
            let text = match statement {
                "update" => format!("update {table} set payload = '2'"),
                "delete" => format!("delete from {table}"),
                _ => format!("truncate {table}"),
            };
            assert!(error(&mut superuser, &text).await.contains("append-only"), "{text}");
        }
    }
    for role in ["runreel_app", "runreel_writer", "runreel_reader", "runreel_retention"] {
        let mut connection = as_role(&server.db, role, Some("o")).await;
        let said = error(&mut connection, "select * from store.run_event_2031_07").await;
        assert!(said.contains("permission denied"), "{role}: partitions are reached through the table only: {said}");
    }
    execute(&mut superuser, "select store.ensure_partitions(now(), 3)".to_owned()).await;
}

#[tokio::test]
async fn the_writer_cannot_move_a_run_to_another_owner_nor_forge_the_past() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let mut writer = as_role(&server.db, "runreel_writer", None).await;
    for statement in [
        "update store.run set owner_id = 'x'",
        "update store.run set created_at = now()",
        "update store.run set request_hash = ''",
        "delete from store.run",
        "delete from store.lane",
        "insert into store.lane (lane) values (9)",
        "select * from store.api_token",
        "select * from store.pepper",
        "alter table store.run_event disable trigger all",
        "create table store.x (a int)",
    ] {
        error(&mut writer, statement).await;
    }
    let twice = format!(
        "insert into store.run_event (run_id, seq, lane, position, owner_id, type, role, at, payload)
         values ('{run}', 1, 0, 99, 'x', 'a.b', 'agent', now(), '1')"
    );
    assert!(error(&mut writer, &twice).await.contains("duplicate key"));
}

#[tokio::test]
async fn a_superuser_who_adds_a_row_by_hand_does_not_break_the_numbering() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let mut superuser = server.db.connect().await;
    // A row of a run that nobody knows, as a restore might leave one.
    execute(
        &mut superuser,
        format!(
            "insert into store.run_event (run_id, seq, lane, position, owner_id, type, role, at, payload)
             values ('{}', 1, 0, 0, 'x', 'a.b', 'agent', now(), '1')",
            new_run_id()
        ),
    )
    .await;
    server.emit(&run, json!({ "type": "log.info" })).await;
    assert_eq!(server.events(&run).await.len(), 3);
}

#[tokio::test]
async fn a_connection_that_is_used_again_sees_what_its_next_user_may_see() {
    let server = setup().jwt().flags(&["--db-connections", "1"]).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let (hers, his) = (
        alice.create(json!({ "thread_id": "t", "title": "hers" })).await,
        bob.create(json!({ "thread_id": "t", "title": "his" })).await,
    );
    let each = |n: usize| {
        let (alice, bob, hers, his) = (&alice, &bob, &hers, &his);
        async move {
            match n % 4 {
                0 => assert_eq!(alice.run(hers).await["title"], "hers"),
                1 => assert_eq!(bob.run(his).await["title"], "his"),
                2 => _ = alice.get(&format!("/api/runs/{his}")).await.expect(404),
                _ => _ = bob.get(&format!("/api/runs/{hers}")).await.expect(404),
            }
        }
    };
    futures::future::join_all((0..40).map(each)).await;
    // She leaves in the middle of a statement, and he is next.
    let owner = alice.run(&hers).await["owner_id"].as_str().unwrap().to_owned();
    let policy = format!(
        "create policy slow on store.thread as restrictive for select to runreel_app
         using (case when owner_id = '{owner}' then pg_sleep(1) is not null else true end)"
    );
    execute(&mut server.db.connect().await, policy).await;
    let sleeps = "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
    tokio::select! {
        answer = alice.get("/api/threads/t") => panic!("{}", answer.text),
        () = server.db.until_number("her statement to begin", sleeps, 1) => {}
    }
    assert_eq!(bob.get("/api/threads/t").await.expect(200)["thread_id"], "t");
    futures::future::join_all((0..8).map(each)).await;
}
