use super::*;
use crate::{
    domain::event::{EventKind, EventType},
    emitters::testing::run_id,
};

fn event(event_type: &str) -> NewEvent {
    NewEvent::new(EventType::trusted(event_type), Json::parse(r#"{"text":"x"}"#).unwrap()).span("s".parse().unwrap())
}

/// The numbers and types of what would be sent.
fn sent(outbox: &mut Outbox) -> Vec<String> {
    let show = |message: FromRunner| match message {
        FromRunner::Event(events) => {
            let events: Vec<serde_json::Value> = serde_json::from_str(events.events.get()).unwrap();
            let types: Vec<&str> = events.iter().map(|event| event["type"].as_str().unwrap()).collect();
            (types.len(), types.join(" "))
        }
        FromRunner::Done(_) => (0, "done".to_owned()),
        other => panic!("{other:?}"),
    };
    outbox.next().into_iter().map(|message| show(message).1).collect()
}

fn ack(n: u64) -> Ack {
    Ack { run_id: run_id(1), n, last_seq: 9 }
}

#[test]
fn what_is_acknowledged_is_settled_and_the_rest_goes_again_without_its_deltas() {
    let mut outbox = Outbox::default();
    let (run, ..) = outbox.assign(run_id(1), 1).unwrap();
    assert!(outbox.assign(run_id(1), 1).is_none(), "once");
    let mut first = outbox.put(run, vec![event("log.info")]);
    let mut second = outbox.put(run, vec![event("message.delta"), event("log.warn")]);
    let mut third = outbox.put(run, vec![event("log.error")]);
    assert_eq!(sent(&mut outbox), ["log.info", "message.delta log.warn", "log.error"]);
    assert!(sent(&mut outbox).is_empty(), "nothing goes twice over one connection");
    outbox.ack(ack(1));
    assert_eq!(first.try_recv().unwrap(), Ok(()));
    assert_eq!(outbox.acked()[&run_id(1)], 1);
    outbox.again();
    assert_eq!(sent(&mut outbox), ["log.warn", "log.error"]);
    outbox.ack(ack(3));
    assert_eq!((second.try_recv().unwrap(), third.try_recv().unwrap()), (Ok(()), Ok(())));
    outbox.done(run);
    assert_eq!(sent(&mut outbox), ["done"]);
    outbox.again();
    assert_eq!(sent(&mut outbox), ["done"], "until it is acknowledged");
    outbox.ack(ack(3));
    assert!(outbox.is_empty());
}

#[test]
fn the_word_that_nobody_works_any_more_comes_after_everything_else() {
    let mut outbox = Outbox::default();
    let (run, ..) = outbox.assign(run_id(1), 1).unwrap();
    let _answer = outbox.put(run, vec![event("log.info")]);
    outbox.done(run);
    assert_eq!(sent(&mut outbox), ["log.info"]);
    outbox.ack(ack(1));
    assert_eq!(sent(&mut outbox), ["done"]);
}

#[test]
fn a_refused_message_fails_alone_and_a_lost_run_whole() {
    let mut outbox = Outbox::default();
    let (run, cancel, _) = outbox.assign(run_id(1), 1).unwrap();
    let mut bad = outbox.put(run, vec![event("log.info")]);
    let mut good = outbox.put(run, vec![event("log.info")]);
    sent(&mut outbox);
    outbox.error(&RunnerCode::InvalidEvent.because("no").of(run_id(1), Some(1)));
    assert!(bad.try_recv().unwrap().is_err() && !cancel.is_cancelled());
    outbox.ack(ack(2));
    assert_eq!(good.try_recv().unwrap(), Ok(()));
    let mut late = outbox.put(run, vec![event("log.info")]);
    outbox.error(&RunnerCode::LeaseLost.because("gone").of(run_id(1), None));
    assert!(late.try_recv().unwrap().is_err() && cancel.is_cancelled());
    assert!(outbox.put(run, vec![event("log.info")]).try_recv().unwrap().is_err());
}

#[test]
fn a_run_that_ended_by_its_runners_own_word_was_stored() {
    let mut outbox = Outbox::default();
    let (run, ..) = outbox.assign(run_id(1), 1).unwrap();
    let mut last = outbox.put(run, vec![event("run.completed")]);
    let mut late = outbox.put(run, vec![event("log.info")]);
    sent(&mut outbox);
    outbox.error(&RunnerCode::RunEnded.because("over").of(run_id(1), None));
    assert_eq!(last.try_recv().unwrap(), Ok(()));
    assert!(late.try_recv().unwrap().is_err());
}

#[test]
fn a_message_of_deltas_goes_again_empty_so_that_numbers_stay_as_they_were() {
    let mut outbox = Outbox::default();
    let (run, ..) = outbox.assign(run_id(1), 1).unwrap();
    let mut deltas = outbox.put(run, vec![event("message.delta")]);
    let _rest = outbox.put(run, vec![event("log.info")]);
    sent(&mut outbox);
    outbox.again();
    assert_eq!(sent(&mut outbox), ["", "log.info"]);
    outbox.ack(ack(1));
    assert_eq!(deltas.try_recv().unwrap(), Ok(()));
}

#[test]
fn whoever_still_works_on_an_older_assignment_says_nothing_in_the_newer_one() {
    let mut outbox = Outbox::default();
    let (old, cancel, _) = outbox.assign(run_id(1), 1).unwrap();
    let (new, ..) = outbox.assign(run_id(1), 2).unwrap();
    assert!(cancel.is_cancelled() && old != new);
    assert!(outbox.put(old, vec![event("log.info")]).try_recv().unwrap().is_err());
    outbox.done(old);
    assert!(sent(&mut outbox).is_empty());
}

#[test]
fn what_is_too_large_for_any_message_is_refused_and_not_sent() {
    let mut outbox = Outbox::default();
    let (run, ..) = outbox.assign(run_id(1), 1).unwrap();
    let large = NewEvent::new(EventKind::LogInfo, Json::of(&"x".repeat(RUNNER_MESSAGE_BYTES_MAX)));
    let mut refused = outbox.put(run, vec![large]);
    assert!(refused.try_recv().unwrap().is_err_and(|error| !error.is_retryable));
    assert!(sent(&mut outbox).is_empty());
    let mut small = outbox.put(run, vec![event("log.info")]);
    assert_eq!(sent(&mut outbox), ["log.info"]);
    outbox.ack(ack(1));
    assert_eq!(small.try_recv().unwrap(), Ok(()), "its number was not used");
}
