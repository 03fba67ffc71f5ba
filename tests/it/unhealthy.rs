//! A sick database: answers stay quick and true, and everything mends by itself.

use std::time::{Duration, Instant};

use runreel::{
    app::App,
    config::Secrets,
    domain::principal::OwnerId,
    postgres::{Cluster, Options, STOP_MAX},
    store::{Settings, Store, durability::Durability},
};
use serde_json::json;
use sqlx::{Connection, PgConnection, migrate::Migrate, postgres::PgConnectOptions};

use crate::support::{
    api::{Reply, stream_of},
    cluster::{Db, execute},
    patiently,
    process::{program, run},
    proxy::{Fate, Proxy},
    runs::{assert_contiguous, new_run_id, numbered, seqs},
    server::{Server, serve_args, setup},
    sse::envelopes,
    until,
};

async fn behind_a_proxy() -> (Server, Proxy) {
    let db = Db::new().await;
    let proxy = Proxy::to(db.upstream()).await;
    let server = setup().on(&db).through(db.url_through(proxy.port)).start().await;
    (server, proxy)
}

/// An answer that must come in time.
async fn within(limit: Duration, call: impl Future<Output = Reply>) -> Reply {
    let began = Instant::now();
    let reply = call.await;
    assert!(began.elapsed() < limit, "{:?} for {}", began.elapsed(), reply.text);
    reply
}

/// The first answer of `/readyz` that says so.
async fn not_ready(server: &Server) -> Reply {
    loop {
        let reply = server.get("/readyz").await;
        if reply.status != 200 {
            return reply;
        }
    }
}

const FIVE: Duration = Duration::from_secs(5);

async fn check_outage(sick: impl Fn(&Proxy)) {
    let (server, proxy) = behind_a_proxy().await;
    let run = server.start_run().await;
    let mut reader = server.stream(&stream_of(&run)).await;
    reader.caught_up().await;
    server.emit(&run, numbered(0)).await;
    sick(&proxy);
    let (began, path) = (Instant::now(), format!("/api/runs/{run}"));
    let (refused, another, not_ready, read, created) = tokio::join!(
        within(FIVE, server.try_emit(&run, json!({ "type": "log.info", "event_id": "x" }))),
        within(FIVE, server.try_emit(&run, json!({ "type": "log.info", "event_id": "y" }))),
        within(Duration::from_secs(3), not_ready(&server)),
        within(FIVE, server.get(&path)),
        within(FIVE, server.post("/api/runs", json!({}))),
    );
    assert!(began.elapsed() < FIVE);
    for reply in [&refused, &another, &read, &created] {
        let problem = reply.json();
        let known = matches!(problem["code"].as_str(), Some("unavailable" | "outcome_unknown"));
        assert!(reply.status == 503 && known, "{}", reply.text);
        assert_eq!(reply.headers["retry-after"], "1");
    }
    assert_eq!((not_ready.status, not_ready.json()["status"].as_str()), (503, Some("unavailable")));
    assert_eq!(server.get("/livez").await.status, 200);
    proxy.mend();
    until("the server to be ready again", || async { server.get("/readyz").await.status == 200 }).await;
    let ack = server.emit(&run, json!({ "type": "log.info", "event_id": "x" })).await;
    assert_eq!(ack["events"][0]["event_id"], "x");
    server.complete(&run).await;
    let frames = reader.rest().await;
    let events = server.events(&run).await;
    assert_contiguous(&events, events.len() as i64);
    assert_eq!(envelopes(&frames), events[2..]);
    let keyed = events.iter().filter(|event| event.contains(r#""event_id":"x""#)).count();
    assert_eq!(keyed, 1);
}

#[tokio::test]
async fn while_the_database_is_cut_off_answers_are_quick_and_readers_wait_it_out() {
    check_outage(Proxy::cut).await;
}

#[tokio::test]
async fn while_the_database_is_silent_answers_are_quick_and_readers_wait_it_out() {
    check_outage(Proxy::stall).await;
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_neither_lost_nor_doubled() {
    let (server, proxy) = behind_a_proxy().await;
    let run = server.start_run().await;
    let mut reader = server.stream(&stream_of(&run)).await;
    reader.caught_up().await;
    server.emit(&run, numbered(0)).await;
    let mut stored = 3;
    for round in 0..12 {
        let fate = if round % 2 == 0 { Fate::Lost } else { Fate::Unanswered };
        let (keyed, marker) = (round % 3 != 0, format!("trap-{round:02}"));
        let mut event = json!({ "type": "custom.trap", "payload": { "marker": marker } });
        if keyed {
            event["event_id"] = json!(marker);
        }
        proxy.trap(&marker, fate);
        let reply = within(FIVE, server.try_emit(&run, event.clone())).await;
        assert!(!proxy.is_set(), "the connection was cut in the middle");
        if keyed {
            let ack = server.emit(&run, event).await;
            assert_eq!(ack["events"][0]["duplicate"], reply.status == 200, "{}", reply.text);
        }
        let events = server.events(&run).await;
        let held = events.iter().filter(|event| event.contains(&marker)).count();
        match (keyed, reply.status) {
            (true, _) | (false, 200) => assert_eq!(held, 1, "{fate:?} {}", reply.text),
            (false, _) => assert!(held <= 1, "{fate:?} {}", reply.text),
        }
        stored += held as i64;
        assert_contiguous(&events, stored);
    }
    server.complete(&run).await;
    assert_eq!(seqs(&envelopes(&reader.rest().await)), (3..=stored + 1).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_creation_whose_answer_is_lost_is_one_run() {
    let (server, proxy) = behind_a_proxy().await;
    server.start_run().await;
    for (round, fate) in [Fate::Lost, Fate::Unanswered, Fate::Lost, Fate::Unanswered].into_iter().enumerate() {
        let marker = format!("marked-{round}");
        let body = json!({ "run_id": new_run_id(), "title": marker });
        proxy.trap(&marker, fate);
        let first = within(FIVE, server.post("/api/runs", body.clone())).await;
        let again = server.post("/api/runs", body.clone()).await;
        assert!(
            matches!((first.status, again.status), (200 | 201, 200) | (503, 200 | 201)),
            "{} {}",
            first.text,
            again.text
        );
        assert_contiguous(&server.events(body["run_id"].as_str().unwrap()).await, 2);
    }
    let count = server.get("/api/runs").await.expect(200)["runs"].as_array().unwrap().len();
    assert_eq!(count, 5);
}

#[tokio::test]
async fn many_emits_through_a_flapping_connection_are_each_stored_once() {
    let (server, proxy) = behind_a_proxy().await;
    let run = server.start_run().await;
    let (stored, mut seen) = tokio::sync::watch::channel(0);
    let producer = async |producer: usize| {
        for n in 0..10 {
            let event = json!({ "type": "custom.n", "event_id": format!("{producer}-{n}") });
            until("the event to be stored", || async {
                let reply = within(FIVE, server.try_emit(&run, event.clone())).await;
                assert!(matches!(reply.status, 200 | 503), "{}", reply.text);
                reply.status == 200
            })
            .await;
            stored.send_modify(|count| *count += 1);
        }
    };
    // As soon as one is stored, in the middle of the others: the time between two breaks is work's, not a clock's.
    let flapping = async {
        while *seen.borrow_and_update() < 50 {
            proxy.drop_all();
            seen.changed().await.unwrap();
        }
    };
    tokio::join!(futures::future::join_all((0..5).map(producer)), flapping);
    assert_contiguous(&server.events(&run).await, 52);
}

#[tokio::test]
async fn a_read_that_is_given_up_leaves_no_transaction_open() {
    let server = Server::start().await;
    let (store, owner) = (server.inner.timeline.store(), OwnerId::trusted("somebody"));
    for step in 0..400 {
        let _ = tokio::time::timeout(Duration::from_micros(step * 5), store.feeds().tail(&owner)).await;
    }
    let open = "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in%'";
    server.db.until_number("every transaction to end", open, 0).await;
}

#[tokio::test]
async fn a_server_that_starts_waits_for_its_database_but_not_for_one_that_refuses_it() {
    let db = Db::new().await;
    let proxy = Proxy::to(db.upstream()).await;
    proxy.cut();
    let mending = async {
        patiently("a connection", proxy.refused().wait_for(|refused| *refused > 0)).await.unwrap();
        proxy.mend();
    };
    let (server, ()) = tokio::join!(setup().on(&db).through(db.url_through(proxy.port)).start(), mending);
    server.start_run().await;
    let url = db.url_through(proxy.port).replace("postgres://", "postgres://nobody-of-this-name-");
    let flags = ["--listen", "127.0.0.1:0", "--database-url", &url];
    let refused = within_s(5, App::start(&serve_args(&flags), &Secrets::default())).await;
    assert!(refused.is_err(), "a role that is not there is not waited for");
}

#[tokio::test]
async fn a_server_that_cannot_migrate_says_who_may_be_in_its_way_and_gives_up() {
    let db = Db::new().await;
    let mut other = db.connect().await;
    Migrate::lock(&mut other).await.unwrap();
    // A schema that is this version's already is not waited for.
    setup().on(&db).start().await.start_run().await;
    let older = "create table public.kept as select * from _sqlx_migrations order by version desc limit 1;
        delete from _sqlx_migrations where version in (select version from public.kept)";
    execute(&mut other, older.to_owned()).await;
    let url = db.url();
    let words = ["serve", "--listen", "127.0.0.1:0", "--database-url", &url, "--database-wait-ms", "1"];
    let said = run(program(&words), "").await;
    assert_eq!((said.code, said.stdout.as_str()), (Some(1), ""), "{}", said.stderr);
    assert!(said.stderr.contains("another session holds the lock of the schema's migrations"), "{}", said.stderr);
    // It waits for the one who migrates, and goes on.
    let start = setup().on(&db).start();
    let unlock = async {
        let waiting =
            "select count(*) from pg_stat_activity where wait_event = 'advisory' and datname = current_database()";
        db.until_number("the server to wait", waiting, 1).await;
        execute(&mut other, "insert into _sqlx_migrations select * from public.kept".to_owned()).await;
        other.close().await.unwrap();
    };
    let (server, ()) = tokio::join!(start, unlock);
    server.start_run().await;
}

async fn within_s<T>(seconds: u64, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(seconds), work).await.expect("it is known at once")
}

#[tokio::test]
async fn a_database_that_forgets_in_a_power_loss_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { data_dir: folder.path().to_owned(), pg_bin: None, path_env: std::env::var_os("PATH") };
    let cluster = Cluster::start(options).await.unwrap();
    let endpoint = cluster.endpoint();
    let options = PgConnectOptions::new_without_pgpass()
        .socket(&endpoint.socket_dir)
        .port(endpoint.port)
        .username(&endpoint.user)
        .password(endpoint.password.expose())
        .database(&endpoint.database);
    let mut owner = PgConnection::connect_with(&options).await.unwrap();
    let settings = Settings::few(options.clone());
    for name in ["fsync", "full_page_writes"] {
        for value in ["off", "on"] {
            execute(&mut owner, format!("alter system set {name} = {value}")).await;
            execute(&mut owner, "select pg_reload_conf()".to_owned()).await;
            until("the setting", || async {
                let mut other = PgConnection::connect_with(&options).await.unwrap();
                let durability = Durability::of(&mut other).await.unwrap();
                durability.check().is_err() == (value == "off")
            })
            .await;
            let connected = Store::connect(settings.clone()).await;
            match value {
                "off" => {
                    let refusal = connected.err().unwrap().to_string();
                    assert!(refusal.contains(name) && refusal.contains("alter system"), "{refusal}");
                }
                _ => connected.unwrap().close().await,
            }
        }
    }
    owner.close().await.unwrap();
    cluster.stop(STOP_MAX).await.unwrap();
}

#[tokio::test]
async fn partitions_that_cannot_be_made_at_once_hold_up_no_emit() {
    let server = Server::start().await;
    let run = server.start_run().await;
    // As pg_dump does, for as long as it runs.
    let mut dump = server.db.connect().await;
    execute(&mut dump, "begin; lock table store.run_event in access share mode".to_owned()).await;
    let store = server.inner.timeline.store().clone();
    let later = chrono::Utc::now() + chrono::TimeDelta::days(400);
    let making = tokio::spawn(async move { store.ensure_partitions(later).await });
    while !making.is_finished() {
        server.emit(&run, numbered(0)).await;
    }
    assert!(making.await.unwrap().is_err(), "it is left to the next time");
    execute(&mut dump, "rollback".to_owned()).await;
    assert!(server.inner.timeline.store().ensure_partitions(later).await.unwrap() > 0);
}
