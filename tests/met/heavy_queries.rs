//! Queries that Postgres would not end, or that take what others need.

use serde_json::json;

use crate::support::{
    api::{Api, Reply},
    cluster::{Db, execute},
    server::{Server, setup},
    until,
};

async fn ask(api: &Api, query: &str, timeout_ms: u64) -> Reply {
    api.post("/api/sql", json!({ "query": query, "timeout_ms": timeout_ms })).await
}

async fn backends(server: &Server) -> i64 {
    let name = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name like 'runreel-query%'";
    server.db.number(name).await
}

/// Two values of so many characters, one of `a` alone and one that differs from it at its beginning or end.
fn values(made_of: &str) -> String {
    format!(
        "select {made_of} from (select string_agg('aaaaaaaaaaaaaaaaaaaa', '') as s,
             concat('b', string_agg('aaaaaaaaaaaaaaaaaaaa', '')) as f,
             string_agg('bbbbbbbbbbbbbbbbbbbb', '') as b,
             array_agg(n) as l, array_agg(-n) as m from generate_series(1, 100000) as n offset 0) as x"
    )
}

#[tokio::test]
async fn what_compares_all_of_two_large_values_ends_within_its_time() {
    let server = Server::start().await;
    for made_of in [
        "length(translate(s || s, b || b, ''))",
        "length(btrim(s, b))",
        "length(ltrim(s, b))",
        "length(rtrim(s, b))",
        "length(rtrim(s::bytea, b::bytea))",
        "strpos(s, f)",
        "length(replace(s, f, ''))",
        "split_part(s, f, 2)",
        "cardinality(string_to_array(s, f))",
        "(select count(*) from string_to_table(s, f) as t)",
        "s like concat('%', s, 'b')",
        "like(s, concat('%', s, 'b'))",
        "s ilike concat('%', s, 'b')",
        "s not like concat('%', s, 'b') escape 'x'",
        "s::char(1000000) like concat('%', s, 'b')",
        "l @> m",
        "l <@ m",
        "l && m",
        "to_jsonb(l) @> to_jsonb(m)",
        "to_jsonb(l) ?| m::text[]",
        "to_jsonb(l) - m::text[]",
    ] {
        let failed = ask(&server.api, &values(made_of), 5_000).await.refused(422, "query_failed");
        assert_eq!(failed["sqlstate"], "54000", "{made_of}: {failed}");
    }
    let numbers =
        "with recursive n (x, d) as (select 9::numeric, 1 union all select x * x, 2 * d from n where d < 60000)
        select length((max(x) * max(x) * max(x))::text) from n";
    ask(&server.api, numbers, 5_000).await.refused(422, "query_failed");
    // A power is never too large, but many of them come to a place where the end of their time is noticed.
    let powers =
        "select count(*) from pg_operator where oprnamespace = 'runreel_bounded'::regnamespace and oprname = '^'";
    assert_eq!(server.db.number(powers).await, 1);
    until("the backends", || async { backends(&server).await == 0 }).await;
}

#[tokio::test]
async fn what_is_bounded_means_the_same_as_ever() {
    let server = Server::start().await;
    for (value, wanted) in [
        ("translate('abc', 'ab', 'x')", json!("xc")),
        ("btrim('xxaxx', 'x')", json!("a")),
        ("btrim('  a ')", json!("a")),
        ("trim('  a ')", json!("a")),
        ("strpos('abc', null)", json!(null)),
        ("'abc' like 'a%'", json!(true)),
        ("'a%c' not ilike 'A!%C' escape '!'", json!(false)),
        ("null::text like 'a'", json!(null)),
        ("array['a'] <@ '{a,b}'", json!(true)),
        ("array_length(string_to_array('a,b,', ','), 1)", json!(3)),
        ("string_to_array('ab', null)", json!(["a", "b"])),
        ("(select string_agg(t, '+') from string_to_table('a,b', ',') as t)", json!("a+b")),
        ("('{\"a\": 1, \"b\": 2}'::jsonb - array['a'])::text", json!("{\"b\": 2}")),
        ("'{\"a\": 1}'::jsonb @> '{}'", json!(true)),
        ("1.5 * 2 % 2", json!(1.0)),
        ("7.0 / 2 + 2 ^ 3", json!(11.5)),
        ("9.5 ^ 2.0", json!(90.25)),
        ("round(ln(exp(2.0)), 3)", json!(2.0)),
    ] {
        let answer = ask(&server.api, &format!("select {value}"), 5_000).await.expect(200);
        assert_eq!(answer["rows"][0][0], wanted, "{value}: {answer}");
    }
}

#[tokio::test]
async fn a_query_keeps_its_place_until_its_backend_is_gone() {
    let slow = "select count(*) from generate_series(1, 1000000) as a cross join generate_series(1, 1000000) as b";
    // A query ends with its own time, which is over on a busy machine before both are looked at: that shows nothing, and is
    // tried again.
    loop {
        let server = setup().jwt().start().await;
        let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
        // As if Postgres did not notice that the backend is to end.
        let mut owner = server.db.connect().await;
        let honest: String = sqlx::query_scalar("select pg_get_functiondef('store.end_query'::regproc)")
            .fetch_one(&mut owner)
            .await
            .unwrap();
        let deaf =
            "create or replace function store.end_query(name text) returns boolean language sql as 'select false'";
        execute(&mut owner, deaf.to_owned()).await;
        // The client goes away.
        let mut are_held = true;
        for running in 1..=2 {
            tokio::select! {
                _ = ask(&ann, slow, 10_000) => are_held = false,
                () = until("the backends", || async { backends(&server).await == running }) => {}
            }
        }
        let busy = ask(&ann, "select 1", 1_000).await;
        if !are_held || backends(&server).await != 2 {
            continue;
        }
        busy.refused(429, "busy");
        ask(&bob, "select 1", 10_000).await.expect(200);
        execute(&mut owner, honest).await;
        until("the backends", || async { backends(&server).await == 0 }).await;
        ask(&ann, "select 1", 10_000).await.expect(200);
        return;
    }
}

#[tokio::test]
async fn the_role_of_queries_has_few_sessions_whichever_server_began_them() {
    let db = Db::new().await;
    let limit = "select rolconnlimit::bigint from pg_roles where rolname = 'runreel_scoped'";
    assert_eq!(db.number(limit).await, 8);
}

#[tokio::test]
async fn a_third_principal_asks_while_two_ask_as_much_as_they_can() {
    let server = setup().jwt().start().await;
    let slow = "select count(*) from generate_series(1, 1000000) as a cross join generate_series(1, 1000000) as b";
    let greedy = ["ann", "ann", "bob", "bob"].map(|name| server.as_subject(name));
    let held = greedy.iter().map(|api| ask(api, slow, 10_000));
    let held = futures::future::join_all(held);
    let third = async {
        until("the backends", || async { backends(&server).await == 3 }).await;
        for _ in 0..3 {
            ask(&server.as_subject("cleo"), "select count(*) from runs", 10_000).await.expect(200);
        }
    };
    tokio::select! {
        biased;
        () = third => {}
        ended = held => panic!("{:?}", ended.into_iter().map(|reply| reply.text).collect::<Vec<_>>()),
    }
}

#[tokio::test]
async fn a_query_that_had_its_share_makes_place_for_who_waits() {
    let server = setup().jwt().start().await;
    let slow = "select count(*) from generate_series(1, 1000000) as a cross join generate_series(1, 1000000) as b";
    let many = ["ann", "bob", "cleo", "dan"].map(|name| server.as_subject(name));
    let held = futures::future::join_all(many.iter().map(|api| ask(api, slow, 6_000)));
    let fifth = async {
        until("the backends", || async { backends(&server).await == 4 }).await;
        ask(&server.as_subject("eve"), "select count(*) from runs", 1_000).await.expect(200)
    };
    let (held, _) = tokio::join!(held, fifth);
    let mut codes: Vec<u16> = held.iter().map(|reply| reply.status).collect();
    codes.sort_unstable();
    assert_eq!(codes, [422, 422, 422, 429]);
}

#[tokio::test]
async fn no_function_is_called_by_the_name_of_a_member() {
    let server = Server::start().await;
    server.create(json!({ "title": "t" })).await;
    for query in [
        "select r.quote_literal from runs as r",
        "select (r).\"quote_nullable\" from runs as r",
        "select (title).upper, (title).unistr from runs",
        "select c . lo_import from unnest(array['/etc/passwd']) as c",
    ] {
        let failed = ask(&server.api, query, 1_000).await.refused(422, "query_failed");
        assert!(failed["detail"].as_str().unwrap().contains("is a function"), "{query}: {failed}");
    }
    let query = "select r.title, (r).to_json ->> 'title', s.name, s.at, s.date from runs as r cross join
        (select 'n' as name, 1 as at, 'd' as date) as s";
    let answer = ask(&server.api, query, 1_000).await.expect(200);
    assert_eq!(answer["rows"], json!([["t", "t", "n", 1, "d"]]));
}
