use proptest::prelude::*;

use super::*;
use crate::{
    domain::{
        context::Role,
        event::{EventKind, NewEvent},
        json::Json,
        limits::{OPEN_PIECE_BYTES, OPEN_RUN_BYTES_MAX, OPEN_TEXT_BYTES_MAX},
    },
    store::open_texts::{Saved, SavedText, TextKey, TextWrite},
};

mod live;
mod processes;

impl Default for OpenTexts {
    fn default() -> Self {
        Self::new(Uuid::nil())
    }
}

fn context(n: u8, owner: &str) -> Arc<RunContext> {
    let run_id = format!("0198c0de-0000-7000-8000-0000000000{n:02}").parse().unwrap();
    Arc::new(RunContext {
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
    })
}

fn add(texts: &mut OpenTexts, context: &Arc<RunContext>, span: &str, text: &str) -> Result<usize, Overflow> {
    let event = NewEvent::new(EventKind::MessageDelta, Json::empty()).span(span.parse().unwrap());
    let event = Recorded::stamp(context, event, None, DateTime::UNIX_EPOCH);
    texts.add(context, &event, &span.parse().unwrap(), text)
}

fn close(texts: &mut OpenTexts, context: &RunContext, event: &str, span: &str) {
    texts.close(context.run_id, &event.parse().unwrap(), Some(&span.parse().unwrap()));
}

fn read(texts: &OpenTexts, owner: &str) -> Vec<(RunId, String, String)> {
    let mut read: Vec<_> = texts
        .of(&OwnerId::trusted(owner), |_| true)
        .iter()
        .map(|open| (open.context.run_id, open.span_id.to_string(), open.pieces().collect()))
        .collect();
    read.sort();
    read
}

#[test]
fn a_reader_gets_texts_in_the_order_in_which_they_began() {
    let (mut texts, run) = (OpenTexts::default(), context(1, "o"));
    for span in ["z", "a", "m"] {
        add(&mut texts, &run, span, "x").unwrap();
    }
    let spans = texts.of(&run.owner_id, |_| true).into_iter().map(|open| open.span_id.to_string());
    let spans: Vec<String> = spans.collect();
    assert_eq!(spans, ["z", "a", "m"]);
}

#[test]
fn offsets_count_characters_and_the_durable_event_closes_the_span() {
    let (mut texts, run) = (OpenTexts::default(), context(1, "o"));
    assert_eq!(add(&mut texts, &run, "m", "héé😀"), Ok(0));
    assert_eq!(add(&mut texts, &run, "m", "x"), Ok(4));
    assert_eq!(read(&texts, "o"), [(run.run_id, "m".to_owned(), "héé😀x".to_owned())]);
    close(&mut texts, &run, "tool.completed", "other");
    assert!(!texts.is_empty());
    close(&mut texts, &run, "message.completed", "m");
    assert!(texts.is_empty() && texts.owners.is_empty());
    assert_eq!(add(&mut texts, &run, "m", "anew"), Ok(0));
    close(&mut texts, &run, "run.failed", "whatever");
    assert!(texts.is_empty() && texts.owners.is_empty());
}

#[test]
fn a_span_or_a_run_over_its_bound_is_refused_and_stays_as_it_was() {
    let (mut texts, run) = (OpenTexts::default(), context(1, "o"));
    let full = "x".repeat(OPEN_TEXT_BYTES_MAX);
    let spans = OPEN_RUN_BYTES_MAX / OPEN_TEXT_BYTES_MAX;
    for n in 0..spans {
        assert_eq!(add(&mut texts, &run, &n.to_string(), &full), Ok(0));
    }
    assert_eq!(add(&mut texts, &run, "0", "y"), Err(Overflow));
    assert_eq!(add(&mut texts, &run, "more", "y"), Err(Overflow));
    let lengths = Lengths { spans, bytes: OPEN_RUN_BYTES_MAX };
    assert_eq!(texts.lengths(run.run_id, &"0".parse().unwrap()), (lengths, Some(OPEN_TEXT_BYTES_MAX)));
}

#[test]
fn a_handle_gives_the_text_as_it_stood_in_pieces_of_a_bounded_size() {
    let (mut texts, run) = (OpenTexts::default(), context(1, "o"));
    let text = "aé😀\n".repeat(OPEN_PIECE_BYTES);
    let (head, tail) = text.split_at(text.floor_char_boundary(OPEN_PIECE_BYTES * 3 + 2));
    add(&mut texts, &run, "m", head).unwrap();
    let early = texts.of(&run.owner_id, |_| true).remove(0);
    add(&mut texts, &run, "m", tail).unwrap();
    let late = texts.of(&run.owner_id, |_| true).remove(0);
    close(&mut texts, &run, "message.completed", "m");
    assert!(texts.is_empty());
    for (open, text) in [(early, head), (late, text.as_str())] {
        let pieces: Vec<String> = open.pieces().collect();
        assert!(pieces.iter().all(|piece| piece.len() <= OPEN_PIECE_BYTES));
        assert_eq!((pieces.concat().as_str(), open.chars), (text, text.chars().count()));
    }
}

#[test]
fn a_principal_over_its_bound_forgets_its_own_quietest_run_and_leaves_the_others_alone() {
    const SPAN: usize = OPEN_SPAN_BYTES + 1;
    let mut texts = OpenTexts::bounded(Uuid::nil(), 1_000_000, 2 * (SPAN + 10));
    let [quiet, other, mine, more] = [(1, "b"), (2, "a"), (3, "a"), (4, "a")].map(|(n, owner)| context(n, owner));
    for run in [&quiet, &other, &mine] {
        add(&mut texts, run, "m", "0123456789").unwrap();
    }
    assert_eq!(add(&mut texts, &other, "m", ""), Ok(10), "now it is not the quietest");
    add(&mut texts, &more, "m", "x").unwrap();
    assert_eq!(read(&texts, "a").iter().map(|(run, ..)| *run).collect::<Vec<_>>(), [other.run_id, more.run_id]);
    assert_eq!(read(&texts, "b").len(), 1);
    assert_eq!(add(&mut texts, &mine, "m", "y"), Ok(0), "what was forgotten begins anew");
}

#[test]
fn over_the_bound_of_all_the_quietest_run_of_all_forgets_its_texts() {
    let mut texts = OpenTexts::bounded(Uuid::nil(), 2 * (OPEN_SPAN_BYTES + 1), 1_000_000);
    for (n, owner) in [(1, "a"), (2, "b"), (3, "b")] {
        add(&mut texts, &context(n, owner), "m", "").unwrap();
    }
    assert_eq!((read(&texts, "a").len(), read(&texts, "b").len()), (0, 2));
}

#[test]
fn what_a_reader_still_holds_counts_until_it_lets_go() {
    let mut texts = OpenTexts::bounded(Uuid::nil(), 1_000_000, OPEN_SPAN_BYTES + 100);
    let (old, new) = (context(1, "a"), context(2, "a"));
    add(&mut texts, &old, "m", "held").unwrap();
    let held = texts.of(&old.owner_id, |_| true);
    assert_eq!(add(&mut texts, &new, "m", "x"), Ok(0));
    assert!(texts.is_empty(), "there is no room for it");
    assert_eq!(held[0].pieces().collect::<String>(), "held");
    let pieces = held[0].pieces();
    drop(held);
    add(&mut texts, &new, "m", "x").unwrap();
    assert!(texts.is_empty(), "it is still being read");
    drop(pieces);
    add(&mut texts, &new, "m", "x").unwrap();
    assert_eq!(read(&texts, "a").len(), 1);
}

proptest! {
    #[test]
    fn whatever_comes_the_sums_are_true_and_no_bound_is_passed(
        sent in proptest::collection::vec((1u8..7, 0usize..4, 0usize..3_000, 0u8..8, any::<bool>()), 1..200)
    ) {
        let (total, own) = (4 * OPEN_SPAN_BYTES + 9_000, 3 * OPEN_SPAN_BYTES);
        let mut texts = OpenTexts::bounded(Uuid::nil(), total, own);
        let mut readers = Vec::new();
        for (n, span, bytes, what, joins) in sent {
            let run = context(n, if n % 2 == 0 { "a" } else { "b" });
            let span = span.to_string();
            match what {
                0 => close(&mut texts, &run, "message.completed", &span),
                1 => close(&mut texts, &run, "run.completed", &span),
                2 => readers.clear(),
                _ => _ = add(&mut texts, &run, &span, &"é".repeat(bytes)).unwrap(),
            }
            if joins {
                readers.extend(texts.of(&run.owner_id, |_| true));
            }
            let mut sum = 0;
            for (owner, runs) in &texts.owners {
                let mut owns = 0;
                for (run, ()) in runs {
                    let open = texts.runs.peek(run).unwrap();
                    let bytes: usize = open.spans.values().map(|span| span.bytes).sum();
                    prop_assert_eq!(open.lengths, Lengths { spans: open.spans.len(), bytes });
                    owns += bytes + open.spans.keys().map(|id| OPEN_SPAN_BYTES + id.as_str().len()).sum::<usize>();
                }
                prop_assert!(!runs.is_empty() && owns <= own);
                for open in texts.of(owner, |_| true) {
                    let text: String = open.pieces().collect();
                    prop_assert_eq!((text.len(), text.chars().count()), (open.bytes, open.chars));
                }
                sum += owns;
            }
            prop_assert!(sum <= total);
            prop_assert_eq!(texts.runs.len(), texts.owners.values().map(LruCache::len).sum::<usize>());
        }
        readers.clear();
        texts.clear();
        let all = texts.quota.try_take(&OwnerId::trusted("a"), u32::try_from(own).unwrap());
        prop_assert!(all.is_ok(), "all room is given back");
    }
}
