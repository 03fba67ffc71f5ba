//! Checkpoints found again: pages, filters, the newest.

use serde_json::{Value, json};

use crate::support::{
    runs::new_run_id,
    shared::shared,
    threads::{blob, checkpoint_of, column, encoded, state, state_with, value},
};

/// Where each checkpoint of a list lies.
fn places(rows: &[Value]) -> Vec<(&str, &str, &str)> {
    let (ids, threads) = (column(rows, "checkpoint_id"), column(rows, "thread_id"));
    ids.into_iter().zip(threads).zip(column(rows, "ns")).map(|((id, thread), ns)| (id, thread, ns)).collect()
}

#[tokio::test]
async fn the_newest_is_the_greatest_id_byte_by_byte() {
    let server = shared().await;
    let mut ids =
        vec!["B", "a", "A", "aa", "a.", "a-", "a_", "Z", "z", "1", "10", "9", "~", "!", "_", "a~", "aA", "ab"];
    for id in &ids {
        server.put_checkpoint("t", id, state(id)).await;
    }
    ids.sort_unstable_by(|a, b| b.as_bytes().cmp(a.as_bytes()));
    let whole = server.get("/api/threads/t/checkpoints").await.expect(200);
    let whole = whole["checkpoints"].as_array().unwrap();
    assert_eq!(column(whole, "checkpoint_id"), ids);
    for row in whole {
        assert_eq!(
            *row,
            server.checkpoint("t", row["checkpoint_id"].as_str().unwrap()).await,
            "a row is the checkpoint"
        );
    }
    assert_eq!(server.get("/api/threads/t/checkpoints/latest").await.expect(200)["checkpoint_id"], "~");
    assert_eq!(server.thread("t").await["latest_checkpoint_id"], "~");
    for (n, before) in ids.iter().enumerate() {
        let list = server.get(&format!("/api/threads/t/checkpoints?before={}", encoded(before))).await.expect(200);
        assert_eq!(column(list["checkpoints"].as_array().unwrap(), "checkpoint_id"), ids[n + 1..], "before {before}");
    }
    let list = server.get("/api/threads/t/checkpoints?before=a,nobody&limit=3").await.expect(200);
    assert_eq!(column(list["checkpoints"].as_array().unwrap(), "checkpoint_id"), ["a", "_", "Z"]);
    server.get("/api/threads/t/checkpoints?before=a%20b").await.refused(400, "invalid_request");
}

#[tokio::test]
async fn equal_ids_in_many_namespaces_and_threads_are_each_listed_once() {
    let server = shared().await;
    for thread in ["t", "T", "u"] {
        for ns in ["", "a", "A", "a|b", "é"] {
            for id in ["1", "2"] {
                server.put_checkpoint(thread, id, state_with("x", json!({ "ns": ns }))).await;
            }
        }
    }
    for (list, count) in [
        ("/api/checkpoints", 30),
        ("/api/threads/t/checkpoints", 10),
        ("/api/checkpoints?ns=", 6),
        ("/api/checkpoints?ns=a%7Cb", 6),
        ("/api/checkpoints?before=2", 15),
        ("/api/threads/T/checkpoints?ns=&before=2", 1),
    ] {
        let sign = if list.contains('?') { '&' } else { '?' };
        let whole = server.pages(&format!("{list}{sign}limit=1000"), "checkpoints").await;
        assert_eq!(whole.len(), count, "{list}");
        assert!(column(&whole, "checkpoint_id").is_sorted_by(|a, b| a >= b), "{list}");
        let mut unique = places(&whole);
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), count, "{list}");
        for limit in [1, 2, 3, 7, 29, 30] {
            let paged = server.pages(&format!("{list}{sign}limit={limit}"), "checkpoints").await;
            assert_eq!(places(&paged), places(&whole), "{list}, {limit} at a time");
        }
    }
}

#[tokio::test]
async fn a_page_goes_on_where_it_stopped_whatever_is_put_and_taken_between() {
    let server = shared().await;
    for n in 0..10 {
        server.put_checkpoint("t", &n.to_string(), state_with("x", json!({ "run_id": n.to_string() }))).await;
    }
    let first = server.get("/api/threads/t/checkpoints?limit=3").await.expect(200);
    assert_eq!(column(first["checkpoints"].as_array().unwrap(), "checkpoint_id"), ["9", "8", "7"]);
    server.put_checkpoint("t", "99", state("newer")).await;
    server.put_checkpoint("t", "55", state("between")).await;
    // The very one the cursor names is gone.
    server.post("/api/checkpoints/delete-for-runs", json!({ "run_ids": ["7", "4"] })).await.expect(200);
    let rest = server.pages_after("/api/threads/t/checkpoints?limit=2", &first["next_cursor"], "checkpoints").await;
    assert_eq!(column(&rest, "checkpoint_id"), ["6", "55", "5", "3", "2", "1", "0"]);
}

#[tokio::test]
async fn a_list_of_many_checkpoints_needs_many_steps_and_misses_none() {
    let server = shared().await;
    for n in 0..130 {
        server
            .put_checkpoint(
                "t",
                &format!("{n:03}"),
                state_with("x", json!({ "versions": { "c": 1 }, "blobs": { "c": blob(1, b"v") } })),
            )
            .await;
    }
    let expected: Vec<String> = (0..130).rev().map(|n| format!("{n:03}")).collect();
    for (limit, pages) in [(49, 3), (50, 3), (51, 3), (99, 2), (100, 2), (101, 2), (129, 2), (130, 1), (1_000, 1)] {
        let mut seen = Vec::new();
        let mut next = Some(String::new());
        let mut count = 0;
        while let Some(cursor) = next {
            let page = server.get(&format!("/api/threads/t/checkpoints?limit={limit}{cursor}")).await.expect(200);
            count += 1;
            seen.extend(
                page["checkpoints"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|row| row["checkpoint_id"].as_str().unwrap().to_owned()),
            );
            next = page["next_cursor"].as_str().map(|cursor| format!("&cursor={cursor}"));
        }
        assert_eq!((seen == expected, count), (true, pages), "{limit} at a time");
    }
}

#[tokio::test]
async fn a_page_of_large_values_ends_early_and_loses_nothing() {
    let server = shared().await;
    let large = vec![b'x'; 4 * 1024 * 1024];
    let ids: Vec<String> = (0..60).map(|n| format!("{n:02}")).collect();
    let first = state_with("x", json!({ "versions": { "c": 1 }, "blobs": { "c": blob(1, &large) } }));
    server.put_checkpoint("t", &ids[0], first).await;
    for id in &ids[1..] {
        server.put_checkpoint("t", id, state_with("x", json!({ "versions": { "c": 1 } }))).await;
    }
    let page = server.get("/api/threads/t/checkpoints?limit=100").await;
    assert!(page.text.len() < 48 * 1024 * 1024, "a page of {} bytes", page.text.len());
    let page = page.expect(200);
    let shown = column(page["checkpoints"].as_array().unwrap(), "checkpoint_id");
    assert!((1..=5).contains(&shown.len()) && shown[0] == "59", "{shown:?}");
    let cursor = encoded(page["next_cursor"].as_str().unwrap());
    let next = server.get(&format!("/api/threads/t/checkpoints?limit=1&cursor={cursor}")).await.expect(200);
    assert_eq!(next["checkpoints"][0]["checkpoint_id"], format!("{:02}", 59 - shown.len()));
}

#[tokio::test]
async fn one_checkpoint_that_is_larger_than_a_page_is_given_alone() {
    let server = shared().await;
    let large = vec![b'x'; 17 * 1024 * 1024];
    server.put_checkpoint("t", "1", state("small")).await;
    server.put_checkpoint("t", "2", json!({ "checkpoint": value(&large) })).await;
    server.put_checkpoint("t", "3", state("small")).await;
    let pages = server.pages("/api/threads/t/checkpoints", "checkpoints").await;
    assert_eq!(column(&pages, "checkpoint_id"), ["3", "2", "1"]);
    let page = server.get("/api/threads/t/checkpoints?before=3").await.expect(200);
    assert_eq!(page["checkpoints"].as_array().unwrap().len(), 1);
    assert!(page["next_cursor"].is_string());
}

#[tokio::test]
async fn a_filter_shows_what_contains_all_of_it() {
    let server = shared().await;
    let metadata = [
        ("a", r#"{"source":"loop","step":1,"writes":null,"tags":["x","y"],"deep":{"k":{"n":1,"m":2}}}"#),
        ("b", r#"{"source":"input","step":-1,"tags":[],"deep":{"k":[{"n":1},{"n":2}]}}"#),
        ("c", r#"{"step":1.0,"it's":"o'clock","%":"_","$1":"$2","a.b":{"c d":true}}"#),
        ("d", r#"{"step":"1","\"":"\\","é":"日本","":"empty","nested":{"":null}}"#),
        ("e", "{}"),
    ];
    for (id, metadata) in metadata {
        let body = format!("{{\"checkpoint\":{},\"metadata\":{metadata}}}", value(b"x"));
        server.put_text(&checkpoint_of("t", id), body).await.expect(201);
    }
    let check = async |filter: &str, expected: &str| {
        for list in ["/api/checkpoints", "/api/threads/t/checkpoints"] {
            let page = server.get(&format!("{list}?filter={}", encoded(filter))).await.expect(200);
            assert_eq!(column(page["checkpoints"].as_array().unwrap(), "checkpoint_id").concat(), expected, "{filter}");
        }
        let paged = server.pages(&format!("/api/checkpoints?limit=1&filter={}", encoded(filter)), "checkpoints").await;
        assert_eq!(column(&paged, "checkpoint_id").concat(), expected, "{filter}");
    };
    check("{}", "edcba").await;
    check(" {\n} ", "edcba").await;
    check(r#"{"source":"loop"}"#, "a").await;
    check(r#"{"source":"loop","step":2}"#, "").await;
    check(r#"{"step":1}"#, "ca").await;
    check(r#"{"step":1.0}"#, "ca").await;
    check(r#"{"step":1e0}"#, "ca").await;
    check(r#"{"step":"1"}"#, "d").await;
    check(r#"{"step":-1}"#, "b").await;
    check(r#"{"writes":null}"#, "a").await;
    check(r#"{"absent":null}"#, "").await;
    check(r#"{"tags":["y"]}"#, "a").await;
    check(r#"{"tags":["y","x","y"]}"#, "a").await;
    check(r#"{"tags":[]}"#, "ba").await;
    check(r#"{"tags":"x"}"#, "").await;
    check(r#"{"deep":{"k":{"m":2}}}"#, "a").await;
    check(r#"{"deep":{"k":[{"n":2}]}}"#, "b").await;
    check(r#"{"deep":{"k":{}}}"#, "a").await;
    check(r#"{"deep":{}}"#, "ba").await;
    check(r#"{"k":{"n":1}}"#, "").await;
    check(r#"{"it's":"o'clock"}"#, "c").await;
    check(r#"{"%":"_"}"#, "c").await;
    check(r#"{"%":"%"}"#, "").await;
    check(r#"{"source":"l%"}"#, "").await;
    check(r#"{"$1":"$2"}"#, "c").await;
    check(r#"{"a.b":{"c d":true}}"#, "c").await;
    check(r#"{"a":{"b":1}}"#, "").await;
    check(r#"{"\"":"\\"}"#, "d").await;
    check(r#"{"\u00e9":"\u65e5\u672c"}"#, "d").await;
    check(r#"{"":"empty"}"#, "d").await;
    check(r#"{"'; drop table store.checkpoint; --":"'); select 1; --"}"#, "").await;
}

#[tokio::test]
async fn what_is_no_filter_is_refused() {
    let server = shared().await;
    server.put_checkpoint("t", "1", state("x")).await;
    for filter in [
        "[]",
        "null",
        "1",
        "\"x\"",
        "true",
        "{",
        "{}{}",
        "{'a':1}",
        "{a:1}",
        "x",
        "{\"a\":NaN}",
        "{\"a\":01}",
        r#"{"a":"\u0000"}"#,
        r#"{"\u0000":1}"#,
        r#"{"a":"\ud800"}"#,
        "{\"a\":1e200000}",
        "\u{feff}{}",
        "{\"a\":1,}",
    ] {
        for list in ["/api/checkpoints", "/api/threads/t/checkpoints"] {
            let reply = server.get(&format!("{list}?filter={}", encoded(filter))).await;
            reply.refused(400, "invalid_request");
        }
    }
    server.get("/api/checkpoints?filter=%FF").await.refused(400, "invalid_request");
    let (ns, run) = ("n".repeat(1_025), "r".repeat(129));
    for (parameter, value) in
        [("ns", "a\nb"), ("ns", ns.as_str()), ("run_id", run.as_str()), ("before", "é"), ("run_id", "\u{0}")]
    {
        let problem = server
            .get(&format!("/api/checkpoints?{parameter}={}", encoded(value)))
            .await
            .refused(400, "invalid_request");
        assert_eq!(problem["field"], parameter);
    }
}

#[tokio::test]
async fn the_newest_of_a_run_is_where_it_goes_on() {
    let server = shared().await;
    let (first, second) = (new_run_id(), new_run_id());
    for (id, ns, run) in [
        ("1", "", &first),
        ("2", "", &second),
        ("3", "", &first),
        ("4", "", &second),
        ("9", "sub", &first),
        ("5", "sub", &second),
    ] {
        server.put_checkpoint("t", id, state_with("x", json!({ "ns": ns, "run_id": run }))).await;
    }
    let latest = async |query: &str| {
        let reply = server.get(&format!("/api/threads/t/checkpoints/latest{query}")).await;
        if reply.status == 404 {
            "none".to_owned()
        } else {
            reply.expect(200)["checkpoint_id"].as_str().unwrap().to_owned()
        }
    };
    assert_eq!(latest("").await, "4");
    assert_eq!(latest("?ns=").await, "4");
    assert_eq!(latest("?ns=sub").await, "9");
    assert_eq!(latest(&format!("?run_id={first}")).await, "3");
    assert_eq!(latest(&format!("?run_id={second}")).await, "4");
    assert_eq!(latest(&format!("?ns=sub&run_id={second}")).await, "5");
    assert_eq!(latest(&format!("?run_id={}", new_run_id())).await, "none");
    assert_eq!(latest("?ns=none").await, "none");
    let listed = server.get(&format!("/api/threads/t/checkpoints?run_id={first}")).await.expect(200);
    assert_eq!(column(listed["checkpoints"].as_array().unwrap(), "checkpoint_id"), ["9", "3", "1"]);
    server.put("/api/threads/empty", json!({})).await.expect(201);
    server.get("/api/threads/empty/checkpoints/latest").await.refused(404, "not_found");
    assert_eq!(server.get("/api/threads/empty/checkpoints").await.expect(200)["checkpoints"], json!([]));
    server.get("/api/threads/absent/checkpoints").await.refused(404, "not_found");
}
