//! A reader of one principal's rows, and everything it could try to see more.

use std::time::Duration;

use runreel::{
    domain::principal::OwnerId,
    store::query::{self, Failed, Reader, Table},
};
use serde_json::json;
use sqlx::{Connection as _, PgConnection, postgres::PgConnectOptions};

use super::VIEWS;
use crate::support::{
    api::Api,
    cluster::{Db, execute, share_roles},
    server::{Server, setup},
    threads::state,
};

/// Something in every view.
async fn busy(api: &Api) -> String {
    let run =
        api.create(json!({ "thread_id": "t", "session_id": "s", "agent": "a", "input": { "text": "secret" } })).await;
    api.put_checkpoint("t", "1", state("x")).await;
    api.upload(&run, "a.txt", "bytes").await;
    let events = json!([
        { "type": "step.started", "span_id": "s", "payload": { "name": "plan" } },
        { "type": "tool.started", "span_id": "c", "payload": { "name": "search" } },
        { "type": "tool.completed", "span_id": "c" },
        { "type": "step.completed", "span_id": "s" },
        { "type": "message.completed", "span_id": "m", "payload": { "text": "secret", "usage": { "input_tokens": 1 } } },
        { "type": "interrupt.requested", "span_id": "i" },
        { "type": "run.interrupted" },
    ]);
    api.emit(&run, events).await;
    api.run(&run).await["owner_id"].as_str().unwrap().to_owned()
}

struct Two {
    server: Server,
    alice: String,
    bob: String,
    /// The role that sees what is Alice's.
    role: String,
}

async fn two() -> Two {
    let server = setup().jwt().start().await;
    let (alice, bob) = (busy(&server.as_subject("alice")).await, busy(&server.as_subject("bob")).await);
    let (options, owner) = (server.db.options(), OwnerId::trusted(&alice));
    let role = query::scoped_reader(&options, &owner, server.db.is_ours()).await.unwrap();
    let again = query::scoped_reader(&options, &owner, server.db.is_ours()).await.unwrap();
    assert_eq!((again.as_str(), &role[..15]), (role.as_str(), "runreel_reader_"));
    Two { server, alice, bob, role }
}

impl Two {
    async fn ask(&self, text: &str) -> Result<Table, Failed> {
        let options = self.server.db.reader_as(&self.role);
        let reader = Reader { options, role: self.role.clone(), timeout: Duration::from_secs(10) };
        let mut table = Table::default();
        query::ask(&reader, text.to_owned(), &mut table).await.map(|_| table)
    }

    /// Roles belong to the cluster and would outlive the test.
    async fn leave(self) {
        let mut connection = self.server.db.connect().await;
        execute(&mut connection, format!("drop role {}", self.role)).await;
    }
}

fn owners(table: &Table) -> Vec<&str> {
    table.rows.iter().map(|row| row[0].as_deref().unwrap()).collect()
}

#[tokio::test]
async fn a_scoped_reader_sees_one_principals_rows_in_every_view() {
    let two = two().await;
    let mut both = [two.alice.as_str(), two.bob.as_str()];
    both.sort_unstable();
    for (view, _) in VIEWS {
        let text = format!("select distinct owner_id from {view} order by 1");
        assert_eq!(owners(&two.ask(&text).await.unwrap()), [two.alice.as_str()], "{view}");
        let all = query::run(&two.server.db.reader(), text, Duration::from_secs(10)).await.unwrap();
        assert_eq!(owners(&all), both, "{view} to who sees all");
        let by_name = format!("select owner_id from {view} where owner_id = '{}'", two.bob);
        assert!(two.ask(&by_name).await.unwrap().rows.is_empty(), "{view}");
    }
    assert_eq!(owners(&two.ask("select seen_owner()").await.unwrap()), [two.alice.as_str()]);
    let all = query::run(&two.server.db.reader(), "select seen_owner()".to_owned(), Duration::from_secs(5)).await;
    assert_eq!(all.unwrap().rows, [[None]]);
    two.leave().await;
}

#[tokio::test]
async fn no_statement_widens_what_a_scoped_reader_sees() {
    let two = two().await;
    let everybody = "select count(distinct owner_id) from runreel.run_events";
    for refused in [
        "select * from store.run",
        "select * from store.reader_scope",
        "select store.reader_owner('x')",
        "select store.scoped_reader(repeat('0', 64), true)",
        "insert into store.reader_scope values ('x', 'y')",
        "select set_config('role', 'runreel_reader', false)",
        "select set_config('role', 'runreel_viewer', false)",
        "select set_config('session_authorization', 'runreel_reader', false)",
    ] {
        assert!(two.ask(refused).await.is_err(), "{refused}");
    }
    let text = "with x as materialized (select set_config('role', 'runreel_scoped', false),
        set_config('runreel.owner', '*', false), set_config('row_security', 'off', false)) select distinct owner_id from x, runs";
    assert!(two.ask(text).await.is_err() || owners(&two.ask(text).await.unwrap()).len() <= 1);

    // As a person with a login of this role, who may write to its own temporary schema.
    if !two.server.db.is_ours() {
        return two.leave().await;
    }
    let mut session = PgConnection::connect_with(&two.server.db.reader_as(&two.role)).await.unwrap();
    for text in ["set role runreel_reader", "set role runreel_viewer", "set session authorization runreel_reader"] {
        let done = sqlx::raw_sql(text).execute(&mut session).await;
        assert!(done.is_err(), "{text}");
    }
    execute(&mut session, "set search_path = runreel, public; set runreel.owner = 'x'; reset role".to_owned()).await;
    let seen: i64 = sqlx::query_scalar(everybody).fetch_one(&mut session).await.unwrap();
    assert_eq!(seen, 1);
    // A function that tells what it is given, and says that it costs nothing, is not asked before the policy.
    execute(
        &mut session,
        "create function pg_temp.tell(text) returns boolean language plpgsql cost 0.0000001 as
            $$ begin raise exception 'told %', $1; end $$; set enable_seqscan = off"
            .to_owned(),
    )
    .await;
    let text = sqlx::AssertSqlSafe(format!(
        "select count(*) from runreel.runs where owner_id <> '{}' and pg_temp.tell(owner_id)",
        two.alice
    ));
    let told: i64 = sqlx::query_scalar(text).fetch_one(&mut session).await.unwrap();
    assert_eq!(told, 0);
    // The group itself has no owner, so it sees nothing; without policies there is nothing to see either.
    execute(&mut session, "set role runreel_scoped".to_owned()).await;
    let seen: i64 = sqlx::query_scalar(everybody).fetch_one(&mut session).await.unwrap();
    assert_eq!(seen, 0);
    execute(&mut session, "set row_security = off".to_owned()).await;
    assert!(sqlx::query_scalar::<_, i64>(everybody).fetch_one(&mut session).await.is_err());
    execute(&mut session, "reset role; drop function pg_temp.tell(text)".to_owned()).await;
    session.close().await.unwrap();
    two.leave().await;
}

/// The schema as it was before there were scoped readers.
async fn older_schema(options: &PgConnectOptions) {
    let folder = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).unwrap() {
        let (path, name) = file.map(|file| (file.path(), file.file_name())).unwrap();
        if name.to_str().is_some_and(|name| name < "0009" && name.ends_with(".sql")) {
            std::fs::copy(path, folder.path().join(name)).unwrap();
        }
    }
    let mut connection = PgConnection::connect_with(options).await.unwrap();
    sqlx::migrate::Migrator::new(folder.path()).await.unwrap().run(&mut connection).await.unwrap();
    let count = "select count(*) from pg_views where schemaname = 'runreel' and viewowner = current_user";
    assert_eq!(sqlx::query_scalar::<_, i64>(count).fetch_one(&mut connection).await.unwrap(), 11);
    connection.close().await.unwrap();
}

/// A hosted Postgres gives its customers a role that may make roles and is no superuser.
#[tokio::test]
async fn an_owner_that_is_no_superuser_has_the_same_readers_also_after_an_upgrade() {
    let db = Db::new().await;
    let (name, role) = (format!("{}_owned", db.name), format!("{}_owner", db.name));
    let mut superuser = db.connect().await;
    execute(&mut superuser, format!("create role {role} login createrole password 'x'")).await;
    execute(&mut superuser, format!("create database {name} owner {role}")).await;
    share_roles(&mut superuser, &role).await;
    let mut url = reqwest::Url::parse(&db.url()).unwrap();
    url.set_username(&role).unwrap();
    url.set_password(Some("x")).unwrap();
    url.set_path(&name);
    let options: PgConnectOptions = url.as_str().parse().unwrap();
    older_schema(&options).await;
    let server = setup().jwt().on(&db).through(url.to_string()).start().await;
    let (alice, _) = (busy(&server.as_subject("alice")).await, busy(&server.as_subject("bob")).await);

    let scoped = query::scoped_reader(&options, &OwnerId::trusted(&alice), false).await.unwrap();
    for (reader, expected) in [(query::READER, "2"), (scoped.as_str(), "1")] {
        let reader = Reader { options: options.clone(), role: reader.to_owned(), timeout: Duration::from_secs(10) };
        for (view, _) in VIEWS {
            let mut table = Table::default();
            let text = format!("select count(distinct owner_id)::text from {view}");
            query::ask(&reader, text, &mut table).await.unwrap_or_else(|error| panic!("{view}: {error:?}"));
            assert_eq!(owners(&table), [expected], "{view} as {}", reader.role);
        }
    }
    server.stop().await;
    execute(&mut superuser, format!("drop database {name} with (force)")).await;
    execute(&mut superuser, format!("drop role {scoped}")).await;
    execute(&mut superuser, format!("drop role {role}")).await;
}
