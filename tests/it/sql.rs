//! `runreel sql` as a script calls it.

use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};

use crate::support::{
    cluster::{Db, execute},
    process::{Said, program, run},
    server::Server,
};

async fn ask(db: &Db, words: &[&str]) -> Said {
    let mut command = program(&[&["sql"], words].concat());
    command.env("DATABASE_URL", db.url());
    run(command, "").await
}

#[tokio::test]
async fn data_for_a_program_is_written_byte_for_byte_and_a_table_is_cleaned() {
    let server = Server::start().await;
    let text = r"select E'a\x1b[1mb\x07\x7f\u009bc' as x";
    assert_eq!(ask(&server.db, &["--format", "csv", text]).await.stdout, "x\r\na\x1b[1mb\x07\x7f\u{9b}c\r\n");
    for (format, path) in [("json", "/0/x"), ("ndjson", "/x")] {
        let said = ask(&server.db, &["--format", format, text]).await.stdout;
        let read: Value = serde_json::from_str(&said).unwrap();
        assert_eq!(read.pointer(path), Some(&json!("a\x1b[1mb\x07\x7f\u{9b}c")), "{said}");
    }
    assert!(ask(&server.db, &[text]).await.stdout.contains("ab␇␡\u{fffd}c"));
    let many = ask(&server.db, &["select n from generate_series(1, 10002) n"]).await;
    assert!(many.stderr.contains("10000 rows") && many.stderr.contains("10002 rows"), "{}", many.stderr);
    assert_eq!(many.stdout.lines().count(), 10_001);
}

#[tokio::test]
async fn a_question_may_begin_with_a_comment_or_a_byte_order_mark() {
    let server = Server::start().await;
    for text in
        ["-- why\nselect 1 as x", "/* why /* so */ */ select 1 as x", "\u{feff}select 1 as x", "--\n(select 1 as x)"]
    {
        let said = ask(&server.db, &["--format", "csv", text]).await;
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), "x\r\n1\r\n"), "{text}: {}", said.stderr);
    }
    let said = ask(&server.db, &["/* select 1 */ delete from runs"]).await;
    assert_eq!(said.code, Some(1), "{said:?}");
}

#[tokio::test]
async fn nobody_gets_no_role_and_sees_nothing() {
    let server = Server::start().await;
    server.ended_run(1).await;

    let before = server.db.number("select count(*) from store.reader_scope").await;
    let words = |sub| ["--sub", sub, "--format", "csv", "select count(*), current_user::text as reader from runs"];
    let said = ask(&server.db, &words("lcoal")).await;
    assert_eq!(said.stdout, "count,reader\r\n0,runreel_scoped\r\n", "{}", said.stderr);
    assert_eq!(server.db.number("select count(*) from store.reader_scope").await, before);
    assert_eq!(ask(&server.db, &words("")).await.code, Some(2));
    // Without authentication everything belongs to `local`.
    let said = ask(&server.db, &words("local")).await;
    let (count, role) = said.stdout.lines().nth(1).unwrap().split_once(',').unwrap();
    assert!(count == "1" && role.starts_with("runreel_reader_"), "{}", said.stdout);
    execute(&mut server.db.connect().await, format!("drop role {role}")).await;
}

#[tokio::test]
async fn a_database_of_an_older_version_stays_as_it_is() {
    let db = Db::new().await;
    let name = format!("{}_older", db.name);
    let mut superuser = db.connect().await;
    execute(&mut superuser, format!("create database {name}")).await;
    let mut url = reqwest::Url::parse(&db.url()).unwrap();
    url.set_path(&name);
    let mut command = program(&["sql", "--sub", "local", "select 1"]);
    command.env("DATABASE_URL", url.as_str());
    let said = run(command, "").await;
    assert_eq!(said.code, Some(1), "{}", said.stderr);
    assert!(said.stderr.contains("start the server of this version"), "{}", said.stderr);
    let mut there = PgConnection::connect_with(&url.as_str().parse().unwrap()).await.unwrap();
    let made = "select count(*) from pg_class where relnamespace not in ('pg_catalog'::regnamespace,
        'information_schema'::regnamespace, 'pg_toast'::regnamespace)";
    assert_eq!(sqlx::query_scalar::<_, i64>(made).fetch_one(&mut there).await.unwrap(), 0);
    there.close().await.unwrap();
    execute(&mut superuser, format!("drop database {name} with (force)")).await;
}

#[tokio::test]
async fn a_database_that_cannot_be_reached_is_exit_code_3_and_none_is_made() {
    let db = Db::new().await;
    let mut url = reqwest::Url::parse(&db.url()).unwrap();
    url.set_path("/nowhere");
    for words in [&["select 1"][..], &["--sub", "local", "select 1"]] {
        let mut command = program(&[&["sql"], words].concat());
        command.env("DATABASE_URL", url.as_str());
        let said = run(command, "").await;
        assert_eq!(said.code, Some(3), "{words:?}: {}", said.stderr);
        assert!(said.stderr.contains("nowhere"), "{}", said.stderr);
    }
    let folder = tempfile::tempdir().unwrap();
    for data_dir in [folder.path().to_owned(), folder.path().join("mistyped")] {
        let said = run(program(&["sql", "--data-dir", data_dir.to_str().unwrap(), "select 1"]), "").await;
        assert_eq!(said.code, Some(3), "{}", said.stderr);
        assert!(said.stderr.contains("no database in"), "{}", said.stderr);
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
