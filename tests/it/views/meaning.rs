//! What the database says about itself, and that the guide says the same.

use std::fmt::Write as _;

use super::VIEWS;
use crate::support::{
    cluster::Db,
    server::{Server, setup},
};

/// The views, their columns with type and comment, in their order.
const ABOUT: &str = "select c.relname::text, coalesce(obj_description(c.oid, 'pg_class'), ''),
        a.attname::text, replace(replace(format_type(a.atttypid, -1), 'timestamp with time zone', 'timestamptz'),
                                 'double precision', 'float8'), coalesce(col_description(c.oid, a.attnum), '')
    from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
    where c.relnamespace = 'runreel'::regnamespace and c.relkind = 'v' order by c.relname, a.attnum";

async fn about(db: &Db) -> Vec<(String, String, String, String, String)> {
    sqlx::query_as(ABOUT).fetch_all(&mut db.connect().await).await.unwrap()
}

#[tokio::test]
async fn every_view_and_column_says_what_it_means_and_the_guide_says_the_same() {
    let server = Server::start().await;
    let guide = include_str!("../../../docs/sql.md");
    let about = about(&server.db).await;
    for (view, _) in VIEWS {
        let columns: Vec<_> = about.iter().filter(|column| column.0 == *view).collect();
        let mut table = format!("### {view}\n\n{}\n\n| column | type | meaning |\n|---|---|---|\n", columns[0].1);
        for (_, meaning, column, kind, text) in columns {
            assert!(!meaning.is_empty() && !text.is_empty(), "{view}.{column} says nothing about itself");
            writeln!(table, "| `{column}` | {kind} | {text} |").unwrap();
        }
        assert!(guide.contains(&format!("\n{table}\n")), "docs/sql.md should hold:\n{table}");
    }
    let schema = "select count(*) from pg_namespace where nspname = 'runreel' and obj_description(oid) is not null";
    assert_eq!(server.db.number(schema).await, 1);
    let silent = "select count(*) from pg_proc where pronamespace = 'runreel'::regnamespace
        and obj_description(oid, 'pg_proc') is null";
    assert_eq!(server.db.number(silent).await, 0);
}

/// A view that belonged to whoever migrates would show a scoped reader everything on the embedded database.
#[tokio::test]
async fn every_view_belongs_to_the_viewer_and_reads_only_tables_with_its_policy() {
    let server = setup().start().await;
    let other = "select count(*) from pg_class where relnamespace = 'runreel'::regnamespace and relkind <> 'c'
        and (pg_get_userbyid(relowner) <> 'runreel_viewer' or relkind <> 'v'
             or not has_table_privilege('runreel_reader', oid, 'select')
             or not has_table_privilege('runreel_scoped', oid, 'select'))";
    assert_eq!(server.db.number(other).await, 0);
    let readable = "select count(*) from pg_class c where relnamespace = 'store'::regnamespace
        and relkind in ('r', 'p', 'v', 'm') and not relispartition and has_table_privilege('runreel_viewer', oid, 'select')";
    let guarded = "select count(*) from pg_policies p join pg_class c on c.relname = p.tablename
        and c.relnamespace = 'store'::regnamespace
        where p.schemaname = 'store' and p.policyname = 'readers_see_what_they_may' and c.relrowsecurity
          and p.roles = '{runreel_viewer}'";
    let ours = "select count(*) from pg_policies where 'runreel_viewer' = any (roles) or 'public' = any (roles)";
    let counts = (server.db.number(readable).await, server.db.number(guarded).await, server.db.number(ours).await);
    assert_eq!(counts, (7, 7, 7));
    let risky = "select count(*) from pg_roles where rolname in ('runreel_viewer', 'runreel_scoped')
        and (rolsuper or rolbypassrls or rolcreaterole or rolcreatedb or rolcanlogin and rolname = 'runreel_viewer')";
    assert_eq!(server.db.number(risky).await, 0);
}
