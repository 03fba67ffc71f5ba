//! Search in what runs say: what is found, when it is found, and what never is.

mod index;
mod naughty;

use std::time::Duration;

use futures::StreamExt as _;
use serde_json::{Value, json};

use crate::support::{
    api::Api,
    cluster::{Db, execute},
    runs::new_run_id,
    server::{Server, manual_clock, setup},
    shared::shared,
    threads::encoded,
};

/// Waits until everything that was committed is indexed.
pub async fn indexed(db: &Db) {
    let left = "select coalesce(sum(l.position - coalesce(p.position, 0)), 0)::bigint
                       + (select count(*) from store.search_deferred)
                from store.lane l left join store.search_progress p using (lane)";
    db.until_number("the index", left, 0).await;
}

/// The runs in which all words of a text are.
pub async fn found(api: &Api, text: &str) -> Vec<String> {
    let list = api.get(&format!("/api/runs?limit=1000&q={}", encoded(text))).await.expect(200);
    list["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn everything_a_run_says_is_found_by_its_words() {
    let server = Server::start().await;
    let run = server
        .create(json!({ "title": "Nightly survey", "agent": "Scout", "tags": ["blue"], "input": { "city": "Zürich" },
                        "metadata": { "team": ["north"] } }))
        .await;
    server
        .emit(
            &run,
            json!([
                { "type": "message.completed", "payload": { "role": "user", "content": [{ "type": "text", "text": "How is the WEATHER?" }] } },
                { "type": "tool.started", "span_id": "c1", "payload": { "name": "get_forecast", "args": { "days": 17, "place": "東京都" } } },
                { "type": "tool.failed", "span_id": "c1", "payload": { "error": "timed-out after 429\u{1f600}ms" } },
                { "type": "custom.note", "payload": { "deep": [[[{ "x": "bottom" }]]], "escaped": "caf\u{e9} \"quoted\"\\slash" } },
                { "type": "run.failed", "payload": { "error": { "code": "E_LIMIT", "message": "quota exceeded" } } }
            ]),
        )
        .await;
    let other = server.start_run().await;
    indexed(&server.db).await;
    for text in [
        "nightly",
        "scout",
        "blue",
        "zürich",
        "ZÜRICH",
        "north",
        "weather",
        "get_forecast",
        "forecast",
        "17",
        "東京",
        "京",
        "timed-out",
        "429",
        "bottom",
        "café",
        "quoted",
        "slash",
        "limit",
        "exceeded quota",
        "weather exceeded nightly",
        "fore*",
        "E_LIM*",
        "user",
    ] {
        assert_eq!(found(&server, text).await, std::slice::from_ref(&run), "{text}");
    }
    assert_eq!(found(&server, &run).await, std::slice::from_ref(&run), "its id");
    for text in ["city", "args", "place", "fore", "weather absent", "custom", "東阪", "survey*x"] {
        assert_eq!(found(&server, text).await, Vec::<String>::new(), "{text}");
    }
    assert_eq!(server.get("/api/runs").await.expect(200)["searched"], Value::Null);
    assert_ne!(run, other);
}

#[tokio::test]
async fn words_of_one_search_may_be_in_different_parts_of_a_run() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let note = |text: String| json!({ "type": "custom.note", "payload": { "text": text } });
    server.emit(&run, note("alpha".to_owned())).await;
    indexed(&server.db).await;
    // More different words than a document has.
    for part in 0..4 {
        server.emit(&run, note((0..1_500).map(|n| format!("w{part}x{n}")).collect::<Vec<_>>().join(" "))).await;
        indexed(&server.db).await;
    }
    server.emit(&run, note("omega".to_owned())).await;
    indexed(&server.db).await;
    assert!(server.db.number("select count(*) from store.search_document").await > 2);
    assert_eq!(found(&server, "omega alpha w0x0 w3x1499").await, std::slice::from_ref(&run));
    assert_eq!(found(&server, "omega alpha w3x1500").await, Vec::<String>::new());
}

#[tokio::test]
async fn a_rare_word_is_found_among_many_runs_in_every_order() {
    let server = Server::start().await;
    let note = |text: &str| json!({ "type": "custom.note", "payload": { "model": "m-1", "text": text } });
    let mut rare = Vec::new();
    for _ in 0..3 {
        let run = server.create(json!({ "agent": "old" })).await;
        server.emit(&run, note("needle hay")).await;
        rare.push(run);
    }
    // More than a search looks at in turn.
    let many = futures::stream::iter(0..1_001).map(|_| server.start_run()).buffered(16).collect::<Vec<_>>().await;
    server.emit(&many[0], note("hay")).await;
    indexed(&server.db).await;
    let list = async |query: &str| {
        let list = server.get(&format!("/api/runs?{query}")).await.expect(200);
        let ids = list["runs"].as_array().unwrap().iter().map(|run| run["run_id"].as_str().unwrap().to_owned());
        (ids.collect::<Vec<_>>(), list["next_cursor"].clone())
    };
    let reversed: Vec<String> = rare.iter().rev().cloned().collect();
    assert_eq!(list("q=needle").await.0, reversed);
    assert_eq!(list("q=needle&order=asc").await.0, rare);
    for sort in ["updated", "duration", "events"] {
        let mut ids = list(&format!("q=needle&sort={sort}")).await.0;
        ids.sort();
        assert_eq!(ids, rare, "{sort}");
    }
    assert_eq!(list("q=needle&agent=new").await.0, Vec::<String>::new());
    assert_eq!(list("q=needle&agent=old&status=running&model=m-1").await.0, reversed);
    assert_eq!(list("model=m-1").await.0.len(), 4);
    assert_eq!(list("model=m").await.0, Vec::<String>::new());
    assert_eq!(list("model=m-1&q=needle&roots=true").await.0, reversed);
    // One page was found in turn, the next by the index.
    let (first, cursor) = list("q=hay&limit=1").await;
    assert_eq!(first, [many[0].clone()]);
    let rest = list(&format!("q=hay&limit=2&cursor={}", cursor.as_str().unwrap())).await;
    assert_eq!(rest.0, reversed[..2]);
    assert_eq!(
        list(&format!("q=hay&limit=2&cursor={}", rest.1.as_str().unwrap())).await,
        (reversed[2..].to_vec(), Value::Null)
    );
    let counts = server.get("/api/runs/histogram?q=needle&buckets=1").await.expect(200);
    assert_eq!(counts["totals"], json!({ "running": 3 }));
    assert_eq!(counts["searched"]["lag_ms"], 0);
}

#[tokio::test]
async fn a_search_says_how_far_it_saw_and_finds_new_runs_by_their_names() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let run = server.create(json!({ "title": "First report" })).await;
    indexed(&server.db).await;
    let searched = async |text: &str| {
        let list = server.get(&format!("/api/runs?q={text}")).await.expect(200);
        (list["runs"].as_array().unwrap().len(), list["searched"]["lag_ms"].as_i64())
    };
    assert_eq!(searched("report").await, (1, Some(0)));
    // Whoever holds the progress stops the indexer.
    let mut holder = server.db.connect().await;
    execute(&mut holder, "begin; select from store.search_progress for update".to_owned()).await;
    let before = server.clock.now();
    server.emit(&run, json!({ "type": "log.info", "payload": { "text": "hidden" } })).await;
    server.pass(Duration::from_secs(5));
    let named = server.create(json!({ "title": "Second report", "agent": "clerk" })).await;
    let list = server.get("/api/runs?q=hidden").await.expect(200);
    assert_eq!(list["runs"], json!([]));
    let up_to = chrono::DateTime::parse_from_rfc3339(list["searched"]["up_to"].as_str().unwrap()).unwrap();
    assert!(up_to <= before, "{up_to}");
    assert!(list["searched"]["lag_ms"].as_i64().unwrap() >= 5_000);
    assert_eq!(searched("report").await.0, 2);
    assert_eq!(found(&server, "clerk second").await, std::slice::from_ref(&named));
    assert_eq!(found(&server, &named).await, [named]);
    execute(&mut holder, "rollback".to_owned()).await;
    indexed(&server.db).await;
    assert_eq!(searched("hidden").await, (1, Some(0)));
    let metrics = server.get("/metrics").await.text;
    for name in ["runreel_search_lag_events", "runreel_search_lag_seconds", "runreel_search_indexed_events_total"] {
        assert!(metrics.contains(name), "{name}");
    }
}

#[tokio::test]
async fn nobody_finds_what_another_principal_says() {
    let server = setup().jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = alice.create(json!({ "title": "secret plan" })).await;
    alice.emit(&run, json!({ "type": "log.info", "payload": { "text": "shared", "model": "m" } })).await;
    let own = bob.start_run().await;
    bob.emit(&own, json!({ "type": "log.info", "payload": { "text": "shared" } })).await;
    indexed(&server.db).await;
    assert_eq!(found(&alice, "shared").await, std::slice::from_ref(&run));
    assert_eq!(found(&bob, "shared").await, [own]);
    for text in ["secret", "plan", &run] {
        assert_eq!(found(&bob, text).await, Vec::<String>::new(), "{text}");
    }
    for query in ["model=m", "q=secret&sort=events", "q=secret&order=asc"] {
        assert_eq!(bob.get(&format!("/api/runs?{query}")).await.expect(200)["runs"], json!([]));
        assert_eq!(bob.get(&format!("/api/runs/histogram?{query}")).await.expect(200)["totals"], json!({}));
    }
    bob.get(&format!("/api/runs/{run}/search?q=secret")).await.refused(404, "not_found");
    // The database itself shows nothing to who has not named the owner, nor through the function.
    let mut connection = server.db.connect().await;
    execute(&mut connection, "set role runreel_app; select set_config('runreel.owner', 'nobody', false)".to_owned())
        .await;
    for query in [
        "select count(*) from store.search_document",
        "select count(*) from store.runs_with_words(array[(select '''x'':*')])",
    ] {
        let count: i64 = sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap();
        assert_eq!(count, 0, "{query}");
    }
}

#[tokio::test]
async fn the_events_of_one_run_are_searched_without_an_index() {
    let server = shared().await;
    let run = server.start_run().await;
    let mut events = Vec::new();
    for n in 0..30 {
        let text = if n % 10 == 5 { format!("call {n} failed with 429") } else { format!("call {n}") };
        events.push(json!({ "type": "tool.completed", "span_id": format!("span-{n}"), "payload": { "name": "fetch", "result": text } }));
    }
    server.emit(&run, json!(events)).await;
    let search = async |query: &str| server.get(&format!("/api/runs/{run}/search?{query}")).await.expect(200);
    let hits = search("q=429%20fail*").await;
    let seqs: Vec<i64> = hits["hits"].as_array().unwrap().iter().map(|hit| hit["seq"].as_i64().unwrap()).collect();
    assert_eq!(seqs, [8, 18, 28]);
    assert_eq!((&hits["has_more"], &hits["next_after"]), (&json!(false), &json!(32)));
    let hit = &hits["hits"][0];
    assert_eq!(
        (&hit["type"], &hit["span_id"], &hit["text"]),
        (&json!("tool.completed"), &json!("span-5"), &json!("call 5 failed with 429"))
    );
    let first = search("q=429&limit=2").await;
    assert_eq!((&first["next_after"], &first["has_more"]), (&json!(18), &json!(true)));
    let rest = search("q=429&limit=2&after=18").await;
    assert_eq!((&rest["hits"][0]["seq"], &rest["has_more"]), (&json!(28), &json!(false)));
    assert_eq!(search("q=span-7").await["hits"].as_array().unwrap().len(), 1);
    assert_eq!(search("q=tool.completed&limit=1000").await["hits"].as_array().unwrap().len(), 30);
    assert_eq!(search("q=absent").await["hits"], json!([]));
    for bad in ["", "q=", "q=%2A", "q=a&limit=0", "q=a&after=-1", "q=a&limit=1001"] {
        server.get(&format!("/api/runs/{run}/search?{bad}")).await.refused(400, "invalid_request");
    }
    server.get(&format!("/api/runs/{}/search?q=a", new_run_id())).await.refused(404, "not_found");
}
