//! What readers of a log are told: from its beginning, joined anywhere, cut off anywhere, and again after each answer.

use std::sync::Arc;

use rand::{RngExt as _, rngs::StdRng};
use runreel::{
    domain::{
        cursor::RunCursor,
        history::Tag,
        id::Seq,
        limits::{AGUI_JOIN_STEPS, LIVE_TEXTS_MAX},
        principal::OwnerId,
        run::Status,
        splice::ReadPosition,
    },
    faces::{
        Encoder,
        agui::{AgUi, Earlier, Names},
        ai_sdk::AiSdk,
        conversation::{Conversation, Dialect, Shown},
        position::{Position, WHOLE},
        responses::Responses,
        sse::Sse,
    },
    quota::Quota,
    timeline::{follow::StreamItem, open::OpenText},
};
use serde_json::{Map, json};

use super::made::{Log, run_id};

/// What a reader's connection is told, to a server that has this much of the log when it is opened; and how much the server
/// has when the protocol's stream is over.
fn connected(log: &Log, now: usize, encoder: impl Encoder) -> (String, usize) {
    connected_after(log, Seq::ZERO, now, encoder)
}

/// The same for an encoder that is given only what follows a seq.
fn connected_after(log: &Log, seen: Seq, now: usize, mut encoder: impl Encoder) -> (String, usize) {
    let mut told = String::from_utf8(encoder.opening().to_vec()).unwrap();
    let mut take = |items: Vec<StreamItem>| {
        encoder.take(items);
        while let Some(chunk) = encoder.chunk() {
            told.push_str(std::str::from_utf8(&chunk).unwrap());
        }
        encoder.is_over()
    };
    let (before, after) = log.moments.split_at(now);
    let stored = before.iter().filter(|moment| moment.frame.place.is_some_and(|place| place.seq > seen));
    let is_over = take(stored.map(|moment| StreamItem::Frame(Arc::clone(&moment.frame))).collect());
    if is_over || take(vec![StreamItem::CaughtUp { last_seq: None, cursor: None }]) {
        return (told, now);
    }
    for (span, open) in before.last().into_iter().flat_map(|moment| &moment.open) {
        let context = &log.moments[0].frame.context;
        let text = OpenText::for_tests(context, &open.event, span, &open.text, false).by(open.role);
        take(vec![StreamItem::Snapshot(text)]);
    }
    for (at, moment) in (now + 1..).zip(after) {
        if take(vec![StreamItem::Frame(Arc::clone(&moment.frame))]) {
            return (told, at);
        }
    }
    take(vec![StreamItem::End { status: Status::Completed, last_seq: Seq::ZERO }]);
    (told, log.moments.len())
}

/// How much there is of the log when somebody has answered what was asked by then; `None` if nobody does.
fn answered(log: &Log, then: usize) -> Option<usize> {
    let is_answer = |index: usize| kind(log, index) == "interrupt.resolved";
    (then..log.moments.len()).find(|index| is_answer(*index) && !is_answer(index + 1)).map(|index| index + 1)
}

fn kind(log: &Log, index: usize) -> &str {
    log.moments.get(index).map_or("", |moment| moment.frame.event_type.as_str())
}

/// The seq of the last event of a type among the first so many moments.
fn last_of(log: &Log, kind: &str, count: usize) -> Seq {
    let mut frames = log.moments[..count].iter().rev().map(|moment| &moment.frame);
    frames.find(|frame| frame.event_type.as_str() == kind).map_or(Seq::ZERO, |frame| frame.place.unwrap().seq)
}

fn start() -> Position {
    Position { sub: WHOLE, ..Position::default() }
}

fn conversation<D: Dialect>(dialect: D, at: Position, announcements: bool) -> Conversation<D> {
    Conversation::new(dialect, at, Shown { texts_max: LIVE_TEXTS_MAX, reasoning: true, announcements }, 1)
}

fn names(request: usize) -> Names {
    Names { thread_id: "t".to_owned(), run_id: format!("r{request}"), run: run_id() }
}

/// What a client of AG-UI is told that begins the run, and comes back when somebody has answered: the answers to its
/// requests. With a chance of being cut off, once in each.
pub fn agui(log: &Log, random: &mut StdRng, is_cut: bool) -> Vec<String> {
    let (mut told, mut at, mut now) = (Vec::new(), start(), 0);
    loop {
        let dialect = AgUi::beginning(names(told.len()), at.seq);
        let (mut body, then) = connected(log, now, conversation(dialect, at, true));
        if is_cut {
            body = cut_off(log, body, now, (random, told.len()));
        }
        told.push(body);
        let Some(answered) = answered(log, then) else { return told };
        at = Position { seq: last_of(log, "interrupt.resolved", answered), ..start() };
        now = answered;
    }
}

/// The same for a connection that breaks, and a reader that goes on after the last id that it has.
fn cut_off(log: &Log, body: String, now: usize, (random, request): (&mut StdRng, usize)) -> String {
    let frames: Vec<&str> = body.split_inclusive("\n\n").collect();
    let kept = frames[..random.random_range(0..=frames.len())].concat();
    let Some(at) = last_id(&kept) else { return body };
    let kept = &kept[..kept.rfind("\nid: ").map_or(0, |id| id + kept[id..].find("\n\n").unwrap() + 2)];
    let now = happened(log, at.seq, now, random);
    if kept.contains("\"type\":\"RUN_FINISHED\"") || kept.contains("\"type\":\"RUN_ERROR\"") {
        return kept.to_owned();
    }
    kept.to_owned() + &connected(log, now, conversation(AgUi::resuming(names(request), at.seq), at, true)).0
}

/// How much there is of the log when a reader comes back that has this event: at least what the server had, and has sent.
fn happened(log: &Log, seq: Seq, now: usize, random: &mut StdRng) -> usize {
    let sent = log.moments.iter().rposition(|moment| moment.frame.place.is_some_and(|place| place.seq == seq));
    random.random_range(now.max(sent.map_or(0, |index| index + 1))..=log.moments.len())
}

fn last_id(told: &str) -> Option<Position> {
    let id = told.lines().filter_map(|line| line.strip_prefix("id: ")).next_back()?;
    Some(id.parse().unwrap())
}

/// What a client of AG-UI is told that joins.
pub fn agui_joined(log: &Log, now: usize) -> Vec<String> {
    let steps = usize::try_from(AGUI_JOIN_STEPS).unwrap();
    let room = Quota::new(steps, steps).try_take(&OwnerId::trusted("o"), AGUI_JOIN_STEPS).unwrap();
    let dialect = AgUi::joining(names(0), Earlier::new(run_id(), room));
    vec![connected(log, now, conversation(dialect, start(), true).joining()).0]
}

/// What a client of the AI SDK is told of a message that it has nothing of, and after each answer.
pub fn ai_sdk(log: &Log, now: usize) -> Vec<String> {
    let (mut told, mut at, mut now) = (Vec::new(), Position::default(), now);
    loop {
        let dialect = AiSdk::new("m", Map::from_iter([("runId".to_owned(), json!(run_id()))]));
        let (body, then) = connected(log, now, conversation(dialect, at, false));
        told.push(body);
        let Some(answered) = answered(log, then) else { return told };
        let seq = last_of(log, "interrupt.requested", answered);
        at = Position::after(RunCursor { seq, history: Tag::FIRST });
        now = answered;
    }
}

/// What a client of Responses is sent; if it is cut off, also what follows the last number that it has.
pub fn responses(log: &Log, now: usize, cut: Option<&mut StdRng>) -> Vec<String> {
    let encoder = |at| {
        let head = json!({"id": "resp", "object": "response", "created_at": 0, "model": "m", "metadata": {}});
        let dialect = Responses::new(run_id(), head.as_object().unwrap().clone());
        Conversation::new(dialect, at, Shown { texts_max: 1, reasoning: false, announcements: false }, 1)
    };
    let body = connected(log, now, encoder(Position::default())).0;
    let Some(random) = cut else { return vec![body] };
    let frames: Vec<&str> = body.split_inclusive("\n\n").collect();
    let kept = frames[..random.random_range(0..frames.len())].concat();
    let Some((_, number)) = kept.rsplit_once("\"sequence_number\":") else { return vec![body] };
    let at = Position::from_number(number.trim_end().trim_end_matches('}').parse().unwrap()).unwrap();
    let rest = connected(log, happened(log, at.seq, now, random), encoder(at)).0;
    vec![kept, rest]
}

/// What a reader of the run's own stream is sent; if it is cut off, also what follows the last event that it has.
pub fn own(log: &Log, now: usize, cut: Option<&mut StdRng>) -> Vec<String> {
    let encoder = |after| Sse::at(&ReadPosition::Run(after), 0);
    let body = connected(log, now, encoder(Seq::ZERO)).0;
    let Some(random) = cut else { return vec![body] };
    // Anywhere, also within a frame.
    let bytes = &body.as_bytes()[..random.random_range(0..body.len())];
    let kept = String::from_utf8_lossy(bytes).into_owned();
    let whole = &kept[..kept.rfind("\n\n").map_or(0, |end| end + 1)];
    let id = whole.lines().filter_map(|line| line.strip_prefix("id: ")).next_back();
    let after = id.map_or(Seq::ZERO, |id| id.parse::<RunCursor>().unwrap().seq);
    let rest = connected_after(log, after, happened(log, after, now, random), encoder(after)).0;
    vec![kept, rest]
}
