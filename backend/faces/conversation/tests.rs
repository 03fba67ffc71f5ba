//! A model: a run's producer writes texts and events, and readers connect and disconnect. In every order, what a reader
//! assembles from all its connections is what the log has.

mod elsewhere;

use std::collections::BTreeMap;

use chrono::DateTime;
use proptest::prelude::*;

use super::*;
use crate::{
    domain::{
        context::{Role, RunContext},
        event::{EventKind, EventType, NewEvent, Recorded},
        history::Tag,
        id::SpanId,
        json::Json,
        limits::LIVE_TEXTS_MAX,
        principal::OwnerId,
        splice::LogPosition,
    },
    faces::position::{Position, WHOLE},
};

/// The next action of the producer or of a server.
#[derive(Clone, Debug)]
enum Act {
    Token(usize, String),
    /// The durable event of a text; `Some` is a text other than the one written.
    Complete(usize, Option<String>),
    Tool,
    /// The server loses its open texts. With `copies`, another one has copies, and the message continues at a third.
    Restart {
        copies: bool,
    },
    /// The text is another server's, of which the reader's has a copy.
    Elsewhere(usize),
}

/// A text so far, and whether it is a copy of what another process wrote.
#[derive(Clone, Default)]
struct Open {
    text: String,
    is_copy: bool,
    /// Whether its process was killed.
    is_left: bool,
}

const SPANS: [&str; 3] = ["m0", "m/1 ~,é", "r0"];

fn kind(span: usize) -> Kind {
    if span == 2 { Kind::Reasoning } else { Kind::Message }
}

fn span(index: usize) -> SpanId {
    SPANS[index].parse().unwrap()
}

/// Writes a part in one or two lines, each with its position as text or as a number.
struct Lines {
    numbers: bool,
}

impl Dialect for Lines {
    type Said = String;

    fn say(&mut self, part: &Part<'_>, out: &mut Vec<String>) {
        match part {
            Part::Opened(text) => out.extend([format!("open|{}|", text.span), format!("head|{}|", text.span)]),
            Part::Delta(text, piece) => out.push(format!("add|{}|{piece}", text.span)),
            Part::Replaced(text, whole) => out.push(format!("set|{}|{whole}", text.span)),
            Part::Closed(text, event) => {
                let how = if event.is_some() { "whole" } else { "cut" };
                out.extend([format!("foot|{}|", text.span), format!("close|{}|{how}", text.span)]);
            }
            Part::Event(event) => {
                let word = event.frame.event_type.as_str();
                out.extend([format!("first|{word}|"), format!("second|{word}|")]);
            }
            Part::CaughtUp | Part::Gap | Part::Ended(_) | Part::SentAway { .. } => {}
        }
    }

    fn write(&mut self, chunk: &mut BytesMut, line: String, at: Option<&Position>) {
        let at = at.expect("everything here has a position");
        let id = if self.numbers { at.number().unwrap().to_string() } else { at.to_string() };
        chunk.extend_from_slice(format!("{id}\t{line}\n").as_bytes());
    }
}

/// The frames in order, each with the server's open texts after it.
struct World {
    moments: Vec<(Arc<Frame>, BTreeMap<usize, Open>)>,
    /// The final content of each completed text, in order.
    texts: Vec<(usize, String)>,
}

fn context() -> Arc<RunContext> {
    let run_id = "0198c0de-0000-7000-8000-000000000001".parse().unwrap();
    Arc::new(RunContext {
        run_id,
        root_run_id: run_id,
        parent_run_id: None,
        owner_id: OwnerId::trusted("o"),
        thread_id: None,
        session_id: None,
        role: Role::Agent,
        agent: None,
        origin: None,
        trace_id: None,
    })
}

fn frame(seq: Option<i64>, event: NewEvent) -> Arc<Frame> {
    let context = context();
    let seq = seq.and_then(Seq::new);
    let place = seq.map(|seq| LogPosition { seq, lane: 0, position: seq.get() });
    let recorded = Recorded::stamp(&context, event, seq, DateTime::UNIX_EPOCH);
    Arc::new(Frame::new(context, &recorded, place, Tag::FIRST))
}

fn word(span: usize, action: &str) -> String {
    format!("{}.{action}", if kind(span) == Kind::Reasoning { "reasoning" } else { "message" })
}

fn world(acts: &[Act]) -> World {
    let (mut moments, mut texts) = (Vec::new(), Vec::new());
    let (mut written, mut open): (BTreeMap<usize, String>, BTreeMap<usize, Open>) = Default::default();
    let (mut seq, mut completed) = (0, Vec::new());
    let mut next = |moments: &mut Vec<_>, event, open: &BTreeMap<usize, Open>| {
        seq += 1;
        moments.push((frame(Some(seq), event), open.clone()));
    };
    next(&mut moments, NewEvent::new(EventKind::RunStarted, Json::empty()), &open);
    for act in acts {
        match act {
            // A span holds one text.
            Act::Token(index, _) | Act::Complete(index, _) if completed.contains(index) => {}
            Act::Token(index, text) => {
                let so_far = open.entry(*index).or_default();
                if so_far.is_left {
                    *so_far = Open::default();
                }
                let payload = Json::of(&serde_json::json!({"text": text, "offset": so_far.text.chars().count()}));
                so_far.text.push_str(text);
                written.entry(*index).or_default().push_str(text);
                let event = NewEvent::new(EventType::trusted(&word(*index, "delta")), payload).span(span(*index));
                moments.push((frame(None, event), open.clone()));
            }
            Act::Complete(index, changed) => {
                open.remove(index);
                completed.push(*index);
                let text = changed.clone().unwrap_or_else(|| written.get(index).cloned().unwrap_or_default());
                let payload = Json::of(&serde_json::json!({"content": [{"type": "text", "text": text}]}));
                let event = NewEvent::new(EventType::trusted(&word(*index, "completed")), payload).span(span(*index));
                next(&mut moments, event, &open);
                texts.push((*index, text));
            }
            Act::Tool => next(&mut moments, NewEvent::new(EventKind::ToolStarted, Json::empty()), &open),
            Act::Restart { copies: false } => open.clear(),
            Act::Restart { copies: true } => {
                for open in open.values_mut() {
                    (open.is_copy, open.is_left) = (true, true);
                }
            }
            Act::Elsewhere(index) => {
                if let Some(open) = open.get_mut(index) {
                    open.is_copy = true;
                }
            }
        }
        if let Some((_, at)) = moments.last_mut() {
            *at = open.clone();
        }
    }
    open.clear();
    next(&mut moments, NewEvent::new(EventKind::RunCompleted, Json::empty()), &open);
    World { moments, texts }
}

/// The output of one connection: it begins at a position and connects when `now` moments have happened.
fn read(world: &World, at: Position, now: usize, numbers: bool) -> Vec<(String, String)> {
    let texts_max = if numbers { 1 } else { LIVE_TEXTS_MAX };
    let after = at.cursor().seq;
    let shown = Shown { texts_max, reasoning: !numbers, announcements: true };
    let mut conversation = Conversation::new(Lines { numbers }, at, shown, 1);
    let mut out = String::new();
    let mut drain = |conversation: &mut Conversation<Lines>| {
        while let Some(chunk) = conversation.chunk() {
            out.push_str(std::str::from_utf8(&chunk).unwrap());
        }
    };
    let stored = world.moments[..now].iter().filter(|(frame, _)| frame.place.is_some_and(|place| place.seq > after));
    conversation.take(stored.map(|(frame, _)| StreamItem::Frame(Arc::clone(frame))).collect());
    drain(&mut conversation);
    conversation.take(vec![StreamItem::CaughtUp { last_seq: None, cursor: None }]);
    drain(&mut conversation);
    let open = now.checked_sub(1).map(|last| world.moments[last].1.clone()).unwrap_or_default();
    // The server keeps them while the connection reads.
    let written = |(index, open): (usize, Open)| {
        OpenText::for_tests(&context(), &word(index, "delta").parse().unwrap(), &span(index), &open.text, open.is_copy)
    };
    let texts: Vec<OpenText> = open.into_iter().map(written).collect();
    for open in &texts {
        conversation.take(vec![StreamItem::Snapshot(open.clone())]);
        drain(&mut conversation);
    }
    for (frame, _) in &world.moments[now..] {
        conversation.take(vec![StreamItem::Frame(Arc::clone(frame))]);
        drain(&mut conversation);
    }
    out.lines().map(|line| line.split_once('\t').unwrap()).map(|(id, text)| (id.to_owned(), text.to_owned())).collect()
}

/// The texts that a reader has assembled, and all other lines, in order.
fn fold(lines: &[String]) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut texts, mut rest): (BTreeMap<String, String>, Vec<String>) = Default::default();
    for line in lines {
        let parts: Vec<&str> = line.splitn(3, '|').collect();
        match parts[0] {
            "add" => texts.entry(parts[1].to_owned()).or_default().push_str(parts[2]),
            "set" => _ = texts.insert(parts[1].to_owned(), parts[2].to_owned()),
            _ => rest.push(line.clone()),
        }
    }
    (texts, rest)
}

/// A reader that is cut off after some lines of each connection and reconnects some moments later.
fn cut_off(world: &World, cuts: &[(usize, usize)], numbers: bool) -> (Vec<String>, Vec<String>) {
    let (mut at, mut now, mut read_lines, mut ids) = (Position::default(), 0, Vec::new(), Vec::new());
    at.sub = WHOLE;
    for cut in cuts.iter().map(Some).chain([None]) {
        let lines = read(world, at.clone(), now, numbers);
        let lines = &lines[..cut.map_or(lines.len(), |(after, _)| (*after).min(lines.len()))];
        read_lines.extend(lines.iter().map(|(_, line)| line.clone()));
        ids.extend(lines.iter().map(|(id, _)| id.clone()));
        if let Some((id, _)) = lines.last() {
            at = if numbers { Position::from_number(id.parse().unwrap()).unwrap() } else { id.parse().unwrap() };
        }
        // What was delivered has happened.
        let happened = world.moments.iter().position(|(frame, _)| frame.place.is_some_and(|p| p.seq == at.seq));
        now = (now.max(happened.map_or(0, |at| at + 1)) + cut.map_or(0, |(_, later)| *later)).min(world.moments.len());
    }
    (read_lines, ids)
}

fn acts(may_change: bool) -> impl Strategy<Value = Vec<Act>> {
    let changed = if may_change { prop::option::weighted(0.3, "[a-c]{0,4}").boxed() } else { Just(None).boxed() };
    let restart = u32::from(may_change);
    let act = prop_oneof![
        6 => (0usize..3, "[a-cé]{1,3}").prop_map(|(index, text)| Act::Token(index, text)),
        2 => (0usize..3, changed).prop_map(|(index, text)| Act::Complete(index, text)),
        1 => Just(Act::Tool),
        restart => any::<bool>().prop_map(|copies| Act::Restart { copies }),
        1 => (0usize..3).prop_map(Act::Elsewhere),
    ];
    prop::collection::vec(act, 0..24)
}

fn cuts() -> impl Strategy<Value = Vec<(usize, usize)>> {
    prop::collection::vec((0usize..8, 0usize..6), 0..8)
}

/// Compares a reader's final state with the log.
fn check(world: &World, lines: &[String]) -> Result<(), TestCaseError> {
    let (texts, rest) = fold(lines);
    for (index, text) in &world.texts {
        prop_assert_eq!(texts.get(SPANS[*index]).map_or("", |text| text), text, "{:?}", lines);
        for part in ["open", "head", "foot", "close"] {
            let count = rest.iter().filter(|line| line.starts_with(&format!("{part}|{}|", SPANS[*index]))).count();
            prop_assert_eq!(count, 1, "{} of {}: {:?}", part, SPANS[*index], lines);
        }
    }
    let events = |lines: &[String]| -> Vec<String> {
        let is_durable = |line: &&String| ["first|", "second|", "foot|", "close|"].iter().any(|s| line.starts_with(s));
        lines.iter().filter(is_durable).filter(|line| !line.ends_with("|cut")).cloned().collect()
    };
    let stored = read(world, Position { sub: WHOLE, ..Position::default() }, world.moments.len(), false);
    let stored: Vec<String> = stored.into_iter().map(|(_, line)| line).collect();
    // The end of a text that was cut off has no counterpart for a reader that never saw it.
    let without_cut = |lines: Vec<String>| {
        let complete = |line: &String| {
            let span = line.split('|').nth(1).unwrap_or_default();
            !line.starts_with("foot|") || world.texts.iter().any(|(index, _)| SPANS[*index] == span)
        };
        lines.into_iter().filter(complete).collect::<Vec<_>>()
    };
    prop_assert_eq!(without_cut(events(lines)), without_cut(events(&stored)));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_reader_cut_off_anywhere_has_every_character_once(acts in acts(true), cuts in cuts()) {
        let world = world(&acts);
        let (lines, _) = cut_off(&world, &cuts, false);
        check(&world, &lines)?;
    }

    #[test]
    fn numbers_increase_strictly_and_resume_exactly(acts in acts(false), cuts in cuts()) {
        let world = world(&acts);
        let (lines, ids) = cut_off(&world, &cuts, true);
        let numbers: Vec<u64> = ids.iter().map(|id| id.parse().unwrap()).collect();
        prop_assert!(numbers.windows(2).all(|two| two[0] < two[1]), "{:?} {:?}", numbers, lines);
        check(&world, &lines)?;
    }

    #[test]
    fn what_was_read_before_is_not_said_again(acts in acts(true), cut in 0usize..40) {
        let world = world(&acts);
        let all = world.moments.len();
        let lines = read(&world, Position { sub: WHOLE, ..Position::default() }, all, false);
        let cut = cut.min(lines.len() - 1);
        let at: Position = lines[cut].0.parse().unwrap();
        let mut conversation =
            Conversation::new(Lines { numbers: false }, at, Shown { texts_max: 1, reasoning: true, announcements: true }, 1);
        conversation.take(world.moments.iter().filter(|(frame, _)| frame.place.is_some())
            .map(|(frame, _)| StreamItem::Frame(Arc::clone(frame))).collect());
        let sent = std::iter::from_fn(|| conversation.chunk()).map(|chunk| String::from_utf8(chunk.to_vec()).unwrap());
        let sent: Vec<String> = sent.collect::<String>().lines().map(ToOwned::to_owned).collect();
        let rest: Vec<String> = lines[cut + 1..].iter().map(|(id, line)| format!("{id}\t{line}")).collect();
        prop_assert_eq!(sent, rest);
    }
}

#[test]
fn a_text_that_was_replaced_is_said_whole() {
    let acts = [Act::Token(0, "abc".into()), Act::Complete(0, Some("xyz".into()))];
    let lines: Vec<String> = read(&world(&acts), Position { sub: WHOLE, ..Position::default() }, 0, false)
        .into_iter()
        .map(|l| l.1)
        .collect();
    assert!(lines.contains(&"add|m0|abc".to_owned()) && lines.contains(&"set|m0|xyz".to_owned()), "{lines:?}");
}

#[test]
fn a_reader_that_was_sent_something_large_does_not_keep_the_room_for_it() {
    let world = world(&[Act::Complete(0, Some("x".repeat(1_000_000)))]);
    let at = Position { sub: WHOLE, ..Position::default() };
    let shown = Shown { texts_max: 1, reasoning: true, announcements: true };
    let mut conversation = Conversation::new(Lines { numbers: false }, at, shown, 1);
    conversation.take(world.moments.iter().map(|(frame, _)| StreamItem::Frame(Arc::clone(frame))).collect());
    while let Some(chunk) = conversation.chunk() {
        drop(chunk);
    }
    assert!(!conversation.chunk.try_reclaim(500_000), "an idle reader holds half a megabyte");
}

#[test]
fn one_that_joins_is_told_nothing_before_the_end_of_what_is_stored() {
    let world = world(&[Act::Tool, Act::Complete(0, Some("a".into()))]);
    let at = Position { sub: WHOLE, ..Position::default() };
    let mut conversation = Conversation::new(
        Lines { numbers: false },
        at,
        Shown { texts_max: 1, reasoning: true, announcements: true },
        1,
    )
    .joining();
    conversation.take(world.moments[..3].iter().map(|(frame, _)| StreamItem::Frame(Arc::clone(frame))).collect());
    assert_eq!(conversation.chunk(), None);
    conversation.take(vec![StreamItem::CaughtUp { last_seq: None, cursor: None }]);
    assert_eq!(conversation.chunk(), None);
    conversation.take(vec![StreamItem::Frame(Arc::clone(&world.moments[3].0))]);
    assert_eq!(conversation.chunk().unwrap(), "4~16\tfirst|run.completed|\n4\tsecond|run.completed|\n");
}
