use std::sync::Arc;

use chrono::TimeDelta;

use super::*;
use crate::domain::{context::Role, json::Json};

fn fold(events: &[(&str, Option<&str>, i64, &str)]) -> (Vec<Span>, Summary, Seq) {
    let run_id: RunId = "0198c0de-0000-7000-8000-000000000001".parse().unwrap();
    let zero = DateTime::UNIX_EPOCH;
    let mut timeline = Timeline::new(run_id, zero);
    for (index, (event_type, span_id, at_ms, payload)) in events.iter().enumerate() {
        timeline.take(&Recorded {
            run_id,
            seq: Seq::new(index as i64 + 1),
            event_type: event_type.parse().unwrap(),
            role: Role::Agent,
            agent: None,
            owner_id: Arc::from("o"),
            span_id: span_id.map(|id| id.parse().unwrap()),
            parent_span_id: None,
            event_id: None,
            at: zero + TimeDelta::milliseconds(*at_ms),
            payload: Json::parse(payload).unwrap(),
        });
    }
    let Folded { spans, summary, last_seq, .. } = timeline.finish();
    (spans, summary, last_seq)
}

#[test]
fn starts_and_ends_pair_by_family_and_span_even_when_two_families_share_an_id() {
    let (spans, summary, last) = fold(&[
        ("run.created", None, 0, r#"{"title":"T"}"#),
        ("run.started", None, 0, "{}"),
        ("step.started", Some("a"), 10, r#"{"name":"plan"}"#),
        ("tool.started", Some("a"), 20, r#"{"name":"grep"}"#),
        ("tool.failed", Some("a"), 50, "{}"),
        ("step.completed", Some("a"), 110, "{}"),
        ("run.completed", None, 120, "{}"),
    ]);
    let bars: Vec<_> = spans.iter().map(|s| (s.kind.as_str(), s.name.as_str(), s.status, s.duration_ms)).collect();
    assert_eq!(
        bars,
        [
            ("run", "T", SpanStatus::Completed, Some(120.0)),
            ("step", "plan", SpanStatus::Completed, Some(100.0)),
            ("tool", "grep", SpanStatus::Failed, Some(30.0)),
        ]
    );
    assert_eq!((summary.tool_ms, summary.total_ms, last.get()), (30.0, 120.0, 7));
    assert_eq!(summary.node_durations_ms["plan"], 100.0);
}

#[test]
fn waiting_counts_until_the_run_resumes_and_usage_adds_up() {
    let (spans, summary, _) = fold(&[
        ("run.created", None, 0, "{}"),
        ("run.started", None, 0, "{}"),
        ("run.waiting", None, 100, "{}"),
        ("run.resumed", None, 350, "{}"),
        ("message.completed", Some("m"), 400, r#"{"duration_ms":30,"usage":{"input_tokens":3,"model":"x"}}"#),
        ("message.completed", Some("n"), 500, r#"{"usage":{"input_tokens":4}}"#),
    ]);
    assert_eq!(summary.waiting_ms, 250.0);
    assert_eq!(summary.model_ms, 30.0);
    assert_eq!(summary.usage, BTreeMap::from([("input_tokens".to_owned(), 7.0)]));
    assert_eq!(spans[0].status, SpanStatus::Running);
    assert_eq!((spans[1].start_ms, spans[1].duration_ms), (370.0, Some(30.0)));
}

#[test]
fn a_span_takes_what_its_end_says_and_a_persons_time_is_nobodys() {
    let (spans, summary, _) = fold(&[
        ("run.created", None, 0, "{}"),
        ("run.started", None, 0, "{}"),
        ("step.started", Some("s"), 0, r#"{"name":"ask"}"#),
        ("tool.started", Some("t"), 10, r#"{"name":"book"}"#),
        ("tool.started", Some("u"), 20, r#"{"name":"look"}"#),
        ("run.interrupted", None, 100, "{}"),
        ("run.resumed", None, 5_100, "{}"),
        ("tool.completed", Some("t"), 5_110, "{}"),
        ("tool.completed", Some("u"), 5_120, r#"{"duration_ms":7.5}"#),
        ("step.completed", Some("s"), 5_200, r#"{"duration_ms":0.938}"#),
        ("run.completed", None, 5_200, "{}"),
    ]);
    let bars: Vec<_> = spans[1..].iter().map(|s| (s.name.as_str(), s.duration_ms, s.waiting_ms)).collect();
    assert_eq!(
        bars,
        [
            ("ask", Some(0.938), Some(5_199.062)),
            ("book", Some(100.0), Some(5_000.0)),
            ("look", Some(7.5), Some(5_092.5)),
        ]
    );
    assert_eq!((summary.tool_ms, summary.waiting_ms), (107.5, 5_000.0));
    assert_eq!((summary.node_durations_ms["ask"], summary.node_waiting_ms["ask"]), (0.938, 5_199.062));
}

#[test]
fn a_run_that_is_told_of_late_is_as_long_as_its_own_times_say() {
    // The run was reported and opened nine seconds after it had started.
    let (spans, summary, _) = fold(&[
        ("run.created", None, 9_000, "{}"),
        ("run.started", None, 9_000, "{}"),
        ("step.started", Some("s"), 0, "{}"),
        ("step.completed", Some("s"), 400, "{}"),
        ("run.completed", None, 500, "{}"),
    ]);
    let bars: Vec<_> = spans.iter().map(|s| (s.start_ms, s.duration_ms)).collect();
    assert_eq!(bars, [(0.0, Some(500.0)), (0.0, Some(400.0))]);
    assert_eq!(summary.total_ms, 500.0);
}

#[test]
fn a_workers_bar_is_as_long_as_the_worker_took_whenever_its_end_is_told() {
    let (spans, ..) = fold(&[
        ("run.created", None, 0, "{}"),
        ("worker.spawned", Some("a"), 10, "{}"),
        ("worker.spawned", Some("b"), 20, "{}"),
        ("worker.completed", Some("a"), 100, r#"{"duration_ms":40}"#),
        ("worker.failed", Some("b"), 100, r#"{"duration_ms":500}"#),
    ]);
    let lengths: Vec<_> = spans[1..].iter().map(|span| span.duration_ms).collect();
    assert_eq!(lengths, [Some(40.0), Some(80.0)]);
}

#[test]
fn a_fold_keeps_so_many_spans_with_short_names_and_still_counts_the_rest() {
    let run_id: RunId = "0198c0de-0000-7000-8000-000000000001".parse().unwrap();
    let mut timeline = Timeline::new(run_id, DateTime::UNIX_EPOCH);
    let mut seq = 0;
    let mut take = |event_type: &str, span: String, at_ms: i64, payload: String| {
        seq += 1;
        timeline.take(&Recorded {
            run_id,
            seq: Seq::new(seq),
            event_type: event_type.parse().unwrap(),
            role: Role::Agent,
            agent: None,
            owner_id: Arc::from("o"),
            span_id: Some(span.parse().unwrap()),
            parent_span_id: None,
            event_id: None,
            at: DateTime::UNIX_EPOCH + TimeDelta::milliseconds(at_ms),
            payload: Json::parse(&payload).unwrap(),
        });
    };
    let count = SPANS_MAX + 5;
    for n in 0..count {
        take("step.started", format!("s{n}"), 0, format!(r#"{{"name":"{n} {}"}}"#, "é".repeat(300)));
    }
    for n in 0..count {
        take("step.completed", format!("s{n}"), 10, "{}".to_owned());
    }
    take("tool.completed", "alone".to_owned(), 10, r#"{"duration_ms":7}"#.to_owned());
    let Folded { spans, spans_omitted, summary, .. } = timeline.finish();
    assert_eq!((spans.len(), spans_omitted), (SPANS_MAX, 6));
    assert!(spans.iter().all(|span| span.name.len() <= SPAN_NAME_BYTES_MAX && span.status == SpanStatus::Completed));
    assert_eq!(summary.node_durations_ms.len(), SUMS_MAX + 1);
    assert_eq!(summary.node_durations_ms.values().sum::<f64>(), 10.0 * count as f64);
    assert_eq!(summary.tool_ms, 7.0);
}
