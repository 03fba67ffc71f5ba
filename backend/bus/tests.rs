use chrono::DateTime;

use super::*;
use crate::domain::{
    context::{Role, RunContext},
    event::{EventKind, NewEvent, Recorded},
    history::Tag,
    id::Seq,
    json::Json,
    meaning::What,
    splice::LogPosition,
};

fn frame(owner: &str, seq: i64) -> Frame {
    frame_of(owner, seq, Json::empty())
}

fn frame_of(owner: &str, seq: i64, payload: Json) -> Frame {
    typed(owner, seq, NewEvent::new(EventKind::LogInfo, payload))
}

fn typed(owner: &str, seq: i64, event: NewEvent) -> Frame {
    let run_id = "0198c0de-0000-7000-8000-000000000001".parse().unwrap();
    let context = Arc::new(RunContext {
        run_id,
        root_run_id: run_id,
        parent_run_id: None,
        owner_id: OwnerId::trusted(owner),
        thread_id: None,
        session_id: None,
        role: Role::Agent,
        agent: None,
        origin: None,
        trace_id: None,
    });
    let seq = Seq::new(seq).unwrap();
    let event = Recorded::stamp(&context, event, Some(seq), DateTime::UNIX_EPOCH);
    Frame::new(context, &event, Some(LogPosition { seq, lane: 0, position: 1 }), Tag::FIRST)
}

fn seqs(subscription: &mut Subscription) -> Vec<Option<i64>> {
    std::iter::from_fn(|| subscription.try_next())
        .map(|heard| match heard {
            BusMessage::Frame(frame) => frame.place.map(|place| place.seq.get()),
            BusMessage::Lagged | BusMessage::Reset | BusMessage::Stalled(_) => None,
        })
        .collect()
}

#[test]
fn a_slow_listener_is_told_that_it_lagged_and_the_quick_one_hears_everything() {
    let (bus, publisher) = Bus::new(2);
    let run = frame("o", 1).context.run_id;
    let subscribe = || bus.subscribe(OwnerId::trusted("o"), Topic::Run(run));
    let (mut quick, mut slow) = (subscribe(), subscribe());
    let mut heard = Vec::new();
    for seq in 1..=4 {
        publisher.publish(frame("o", seq));
        heard.extend(seqs(&mut quick));
    }
    assert_eq!(heard, [Some(1), Some(2), Some(3), Some(4)]);
    assert_eq!(seqs(&mut slow), [None, Some(3), Some(4)]);
}

#[test]
fn another_owner_hears_nothing_and_topics_go_with_their_last_listener() {
    let (bus, publisher) = Bus::new(8);
    let [mut mine, mut theirs] = ["o", "p"].map(|owner| bus.subscribe(OwnerId::trusted(owner), Topic::Everything));
    publisher.publish(frame("o", 1));
    assert_eq!(seqs(&mut mine), [Some(1)]);
    assert_eq!(seqs(&mut theirs), []);
    drop((mine, theirs));
    assert_eq!(bus.topics_count(), 0);
}

#[test]
fn what_waits_is_bounded_in_bytes_for_each_owner_and_the_furthest_behind_lag_first() {
    let bus = Bus { bytes_max: 4_000, ..Bus::new(256).0 };
    let publisher = Publisher(bus.clone());
    let text = || Json::of(&"x".repeat(700));
    let bytes = frame_of("o", 1, text()).bytes();
    let run = frame("o", 1).context.run_id;
    let [mut stuck, mut quick] =
        [Topic::Run(run), Topic::Everything].map(|topic| bus.subscribe(OwnerId::trusted("o"), topic));
    let mut other = bus.subscribe(OwnerId::trusted("p"), Topic::Everything);
    publisher.publish(frame_of("p", 1, text()));
    for seq in 1..=50 {
        publisher.publish(frame_of("o", seq, text()));
        assert_eq!(seqs(&mut quick), [Some(seq)], "who keeps up misses nothing");
        let sum = bus.owners()[&OwnerId::trusted("o")].queued.sum();
        assert!(sum <= 4_000 && (seq < 10 || sum > 4_000 - 2 * bytes), "{sum}");
    }
    assert_eq!(seqs(&mut stuck), [None], "it lagged, once, and begins at what comes next");
    publisher.publish(frame_of("o", 51, text()));
    assert_eq!((seqs(&mut stuck), seqs(&mut quick)), (vec![Some(51)], vec![Some(51)]));
    assert_eq!(bus.owners()[&OwnerId::trusted("o")].queued.sum(), 0, "what all have read counts no more");
    assert_eq!(seqs(&mut other), [Some(1)]);
}

#[test]
fn a_frame_counts_what_is_read_of_it() {
    let (content, calls) = ("x".repeat(10_000), (0..2_000).map(|n| serde_json::json!({"id": n.to_string()})));
    let payload = serde_json::json!({"content": content, "tool_calls": calls.collect::<Vec<_>>()});
    let event = typed("o", 1, NewEvent::new(EventKind::MessageCompleted, Json::of(&payload)));
    let What::Text { content: Some(content), tool_call_ids, .. } = event.meaning() else { panic!("it is a text") };
    let read = content.len() + tool_call_ids.iter().map(|id| size_of::<String>() + id.len()).sum::<usize>();
    assert!(event.bytes() >= event.block().len() + read, "{} {read}", event.bytes());
}

#[test]
fn the_block_is_one_event_stream_frame_with_line_feeds_only() {
    let frame = frame("o", 7);
    let block = String::from_utf8(frame.block().to_vec()).unwrap();
    assert!(block.starts_with("event: log.info\ndata: {\"run_id\":"));
    assert!(block.ends_with("\"payload\":{}}\nid: 7\n\n"));
    assert_eq!(frame.id_line(), b"id: 7\n");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&frame.json()).unwrap()["seq"], 7);
    assert_eq!(frame.payload().as_str(), "{}");
    assert_eq!(frame_of("o", 8, Json::of(&"x")).payload().as_str(), "\"x\"");
}

#[test]
fn the_id_of_a_later_history_carries_its_tag_and_the_listeners_of_the_old_one_are_told() {
    let (bus, publisher) = Bus::new(4);
    let event = frame("o", 7);
    let mut listener = bus.subscribe(event.context.owner_id.clone(), Topic::Run(event.context.run_id));
    publisher.publish(event);
    publisher.reset();
    assert!(matches!(listener.try_next(), Some(BusMessage::Frame(_))));
    assert!(matches!(listener.try_next(), Some(BusMessage::Reset)));
    let (context, place) = (frame("o", 7).context, LogPosition { seq: Seq::new(7).unwrap(), lane: 0, position: 1 });
    let event = Recorded::stamp(
        &context,
        NewEvent::new(EventKind::LogInfo, Json::empty()),
        Some(place.seq),
        DateTime::UNIX_EPOCH,
    );
    let frame = Frame::new(context, &event, Some(place), "0000beef".parse().unwrap());
    assert!(frame.block().ends_with(b"\nid: 7.0000beef\n\n"));
}
