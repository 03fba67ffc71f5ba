//! Lists of runs: filters, orders, what stands beside a run, and how many there are.

use std::time::Duration;

use chrono::SecondsFormat;
use serde_json::{Value, json};

use crate::support::{
    api::Api,
    process::{program, run},
    runs::numbered,
    server::{Server, manual_clock, setup},
    shared::shared,
    threads::encoded,
};

/// The ids of the runs on all pages of a list.
async fn ids(api: &Api, query: &str, limit: usize) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("/api/runs?limit={limit}&{query}{cursor}")).await.expect(200);
        let runs = page["runs"].as_array().unwrap();
        assert!(runs.len() <= limit);
        found.extend(runs.iter().map(|run| run["run_id"].as_str().unwrap().to_owned()));
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={}", encoded(next)),
            None => return found,
        }
    }
}

fn time(server: &Server) -> String {
    encoded(&server.clock.now().to_rfc3339_opts(SecondsFormat::Micros, true))
}

#[tokio::test]
async fn a_list_is_sorted_by_each_key_in_both_directions_and_paged_without_repeat_or_loss() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    // Of each: how long it takes, and how many events it has. Created one after the other, ended in another order.
    let mut runs = Vec::new();
    for events in [3, 1, 4, 1, 5] {
        let run = server.start_run().await;
        server.emit_many(&run, 0, events).await;
        runs.push(run);
        server.pass(Duration::from_secs(1));
    }
    for nth in [2, 0, 4, 1] {
        server.complete(&runs[nth]).await;
        server.pass(Duration::from_secs(1));
    }
    let queued = server.create(json!({ "start": false })).await;
    runs.push(queued);
    let check = async |sort: &str, expected: &[usize]| {
        let expected: Vec<String> = expected.iter().map(|nth| runs[*nth].clone()).collect();
        for limit in [1, 2, 100] {
            assert_eq!(ids(&server, &format!("sort={sort}"), limit).await, expected, "{sort} by {limit}");
            let mut back = ids(&server, &format!("sort={sort}&order=asc"), limit).await;
            back.reverse();
            assert_eq!(back, expected, "{sort} ascending by {limit}");
        }
    };
    check("created", &[5, 4, 3, 2, 1, 0]).await;
    check("updated", &[5, 1, 4, 0, 2, 3]).await;
    // 7 s, 6 s, 3 s, 3 s, 0 s, and one that never started.
    check("duration", &[1, 0, 4, 2, 3, 5]).await;
    check("events", &[4, 2, 0, 1, 3, 5]).await;
}

#[tokio::test]
async fn a_list_is_narrowed_by_durations_times_and_several_values() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let slow = server.create(json!({ "agent": "a,b", "tags": ["x", "y,z"] })).await;
    server.pass(Duration::from_millis(1_500));
    let after = time(&server);
    server.complete(&slow).await;
    server.pass(Duration::from_millis(500));
    let quick = server.create(json!({ "agent": "c", "tags": ["x"] })).await;
    let later = time(&server);
    // Of two runs of the same moment either may be the first.
    server.pass(Duration::from_millis(1));
    let child = server.create(json!({ "agent": "d", "parent_run_id": quick })).await;
    let check = async |query: &str, expected: &[&String]| {
        assert_eq!(
            ids(&server, query, 100).await,
            expected.iter().map(|run| (*run).clone()).collect::<Vec<_>>(),
            "{query}"
        );
    };
    check("duration_min_ms=1500", &[&slow]).await;
    check("duration_min_ms=1501", &[]).await;
    check("duration_max_ms=1500", &[&child, &quick]).await;
    check("duration_min_ms=0&duration_max_ms=1501", &[&child, &quick, &slow]).await;
    check(&format!("updated_since={after}"), &[&child, &quick, &slow]).await;
    check(&format!("updated_since={later}"), &[&child, &quick]).await;
    check(&format!("updated_until={later}"), &[&slow]).await;
    check(&format!("agent={}", encoded("c,a\\,b")), &[&quick, &slow]).await;
    check("agent=a,b", &[]).await;
    check("tag=x", &[&quick, &slow]).await;
    check(&format!("tag={}", encoded("y\\,z,x")), &[&slow]).await;
    check("roots=true", &[&quick, &slow]).await;
    check("roots=false", &[&child, &quick, &slow]).await;
    check(&format!("roots=true&agent=d&sort=events&order=asc&since={later}"), &[]).await;
    check(&format!("root_run_id={quick}"), &[&child, &quick]).await;
    check(&format!("root_run_id={child}"), &[]).await;
}

#[tokio::test]
async fn a_list_is_sorted_and_narrowed_by_tokens_and_by_costs_that_are_known() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let mut runs = Vec::new();
    // $0.0025 for each thousand of tokens, and of one nobody knows the price.
    for (model, tokens) in [("gpt-4o", 1_000), ("gpt-4o", 4_000), ("nobody-knows-it", 9_000)] {
        let run = server.start_run().await;
        let usage = json!({ "input_tokens": tokens, "output_tokens": 0 });
        let said = json!({ "text": "x", "model": model, "usage": usage });
        server.emit(&run, json!({ "type": "message.completed", "payload": said })).await;
        runs.push(run);
        server.pass(Duration::from_secs(1));
    }
    runs.push(server.start_run().await);
    let check = async |query: &str, expected: &[usize]| {
        let expected: Vec<String> = expected.iter().map(|nth| runs[*nth].clone()).collect();
        assert_eq!(ids(&server, query, 1).await, expected, "{query}");
    };
    check("sort=tokens", &[2, 1, 0, 3]).await;
    check("sort=tokens&order=asc", &[3, 0, 1, 2]).await;
    check("sort=cost&cost_min_usd=0", &[1, 0]).await;
    check("sort=cost&order=asc&cost_min_usd=0", &[0, 1]).await;
    check("cost_min_usd=0.01", &[1]).await;
    check("cost_max_usd=0.01", &[0]).await;
    check("cost_min_usd=0.0025&cost_max_usd=0.01", &[0]).await;
    let costly = server.get("/api/runs/histogram?cost_min_usd=0.005").await.expect(200);
    assert_eq!(costly["totals"], json!({ "running": 1 }));
}

#[tokio::test]
async fn a_cursor_is_good_for_its_own_order_only() {
    let server = shared().await;
    for _ in 0..3 {
        server.start_run().await;
    }
    let mut cursors = Vec::new();
    let orders: Vec<String> = ["created", "updated", "duration", "events", "tokens", "cost"]
        .iter()
        .flat_map(|sort| ["asc", "desc"].map(|order| format!("sort={sort}&order={order}")))
        .collect();
    for order in &orders {
        let page = server.get(&format!("/api/runs?limit=1&{order}")).await.expect(200);
        cursors.push(page["next_cursor"].as_str().unwrap().to_owned());
    }
    for (nth, order) in orders.iter().enumerate() {
        for (of, cursor) in cursors.iter().enumerate() {
            let reply = server.get(&format!("/api/runs?limit=1&{order}&cursor={cursor}")).await;
            if nth == of {
                reply.expect(200);
            } else {
                reply.refused(400, "invalid_cursor");
            }
        }
    }
    for bad in ["rx1.", "rU9223372036854775807.0198c0de-0000-7000-8000-000000000001", "rU1", "rUU1.x", "rE.1", "rEé.1"]
    {
        server.get(&format!("/api/runs?cursor={}", encoded(bad))).await.refused(400, "invalid_cursor");
    }
}

#[tokio::test]
async fn what_a_list_cannot_understand_is_refused() {
    let server = shared().await;
    let many = vec!["a"; 33].join(",");
    for bad in [
        "sort=name",
        "sort=created,events",
        "order=up",
        "roots=maybe",
        "duration_min_ms=x",
        "duration_max_ms=1.5",
        "cost_min_usd=-1",
        "cost_min_usd=NaN",
        "cost_max_usd=inf",
        "cost_max_usd=free",
        "root_run_id=x",
        "updated_since=now",
        "updated_until=1",
        "agent=%00",
        "tag=a%0Ab",
        "status=running,done",
        "model=",
        &format!("agent={many}"),
        &format!("tag={many}"),
        "buckets=0",
        "buckets=201",
    ] {
        let path = if bad.starts_with("buckets") { "/api/runs/histogram" } else { "/api/runs" };
        let reply = server.get(&format!("{path}?{bad}")).await;
        // An empty filter is none.
        assert_eq!(reply.status, if bad == "model=" { 200 } else { 400 }, "{bad}: {}", reply.text);
    }
}

#[tokio::test]
async fn a_list_says_of_each_run_how_it_went() {
    let server = shared().await;
    let excerpt = async |run: &str| {
        let list = server.get("/api/runs").await.expect(200);
        list["runs"].as_array().unwrap().iter().find(|listed| listed["run_id"] == run).unwrap()["excerpt"].clone()
    };
    let silent = server.start_run().await;
    server.emit(&silent, numbered(1)).await;
    assert_eq!(excerpt(&silent).await, Value::Null);
    let talks = server.start_run().await;
    let message = |payload: Value| json!({ "type": "message.completed", "payload": payload });
    for (payload, text) in [
        (json!({ "text": "one" }), "one"),
        (json!({ "content": [{ "type": "text", "text": "two\n\n  lines" }, { "type": "image" }] }), "two lines"),
        (json!({ "content": "three" }), "three"),
    ] {
        server.emit(&talks, message(payload)).await;
        assert_eq!(excerpt(&talks).await, json!({ "kind": "message", "text": text }));
    }
    server.emit(&talks, message(json!({ "text": "é".repeat(301) }))).await;
    assert_eq!(excerpt(&talks).await["text"], "é".repeat(299) + "…");
    server.emit_many(&talks, 0, 49).await;
    assert_eq!(excerpt(&talks).await["kind"], "message");
    server.emit(&talks, numbered(49)).await;
    assert_eq!(excerpt(&talks).await, Value::Null, "it is not among the last 50 events");
    let failed = server.start_run().await;
    let end = json!({ "type": "run.failed", "payload": { "error": { "code": "rate", "message": "429 from\nthe provider" } } });
    server.emit(&failed, json!([message(json!({ "text": "I try" })), end])).await;
    assert_eq!(excerpt(&failed).await, json!({ "kind": "error", "text": "429 from the provider" }));
    assert!(server.run(&failed).await.get("excerpt").is_none());
}

#[tokio::test]
async fn a_list_of_roots_counts_what_is_below_and_names_the_worst() {
    let server = shared().await;
    let below = async |root: &str| {
        let list = server.get("/api/runs?roots=true").await.expect(200);
        let run = list["runs"].as_array().unwrap().iter().find(|run| run["run_id"] == root).unwrap().clone();
        (run["descendants"]["count"].as_i64().unwrap(), run["descendants"]["worst_status"].clone())
    };
    let (root, other) = (server.start_run().await, server.start_run().await);
    assert_eq!(below(&root).await, (0, Value::Null));
    let child = server.child_of(&root).await;
    let grandchild = server.child_of(&child).await;
    assert_eq!(below(&root).await, (2, json!("running")));
    server.emit(&grandchild, json!({ "type": "run.interrupted" })).await;
    assert_eq!(below(&root).await, (2, json!("interrupted")));
    server.emit(&child, json!({ "type": "run.failed", "payload": {} })).await;
    assert_eq!(below(&root).await, (2, json!("failed")));
    assert_eq!(below(&other).await, (0, Value::Null));
    let list = server.get("/api/runs").await.expect(200);
    assert!(list["runs"].as_array().unwrap().iter().all(|run| run.get("descendants").is_none()));
}

#[tokio::test]
async fn a_histogram_counts_runs_by_time_and_status() {
    let clock = manual_clock();
    let server = setup().clock(&clock).start().await;
    let empty = server.get("/api/runs/histogram").await.expect(200);
    assert_eq!((&empty["buckets"], &empty["totals"]), (&json!([]), &json!({})));
    let first = server.create(json!({ "agent": "a" })).await;
    server.complete(&first).await;
    server.create(json!({ "agent": "b" })).await;
    server.pass(Duration::from_mins(30));
    server.create(json!({ "agent": "b" })).await;
    server.pass(Duration::from_mins(30));
    let whole = server.get("/api/runs/histogram").await.expect(200);
    assert_eq!(whole["totals"], json!({ "completed": 1, "running": 2 }));
    assert_eq!(whole["bucket_ms"], 5 * 60_000, "an hour has more than 60 whole minutes when it begins in one");
    let counts: Vec<&Value> = whole["buckets"].as_array().unwrap().iter().map(|bucket| &bucket["counts"]).collect();
    assert_eq!(counts, [&json!({ "completed": 1, "running": 1 }), &json!({ "running": 1 })]);
    assert_eq!((&whole["since"], &whole["searched"]), (&server.run(&first).await["created_at"], &Value::Null));
    for bucket in whole["buckets"].as_array().unwrap() {
        let at = chrono::DateTime::parse_from_rfc3339(bucket["at"].as_str().unwrap()).unwrap();
        assert_eq!(at.timestamp_millis() % (5 * 60_000), 0);
    }
    for buckets in [1, 2, 200] {
        let some = server.get(&format!("/api/runs/histogram?buckets={buckets}")).await.expect(200);
        assert!(some["buckets"].as_array().unwrap().len() <= buckets);
        assert_eq!(some["totals"], whole["totals"]);
    }
    for (query, totals) in [
        ("agent=b", json!({ "running": 2 })),
        ("status=completed", json!({ "completed": 1 })),
        ("agent=c", json!({})),
        (&format!("since={}", time(&server)), json!({})),
        (&format!("until={}", time(&server)), json!({ "completed": 1, "running": 2 })),
        ("since=1970-01-01T00:00:00Z&until=9999-12-31T00:00:00Z", json!({ "completed": 1, "running": 2 })),
        ("since=2030-01-01T00:00:00Z&until=2020-01-01T00:00:00Z", json!({})),
    ] {
        let some = server.get(&format!("/api/runs/histogram?{query}")).await.expect(200);
        assert_eq!(some["totals"], totals, "{query}");
        assert!(some["buckets"].as_array().unwrap().len() <= 60);
    }
}

#[tokio::test]
async fn the_command_lists_with_the_same_filters() {
    let server = Server::start().await;
    let root = server.create(json!({ "title": "Fetch the invoice", "agent": "clerk", "tags": ["x"] })).await;
    let child = server.child_of(&root).await;
    server.emit(&child, json!({ "type": "run.failed", "payload": { "error": { "message": "no such page" } } })).await;
    let check = async |words: &[&str], expected: &[&str]| {
        let mut command = program(&[&["runs", "list", "--json"], words].concat());
        command.env("RUNREEL_URL", &server.base);
        let said = run(command, "").await;
        assert_eq!(said.code, Some(0), "{words:?}: {}", said.stderr);
        let found: Vec<Value> = said.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(found.iter().map(|run| run["run_id"].as_str().unwrap()).collect::<Vec<_>>(), expected, "{words:?}");
    };
    check(&[], &[&child, &root]).await;
    check(&["--roots"], &[&root]).await;
    check(&["--status", "failed,running", "--ascending"], &[&root, &child]).await;
    check(&["--agent", "clerk", "--tag", "x", "--since", "1h"], &[&root]).await;
    check(&["--until", "1h"], &[]).await;
    check(&["--search", "INVOICE"], &[&root]).await;
    check(&["--sort", "events"], &[&child, &root]).await;
    check(&["--min-duration", "1h"], &[]).await;
    let mut command = program(&["runs", "--roots"]);
    command.env("RUNREEL_URL", &server.base);
    let said = run(command, "").await;
    assert!(said.stdout.contains("Fetch the invoice (+1 run)"), "{}", said.stdout);
    let mut command = program(&["runs", "list", "--search", "***"]);
    command.env("RUNREEL_URL", &server.base);
    assert_eq!(run(command, "").await.code, Some(2));
}
