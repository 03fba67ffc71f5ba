//! Many streams on one connection: each as it would be on its own, whatever becomes of the others.

use std::{collections::BTreeMap, time::Duration};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{
    api::{Api, Reply, stream_of},
    patiently,
    runs::{numbered, token},
    server::{Server, manual_clock, setup},
    sse::{Frame, Stream},
};

async fn request(api: &Api, subscriptions: Value) -> reqwest::Response {
    let request = api.request(Method::POST, "/api/stream").json(&json!({ "subscriptions": subscriptions }));
    patiently("a stream", request.header("accept", "text/event-stream").send()).await.unwrap()
}

/// A connection of these subscriptions.
async fn open(api: &Api, subscriptions: Value) -> Stream {
    let response = request(api, subscriptions).await;
    assert_eq!(response.status(), 200);
    Stream::of(response)
}

async fn refused(api: &Api, subscriptions: Value) -> Reply {
    let response = request(api, subscriptions).await;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Reply { status, headers, text: response.text().await.unwrap() }
}

/// Frames by subscription, as each would be on a stream of its own.
fn sorted(frames: Vec<Frame>) -> BTreeMap<String, Vec<Frame>> {
    let mut sorted: BTreeMap<String, Vec<Frame>> = BTreeMap::new();
    for frame in frames {
        let (name, event) = frame.event.split_once('/').expect("each frame names its subscription");
        sorted.entry(name.to_owned()).or_default().push(Frame { event: event.to_owned(), ..frame.clone() });
    }
    sorted
}

/// Everything up to the moment when all of these have had this event.
async fn until_all(stream: &mut Stream, names: &[&str], event: &str) -> Vec<Frame> {
    let (mut frames, mut missing) = (Vec::new(), names.to_vec());
    while !missing.is_empty() {
        let frame = stream.next().await;
        missing.retain(|name| frame.event != format!("{name}/{event}"));
        frames.push(frame);
    }
    frames
}

#[tokio::test]
async fn each_subscription_gets_the_frames_of_its_own_stream() {
    let server = Server::start().await;
    let top = server.create(json!({ "thread_id": "t" })).await;
    let child = server.child_of(&top).await;
    server.emit_many(&top, 0, 700).await;
    server.emit_many(&child, 0, 20).await;
    server.complete(&child).await;
    server.complete(&top).await;
    let last = server.ended_run(3).await;
    let mut stream = open(
        &server,
        json!([
            { "name": "run", "stream": "run", "run_id": top, "after": "5" },
            { "name": "index", "stream": "run", "run_id": top, "view": "index" },
            { "name": "tree", "stream": "tree", "run_id": top },
            { "name": "thread", "stream": "thread", "thread_id": "t", "types": "run.*" },
            { "name": "all", "stream": "runs", "tail": 4, "tokens": false },
        ]),
    )
    .await;
    assert_eq!(stream.response.headers()["content-type"], "text/event-stream");
    let mut got = until_all(&mut stream, &["run", "index", "tree"], "stream.end").await;
    let early = sorted(got.clone());
    let is_there = |name: &str| early.get(name).is_some_and(|of| of.iter().any(|f| f.event == "stream.caught_up"));
    let missing: Vec<&str> = ["thread", "all"].into_iter().filter(|name| !is_there(name)).collect();
    got.extend(until_all(&mut stream, &missing, "stream.caught_up").await);
    let got = sorted(got);
    for (name, path, ends) in [
        ("run", format!("{}?after=5", stream_of(&top)), "stream.end"),
        ("index", format!("{}?view=index", stream_of(&top)), "stream.end"),
        ("tree", format!("{}?tree=true", stream_of(&top)), "stream.end"),
        ("thread", "/api/stream/threads/t?types=run.*".to_owned(), "stream.caught_up"),
        ("all", "/api/stream/runs?tail=4".to_owned(), "stream.caught_up"),
    ] {
        assert_eq!(got[name], server.stream(&path).await.until(ends).await, "{name}");
    }
    assert!(got["all"].iter().all(|frame| frame.event.starts_with("stream.") || frame.data.contains(&last)));
}

#[tokio::test]
async fn one_that_ends_or_fails_says_so_and_the_others_go_on() {
    let server = Server::start().await;
    let (live, ended) = (server.start_run().await, server.ended_run(0).await);
    let other = server.start_run().await;
    let mut stream = open(
        &server,
        json!([
            { "name": "live", "stream": "run", "run_id": live },
            { "name": "seen", "stream": "run", "run_id": ended, "after": "3" },
            { "name": "ended", "stream": "run", "run_id": ended, "after": "2" },
            { "name": "ahead", "stream": "run", "run_id": ended, "after": "9" },
            { "name": "bad", "stream": "runs", "after": "7" },
            { "name": "none", "stream": "run", "run_id": "01a20078-cfa7-755d-ad96-83c00ddcd71c" },
            { "name": "malformed", "stream": "tree", "run_id": "x" },
            { "name": "other", "stream": "run", "run_id": other, "after": "2" },
        ]),
    )
    .await;
    let mut frames = until_all(&mut stream, &["live", "other"], "stream.caught_up").await;
    let failed = ["ahead", "bad", "none", "malformed"];
    let missing: Vec<&str> = failed.into_iter().filter(|name| !sorted(frames.clone()).contains_key(*name)).collect();
    frames.extend(until_all(&mut stream, &missing, "stream.failed").await);
    let ends: Vec<&str> = ["seen", "ended"]
        .into_iter()
        .filter(|name| {
            sorted(frames.clone()).get(*name).is_none_or(|frames| frames.last().unwrap().event != "stream.end")
        })
        .collect();
    frames.extend(until_all(&mut stream, &ends, "stream.end").await);
    let got = sorted(frames);
    for (name, status, code) in [
        ("ahead", 409, "cursor_ahead"),
        ("bad", 400, "invalid_cursor"),
        ("none", 404, "not_found"),
        ("malformed", 404, "not_found"),
    ] {
        let [frame] = &got[name][..] else { panic!("{name}: {:?}", got[name]) };
        let problem = frame.json();
        assert_eq!(
            (&problem["status"], &problem["code"], frame.id.as_deref()),
            (&json!(status), &json!(code), None),
            "{name}"
        );
    }
    let end = json!({ "status": "completed", "last_seq": 3 });
    assert_eq!((got["seen"].len(), got["seen"][0].json()), (1, end.clone()));
    assert_eq!(got["ended"].last().unwrap().json(), end);
    server.emit(&live, json!([numbered(1), { "type": "run.completed" }])).await;
    let frames = until_all(&mut stream, &["live"], "stream.end").await;
    assert_eq!(
        frames.iter().map(|frame| frame.event.as_str()).collect::<Vec<_>>(),
        ["live/custom.n", "live/run.completed", "live/stream.end"]
    );
    assert_eq!(frames[0].id.as_deref(), Some("3"));
    server.emit(&other, token("m", "Hi")).await;
    assert_eq!(stream.next().await.event, "other/message.delta");
    server.complete(&other).await;
    until_all(&mut stream, &["other"], "stream.end").await;
    assert_eq!(stream.item().await, None, "all of them are over");
}

#[tokio::test]
async fn one_whose_run_is_deleted_while_it_is_read_says_so() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let large = json!({ "type": "custom.large", "payload": "x".repeat(65_000) });
    for _ in 0..12 {
        server.emit(&run, json!(vec![large.clone(); 40])).await;
    }
    server.complete(&run).await;
    let mut stream = open(&server, json!([{ "name": "a", "stream": "run", "run_id": run }])).await;
    // It has begun, and waits for a client that does not read.
    stream.next().await;
    server.delete(&format!("/api/runs/{run}")).await.expect(204);
    let rest = stream.rest().await;
    assert_eq!(rest.last().unwrap().event, "a/stream.gone");
    assert!(rest.len() < 400, "{} of 482 events came before", rest.len());
}

#[tokio::test]
async fn a_reader_comes_back_with_the_cursor_of_each_and_misses_nothing() {
    let server = Server::start().await;
    let runs = [server.start_run().await, server.start_run().await];
    let mut cursors: BTreeMap<&str, String> = BTreeMap::new();
    let mut seen: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for round in 0..4 {
        let names = ["a", "b", "all"];
        let what = |name: &str| match name {
            "a" => json!({ "stream": "run", "run_id": runs[0] }),
            "b" => json!({ "stream": "run", "run_id": runs[1] }),
            _ => json!({ "stream": "runs" }),
        };
        let subscriptions = names.map(|name| {
            let mut wanted = what(name);
            wanted["name"] = json!(name);
            wanted["after"] = cursors.get(name).map_or(Value::Null, |cursor| json!(cursor));
            wanted
        });
        let mut stream = open(&server, json!(subscriptions)).await;
        server.emit_many(&runs[0], round * 10, 10).await;
        server.emit_many(&runs[1], round * 10, 10).await;
        // Cut off in the middle: some frames of this round are never read.
        for _ in 0..25 {
            let frame = stream.next().await;
            let (name, _) = frame.event.split_once('/').unwrap();
            let name = names.into_iter().find(|known| *known == name).unwrap();
            let Some(id) = frame.id else { continue };
            cursors.insert(name, id);
            seen.entry(name).or_default().push(frame.data);
        }
    }
    let rest = names_of(&cursors, &runs);
    let mut stream = open(&server, rest).await;
    for frame in until_all(&mut stream, &["a", "b", "all"], "stream.caught_up").await {
        let (name, _) = frame.event.split_once('/').unwrap();
        if frame.id.is_some() {
            seen.get_mut(name).unwrap().push(frame.data);
        }
    }
    for (name, run) in [("a", &runs[0]), ("b", &runs[1])] {
        assert_eq!(seen[name], server.events(run).await, "{name}");
    }
    let mut all = server.stream("/api/stream/runs").await.until("stream.caught_up").await;
    all.pop();
    assert_eq!(seen["all"], all.into_iter().map(|frame| frame.data).collect::<Vec<_>>());
}

fn names_of(cursors: &BTreeMap<&str, String>, runs: &[String; 2]) -> Value {
    json!([
        { "name": "a", "stream": "run", "run_id": runs[0], "after": cursors["a"] },
        { "name": "b", "stream": "run", "run_id": runs[1], "after": cursors["b"] },
        { "name": "all", "stream": "runs", "after": cursors["all"] },
    ])
}

#[tokio::test]
async fn interrupts_are_a_stream_of_what_changes_the_open_interrupts_and_nothing_else() {
    let server = Server::start().await;
    let mut stream = open(&server, json!([{ "name": "i", "stream": "interrupts" }])).await;
    until_all(&mut stream, &["i"], "stream.caught_up").await;
    let run = server.start_run().await;
    server.emit(&run, token("m", "Hi")).await;
    let asked = json!({ "type": "interrupt.requested", "span_id": "q", "payload": { "prompt": "?" } });
    server.emit(&run, json!([numbered(1), asked, { "type": "run.interrupted" }])).await;
    let body = json!({ "interrupt_id": "q", "decision": "approve" });
    server.post(&format!("/api/runs/{run}/resume"), body).await.expect(202);
    server.complete(&run).await;
    let events: Vec<String> = stream.durable(3).await.into_iter().map(|frame| frame.event).collect();
    assert_eq!(events, ["i/interrupt.requested", "i/interrupt.resolved", "i/run.completed"]);
}

#[tokio::test]
async fn a_request_that_does_not_fit_opens_nothing() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let one = |n: usize| json!({ "name": format!("n{n}"), "stream": "runs" });
    let mut bad = vec![json!([]), json!((0..65).map(one).collect::<Vec<_>>()), json!([one(1), one(1)]), json!("runs")];
    bad.extend(
        [
            json!({ "stream": "runs" }),
            json!({ "name": "", "stream": "runs" }),
            json!({ "name": "a/b", "stream": "runs" }),
            json!({ "name": "a".repeat(65), "stream": "runs" }),
            json!({ "name": "a", "stream": "everything" }),
            json!({ "name": "a", "stream": "run" }),
            json!({ "name": "a", "stream": "runs", "run_id": run }),
            json!({ "name": "a", "stream": "thread" }),
            json!({ "name": "a", "stream": "thread", "thread_id": "a b" }),
            json!({ "name": "a", "stream": "runs", "tail": 1001 }),
            json!({ "name": "a", "stream": "runs", "types": "A" }),
            json!({ "name": "a", "stream": "runs", "role": "king" }),
            json!({ "name": "a", "stream": "runs", "view": "table" }),
            json!({ "name": "a", "stream": "interrupts", "types": "run.*" }),
            json!({ "name": "a", "stream": "interrupts", "tokens": true }),
            json!({ "name": "a", "stream": "runs", "more": 1 }),
        ]
        .map(|subscription| json!([one(1), subscription])),
    );
    for subscriptions in bad {
        refused(&server, subscriptions).await.refused(400, "invalid_request");
    }
    let detail = refused(&server, json!([one(1), { "name": "a", "stream": "run" }])).await.json();
    assert!(detail["detail"].as_str().unwrap().starts_with("subscriptions[1]: "), "{detail}");
    drop(open(&server, json!((0..64).map(one).collect::<Vec<_>>())).await);
}

#[tokio::test]
async fn it_counts_as_many_streams_as_it_has_and_gives_them_back() {
    let server = setup().flags(&["--principal-streams", "3"]).start().await;
    let all = |count: usize| {
        json!((0..count).map(|n| json!({ "name": format!("n{n}"), "stream": "runs" })).collect::<Vec<_>>())
    };
    let mut first = open(&server, all(3)).await;
    until_all(&mut first, &["n0", "n1", "n2"], "stream.caught_up").await;
    let mut second = open(&server, all(1)).await;
    let frame = second.next().await;
    assert_eq!((frame.event.as_str(), &frame.json()["reason"]), ("stream.draining", &json!("busy_own")));
    drop(first);
    crate::support::until("the streams to be given back", || async {
        open(&server, all(3)).await.next().await.event != "stream.draining"
    })
    .await;
}

#[tokio::test]
async fn a_token_of_one_run_opens_what_it_covers_and_nothing_more() {
    let server = setup().jwt().start().await;
    let ann = server.as_subject("ann");
    let (run, other) = (ann.create(json!({ "thread_id": "t" })).await, ann.start_run().await);
    let made = ann.post(&format!("/api/runs/{run}/tokens"), json!({})).await.expect(201);
    let (id, reader) = (made["token_id"].clone(), server.with(made["token"].as_str().unwrap()));
    let mut stream = open(
        &reader,
        json!([
            { "name": "run", "stream": "run", "run_id": run },
            { "name": "other", "stream": "run", "run_id": other },
            { "name": "tree", "stream": "tree", "run_id": run },
            { "name": "thread", "stream": "thread", "thread_id": "t" },
            { "name": "runs", "stream": "runs" },
            { "name": "interrupts", "stream": "interrupts" },
        ]),
    )
    .await;
    let mut codes = BTreeMap::new();
    let mut is_there = false;
    while codes.len() < 5 || !is_there {
        let frame = stream.next().await;
        let (name, event) = frame.event.split_once('/').unwrap();
        is_there |= (name, event) == ("run", "stream.caught_up");
        if event == "stream.failed" {
            codes.insert(name.to_owned(), frame.json()["code"].as_str().unwrap().to_owned());
        } else {
            assert_eq!(name, "run");
        }
    }
    let forbidden = |name: &str| (name.to_owned(), "forbidden".to_owned());
    let mut expected: BTreeMap<String, String> = ["tree", "thread", "runs", "interrupts"].map(forbidden).into();
    expected.insert("other".to_owned(), "not_found".to_owned());
    assert_eq!(codes, expected);
    ann.emit(&run, numbered(1)).await;
    ann.emit(&other, numbered(1)).await;
    assert_eq!(stream.next().await.event, "run/custom.n");
    let id = id.as_str().unwrap();
    assert_eq!(ann.delete(&format!("/api/tokens/{id}")).await.status, 204);
    assert_eq!(stream.rest().await.len(), 0, "a revoked token's connection ends");
    assert_eq!(request(&server, json!([{ "name": "a", "stream": "runs" }])).await.status(), 401);
}

#[tokio::test]
async fn it_ends_when_its_credential_expires() {
    let clock = manual_clock();
    let server = setup().jwt().clock(&clock).start().await;
    let ann = server.as_subject("ann");
    let mut stream =
        open(&ann, json!([{ "name": "a", "stream": "runs" }, { "name": "b", "stream": "interrupts" }])).await;
    until_all(&mut stream, &["a", "b"], "stream.caught_up").await;
    server.pass(Duration::from_secs(3_606));
    // Its expiry, five seconds of which clocks may differ, is noticed with the next frame.
    server.as_subject("ann").start_run().await;
    assert_eq!(stream.rest().await, []);
}

#[tokio::test]
async fn a_server_that_shuts_down_tells_every_subscription() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let subscriptions = json!([{ "name": "a", "stream": "runs" }, { "name": "b", "stream": "run", "run_id": run }]);
    let mut stream = open(&server, subscriptions).await;
    until_all(&mut stream, &["a", "b"], "stream.caught_up").await;
    server.begin_stop();
    let mut told: Vec<String> = stream.rest().await.into_iter().map(|frame| frame.event).collect();
    told.sort_unstable();
    assert_eq!(told, ["a/stream.draining", "b/stream.draining"]);
}
