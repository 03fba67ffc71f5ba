//! Pages end by bytes as well as by rows, and nothing is missed where one ends and the next begins.

use runreel::{
    domain::{cursor::FeedCursor, id::Seq, principal::OwnerId},
    store::feed::Scope,
    timeline::follow::{Follower, StreamItem, StreamOptions},
};
use serde_json::{Value, json};

use crate::support::{
    api::stream_of,
    patiently,
    runs::{assert_contiguous, numbered, seqs},
    server::setup,
    shared::shared,
    sse::envelopes,
};

const PAGE_BYTES: usize = 1024 * 1024;

/// Events of nearly the size at which a payload becomes an artifact.
fn large(count: usize) -> Value {
    json!(vec![json!({ "type": "custom.large", "payload": "x".repeat(65_000) }); count])
}

#[tokio::test]
async fn a_page_of_large_events_ends_by_bytes_and_the_next_one_goes_on_without_a_hole() {
    let server = shared().await;
    let run = server.start_run().await;
    server.emit_many(&run, 0, 300).await;
    server.emit(&run, large(40)).await;
    server.emit_many(&run, 0, 300).await;
    server.complete(&run).await;
    let (mut after, mut pages, mut events) = (0, 0, Vec::new());
    loop {
        let page = server.get(&format!("/api/runs/{run}/events?limit=1000&after={after}")).await;
        let bytes = page.text.len();
        let page = page.expect(200);
        let held = page["events"].as_array().unwrap();
        assert!(!held.is_empty() && bytes < PAGE_BYTES + PAGE_BYTES / 2, "{bytes} bytes in {} events", held.len());
        events.extend(held.iter().map(Value::to_string));
        after = page["next_after"].as_i64().unwrap();
        pages += 1;
        if page["has_more"] == false {
            break;
        }
    }
    assert_contiguous(&events, 643);
    assert!((3..=6).contains(&pages), "{pages} pages");
    assert_contiguous(&server.ndjson(&run).await, 643);
    let lines = server.get(&format!("/api/runs/{run}/export")).await.text;
    assert_eq!(lines.lines().count(), 645);
    for path in [stream_of(&run), format!("{}?tree=true", stream_of(&run))] {
        assert_contiguous(&envelopes(&server.stream(&path).await.rest().await), 643);
    }
}

/// Everything a follower tells up to this event, as the JSON of its frames.
async fn up_to(follower: &mut Follower, last: i64) -> Vec<String> {
    let mut events = Vec::new();
    while events.last().is_none_or(|event| seqs(&[event]) != [last]) {
        let signals = patiently("what is next", follower.next()).await.expect("the stream goes on");
        events.extend(signals.into_iter().filter_map(|signal| match signal {
            StreamItem::Frame(frame) => Some(String::from_utf8(frame.json().to_vec()).unwrap()),
            _ => None,
        }));
    }
    events
}

#[tokio::test]
async fn readers_behind_a_bus_that_is_full_of_bytes_miss_nothing() {
    let server = setup().flags(&["--bus-frames", "4096"]).start().await;
    let run = server.start_run().await;
    let timeline = &server.inner.timeline;
    let owner = OwnerId::trusted(server.run(&run).await["owner_id"].as_str().unwrap());
    let context = timeline.context(&owner, run.parse().unwrap()).await.unwrap().unwrap();
    let start = FeedCursor::start();
    let mut readers = [
        timeline.follow_run(context, Seq::ZERO, timeline.histories(), StreamOptions::default()),
        timeline.follow_feed(
            owner,
            Scope::Everything,
            start.clone(),
            &start,
            timeline.histories(),
            StreamOptions::default(),
        ),
    ];
    for reader in &mut readers {
        assert_contiguous(&up_to(reader, 2).await, 2);
    }
    // Once more, so that they are live.
    server.emit(&run, numbered(0)).await;
    for reader in &mut readers {
        up_to(reader, 3).await;
    }
    for n in 0..16 {
        server.emit(&run, large(10)).await;
        server.emit(&run, numbered(n)).await;
    }
    for reader in &mut readers {
        assert_eq!(seqs(&up_to(reader, 179).await), (4..=179).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_stream_reads_smaller_pages_while_others_are_active_and_leaves_nothing_out() {
    let server = setup().jwt().start().await;
    let (alice, bob) = (server.as_subject("alice"), server.as_subject("bob"));
    let run = alice.start_run().await;
    let large = json!({ "type": "custom.large", "payload": { "text": "x".repeat(30_000) } });
    alice.emit(&run, json!(vec![large; 20])).await;
    let timeline = &server.inner.timeline;
    let owner = OwnerId::trusted(alice.run(&run).await["owner_id"].as_str().unwrap());
    let context = timeline.context(&owner, run.parse().unwrap()).await.unwrap().unwrap();
    let follow = || timeline.follow_run(context.clone(), Seq::ZERO, timeline.histories(), StreamOptions::default());
    let first_page = async || {
        let signals = patiently("a page", follow().next()).await.expect("the stream goes on");
        signals.into_iter().filter(|signal| matches!(signal, StreamItem::Frame(_))).count()
    };
    assert_eq!(first_page().await, 22, "alice is alone");
    let others = bob.start_run().await;
    let smaller = patiently("a smaller page", async {
        loop {
            bob.emit(&others, numbered(0)).await;
            let frames = first_page().await;
            if frames < 22 {
                return frames;
            }
        }
    });
    assert!((3..10).contains(&smaller.await), "at most 128 KiB, and the two small ones");
    assert_contiguous(&up_to(&mut follow(), 22).await, 22);
}
