use std::sync::Arc;

use chrono::DateTime;
use proptest::prelude::*;

use super::*;
use crate::domain::{context::Role, json::Json};

const OWNER: &str = "00ff";

fn run(n: u8) -> RunId {
    format!("0198c0de-0000-7000-8000-0000000000{n:02}").parse().unwrap()
}

fn event(n: i64, event_type: &str, payload: &str) -> Recorded {
    Recorded {
        run_id: run(1),
        seq: Seq::new(n),
        event_type: event_type.parse().unwrap(),
        role: Role::Agent,
        agent: None,
        owner_id: Arc::from(OWNER),
        span_id: Some("call".parse().unwrap()),
        parent_span_id: None,
        event_id: None,
        at: DateTime::from_timestamp_micros(1_763_000_000_000_000 + n).unwrap(),
        payload: Json::parse(payload).unwrap(),
    }
}

fn stored(events: impl IntoIterator<Item = Recorded>) -> Vec<Stored> {
    let mut before = None;
    let of = |event: Recorded| {
        let link = chained(before, event.run_id, event.seq.unwrap(), &event).link;
        before = Some(link);
        Stored { event, link: Some(link), is_chained: true }
    };
    events.into_iter().map(of).collect()
}

/// A log of `events` events and a terminal one.
fn log(events: i64) -> Vec<Stored> {
    let middle = (2..=events).map(|n| event(n, "log.info", &format!(r#"{{"n":{n}}}"#)));
    let first = std::iter::once(event(1, "run.created", "{}"));
    stored(first.chain(middle).chain([event(events + 1, "run.cancelled", "{}")]))
}

fn head(log: &[Stored]) -> Head {
    let last = log.last().unwrap();
    let last_seq = last.event.seq.unwrap();
    Head { owner_id: OWNER.to_owned(), last_seq, status: Status::Cancelled, link: last.link }
}

fn faults(log: &[Stored], head: &Head) -> Vec<(i64, FaultKind)> {
    let mut walk = Walk::new(run(1));
    for stored in log {
        walk.take(stored, OWNER);
    }
    walk.finish(head);
    walk.faults().iter().map(|fault| (fault.seq.get(), fault.kind)).collect()
}

#[test]
fn the_bytes_of_a_link_stay_what_they_are() {
    let event = event(7, "tool.started", r#"{"name":"grep"}"#);
    let first = chained(None, run(1), Seq::new(7).unwrap(), &event);
    assert_eq!(first.content.to_string(), "be7820a8e3ddc8f0021790e28eb60389d2edd454478631a5c5bfef4942c94590");
    assert_eq!(first.link.to_string(), "85a9d2ed1a1a70c8887ece3757c5e14bd44a9de06bc1392ed8848a6343e0673b");
}

#[test]
fn an_untouched_log_has_no_fault_and_its_head_is_its_last_link() {
    let log = log(5);
    assert_eq!(faults(&log, &head(&log)), []);
}

#[test]
fn a_log_of_an_earlier_release_is_covered_from_its_first_link_on() {
    let (mut log, old) = (stored((3..6).map(|n| event(n, "log.info", "{}"))), |n| Stored {
        event: event(n, "log.info", "{}"),
        link: None,
        is_chained: false,
    });
    log.splice(0..0, [old(1), old(2)]);
    let head = Head { status: Status::Queued, ..head(&log) };
    let mut walk = Walk::new(run(1));
    for stored in &log {
        walk.take(stored, OWNER);
    }
    walk.finish(&head);
    assert_eq!((walk.covered_from, walk.faults().len()), (Seq::new(3), 0));
    // Once there are links, an event without one is not from an earlier release.
    log[3].link = None;
    assert_eq!(faults(&log, &head)[0], (4, FaultKind::Unlinked));
    log[1].is_chained = true;
    assert_eq!(faults(&log, &head)[0], (2, FaultKind::Unlinked));
}

#[test]
fn a_walk_that_goes_on_elsewhere_comes_to_the_same_end() {
    let log = log(9);
    let mut walk = Walk::new(run(1));
    for stored in &log[..4] {
        walk.take(stored, OWNER);
    }
    let mut walk = Walk::after(run(1), walk.checked_to, log[3].link);
    for stored in &log[4..] {
        walk.take(stored, OWNER);
    }
    walk.finish(&head(&log));
    assert_eq!(walk.faults(), []);
}

/// A manipulation of a stored log; each is detected.
#[derive(Clone, Copy, Debug)]
enum Edit {
    Payload,
    Type,
    At,
    Span,
    Parent,
    EventId,
    Agent,
    Owner,
    Link,
    NoLink,
    Remove,
    Swap,
    Repeat,
}

fn edit(log: &mut Vec<Stored>, edit: Edit, at: usize) {
    let event = &mut log[at].event;
    match edit {
        Edit::Payload => event.payload = Json::parse(r#"{"n":-1}"#).unwrap(),
        Edit::Type => event.event_type = "log.warn".parse().unwrap(),
        Edit::At => event.at += chrono::TimeDelta::microseconds(1),
        Edit::Span => event.span_id = None,
        Edit::Parent => event.parent_span_id = Some("call".parse().unwrap()),
        Edit::EventId => event.event_id = Some("call".parse().unwrap()),
        Edit::Agent => event.agent = Some(Arc::from("a")),
        Edit::Owner => event.owner_id = Arc::from("another"),
        Edit::Link => log[at].link = log[at - 1].link,
        Edit::NoLink => log[at].link = None,
        Edit::Remove => _ = log.remove(at),
        Edit::Swap => {
            let seq = log[at].event.seq;
            log[at].event.seq = log[at - 1].event.seq;
            log[at - 1].event.seq = seq;
            log.swap(at, at - 1);
        }
        Edit::Repeat => {
            let mut again = log[at].clone();
            for stored in &mut log[at..] {
                stored.event.seq = stored.event.seq.map(Seq::next);
            }
            again.event.seq = log[at].event.seq.map(|seq| seq.back(1));
            log.insert(at, again);
        }
    }
}

proptest! {
    #[test]
    fn every_edit_is_found_where_it_was_made(events in 3i64..12, at in 1usize..11, which in 0usize..13) {
        use Edit::*;
        let all = [Payload, Type, At, Span, Parent, EventId, Agent, Owner, Link, NoLink, Remove, Swap, Repeat];
        let mut log = log(events);
        let head = head(&log);
        let at = at.min(log.len() - 2);
        edit(&mut log, all[which], at);
        let found = faults(&log, &head);
        // The first of two equal events is in its place; the second does not follow.
        let wanted = at as i64 + match all[which] { Swap => 0, Repeat => 2, _ => 1 };
        prop_assert_eq!(found.first().map(|fault| fault.0), Some(wanted), "{:?}: {:?}", all[which], found);
    }

    #[test]
    fn texts_that_move_from_one_field_into_the_next_are_another_content(a in "[a-z]{1,4}", b in "[a-z]{1,4}") {
        let with = |span: Option<&str>, parent: Option<&str>| {
            let (span_id, parent_span_id) = (span.map(|s| s.parse().unwrap()), parent.map(|s| s.parse().unwrap()));
            content(&Recorded { span_id, parent_span_id, ..event(1, "log.info", "{}") })
        };
        let joined = format!("{a}{b}");
        let all = [with(Some(&a), Some(&b)), with(Some(&joined), None), with(None, Some(&joined)), with(None, None)];
        for (n, one) in all.iter().enumerate() {
            prop_assert!(!all[n + 1..].contains(one));
        }
    }
}
