//! Compares what a killed run left behind with an undisturbed one. Pure: nothing here reads, waits or tolerates.
//!
//! What may differ is defined here and nowhere else: ids of runs and checkpoints, and `duration_ms`. A killed run has
//! no event more and none less; nothing in its log shows that it was restarted.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// How many differences are printed individually.
const SHOWN: usize = 6;

/// An event as stored in the table.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) seq: i64,
    pub(crate) kind: String,
    pub(crate) role: String,
    pub(crate) agent: Option<String>,
    pub(crate) span: Option<String>,
    pub(crate) parent: Option<String>,
    pub(crate) event_id: Option<String>,
    /// With `RUN` in place of the run's id.
    pub(crate) payload: Value,
}

/// A line of the ledger: what a node did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The process that did it, from 1.
    pub(crate) attempt: usize,
    pub(crate) span: String,
    /// `visit`, or the key of what was computed.
    pub(crate) what: String,
}

/// What the database has of a run at a moment at which no process works on it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    /// The last step that is stored; `None` before the first checkpoint.
    pub(crate) step: Option<u32>,
    /// Spans of nodes whose update is stored, in a checkpoint or inside the step.
    pub(crate) ended: BTreeSet<String>,
    /// What nodes remembered: span and key.
    pub(crate) memos: BTreeSet<(String, String)>,
    /// Spans whose end is in the log.
    pub(crate) told: BTreeSet<String>,
    /// The last step that the log reports as stored.
    pub(crate) told_step: Option<u32>,
}

/// Everything a run left behind.
#[derive(Clone, Debug)]
pub(crate) struct History {
    /// The channels of the last checkpoint, byte for byte.
    pub(crate) state: String,
    pub(crate) told: Vec<Told>,
    pub(crate) ledger: Vec<Line>,
    /// What was stored after each kill, in order.
    pub(crate) kills: Vec<Kept>,
    pub(crate) end: Kept,
}

/// An event without what may differ.
fn plain(told: &Told) -> (String, Option<String>, String) {
    let Told { kind, role, agent, span, parent, payload, .. } = told;
    let (mut payload, mut span) = (payload.clone(), span.clone());
    if let Some(members) = payload.as_object_mut() {
        members.remove("duration_ms");
        if kind == "state.checkpointed" && members.remove("checkpoint_id").as_ref().map(text) == span {
            span = Some("the checkpoint".to_owned());
        }
    }
    (kind.clone(), span, format!("{role} {agent:?} {parent:?} {payload}"))
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The place of an event in the run: twice the step, and one more after the step's end.
fn phase(told: &Told) -> Option<u64> {
    match told.kind.as_str() {
        "run.created" | "run.started" => Some(0),
        "state.checkpointed" => Some(told.payload["step"].as_u64()? * 2 + 1),
        "run.completed" => Some(u64::MAX),
        _ => {
            let step = told.span.as_ref()?.strip_prefix('s')?.split('.').next()?;
            Some(step.parse::<u64>().ok()? * 2)
        }
    }
}

/// Compares a run with an undisturbed one, and returns everything that is wrong.
pub(crate) fn judge(whole: &History, history: &History) -> Vec<String> {
    let mut wrong = Vec::new();
    if history.state != whole.state {
        wrong.push(format!("the state is {} and not {}", history.state, whole.state));
    }
    judge_told(whole, history, &mut wrong);
    judge_work(whole, history, &mut wrong);
    wrong
}

fn judge_told(whole: &History, history: &History, wrong: &mut Vec<String>) {
    if let Some((expected, told)) = (1..).zip(&history.told).find(|(expected, told)| told.seq != *expected) {
        wrong.push(format!("seq {} where {expected} belongs", told.seq));
    }
    let ids: BTreeSet<_> = history.told.iter().filter_map(|told| told.event_id.as_ref()).collect();
    if ids.len() != history.told.iter().filter(|told| told.event_id.is_some()).count() {
        wrong.push("an event_id is there twice".to_owned());
    }
    let mut difference: BTreeMap<_, i64> = BTreeMap::new();
    for told in &history.told {
        *difference.entry(plain(told)).or_default() += 1;
    }
    for told in &whole.told {
        *difference.entry(plain(told)).or_default() -= 1;
    }
    for ((kind, span, payload), more) in difference.into_iter().filter(|(_, more)| *more != 0).take(SHOWN) {
        wrong.push(format!("{more:+} × {kind} of {span:?}: {payload}"));
    }
    let order = |history: &History| {
        let mut spans: BTreeMap<Option<String>, Vec<String>> = BTreeMap::new();
        for (kind, span, _) in history.told.iter().map(plain) {
            spans.entry(span).or_default().push(kind);
        }
        spans
    };
    if order(history) != order(whole) {
        wrong.push("inside a span the order differs".to_owned());
    }
    for pair in history.told.windows(2) {
        let (Some(before), Some(after)) = (phase(&pair[0]), phase(&pair[1])) else {
            wrong.push(format!("{} or {} belongs nowhere", pair[0].kind, pair[1].kind));
            continue;
        };
        if before > after {
            wrong.push(format!("seq {} ({}) comes after a later step's", pair[1].seq, pair[1].kind));
        }
    }
    if history.told.last().is_none_or(|last| last.kind != "run.completed") {
        wrong.push("the last event is not the end".to_owned());
    }
}

fn judge_work(whole: &History, history: &History, wrong: &mut Vec<String>) {
    let nothing = Kept::default();
    let before = |attempt: usize| attempt.checked_sub(2).and_then(|kill| history.kills.get(kill)).unwrap_or(&nothing);
    let mut done = BTreeSet::new();
    for Line { attempt, span, what } in &history.ledger {
        let kept = before(*attempt);
        if kept.ended.contains(span) {
            wrong.push(format!("{span} {what}: done again by process {attempt}, its update was kept"));
        } else if kept.memos.contains(&(span.clone(), what.clone())) {
            wrong.push(format!("{span} {what}: computed again by process {attempt}, it was remembered"));
        }
        if !done.insert((attempt, span, what)) {
            wrong.push(format!("{span} {what}: twice in process {attempt}"));
        }
    }
    let places = |history: &History| {
        let places = history.ledger.iter().map(|line| (line.span.clone(), line.what.clone()));
        places.collect::<BTreeSet<_>>()
    };
    for (span, what) in places(whole).symmetric_difference(&places(history)) {
        wrong.push(format!("{span} {what}: only in one of the two runs"));
    }
    let mut earlier = &nothing;
    for (number, kept) in (1..).zip(&history.kills).chain([(history.kills.len() + 1, &history.end)]) {
        judge_kept(earlier, kept, number, history, wrong);
        earlier = kept;
    }
    if history.end.ended != whole.end.ended || history.end.memos != whole.end.memos {
        wrong.push("what is kept at the end differs".to_owned());
    }
}

/// State first, then events; and what is stored stays, and was computed by one of the processes.
fn judge_kept(earlier: &Kept, kept: &Kept, number: usize, history: &History, wrong: &mut Vec<String>) {
    for span in kept.told.difference(&kept.ended) {
        wrong.push(format!("after process {number} the end of {span} is told and what it gave is not kept"));
    }
    if kept.told_step > kept.step {
        wrong.push(format!("after process {number} step {:?} is told and {:?} kept", kept.told_step, kept.step));
    }
    let less =
        earlier.step > kept.step || !earlier.ended.is_subset(&kept.ended) || !earlier.memos.is_subset(&kept.memos);
    if less {
        wrong.push(format!("process {number} lost what was kept before it"));
    }
    let done = |span: &str, what: &str| {
        history.ledger.iter().any(|line| line.attempt <= number && line.span == span && line.what == what)
    };
    for span in kept.ended.iter().filter(|span| !done(span, "visit")) {
        wrong.push(format!("after process {number} {span} is kept and was never visited"));
    }
    for (span, key) in kept.memos.iter().filter(|(span, key)| !done(span, key)) {
        wrong.push(format!("after process {number} {key} of {span} is kept and was never computed"));
    }
}
