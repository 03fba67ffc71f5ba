use std::sync::Arc;

use chrono::DateTime;
use proptest::prelude::*;

use super::*;
use crate::domain::{
    context::{Role, RunContext},
    event::EventType,
    json::Json,
    limits::{OPEN_SPANS_MAX, OPEN_TEXT_BYTES_MAX},
    open::{Lengths, Overflow},
    principal::OwnerId,
    run::{Refusal, Status},
};

fn run(n: u8) -> RunId {
    format!("0198c0de-0000-7000-8000-0000000000{n:02}").parse().unwrap()
}

fn context(n: u8, owner: &str) -> Arc<RunContext> {
    Arc::new(RunContext {
        run_id: run(n),
        root_run_id: run(n),
        parent_run_id: None,
        owner_id: OwnerId::trusted(owner),
        thread_id: None,
        session_id: None,
        role: Role::Agent,
        agent: None,
        origin: None,
        trace_id: None,
    })
}

fn request(n: u8, events: Vec<NewEvent>) -> AppendRequest {
    AppendRequest::new(context(n, "o"), events)
}

fn event(event_type: &str, key: Option<&str>) -> NewEvent {
    let event = NewEvent::new(EventType::trusted(event_type), Json::empty());
    match key {
        Some(key) => event.event_id(key.parse().unwrap()),
        None => event,
    }
}

fn head(status: Status, last_seq: i64) -> StoredHead {
    let mut head = Head::unborn(DateTime::UNIX_EPOCH);
    (head.status, head.last_seq) = (status, Seq::new(last_seq).unwrap());
    StoredHead { head, owner_id: OwnerId::trusted("o"), request_hash: Vec::new(), link: None }
}

fn plan_of(
    requests: &[AppendRequest],
    heads: &HashMap<RunId, StoredHead>,
    keys: &HashMap<(RunId, EventId), Seq>,
) -> Plan {
    let open = |_, _: &SpanId| (Lengths::default(), None);
    plan(requests, &Known { heads, keys, named: &Named::default(), open: &open, now: DateTime::UNIX_EPOCH })
}

fn seqs(outcome: &Result<Accepted, EmitError>) -> Vec<(Option<i64>, bool)> {
    let Ok(accepted) = outcome else { panic!("refused") };
    accepted.ack.events.iter().map(|event| (event.seq.map(Seq::get), event.duplicate)).collect()
}

#[test]
fn duplicates_get_the_first_seq_and_leave_no_hole() {
    let heads = HashMap::from([(run(1), head(Status::Running, 4))]);
    let keys = HashMap::from([((run(1), "old".parse().unwrap()), Seq::new(2).unwrap())]);
    let batch = [
        request(1, vec![event("log.info", Some("a")), event("log.info", Some("old")), event("log.info", Some("a"))]),
        request(1, vec![event("log.info", Some("a")), event("log.info", None)]),
    ];
    let plan = plan_of(&batch, &heads, &keys);
    assert_eq!(seqs(&plan.outcomes[0]), [(Some(5), false), (Some(2), true), (Some(5), true)]);
    assert_eq!(seqs(&plan.outcomes[1]), [(Some(5), true), (Some(6), false)]);
    assert_eq!(plan.batch.events.len(), 2);
    assert_eq!(plan.batch.heads[0].head.last_seq.get(), 6);
}

#[test]
fn an_emission_is_refused_whole_and_the_others_go_on() {
    let heads = HashMap::from([(run(1), head(Status::Running, 1)), (run(2), head(Status::Completed, 9))]);
    let batch = [
        request(1, vec![event("run.completed", None), event("log.info", None)]),
        request(2, vec![event("log.info", None)]),
        request(3, vec![event("log.info", None)]),
        request(1, vec![event("log.info", None)]),
    ];
    let plan = plan_of(&batch, &heads, &HashMap::new());
    let ended = |status| EmitError::Refused(Refusal::Ended { status });
    assert_eq!(plan.outcomes[0].as_ref().err(), Some(&ended(Status::Completed)));
    assert_eq!(plan.outcomes[1].as_ref().err(), Some(&ended(Status::Completed)));
    assert_eq!(plan.outcomes[2].as_ref().err(), Some(&EmitError::NotFound));
    assert_eq!(seqs(&plan.outcomes[3]), [(Some(2), false)]);
    assert_eq!(plan.refused_by(&batch).collect::<Vec<_>>(), [run(1), run(2)], "no other head is in doubt");
}

#[test]
fn a_retry_of_the_last_batch_of_an_ended_run_is_answered_as_before() {
    let heads = HashMap::from([(run(1), head(Status::Completed, 3))]);
    let keys = HashMap::from([((run(1), "end".parse().unwrap()), Seq::new(3).unwrap())]);
    let plan = plan_of(&[request(1, vec![event("run.completed", Some("end"))])], &heads, &keys);
    assert_eq!(seqs(&plan.outcomes[0]), [(Some(3), true)]);
    assert!(plan.batch.events.is_empty() && plan.batch.heads.is_empty());
}

#[test]
fn events_that_come_with_their_numbers_get_those_or_none() {
    let heads = HashMap::from([(run(1), head(Status::Running, 4))]);
    let keys = HashMap::from([((run(1), "old".parse().unwrap()), Seq::new(2).unwrap())]);
    let numbered = |first, key| AppendRequest {
        first_seq: Seq::new(first),
        ..request(1, vec![event("log.info", Some("new")), event("log.info", key)])
    };
    let plan = plan_of(&[numbered(5, None), numbered(5, None), numbered(8, None)], &heads, &keys);
    assert_eq!(seqs(&plan.outcomes[0]), [(Some(5), false), (Some(6), false)]);
    for outcome in &plan.outcomes[1..] {
        assert_eq!(outcome.as_ref().err(), Some(&EmitError::Elsewhere));
    }
    for used in ["old", "new"] {
        let plan = plan_of(&[numbered(5, Some(used))], &heads, &keys);
        assert_eq!(plan.outcomes[0].as_ref().err(), Some(&EmitError::KeyTaken), "{used}");
        assert!(plan.batch.events.is_empty());
    }
}

#[test]
fn somebody_elses_context_finds_no_run() {
    let heads = HashMap::from([(run(1), head(Status::Running, 1))]);
    let foreign = AppendRequest { context: context(1, "other"), ..request(1, vec![event("log.info", None)]) };
    let plan = plan_of(&[foreign], &heads, &HashMap::new());
    assert_eq!(plan.outcomes[0].as_ref().err(), Some(&EmitError::NotFound));
}

#[test]
fn a_span_over_its_bound_is_refused_before_anything_is_stored() {
    let heads = HashMap::from([(run(1), head(Status::Running, 1))]);
    let text = Json::of(&serde_json::json!({ "text": "x".repeat(OPEN_TEXT_BYTES_MAX / 2 + 1) }));
    let delta = || NewEvent::new(EventKind::MessageDelta, text.clone()).span("m".parse().unwrap());
    let plan = plan_of(&[request(1, vec![event("log.info", None), delta(), delta()])], &heads, &HashMap::new());
    assert_eq!(plan.outcomes[0].as_ref().err(), Some(&EmitError::OpenText(Overflow)));
    assert!(plan.batch.events.is_empty());
}

fn delta(span: &str, bytes: usize) -> NewEvent {
    let text = Json::of(&serde_json::json!({ "text": "x".repeat(bytes) }));
    NewEvent::new(EventKind::MessageDelta, text).span(span.parse().unwrap())
}

#[test]
fn deltas_of_one_commit_count_together_and_those_of_a_refused_emission_do_not() {
    let heads = HashMap::from([(run(1), head(Status::Running, 1))]);
    let half = || request(1, vec![delta("m", OPEN_TEXT_BYTES_MAX / 2)]);
    let batch = [half(), request(1, vec![delta("m", 1), delta("m", OPEN_TEXT_BYTES_MAX / 2)]), half(), half()];
    let plan = plan_of(&batch, &heads, &HashMap::new());
    let overflows: Vec<bool> = plan.outcomes.iter().map(Result::is_err).collect();
    assert_eq!(overflows, [false, true, false, true]);
}

#[test]
fn a_span_that_is_closed_in_the_same_commit_makes_room() {
    let heads = HashMap::from([(run(1), head(Status::Running, 1))]);
    let keys = HashMap::from([((run(1), "old".parse().unwrap()), Seq::new(1).unwrap())]);
    let end = |key| event("message.completed", key).span("m".parse().unwrap());
    let full = || delta("m", OPEN_TEXT_BYTES_MAX);
    let batch = [
        request(1, vec![full(), end(None), full()]),
        request(1, vec![end(Some("old"))]),
        request(1, vec![delta("m", 1)]),
        request(1, vec![end(None)]),
        request(1, vec![full()]),
    ];
    let plan = plan_of(&batch, &heads, &keys);
    let overflows: Vec<bool> = plan.outcomes.iter().map(Result::is_err).collect();
    assert_eq!(overflows, [false, false, true, false, false], "what was stored before closes nothing again");
}

#[test]
fn what_is_open_already_counts() {
    let heads = HashMap::from([(run(1), head(Status::Running, 1))]);
    let (keys, now) = (HashMap::new(), DateTime::UNIX_EPOCH);
    let lengths = Lengths { spans: OPEN_SPANS_MAX, bytes: 3 * OPEN_TEXT_BYTES_MAX };
    let open = |_, span: &SpanId| (lengths, (span.as_str() == "m").then_some(OPEN_TEXT_BYTES_MAX - 1));
    let batch = [
        request(1, vec![delta("m", 1)]),
        request(1, vec![delta("m", 1)]),
        request(1, vec![delta("n", 0)]),
        request(1, vec![event("tool.completed", None).span("m".parse().unwrap()), delta("n", 0)]),
    ];
    let named = &Named::default();
    let plan = plan(&batch, &Known { heads: &heads, keys: &keys, named, open: &open, now });
    let overflows: Vec<bool> = plan.outcomes.iter().map(Result::is_err).collect();
    assert_eq!(overflows, [false, true, true, false]);
}

#[test]
fn a_questions_id_is_taken_once_in_a_run() {
    let heads = HashMap::from([(run(1), head(Status::Running, 4)), (run(2), head(Status::Running, 4))]);
    let span: SpanId = "i".parse().unwrap();
    let asked = |id: Option<&str>| event("interrupt.requested", id).span(span.clone());
    let refused = Some(EmitError::InterruptExists(span.clone()));
    let batch = [
        request(1, vec![asked(Some("key"))]),
        request(1, vec![asked(Some("key"))]),
        request(1, vec![event("log.info", None), asked(None)]),
        request(2, vec![asked(None), asked(None)]),
        request(2, vec![asked(None)]),
    ];
    let plan = plan_of(&batch, &heads, &HashMap::new());
    let errors: Vec<Option<EmitError>> = plan.outcomes.iter().map(|outcome| outcome.as_ref().err().cloned()).collect();
    assert_eq!(errors, [None, None, refused.clone(), refused.clone(), None]);
    let stored = HashMap::from([((run(1), asked_key(&span)), Seq::new(2).unwrap())]);
    let plan = plan_of(&batch[..1], &heads, &stored);
    assert_eq!(plan.outcomes[0].as_ref().err().cloned(), refused);
}

proptest! {
    #[test]
    fn whatever_comes_each_runs_seqs_are_contiguous_and_each_key_is_one_event(
        sent in proptest::collection::vec(
            (1u8..4, proptest::collection::vec((0usize..5, proptest::option::of(0u8..6)), 1..5)), 1..12)
    ) {
        const TYPES: [&str; 5] = ["log.info", "tool.started", "run.waiting", "run.resumed", "run.completed"];
        let heads: HashMap<_, _> = (1..4).map(|n| (run(n), head(Status::Running, 7))).collect();
        let requests: Vec<_> = sent.iter().map(|(n, events)| {
            let events = events.iter().map(|(t, key)| event(TYPES[*t], key.map(|k| format!("k{k}")).as_deref()));
            request(*n, events.collect())
        }).collect();
        let plan = plan_of(&requests, &heads, &HashMap::new());
        for n in 1..4 {
            let seqs: Vec<i64> = plan.batch.events.iter().filter(|e| e.run_id == run(n)).map(|e| e.seq.unwrap().get()).collect();
            prop_assert_eq!(&seqs, &(8..8 + seqs.len() as i64).collect::<Vec<_>>());
            let mut keys: Vec<_> = plan.batch.events.iter().filter(|e| e.run_id == run(n)).filter_map(|e| e.event_id.clone()).collect();
            let all = keys.len();
            keys.sort();
            keys.dedup();
            prop_assert_eq!(keys.len(), all);
            if let Some(write) = plan.batch.heads.iter().find(|write| write.run_id == run(n)) {
                prop_assert_eq!(write.head.last_seq.get(), 7 + all.max(seqs.len()) as i64);
                prop_assert_eq!(plan.batch.events[write.last_index].seq, Some(write.head.last_seq));
            }
        }
    }
}
