//! What one principal has, asks for or does wrong costs the others nothing.

use std::time::Duration;

use futures::FutureExt as _;
use runreel::{
    clock::Clock,
    dispatch::{Assignment, Dispatch, renew::StopReason},
    domain::{
        cursor::FeedCursor,
        id::Name,
        job::Claimer,
        limits::{REPLAYS_OWN_MAX, STREAM_FREE_BYTES},
        principal::OwnerId,
    },
    store::feed::Scope,
    timeline::{
        follow::{StreamItem, StreamOptions},
        resume::{Begin, Resumed},
    },
};
use serde_json::json;

use crate::support::{
    api::Api,
    cluster::{Db, execute},
    patiently,
    proxy::Proxy,
    server::{Server, setup},
    until,
};

/// A log of somebody else's, at the end of what there is.
const FOREIGN: &str = "
    with tail as (select position from store.lane where lane = 0), born as (
        insert into store.run (run_id, lane, owner_id, root_run_id, role, metadata, tags, request_hash, status, last_seq,
                               last_position, created_at, last_event_at)
        select id, 0, repeat('e', 64), id, 'agent', '{}', '{}', '', 'running', 120000, position + 120000, now(), now()
        from tail cross join (select store.first_run_id(now()) as id) as fresh returning run_id
    ), written as (
        insert into store.run_event (run_id, seq, lane, position, owner_id, type, role, at, payload)
        select run_id, n, 0, position + n, repeat('e', 64), 'custom.n', 'agent', now(), '{}'
        from tail cross join born cross join generate_series(1, 120000) n
    )
    update store.lane set position = position + 120000 where lane = 0";

#[tokio::test]
async fn a_feed_passes_over_what_others_have_in_one_step() {
    let server = Server::start().await;
    let first = server.create(json!({ "thread_id": "t" })).await;
    execute(&mut server.db.connect().await, FOREIGN.to_owned()).await;
    let second = server.create(json!({ "thread_id": "t", "parent_run_id": first })).await;
    let owner = OwnerId::trusted(server.run(&first).await["owner_id"].as_str().unwrap());
    let store = server.inner.timeline.store();
    let root = first.parse().unwrap();
    for scope in [Scope::Everything, Scope::Thread("t".parse().unwrap()), Scope::Tree(root)] {
        let read = async |from: FeedCursor| {
            let (mut after, mut seen, mut pages) = (from, Vec::new(), 0);
            loop {
                let page = store.feeds().page(&owner, &scope, &after, 1_000).await.unwrap();
                seen.extend(page.events.iter().map(|(place, event)| (event.run_id.to_string(), place.seq.get())));
                (after, pages) = (page.tail, pages + 1);
                if page.complete {
                    return (seen, pages);
                }
            }
        };
        let (seen, pages) = read(FeedCursor::start()).await;
        let all: Vec<(String, i64)> =
            [&first, &second].into_iter().flat_map(|run| [(run.clone(), 1), (run.clone(), 2)]).collect();
        assert_eq!(seen, all, "{scope:?}");
        // Of runs, one page up to what others have and one behind it.
        assert!(pages <= if scope == Scope::Everything { 1 } else { 2 }, "{scope:?} took {pages} pages");
        // The last three events begin on the other side of it.
        let (seen, _) = read(store.feeds().before_tail(&owner, &scope, 3).await.unwrap()).await;
        assert_eq!(seen, all[1..], "{scope:?}");
    }
}

#[tokio::test]
async fn slow_reads_of_one_principal_leave_connections_to_the_others() {
    let server = setup().jwt().flags(&["--db-connections", "3"]).start().await;
    let (slow, other) = (server.as_subject("slow"), server.as_subject("other"));
    let run = slow.create(json!({ "thread_id": "t" })).await;
    other.create(json!({ "thread_id": "t" })).await;
    let owner = slow.run(&run).await["owner_id"].as_str().unwrap().to_owned();
    // Whoever reads this owner's threads reads for half a minute.
    let policy = format!(
        "create policy slow on store.thread as restrictive for select to runreel_app
         using (case when owner_id = '{owner}' then pg_sleep(30) is not null else true end)"
    );
    execute(&mut server.db.connect().await, policy).await;
    let asked = (0..8).map(|_| slow.get("/api/threads/t"));
    let answers = futures::future::join_all(asked);
    let others = async {
        let sleeping =
            "select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()";
        server.db.until_number("the slow reads to begin", sleeping, 2).await;
        other.get("/api/threads/t").await.expect(200);
        assert_eq!(server.db.number(sleeping).await, 2, "the slow reads are still going on");
    };
    let (answers, ()) = tokio::join!(answers, others);
    for answer in answers {
        assert_eq!(answer.headers["retry-after"], "1");
        answer.refused(429, "busy");
    }
}

#[tokio::test]
async fn events_that_come_again_are_refused_by_the_database_once_and_looked_up_from_then_on() {
    let server = setup().jwt().start().await;
    let alice = server.as_subject("alice");
    let (a, b) = (alice.start_run().await, alice.start_run().await);
    // A sequence counts what is undone as well.
    let counting = "create sequence store.tries; grant usage on store.tries to runreel_writer;
        create function store.count_try() returns trigger language plpgsql as
            $$ begin perform nextval('store.tries'); return null; end $$;
        create trigger count_try before update on store.lane for each statement execute function store.count_try()";
    execute(&mut server.db.connect().await, counting.to_owned()).await;
    let keyed = |n: i32| json!({ "type": "log.info", "event_id": format!("k{n}") });
    for n in 0..20 {
        // Whichever run has just been written to is remembered, and has the event before already.
        let (new, old) = if n % 2 == 0 { (&a, &b) } else { (&b, &a) };
        assert_eq!(alice.emit(new, keyed(n)).await["events"][0]["duplicate"], false);
        if n > 0 {
            assert_eq!(alice.emit(old, keyed(n - 1)).await["events"][0]["duplicate"], true);
        }
    }
    assert_eq!(server.db.number("select last_value from store.tries").await, 21, "twenty events, and one try");
}

async fn queue(api: &Api, jobs: usize) {
    for _ in 0..jobs {
        api.create(json!({ "agent": "a", "start": false })).await;
    }
}

fn claimer(own_max: i64) -> Claimer {
    Claimer { name: Name::trusted("w"), session: uuid::Uuid::now_v7(), owner: None, own_max }
}

async fn claim(dispatch: &Dispatch, who: &Claimer, most: usize) -> Vec<Assignment> {
    dispatch.claim(who, &[Name::trusted("a")], most).await.unwrap()
}

#[tokio::test]
async fn owners_take_turns_at_being_carried_out() {
    let server = setup().jwt().start().await;
    let (many, one) = (server.as_subject("many"), server.as_subject("one"));
    queue(&many, 200).await;
    queue(&one, 1).await;
    let dispatch = server.inner.runners.dispatch();
    let (who, of_one) = (claimer(i64::MAX), server.inner.authenticator.owner("", "one"));
    let first = claim(dispatch, &who, 1).await;
    assert_ne!(first[0].context.owner_id, of_one, "nobody has a lease, so the oldest job is first");
    let second = claim(dispatch, &who, 1).await;
    assert_eq!(second[0].context.owner_id, of_one);
    queue(&one, 3).await;
    let third = claim(dispatch, &who, 4).await;
    assert_eq!(third.iter().filter(|job| job.context.owner_id == of_one).count(), 2, "turn by turn");
    // One owner's jobs do not take all places, however many are free.
    let bounded = claimer(5);
    let got = claim(dispatch, &bounded, 50).await;
    assert_eq!(got.len(), 5 + 1);
    assert!(claim(dispatch, &bounded, 50).await.is_empty());
}

#[tokio::test]
async fn a_principal_has_a_bounded_number_of_jobs() {
    let server = setup().jwt().start().await;
    let (greedy, other) = (server.as_subject("greedy"), server.as_subject("other"));
    queue(&greedy, 1).await;
    let more = "
        with fresh as (
            insert into store.run (run_id, lane, owner_id, root_run_id, role, agent, metadata, tags, request_hash, status,
                                   last_seq, last_position, created_at, last_event_at)
            select gen_random_uuid(), 0, owner_id, run_id, 'agent', 'a', '{}', '{}', '', 'queued', 1, 1, now(), now()
            from store.run cross join generate_series(1, 9999) returning run_id, owner_id)
        insert into store.job (run_id, owner_id, agent, line_run_id, line_at, created_at)
        select run_id, owner_id, 'a', run_id, now(), now() from fresh";
    execute(&mut server.db.connect().await, more.to_owned()).await;
    let job = json!({ "agent": "a", "start": false });
    greedy.post("/api/runs", job.clone()).await.refused(429, "busy");
    greedy.post("/api/runs", json!({})).await.expect(201);
    other.post("/api/runs", job).await.expect(201);
    let first = claim(server.inner.runners.dispatch(), &claimer(i64::MAX), 2).await;
    let owners: Vec<&OwnerId> = first.iter().map(|job| &job.context.owner_id).collect();
    assert_ne!(owners[0], owners[1], "ten thousand of one do not stand before the one of another");
}

#[tokio::test]
async fn a_server_whose_clock_is_wrong_takes_no_live_job_and_loses_none() {
    let db = Db::new().await;
    let wrong = Clock::database();
    let (right, off) = (setup().on(&db).start().await, setup().on(&db).clock(&wrong).start().await);
    queue(&right, 1).await;
    let (mine, theirs) = (right.inner.runners.dispatch(), off.inner.runners.dispatch());
    for days in [300, -600] {
        wrong.follow(wrong.now() + chrono::TimeDelta::days(days));
        let held = claim(mine, &claimer(i64::MAX), 1).await.remove(0);
        assert!(claim(theirs, &claimer(i64::MAX), 1).await.is_empty(), "{days}: the lease lives");
        theirs.sweep_once(None).await.unwrap();
        assert!(mine.renew(&[held.lease_id]).await.unwrap().is_empty(), "{days}: the lease is still held");
        assert!(mine.release(held.lease_id).await.unwrap());
        // And what it takes itself is nobody else's.
        let taken = claim(theirs, &claimer(i64::MAX), 1).await.remove(0);
        assert!(claim(mine, &claimer(i64::MAX), 1).await.is_empty(), "{days}: its lease lives");
        assert!(theirs.renew(&[taken.lease_id]).await.unwrap().is_empty());
        assert!(theirs.release(taken.lease_id).await.unwrap());
    }
}

/// What a server is told of the database's time, it goes by from then on.
#[tokio::test]
async fn a_server_goes_by_the_databases_clock() {
    let wrong = Clock::database();
    wrong.follow(wrong.now() + chrono::TimeDelta::days(300));
    let server = setup().clock(&wrong).start().await;
    let off = server.clock.now() - Clock::System.now();
    assert!(off.abs() < chrono::TimeDelta::seconds(5), "{off}");
    let skew = server.get("/metrics").await.text;
    assert!(skew.contains("runreel_clock_skew_seconds"), "{skew}");
}

#[tokio::test]
async fn a_holder_that_cannot_renew_stops_before_its_lease_lapses() {
    let db = Db::new().await;
    let proxy = Proxy::to(db.upstream()).await;
    let lease = Duration::from_secs(3);
    let server = setup().on(&db).through(db.url_through(proxy.port)).flags(&["--lease-ms", "3000"]).start().await;
    queue(&server, 1).await;
    let dispatch = server.inner.runners.dispatch();
    let job = claim(dispatch, &claimer(i64::MAX), 1).await.remove(0);
    let hold = dispatch.hold(&job);
    proxy.stall();
    patiently("the holder to be told", hold.stop().cancelled()).await;
    assert_eq!(hold.fate(), Some(StopReason::Lost));
    assert!(job.asked_at.elapsed() < lease, "{:?}", job.asked_at.elapsed());
    proxy.mend();
    until("the server to be ready again", || async { server.get("/readyz").await.status == 200 }).await;
}

#[tokio::test]
async fn a_reader_that_may_hold_no_more_large_frames_gets_them_from_the_log() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let owner = OwnerId::trusted(server.run(&run).await["owner_id"].as_str().unwrap());
    let timeline = &server.inner.timeline;
    let mut readers = Vec::new();
    // More than may hold a large frame of the bus, so that some of them take it from the log.
    for _ in 0..REPLAYS_OWN_MAX + 32 {
        let begun = timeline.resume_run(&owner, run.parse().unwrap(), &Begin::Start, StreamOptions::default()).await;
        let Ok(Resumed::Stream(mut reader)) = begun else { panic!("the run has not ended") };
        while !reader.next().await.unwrap().iter().any(|item| matches!(item, StreamItem::CaughtUp { .. })) {}
        // It has written what it was given when it is asked for more.
        assert!(reader.next().now_or_never().is_none());
        readers.push(reader);
    }
    let frames = |items: Vec<StreamItem>| items.iter().filter(|item| matches!(item, StreamItem::Frame(_))).count();
    for round in 0..2 {
        let payload = json!({ "round": round, "text": "x".repeat(STREAM_FREE_BYTES) });
        server.emit(&run, json!({ "type": "custom.large", "payload": payload })).await;
        for reader in &mut readers {
            // None of them has written what it holds before the last of them got it.
            assert_eq!(frames(patiently("a large frame", reader.next()).await.unwrap()), 1);
        }
    }
}

#[tokio::test]
async fn readers_to_whom_large_events_are_not_sent_hold_no_place_for_them() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let owner = OwnerId::trusted(server.run(&run).await["owner_id"].as_str().unwrap());
    let (timeline, from) = (&server.inner.timeline, Begin::Start);
    let begun = async |types: &str| {
        let options = StreamOptions { filter: types.parse().unwrap(), ..StreamOptions::default() };
        let Ok(Resumed::Stream(reader)) = timeline.resume_run(&owner, run.parse().unwrap(), &from, options).await
        else {
            panic!("the run has not ended")
        };
        reader
    };
    let mut waiting = tokio::task::JoinSet::new();
    // As many as may hold large frames, as many as may then read the log, and one more.
    for _ in 0..=2 * REPLAYS_OWN_MAX {
        let mut reader = begun("custom.small").await;
        while !reader.next().await.unwrap().iter().any(|item| matches!(item, StreamItem::CaughtUp { .. })) {}
        waiting.spawn(async move { reader.next().await });
    }
    let payload = json!({ "text": "x".repeat(STREAM_FREE_BYTES) });
    server.emit(&run, json!({ "type": "custom.large", "payload": payload })).await;
    let mut another = begun("").await;
    let read =
        async { while !another.next().await.unwrap().iter().any(|item| matches!(item, StreamItem::Frame(_))) {} };
    patiently("another reader's page", read).await;
    server.emit(&run, json!({ "type": "custom.small" })).await;
    while let Some(items) = patiently("the small event", waiting.join_next()).await {
        assert!(matches!(items.unwrap().unwrap()[..], [StreamItem::Frame(_)]));
    }
}
