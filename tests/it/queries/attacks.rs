//! What somebody would try who wants out: once at the door, and once past it, at the database itself.

use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use super::ask;
use crate::support::{
    cluster::execute,
    server::{Server, setup},
};

/// Texts that are refused, whoever sends them.
const REFUSED: [&str; 56] = [
    // Another role.
    "set role none",
    "reset role",
    "reset all",
    "set session authorization default",
    "select set_config('role', 'none', false)",
    "select set_config('runreel.scope', 'x', false), count(*) from runs group by 1",
    "select SET_CONFIG/**/('role', 'none', false)",
    "select \"set_config\"('role', 'none', false)",
    "select pg_catalog.set_config('role', 'none', false)",
    "select pg_catalog . \"set_config\" ('role', 'none', false)",
    "with x as materialized (select set_config('role', 'none', true)) select * from x, runs",
    // More than one statement, or one that is no question.
    "select 1; reset role; select 2",
    "select 1; commit; drop table store.run",
    "begin",
    "commit",
    "do $$ begin perform 1; end $$",
    "call x()",
    "prepare x as select 1",
    "execute x",
    "declare c cursor for select 1",
    "copy runs to stdout",
    "copy (select 1) to program 'id'",
    "explain analyze select 1",
    "show data_directory",
    "lock table runs",
    "listen x",
    "notify x",
    "vacuum",
    "create temp table x (a int)",
    "create function f() returns int language sql as 'select 1'",
    "select 1 into temp x",
    "insert into runs select * from runs",
    "with x as (delete from runs returning *) select * from x",
    "with x as (update runs set title = 'x' returning *) select * from x",
    // Catalogs, settings, files, other databases, waiting.
    "select * from pg_roles",
    "select * from pg_catalog.pg_class",
    "select * from \"pg_authid\"",
    "select * from information_schema.tables",
    "select * from store.run",
    "select * from \"store\".run",
    "select current_user",
    "select session_user",
    "select current_setting('runreel.scope')",
    "select 'store.run'::regclass",
    "select 'runreel_app'::regrole::oid",
    "select pg_read_file('/etc/passwd')",
    "select pg_ls_dir('.')",
    "select lo_import('/etc/passwd')",
    "select * from dblink('dbname=postgres', 'select 1') as t (a int)",
    "select query_to_xml('select 1', true, true, '')",
    "select pg_sleep(100)",
    "select pg_advisory_lock(1)",
    "select pg_terminate_backend(pg_backend_pid())",
    "select nextval('x')",
    "select runreel.answer('select 1', 1, 1, 1)",
    "select r.answer from runs as r for update",
];

#[tokio::test]
async fn whoever_wants_out_is_stopped_at_the_door_and_leaves_nothing_behind() {
    let server = setup().jwt().start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    ann.create(json!({ "title": "of ann" })).await;
    let before = server.db.number("select count(*) from pg_class").await;
    for text in REFUSED {
        let reply = ask(&bob, text).await;
        assert_eq!(reply.status, 422, "{text}: {}", reply.text);
        let said = reply.text.to_lowercase();
        for secret in ["of ann", "runreel_app", "runreel_scoped", "runreel_reader", "postgres"] {
            assert!(!said.contains(secret), "{text}: {}", reply.text);
        }
    }
    assert_eq!(server.db.number("select count(*) from pg_class").await, before);
    assert_eq!(server.db.number("select count(*) from store.run").await, 1);
    // The list is of all databases of the cluster.
    let locks = "select count(*) from pg_locks join pg_database d on d.oid = database
        where locktype = 'advisory' and datname = current_database() and objid = 1";
    assert_eq!(server.db.number(locks).await, 0);
}

/// A session as the server's, past the door: its login is the database's owner.
async fn inside(server: &Server, owner: &str) -> PgConnection {
    let mut session = server.db.connect().await;
    let scope: String = sqlx::query_scalar("select $1 || ':' || store.scope_proof($1)")
        .bind(owner)
        .fetch_one(&mut session)
        .await
        .unwrap();
    let settings = format!("set search_path = runreel; set role runreel_scoped; set runreel.scope = '{scope}'");
    execute(&mut session, settings).await;
    session
}

/// What a text yields when Postgres alone stands in its way.
async fn answer(session: &mut PgConnection, text: &str) -> Result<Vec<Option<Vec<Option<String>>>>, sqlx::Error> {
    let mut tx = session.begin_with("begin read only").await?;
    sqlx::query_scalar("select runreel.answer($1, 1, 100, 100000)").bind(text).fetch_all(&mut *tx).await
}

#[tokio::test]
async fn past_the_door_the_database_lets_nobody_out_either() {
    let server = setup().jwt().start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let run = ann.create(json!({ "title": "of ann" })).await;
    let ann = ann.run(&run).await["owner_id"].as_str().unwrap().to_owned();
    let run = bob.create(json!({ "title": "of bob" })).await;
    let bob = bob.run(&run).await["owner_id"].as_str().unwrap().to_owned();
    let mut session = inside(&server, &bob).await;
    let own = answer(&mut session, "select title from runs").await.unwrap();
    assert_eq!(own, [Some(vec![Some("of bob".to_owned())])]);
    for text in [
        "select set_config('role', 'none', false)",
        "select set_config('session_authorization', 'runreel_app', false)",
        "select * from store.run",
        "select secret::text from store.api_token",
        "select key::text from store.scope_key",
        "select store.scope_proof('x')",
        "select pg_read_file('/etc/passwd')",
        "select pg_ls_dir('.')",
        "select rolpassword from pg_authid",
        "select query_to_xml('set role none', true, true, '')::text",
        "select query_to_xml('select * from store.run', true, true, '')::text",
        "select lo_import('/etc/passwd')",
        "with x as (delete from runs returning title) select title from x",
        "select title from runs for update",
        "select 1) as asked (c1); reset role; select (select 1",
        "select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() limit 1",
    ] {
        assert!(answer(&mut session, text).await.is_err(), "{text}");
        let role: String = sqlx::query_scalar("select current_user::text").fetch_one(&mut session).await.unwrap();
        assert_eq!(role, "runreel_scoped", "{text}");
    }
    // A proof is good for one owner only, and nobody can make one.
    let proof: String = sqlx::query_scalar("select split_part(current_setting('runreel.scope'), ':', 2)")
        .fetch_one(&mut session)
        .await
        .unwrap();
    for forged in [format!("{ann}:{proof}"), format!("{ann}:{}", "0".repeat(64)), ann.clone(), String::new()] {
        let text = format!(
            "with x as materialized (select set_config('runreel.scope', '{forged}', true) as scope)
             select title from x cross join runs"
        );
        assert!(!format!("{:?}", answer(&mut session, &text).await).contains("of ann"), "{forged}");
        execute(&mut session, format!("set runreel.scope = '{forged}'")).await;
        assert_eq!(answer(&mut session, "select title from runs").await.unwrap(), [], "{forged}");
    }
}
