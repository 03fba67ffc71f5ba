//! Months of the log: dropped at once when everything in them is due.

use std::time::Duration;

use super::*;

/// How many months of the log there are.
const MONTHS: &str = "select count(*) from pg_inherits where inhparent = 'store.run_event'::regclass";

#[tokio::test]
async fn a_month_in_which_everything_is_due_is_dropped_at_once() {
    let _turn = TURN.acquire().await.unwrap();
    let (db, clock) = (Db::new().await, manual_clock());
    let server = setup().jwt().on(&db).clock(&clock).flags(&["--run-ttl", "1"]).start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let mut runs = vec![alice.ended_run(1_200).await, alice.ended_run(5).await];
    alice.put_checkpoint(&format!("run:{}", runs[0]), "1", state("own")).await;
    let seen = alice.stream("/api/stream/runs").await.durable(1).await;
    runs.push(bob.ended_run(3).await);
    let parent = bob.start_run().await;
    server.pass(DAY * 40);
    // Their tokens have expired.
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    // A tree that reaches into the month goes first, whole; here its child began in another month.
    let child = bob.child_of(&parent).await;
    bob.complete(&child).await;
    bob.complete(&parent).await;
    let live = alice.start_run().await;
    server.pass(Duration::from_secs(61));
    let before = (db.number(MONTHS).await, counted(&server, "runreel_retention_months_dropped_total").await);
    let removed = counted(&server, "runreel_retention_events_removed_total").await;
    sweep(&server).await;
    assert!(db.number(MONTHS).await < before.0, "the month of the first runs is gone");
    assert!(counted(&server, "runreel_retention_months_dropped_total").await > before.1);
    // Two more each for the creation and the start, and one for the end.
    let all = 1_203 + 8 + 6 + 3 + 3;
    assert_eq!(counted(&server, "runreel_retention_events_removed_total").await - removed, all);
    for run in &runs {
        assert!(!is_there(&alice, run).await && !is_there(&bob, run).await);
    }
    assert!(!is_there(&bob, &parent).await && !is_there(&bob, &child).await);
    assert_eq!(db.number("select count(*) from store.run").await, 1);
    assert_eq!(db.number("select count(*) from store.checkpoint").await, 0);
    assert_eq!(db.number("select count(*) from store.owner_piece where piece < 2").await, 0);
    let mut feed = alice.stream_after("/api/stream/runs", seen[0].id.as_deref()).await;
    assert_eq!(feed.next().await.event, "stream.gap");
    assert!(feed.durable(2).await.iter().all(|frame| frame.data.contains(&live)));
    alice.emit(&live, numbered(1)).await;
    assert_contiguous(&alice.events(&live).await, 3);
}

#[tokio::test]
async fn a_month_stays_if_a_run_comes_into_one_of_its_trees_while_it_is_dropped() {
    let _turn = TURN.acquire().await.unwrap();
    let clock = manual_clock();
    let from = setup().clock(&clock).start().await;
    let root = from.start_run().await;
    from.pass(DAY * 40);
    let child = from.child_of(&root).await;
    from.complete(&root).await;
    let server = setup().clock(&clock).flags(&["--run-ttl", "1"]).start().await;
    import(&server, &root, exported(&from, &root).await).await;
    // A reader of that month holds up the drop; meanwhile the child comes, whose id is of another month.
    let mut reader = server.db.connect().await;
    execute(&mut reader, format!("begin; lock table store.run_event_{} in access share mode", month_of(&root))).await;
    // Not sooner: the server sweeps as well, at moments of its own.
    server.pass(Duration::from_secs(61));
    let waits = "select least(count(*), 1) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock' and query like '%drop_month%'";
    // The drop tries for five seconds.
    let late = exported(&from, &child).await;
    tokio::join!(sweep(&server), async {
        server.db.until_number("the drop", waits, 1).await;
        import(&server, &child, late).await;
        execute(&mut reader, "rollback".to_owned()).await;
    });
    assert_contiguous(&server.events(&root).await, 3);
    server.emit(&child, numbered(0)).await;
    server.complete(&child).await;
    goes_after(&server, &root, Duration::from_secs(1)).await;
}

/// The month that a run's id is of, as the log's partitions have it in their names.
fn month_of(run: &str) -> String {
    let (seconds, _) = run.parse::<uuid::Uuid>().unwrap().get_timestamp().unwrap().to_unix();
    chrono::DateTime::from_timestamp(seconds.cast_signed(), 0).unwrap().format("%Y_%m").to_string()
}

#[tokio::test]
async fn a_run_whose_month_is_dropped_while_it_is_imported_is_there_all_the_same() {
    let (from, server) = (Server::start().await, Server::start().await);
    let run = from.ended_run(1).await;
    let mut sweep = server.db.connect().await;
    execute(&mut sweep, format!("begin; drop table store.run_event_{}", month_of(&run))).await;
    let waits = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";
    tokio::join!(import(&server, &run, exported(&from, &run).await), async {
        server.db.until_number("the import", waits, 1).await;
        execute(&mut sweep, "commit".to_owned()).await;
    });
    assert_contiguous(&server.events(&run).await, 4);
}

#[tokio::test]
async fn a_month_in_which_one_run_stays_is_kept_with_that_run() {
    let _turn = TURN.acquire().await.unwrap();
    let server = setup().clock(&manual_clock()).flags(&["--run-ttl", "1"]).start().await;
    let (goes, stays) = (server.ended_run(5).await, ended(&server, json!({ "ttl_s": 0 })).await);
    server.pass(DAY * 40);
    sweep(&server).await;
    assert!(!is_there(&server, &goes).await);
    assert_contiguous(&server.events(&stays).await, 3);
}
