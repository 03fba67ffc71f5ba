//! SQL over HTTP: a principal asks about its own rows, and nothing it writes leads anywhere else.

use crate::support::shared::shared;

mod attacks;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    support::{
        api::{Api, Reply},
        server::{Server, setup},
    },
    views::VIEWS,
};

async fn ask(api: &Api, query: &str) -> Reply {
    api.post("/api/sql", json!({ "query": query })).await
}

/// The rows of a query that must succeed.
async fn rows(api: &Api, query: &str) -> Value {
    ask(api, query).await.expect(200)["rows"].clone()
}

#[tokio::test]
async fn a_query_sees_what_its_principal_owns_and_nothing_else() {
    let server = setup().jwt().start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let run = ann.create(json!({ "title": "of ann", "thread_id": "t" })).await;
    ann.emit(&run, json!([{ "type": "message.completed", "payload": { "text": "hello" } }])).await;
    bob.create(json!({ "title": "of bob" })).await;
    assert_eq!(rows(&ann, "select title from runs").await, json!([["of ann"]]));
    assert_eq!(rows(&bob, "select title from runreel.runs").await, json!([["of bob"]]));
    assert_eq!(rows(&bob, "select count(*) from messages").await, json!([[0]]));
    let owner = ann.run(&run).await["owner_id"].clone();
    assert_eq!(rows(&ann, "select seen_owner()").await, json!([[owner]]));
    for (view, _) in VIEWS {
        let seen = rows(&ann, &format!("select distinct owner_id from {view}")).await;
        assert!(seen == json!([[owner]]) || seen == json!([]), "{view}: {seen}");
    }
    let nobody = server.as_subject("cleo");
    assert_eq!(rows(&nobody, "select count(*) from runs, run_events").await, json!([[0]]));
}

#[tokio::test]
async fn a_result_has_the_types_of_json_and_stops_where_it_was_told() {
    let server = shared().await;
    let query = "select 1 as n, 9007199254740993 as n, 1.50 as d, true as b, null as x, '{\"a\": [1]}'::json as j,
        array['a', null] as l, 'say \"hi\"' as t, timestamptz '2026-05-05 10:00:00+02' as at; -- done";
    let reply = ask(&server.api, query).await;
    assert_eq!(reply.status, 200, "{}", reply.text);
    let result = reply.json();
    assert!(reply.text.contains("9007199254740993,1.50,"), "{}", reply.text);
    let names: Vec<&Value> = result["columns"].as_array().unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(json!(names), json!(["n", "n", "d", "b", "x", "j", "l", "t", "at"]));
    assert_eq!(result["columns"][6]["type"], "text[]");
    assert_eq!(
        json!(result["rows"][0].as_array().unwrap()[3..]),
        json!([true, null, { "a": [1] }, ["a", null], "say \"hi\"", "2026-05-05 08:00:00+00"])
    );
    assert_eq!(result["is_truncated"], false);

    let many = json!({ "query": "select n from generate_series(1, 50) as n", "rows_max": 3 });
    let result = server.post("/api/sql", many.clone()).await.expect(200);
    assert_eq!((&result["rows"], &result["is_truncated"]), (&json!([[1], [2], [3]]), &json!(true)));
    let exact = json!({ "query": "values (1), (2), (3)", "rows_max": 3 });
    assert_eq!(server.post("/api/sql", exact).await.expect(200)["is_truncated"], false);
    let wide = "with recursive wide (t) as (select 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' union all
        select concat(t, t) from wide where length(t) < 2000000) select t from wide cross join generate_series(1, 9) as n";
    let result = ask(&server.api, wide).await;
    assert!(result.text.len() < 5 * 1024 * 1024);
    assert_eq!(result.expect(200)["is_truncated"], true);

    let csv = server.request(reqwest::Method::POST, "/api/sql").header("accept", "text/csv").json(&many);
    let csv = server.send(csv).await;
    assert_eq!((csv.status, csv.text.as_str()), (200, "n\r\n1\r\n2\r\n3\r\n"));
    assert_eq!(csv.headers["runreel-truncated"], "true");
    assert!(csv.headers["content-type"].to_str().unwrap().starts_with("text/csv"));
}

#[tokio::test]
async fn what_is_wrong_with_a_query_is_said_with_its_place() {
    let server = shared().await;
    let failed = ask(&server.api, "select 'é', agnet from runs").await.refused(422, "query_failed");
    assert_eq!((&failed["position"], &failed["sqlstate"]), (&json!(13), &json!("42703")));
    assert!(failed["detail"].as_str().unwrap().contains("agnet"), "{failed}");
    assert!(failed["hint"].as_str().unwrap().contains("runs.agent"), "{failed}");
    let failed = ask(&server.api, "select 1 / (last_seq - last_seq) from runs union all select 1 / 0").await;
    assert_eq!(failed.refused(422, "query_failed")["sqlstate"], "22012");
    let refused = ask(&server.api, "select 1;\nselect 2").await.refused(422, "query_refused");
    assert_eq!(refused["position"], 11);
    let slow = "select count(*) from generate_series(1, 1000000) as a cross join generate_series(1, 1000000) as b";
    let slow = server.post("/api/sql", json!({ "query": slow, "timeout_ms": 100 })).await;
    slow.refused(422, "query_too_slow");
    for (member, number) in [("rows_max", 0), ("rows_max", 10_001), ("timeout_ms", 0), ("timeout_ms", 10_001)] {
        let refused = server.post("/api/sql", json!({ "query": "select 1", member: number })).await;
        assert_eq!(refused.refused(400, "invalid_request")["field"], member);
    }
    server.post("/api/sql", json!({ "query": "select 1", "role": "x" })).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_principal_with_two_queries_waits_and_keeps_nobody_else_out() {
    let server = setup().jwt().start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let owner = server.inner.authenticator.owner("", "ann");
    let held = [(); 2].map(|()| server.inner.queries.turns.try_take(&owner).unwrap());
    let (busy, other) = tokio::join!(ask(&ann, "select 1"), ask(&bob, "select 1"));
    busy.refused(429, "busy");
    other.expect(200);
    drop(held);
    assert_eq!(rows(&ann, "select 1").await, json!([[1]]));
}

#[tokio::test]
async fn the_schema_has_every_view_and_its_examples_can_be_asked() {
    let server = Server::start().await;
    let run = server.create(json!({ "agent": "a" })).await;
    server.emit(&run, json!([{ "type": "tool.started", "span_id": "c", "payload": { "name": "search" } }])).await;
    let schema = server.get("/api/sql/schema").await.expect(200);
    let told: Vec<String> = schema["views"].as_array().unwrap().iter().flat_map(columns).collect();
    let there = "select c.relname::text || '.' || a.attname::text
        from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
        where c.relnamespace = 'runreel'::regnamespace and c.relkind = 'v'";
    let there: Vec<String> = sqlx::query_scalar(there).fetch_all(&mut server.db.connect().await).await.unwrap();
    assert_eq!(told.iter().collect::<BTreeSet<_>>(), there.iter().collect::<BTreeSet<_>>());
    let functions = schema["functions"].as_array().unwrap();
    assert_eq!(functions.iter().map(|it| &it["name"]).collect::<Vec<_>>(), ["first_run_id", "text_of", "seen_owner"]);
    let examples = schema["examples"].as_array().unwrap();
    let insights = examples.iter().filter(|it| it["group"] == "insights");
    let insights: Vec<(&str, &str)> =
        insights.map(|it| (it["id"].as_str().unwrap(), it["query"].as_str().unwrap())).collect();
    let protocol = include_str!("../../docs/protocol.md");
    for (id, query) in &insights {
        let columns = ask(&server.api, query).await.expect(200)["columns"].clone();
        let names: Vec<String> = columns
            .as_array()
            .unwrap()
            .iter()
            .map(|column| format!("`{}`", column["name"].as_str().unwrap()))
            .collect();
        assert!(protocol.contains(&format!("| `{id}` | {} |", names.join(", "))), "{id}: {names:?}");
        assert!(query.matches("interval '7 days'").count() <= 1, "{id}");
    }
    assert_eq!(insights.len(), 9);
    assert!(examples.len() >= 29 && examples.iter().all(|it| it["title"].as_str().is_some_and(|t| !t.is_empty())));
    for example in examples {
        let reply = ask(&server.api, example["query"].as_str().unwrap()).await;
        assert_eq!(reply.status, 200, "{example}: {}", reply.text);
    }
    assert_eq!(schema["limits"]["rows_max"], 10_000);
}

fn columns(view: &Value) -> Vec<String> {
    assert!(!view["description"].as_str().unwrap().is_empty());
    let columns = view["columns"].as_array().unwrap().iter();
    let spelled = columns.map(|column| {
        assert!(!column["type"].as_str().unwrap().is_empty() && !column["description"].as_str().unwrap().is_empty());
        format!("{}.{}", view["name"].as_str().unwrap(), column["name"].as_str().unwrap())
    });
    spelled.collect()
}
