//! The index of a run: what a page shows of each event, and the events somebody looks at.

use std::io::Read as _;

use serde_json::{Value, json};

use crate::support::{
    api::{Api, stream_of},
    runs::{parsed, token},
    server::{Server, setup},
    sse::{envelopes, names},
};

async fn page(api: &Api, run: &str, query: &str) -> Value {
    api.get(&format!("/api/runs/{run}/events?view=index{query}")).await.expect(200)
}

fn length(page: &Value) -> usize {
    page["type"].as_array().unwrap().len()
}

/// The rows of a page as a stream sends them.
fn rows(page: &Value) -> Vec<Value> {
    let began = page["began_at"].as_str().map(|at| chrono::DateTime::parse_from_rfc3339(at).unwrap());
    let row = |at: usize| {
        let after_us: i64 = format!("{:.0}", page["at_ms"][at].as_f64().unwrap() * 1_000.0).parse().unwrap();
        let at_time = began.unwrap() + chrono::TimeDelta::microseconds(after_us);
        let mut row = json!({
            "run_id": page["run_id"], "seq": page["first_seq"].as_i64().unwrap() + at as i64,
            "at": at_time.with_timezone(&chrono::Utc).to_rfc3339_opts(chrono::SecondsFormat::Micros, true),
        });
        for column in
            ["type", "level", "span_id", "parent_span_id", "name", "title", "size", "duration_ms", "child_run_id"]
        {
            assert_eq!(page[column].as_array().unwrap().len(), length(page), "{column}");
            if !page[column][at].is_null() {
                row[column] = page[column][at].clone();
            }
        }
        row
    };
    (0..length(page)).map(row).collect()
}

/// A step with a tool call, a message and a log line.
fn work(n: usize) -> Value {
    json!([
        { "type": "step.started", "span_id": format!("s{n}"), "payload": { "name": "plan" } },
        { "type": "tool.started", "span_id": format!("s{n}.c"), "parent_span_id": format!("s{n}"),
          "payload": { "name": "search", "args": { "q": format!("number {n}") } } },
        { "type": "tool.failed", "span_id": format!("s{n}.c"), "parent_span_id": format!("s{n}"),
          "payload": { "name": "search", "error": { "message": "gone" }, "duration_ms": 12.5, "trace": "x".repeat(500) } },
        { "type": "message.completed", "span_id": format!("s{n}.m"), "parent_span_id": format!("s{n}"),
          "payload": { "content": format!("Answer {n}\n{}", "word ".repeat(200)), "usage": { "input_tokens": 3 } } },
        { "type": "log.warn", "payload": { "message": "slow" } },
    ])
}

#[tokio::test]
async fn pages_of_an_index_go_back_from_the_newest_event_to_the_first() {
    let server = Server::start().await;
    let run = server.start_run().await;
    for n in 0..5 {
        server.emit(&run, work(n)).await;
    }
    let newest = page(&server, &run, "&limit=10").await;
    assert_eq!((&newest["first_seq"], &newest["last_seq"], &newest["last_id"]), (&json!(18), &json!(27), &json!("27")));
    let (mut seen, mut next) = (rows(&newest), newest["next_before"].as_i64());
    while let Some(before) = next {
        let older = page(&server, &run, &format!("&limit=10&before={before}")).await;
        seen.splice(0..0, rows(&older));
        next = older["next_before"].as_i64();
    }
    let events: Vec<Value> = server.events(&run).await.iter().map(parsed).collect();
    assert_eq!(seen.len(), events.len());
    for (row, event) in seen.iter().zip(&events) {
        for member in ["run_id", "seq", "type", "at"] {
            assert_eq!(row[member], event[member], "{member}");
        }
        assert_eq!(row["span_id"], event["span_id"]);
        assert_eq!(row["parent_span_id"], event["parent_span_id"]);
        assert_eq!(row["size"], event["payload"].to_string().len());
    }
    let titles: Vec<&str> = seen[2..7].iter().map(|row| row["title"].as_str().unwrap()).collect();
    assert_eq!(titles[..3], ["plan", "search(q: \"number 0\")", "search error: gone"]);
    assert!(titles[3].starts_with("Answer 0 word") && titles[3].chars().count() == 120, "{titles:?}");
    let failed = &seen[4];
    assert_eq!(
        (&failed["name"], &failed["duration_ms"], &failed["level"]),
        (&json!("search"), &json!(12.5), &json!("error"))
    );
    assert_eq!((&seen[6]["level"], &seen[3]["level"]), (&json!("warn"), &json!("info")));
    let none = page(&server, &run, "&before=1").await;
    assert_eq!(
        (length(&none), &none["first_seq"], &none["next_before"], &none["last_seq"]),
        (0, &json!(null), &json!(null), &json!(27))
    );
    for bad in ["&limit=0", "&limit=5001", "&before=0", "&before=x", "&after=3", "&types=log.*", "&seqs=1"] {
        server.get(&format!("/api/runs/{run}/events?view=index{bad}")).await.refused(400, "invalid_request");
    }
    server.get(&format!("/api/runs/{run}/events?view=table")).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn a_page_of_an_index_is_small_and_ends_where_the_payloads_behind_it_are_many() {
    let server = Server::start().await;
    let run = server.start_run().await;
    for n in 0..40 {
        let batch: Vec<Value> = (n * 10..n * 10 + 10).flat_map(|n| work(n).as_array().unwrap().clone()).collect();
        server.emit(&run, json!(batch)).await;
    }
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).no_gzip().build().unwrap();
    let path = format!("{}/api/runs/{run}/events?view=index&limit=5000", server.base);
    let response = client.get(path).header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(response.headers()["content-encoding"], "gzip");
    let sent = response.bytes().await.unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(&sent[..]).read_to_string(&mut text).unwrap();
    assert_eq!(length(&serde_json::from_str(&text).unwrap()), 2_002);
    assert!(sent.len() < 20 * 2_002, "{} bytes for 2 002 events", sent.len());
    let large = server.start_run().await;
    let payload = json!({ "text": "y".repeat(60_000) });
    for _ in 0..10 {
        server.emit(&large, (0..10).map(|_| json!({ "type": "custom.large", "payload": payload })).collect()).await;
    }
    let newest = page(&server, &large, "").await;
    assert!((35..80).contains(&length(&newest)), "{} of 100 events of 60 kB", length(&newest));
    assert_eq!(newest["next_before"], newest["first_seq"]);
    assert!(newest["title"][0].as_str().unwrap().starts_with("{\"text\":\"yyy"));
}

#[tokio::test]
async fn a_stream_of_the_index_goes_on_where_its_newest_page_ends_and_says_the_same_live_and_replayed() {
    let server = Server::start().await;
    let run = server.start_run().await;
    server.emit(&run, work(0)).await;
    let newest = page(&server, &run, "&limit=2").await;
    let path = format!("{}?view=index", stream_of(&run));
    let mut live = server.stream_after(&path, newest["last_id"].as_str()).await;
    assert_eq!(live.caught_up().await, 0);
    server.emit(&run, work(1)).await;
    server.emit(&run, token("m", "Hel")).await;
    let mut frames = live.durable(5).await;
    let delta = live.next().await;
    assert_eq!(
        (delta.event.as_str(), &delta.json()["payload"]),
        ("message.delta", &json!({ "text": "Hel", "offset": 0 }))
    );
    server.complete(&run).await;
    frames.extend(live.rest().await);
    assert_eq!(frames.last().unwrap().event, "stream.end");
    let replayed = server.stream(&path).await.rest().await;
    assert_eq!(envelopes(&frames)[..], envelopes(&replayed)[7..]);
    let index = rows(&page(&server, &run, "").await);
    let sent: Vec<Value> = envelopes(&replayed).iter().map(parsed).collect();
    assert_eq!(sent, index);
    let ids: Vec<String> = replayed.iter().filter_map(|frame| frame.id.clone()).collect();
    assert_eq!(ids, (1..=13).map(|seq| seq.to_string()).collect::<Vec<_>>());
    let feed = server.stream("/api/stream/runs?view=index").await.durable(13).await;
    assert_eq!(envelopes(&feed), envelopes(&replayed));
    server.no_stream("/api/stream/runs?view=x", None).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn events_are_read_by_their_seqs_as_they_were_sent() {
    let server = Server::start().await;
    let run = server.start_run().await;
    server.emit(&run, work(0)).await;
    let all = server.events(&run).await;
    let some = async |seqs: &str| server.get(&format!("/api/runs/{run}/events?seqs={seqs}")).await;
    let reply = some("6,2-3,99,3").await;
    for seq in [2, 3, 6] {
        assert!(reply.text.contains(&all[seq - 1]), "{}", reply.text);
    }
    let page = reply.expect(200);
    assert_eq!(page["events"].as_array().unwrap().len(), 3);
    assert_eq!((&page["next_after"], &page["last_seq"], &page["has_more"]), (&json!(6), &json!(7), &json!(false)));
    let none = some("50-60").await.expect(200);
    assert_eq!((&none["events"], &none["has_more"]), (&json!([]), &json!(false)));
    for bad in ["0", "x", "1-1001", "3-1", "1,,2", "-5"] {
        some(bad).await.refused(400, "invalid_request");
    }
    server.get(&format!("/api/runs/{run}/events?seqs=1&after=0")).await.refused(400, "invalid_request");
    let large = json!({ "text": "y".repeat(60_000) });
    for _ in 0..3 {
        server.emit(&run, (0..10).map(|_| json!({ "type": "custom.large", "payload": large })).collect()).await;
    }
    let first = some("8-37").await.expect(200);
    let next = first["next_after"].as_i64().unwrap() + 1;
    assert!(first["has_more"] == true && next < 38, "1.8 MB of payloads do not fit one page");
    let rest = some(&format!("{next}-37")).await.expect(200);
    let count = |page: &Value| page["events"].as_array().unwrap().len();
    assert_eq!((count(&first) + count(&rest), &rest["has_more"]), (30, &json!(false)));
}

#[tokio::test]
async fn a_read_token_of_a_run_reads_the_index_of_this_run_and_of_no_other() {
    let server = setup().jwt().start().await;
    let (ann, bob) = (server.as_subject("ann"), server.as_subject("bob"));
    let (run, other) = (ann.start_run().await, ann.start_run().await);
    let made = ann.post(&format!("/api/runs/{run}/tokens"), json!({})).await.expect(201);
    let reader = server.with(made["token"].as_str().unwrap());
    for query in ["?view=index", "?seqs=1"] {
        reader.get(&format!("/api/runs/{run}/events{query}")).await.expect(200);
        let foreign = reader.get(&format!("/api/runs/{other}/events{query}")).await;
        foreign.refused(404, "not_found");
        assert_eq!(foreign.text, bob.get(&format!("/api/runs/{run}/events{query}")).await.text);
    }
    let frames = reader.stream(&format!("{}?view=index&tail=1", stream_of(&run))).await.until("stream.caught_up").await;
    assert_eq!(names(&frames), ["run.started", "stream.caught_up"]);
}
