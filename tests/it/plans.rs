//! No statement of the program reads a table whole, neither of a young database nor of a large one, whatever the
//! settings of Postgres are: all statements are asked for their plans.

use std::path::Path;

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::support::cluster::{Db, execute};

/// Tables of a few rows, whatever happens.
const SMALL: [&str; 10] = [
    "lane",
    "history",
    "origin",
    "probe",
    "pepper",
    "artifact_home",
    "removed",
    "search_progress",
    "search_deferred",
    "price_list",
];
/// A table of so few pages may be read whole.
const PAGES_MAX: i32 = 32;
const ROLES: [&str; 4] = ["runreel_app", "runreel_writer", "runreel_retention", "none"];

/// Every statement that the program prepares, as the compiler noted it: its text and how many values it takes.
fn statements() -> Vec<(String, usize)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(".sqlx");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    let read = |path| serde_json::from_slice::<Value>(&std::fs::read(path).unwrap()).unwrap();
    let statement = |noted: Value| {
        let values = noted["describe"]["parameters"]["Left"].as_array().map_or(0, Vec::len);
        (noted["query"].as_str().unwrap().to_owned(), values)
    };
    files.map(read).map(statement).collect()
}

/// The tables that a statement's plan reads whole; `None` where the role may not carry it out, or it has no plan.
async fn read_whole(connection: &mut PgConnection, role: &str, text: &str, values: usize) -> Option<Vec<String>> {
    let values = vec!["null"; values].join(", ");
    let given = if values.is_empty() { values } else { format!("({values})") };
    let ask = format!("set role {role}; prepare asked as {text};\n explain execute asked{given}");
    let lines = sqlx::raw_sql(AssertSqlSafe(ask)).fetch_all(&mut *connection).await;
    execute(connection, "reset role; deallocate all".to_owned()).await;
    let lines = match lines {
        Ok(lines) => lines.into_iter().map(|line| line.get::<String, _>(0)).collect::<Vec<_>>(),
        Err(error) => {
            let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
            assert!(matches!(code.as_deref(), Some("42501" | "42601")), "{text}: {error}");
            return None;
        }
    };
    let table = |line: &String| Some(line.split_once("Seq Scan on ")?.1.split(' ').next()?.to_owned());
    Some(lines.iter().filter_map(table).collect())
}

/// What the plans read whole of tables that are larger than a few pages.
async fn offences(db: &Db) -> Vec<String> {
    let mut connection = db.connect().await;
    // As on the program's own connections, and for no values in particular.
    execute(&mut connection, "set plan_cache_mode = force_generic_plan; set random_page_cost = 1.1".to_owned()).await;
    let large: Vec<String> = sqlx::query_scalar(
        "select c.relname::text from pg_class c where c.relnamespace = 'store'::regnamespace and c.relkind = 'r'
         and (c.relpages > $1 or c.reltuples < 0)",
    )
    .bind(PAGES_MAX)
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let (mut found, mut asked) = (Vec::new(), 0);
    for (text, values) in statements() {
        // Once, at a start, and it stops at the first row.
        if text.contains("where not exists (select from store.run)") {
            continue;
        }
        for role in ROLES {
            let Some(tables) = read_whole(&mut connection, role, &text, values).await else { continue };
            asked += 1;
            let tables: Vec<_> = tables.iter().filter(|table| large.contains(table)).collect();
            if tables.iter().any(|table| !SMALL.contains(&table.as_str())) {
                found.push(format!("{role} reads {tables:?}: {text}"));
            }
            break;
        }
    }
    assert!(asked > 150, "only {asked} statements have a plan");
    found
}

#[tokio::test]
async fn no_statement_reads_a_table_whole_that_was_never_looked_at() {
    let db = Db::new().await;
    assert_eq!(offences(&db).await, Vec::<String>::new());
}

#[tokio::test]
async fn no_statement_reads_a_large_table_whole() {
    let db = Db::new().await;
    let mut connection = db.connect().await;
    execute(&mut connection, include_str!("plans/many.sql").to_owned()).await;
    assert_eq!(offences(&db).await, Vec::<String>::new());
}
