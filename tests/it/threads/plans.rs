//! Statements that name their owner to row-level security themselves do so before they read anything, whatever plan the
//! database makes of them.

use serde_json::json;
use sqlx::{AssertSqlSafe, Row as _};

use crate::support::{
    cluster::execute,
    server::Server,
    threads::{blob, state_with, write},
};

const GET: &str = include_str!("../../../backend/store/sql/checkpoints.sql");
const PUT: &str = include_str!("../../../backend/store/sql/put_checkpoint.sql");
const WRITE: &str = include_str!("../../../backend/store/sql/put_writes.sql");
const WAYS: [&str; 7] = ["nestloop", "hashjoin", "mergejoin", "indexscan", "seqscan", "material", "bitmapscan"];

#[tokio::test]
async fn the_owner_is_named_before_anything_is_read_under_every_plan() {
    let server = Server::start().await;
    let state = state_with("x", json!({ "versions": { "c": 1 }, "blobs": { "c": blob(1, b"value") } }));
    server.put_checkpoint("t", "1", state).await;
    server.put_writes("t", "1", json!({ "task_id": "a", "writes": [write(0, "c", b"w")] })).await;
    let owner = server.thread("t").await["owner_id"].as_str().unwrap().to_owned();
    let mut app = server.db.connect().await;
    execute(&mut app, "set role runreel_app".to_owned()).await;
    for mode in ["force_custom_plan", "force_generic_plan"] {
        execute(&mut app, format!("set plan_cache_mode = {mode}")).await;
        for off in 0_u32..1 << WAYS.len() {
            let switch = |(n, way): (usize, &&str)| {
                format!("set enable_{way} = {};", if off & 1 << n == 0 { "on" } else { "off" })
            };
            execute(&mut app, WAYS.iter().enumerate().map(switch).collect()).await;
            let case = format!("{mode}, {off:#b}");
            for exactly in [None, Some("1")] {
                let get = sqlx::query(GET).bind(&owner).bind(Vec::<i64>::new()).bind(Vec::<String>::new());
                let get = get
                    .bind(Vec::<String>::new())
                    .bind("t")
                    .bind("")
                    .bind(exactly)
                    .bind(None::<&str>)
                    .bind([1_000_i64]);
                assert_eq!(get.fetch_all(&mut app).await.unwrap().len(), 1, "{case}");
            }
            let put = sqlx::query(PUT).bind(&owner).bind("t").bind(chrono::DateTime::UNIX_EPOCH).bind("").bind("1");
            let put = put.bind(None::<&str>).bind(None::<&str>).bind("bytes").bind(b"x".as_slice()).bind("{}");
            let put = put.bind(r#"{"c":1}"#).bind(["c"]).bind(["1"]).bind(["bytes"]).bind([b"value".as_slice()]);
            let put = put.bind(1_000_i64).bind([5]);
            assert_eq!(put.fetch_all(&mut app).await.unwrap().len(), 1, "{case}");
            let write = sqlx::query(WRITE).bind(&owner).bind("t").bind(chrono::DateTime::UNIX_EPOCH).bind("").bind("1");
            let write =
                write.bind("a").bind("").bind(true).bind([0]).bind(["c"]).bind(["bytes"]).bind([b"w".as_slice()]);
            let written = write.bind(1_000_i64).fetch_one(&mut app).await.unwrap();
            assert_eq!((written.get::<i64, _>("stored!"), written.get::<bool, _>("fits!")), (1, true), "{case}");
        }
    }
    // What a statement named is forgotten when it is over.
    let left: Option<String> = sqlx::query_scalar(AssertSqlSafe("select current_setting('runreel.owner', true)"))
        .fetch_one(&mut app)
        .await
        .unwrap();
    assert_eq!(left.unwrap_or_default(), "");
}
