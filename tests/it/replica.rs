//! A read replica: what it has is read there, and nobody is shown less than they have seen.

use std::sync::Arc;

use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::support::{
    api::Api,
    cluster::{Db, execute},
    proxy::Proxy,
    runs::numbered,
    server::{Server, setup},
    until,
};

/// How many events of a run each read shows: pages, lines, index, export, query.
async fn counts(api: &Api, run: &str) -> [usize; 5] {
    let index = api.get(&format!("/api/runs/{run}/events?view=index")).await.expect(200);
    let export = api.get(&format!("/api/runs/{run}/export")).await;
    let query = json!({ "query": format!("select count(*) from run_events where run_id = '{run}'") });
    let rows = api.post("/api/sql", query).await.expect(200)["rows"].clone();
    [
        api.events(run).await.len(),
        api.ndjson(run).await.len(),
        index["type"].as_array().unwrap().len(),
        // Beside the lines of the events: the run's own, and the end.
        export.text.lines().count() - 2,
        usize::try_from(rows[0][0].as_i64().unwrap()).unwrap(),
    ]
}

/// A server, its run of five events, and a database that has what the server's had when it was copied: a replica that is
/// behind for ever. The server reaches it through a proxy, as nobody else does.
async fn beside(is_copied: bool) -> (Server, String, Arc<Db>, Proxy) {
    let [db, replica] = Db::two().await;
    let server = setup().on(&db).start().await;
    let run = server.start_run().await;
    for n in 0..3 {
        server.emit(&run, numbered(n)).await;
    }
    server.stop().await;
    if is_copied {
        let mut postgres = PgConnection::connect_with(&db.options().database("postgres")).await.unwrap();
        execute(&mut postgres, format!("drop database {} with (force)", replica.name)).await;
        execute(&mut postgres, format!("create database {} template {}", replica.name, db.name)).await;
        postgres.close().await.unwrap();
    }
    let proxy = Proxy::to(replica.upstream()).await;
    let url = replica.url_through(proxy.port);
    let server = setup().on(&db).flags(&["--replica-url", &url]).start().await;
    (server, run, replica, proxy)
}

/// Changes what the copy has of the events, which shows where they are read.
async fn mark(replica: &Db) {
    let mut there = replica.connect().await;
    let text = "do $$ declare part regclass; begin
            for part in select inhrelid from pg_inherits where inhparent = 'store.run_event'::regclass loop
                execute format('alter table %s disable trigger run_event_is_append_only', part);
            end loop;
        end $$;
        update store.run_event set payload = '{\"of\":\"the replica\"}' where type = 'custom.n'";
    execute(&mut there, text.to_owned()).await;
    there.close().await.unwrap();
}

/// In how many of the ways to read a run's events those of the replica are read.
async fn marked(api: &Api, run: &str) -> usize {
    let events = format!("/api/runs/{run}/events");
    let texts = [
        api.get(&events).await.text,
        api.ndjson(run).await.concat(),
        api.get(&format!("{events}?seqs=3")).await.text,
        api.get(&format!("/api/runs/{run}/export")).await.text,
    ];
    texts.iter().filter(|text| text.contains("the replica")).count()
}

#[tokio::test]
async fn what_a_replica_has_is_read_there_and_what_it_has_not_yet_is_not() {
    let (server, run, replica, proxy) = beside(true).await;
    mark(&replica).await;
    // It is looked at when it is first needed, and left alone for a while if that takes too long.
    until("the replica to be read", || async { marked(&server, &run).await == 4 }).await;
    // It is no standby, so it is not known what else it has.
    assert_eq!(counts(&server, &run).await, [5; 5]);
    server.emit(&run, numbered(3)).await;
    assert_eq!((counts(&server, &run).await, marked(&server, &run).await), ([6; 5], 0));
    let other = server.ended_run(1).await;
    proxy.stall();
    assert_eq!((counts(&server, &run).await, marked(&server, &run).await), ([6; 5], 0));
    proxy.cut();
    assert_eq!(counts(&server, &other).await, [4; 5]);
}

#[tokio::test]
async fn a_replica_that_fails_in_the_middle_costs_no_read() {
    let (server, run, replica, _proxy) = beside(true).await;
    mark(&replica).await;
    until("the replica to be read", || async { marked(&server, &run).await == 4 }).await;
    let mut there = replica.connect().await;
    execute(&mut there, "alter table store.run_event rename to gone".to_owned()).await;
    assert_eq!((counts(&server, &run).await, marked(&server, &run).await), ([5; 5], 0));
    there.close().await.unwrap();
}

#[tokio::test]
async fn a_replica_that_is_away_or_of_another_database_is_not_read() {
    let (server, run, _replica, proxy) = beside(true).await;
    proxy.cut();
    assert_eq!(counts(&server, &run).await, [5; 5]);
    let (server, run, other, _proxy) = beside(false).await;
    let mut there = other.connect().await;
    let text = "update store.lane set position = 1000; update store.artifact_home set home = gen_random_uuid()";
    execute(&mut there, text.to_owned()).await;
    there.close().await.unwrap();
    assert_eq!(counts(&server, &run).await, [5; 5]);
    server.emit(&run, numbered(3)).await;
    assert_eq!(counts(&server, &run).await, [6; 5]);
}
