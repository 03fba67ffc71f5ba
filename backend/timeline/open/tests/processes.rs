//! Two processes and the table between them.

use super::{super::elsewhere::Added, *};

/// A model of the table of saved texts.
#[derive(Default)]
pub(super) struct Table(BTreeMap<(RunId, SpanId), Vec<(TextKey, String)>>);

impl Table {
    /// Saves what a process has to save, as the SQL statement does.
    pub(super) fn save(&mut self, from: &mut OpenTexts) -> bool {
        let unsaved = from.take_unsaved(|_| 0);
        for key in &unsaved.over {
            let at = (key.run_id, key.span_id.clone());
            self.0.get_mut(&at).into_iter().for_each(|pieces| pieces.retain(|(saved, _)| saved != key));
        }
        let save = |text: &TextWrite| {
            let saved = self.0.entry((text.key.run_id, text.key.span_id.clone())).or_default();
            let outcome = match saved.first() {
                _ if text.is_first => Saved::Done,
                None => return Saved::Missing,
                Some((key, _)) if *key == text.key => Saved::Done,
                Some(_) => return Saved::Superseded,
            };
            saved.truncate(text.first_piece);
            saved.extend(text.pieces.iter().map(|piece| (text.key.clone(), piece.clone())));
            outcome
        };
        let outcomes: Vec<Saved> = unsaved.texts.iter().map(save).collect();
        from.note_saved(&unsaved.texts, &outcomes);
        from.has_unsaved()
    }

    /// Lets a process read the table; `closing` runs during the read.
    pub(super) fn read(
        &self,
        to: &mut OpenTexts,
        context: &Arc<RunContext>,
        closing: impl FnOnce(&mut OpenTexts),
    ) -> Vec<Added> {
        let asked = [(context.owner_id.clone(), Some(context.run_id))];
        let known: HashMap<_, _> = to.begin_reading(&asked).into_iter().map(|(_, span, piece)| (span, piece)).collect();
        let texts = self.0.values().filter_map(|pieces| {
            let (key, _) = pieces.first()?;
            let from = known.get(&key.span_id).copied().unwrap_or(0);
            let pieces = pieces.iter().zip(0..).filter(|(_, at)| *at == 0 || *at >= from);
            Some(SavedText {
                key: key.clone(),
                event_type: "message.delta".parse().unwrap(),
                parent_span_id: None,
                at: DateTime::UNIX_EPOCH,
                pieces: pieces.map(|((_, text), at)| (at, (at >= from).then(|| text.clone()))).collect(),
            })
        });
        let texts: Vec<_> = texts.map(|text| (Arc::clone(context), text)).collect();
        closing(to);
        to.copy(&asked, texts, true)
    }
}

pub(super) fn process(n: u128) -> OpenTexts {
    OpenTexts::new(Uuid::from_u128(n << 64))
}

pub(super) fn nothing(_: &mut OpenTexts) {}

/// Appends deltas to a reader's text, and checks their offsets.
pub(super) fn follow(text: &mut String, added: &[Added]) {
    for Added { delta, offset, .. } in added {
        if *offset == 0 {
            text.clear();
        }
        assert_eq!(*offset, text.chars().count(), "a delta follows what came before");
        text.push_str(&delta.payload.member::<String>("text").unwrap());
    }
}

#[test]
fn a_copy_follows_the_text_and_ends_with_it() {
    let (mut a, mut b, mut table, run) = (process(1), process(2), Table::default(), context(1, "o"));
    let mut heard = String::new();
    for n in 0..4_000 {
        add(&mut a, &run, "m", &format!("{n}é ")).unwrap();
        if n % 90 == 0 {
            table.save(&mut a);
            let added = table.read(&mut b, &run, nothing);
            assert!(added.iter().all(|added| added.is_earlier == (n == 0)), "what was there when the copy began");
            follow(&mut heard, &added);
            assert_eq!((read(&a, "o"), &read(&a, "o")[0].2), (read(&b, "o"), &heard));
        }
    }
    assert!(heard.len() > 5 * OPEN_PIECE_BYTES);
    close(&mut b, &run, "message.completed", "m");
    assert!(b.is_empty() && b.has_unsaved(), "the process that had it may be gone");
    table.save(&mut b);
    close(&mut a, &run, "message.completed", "m");
    assert!(table.0.values().all(Vec::is_empty));
    add(&mut a, &run, "n", "another").unwrap();
    table.save(&mut a);
    close(&mut a, &run, "message.completed", "n");
    table.save(&mut a);
    assert!(table.0.values().all(Vec::is_empty));
}

#[test]
fn what_is_closed_while_it_is_read_is_not_copied() {
    let (mut a, mut b, mut table, run) = (process(1), process(2), Table::default(), context(1, "o"));
    add(&mut a, &run, "m", "one").unwrap();
    table.save(&mut a);
    table.read(&mut a, &run, |a| a.close(run.run_id, &"log.info".parse().unwrap(), None));
    assert_eq!(read(&a, "o").len(), 1, "its own");
    for closing in ["message.completed", "run.failed"] {
        assert!(table.read(&mut b, &run, |b| close(b, &run, closing, "m")).is_empty());
        assert!(table.read(&mut b, &run, OpenTexts::clear).is_empty());
    }
    assert_eq!(table.read(&mut b, &run, |b| close(b, &run, "message.completed", "other")).len(), 1);
}

#[test]
fn the_process_that_begins_a_text_later_has_the_span() {
    let (mut a, mut b, mut table, run) = (process(1), process(2), Table::default(), context(1, "o"));
    add(&mut a, &run, "m", "from a").unwrap();
    table.save(&mut a);
    let mut heard = String::new();
    follow(&mut heard, &table.read(&mut b, &run, nothing));
    assert_eq!(add(&mut b, &run, "m", "from b"), Ok(0), "it has not all of the other");
    table.save(&mut b);
    assert_eq!(add(&mut a, &run, "m", ", late"), Ok(6));
    table.save(&mut a);
    assert!(a.is_empty(), "it notices that the span has another text");
    let mut heard = String::new();
    follow(&mut heard, &table.read(&mut a, &run, nothing));
    assert_eq!((heard.as_str(), read(&a, "o")), ("from b", read(&b, "o")));
}

#[test]
fn a_table_that_was_emptied_is_filled_again() {
    let (mut a, mut b, run) = (process(1), process(2), context(1, "o"));
    add(&mut a, &run, "m", &"x".repeat(3 * OPEN_PIECE_BYTES)).unwrap();
    Table::default().save(&mut a);
    let mut table = Table::default();
    add(&mut a, &run, "m", "y").unwrap();
    assert!(table.save(&mut a), "it is missing, and waits again");
    table.save(&mut a);
    table.read(&mut b, &run, nothing);
    assert_eq!(read(&a, "o"), read(&b, "o"));
}

#[test]
fn a_copy_of_what_is_saved_no_more_is_dropped_and_so_is_one_that_nobody_reads() {
    let (mut a, mut b, mut table, run) = (process(1), process(2), Table::default(), context(1, "o"));
    for span in ["m", "n"] {
        add(&mut a, &run, span, "text").unwrap();
    }
    table.save(&mut a);
    table.read(&mut b, &run, nothing);
    table.0.remove(&(run.run_id, "m".parse().unwrap()));
    table.read(&mut b, &run, nothing);
    assert_eq!(read(&b, "o").len(), 1);
    b.drop_unheard(|_| true);
    assert_eq!(read(&b, "o").len(), 1);
    b.drop_unheard(|_| false);
    assert!(b.is_empty() && b.owners.is_empty() && !b.has_unsaved());
}

#[test]
fn principals_take_turns_and_a_failure_forgets_nothing() {
    let mut texts = process(1);
    let (many, one) = (context(1, "a"), context(2, "b"));
    for n in 0..200 {
        add(&mut texts, &many, &n.to_string(), &"x".repeat(OPEN_RUN_BYTES_MAX / 256)).unwrap();
    }
    add(&mut texts, &one, "m", "x").unwrap();
    let unsaved = texts.take_unsaved(|_| 0);
    assert!(unsaved.texts.len() < 100 && unsaved.texts[1].key.owner_id == one.owner_id);
    texts.take_back(unsaved);
    let (mut table, mut copy) = (Table::default(), process(2));
    while table.save(&mut texts) {}
    for run in [&many, &one] {
        let own = Table(
            table
                .0
                .iter()
                .filter(|((of, _), _)| *of == run.run_id)
                .map(|(at, pieces)| (at.clone(), pieces.clone()))
                .collect(),
        );
        own.read(&mut copy, run, nothing);
    }
    assert_eq!((read(&texts, "a"), read(&texts, "b")), (read(&copy, "a"), read(&copy, "b")));
}

#[test]
fn what_was_forgotten_here_does_not_come_back_from_the_table() {
    let (mut a, mut table, run) = (process(1), Table::default(), context(1, "o"));
    add(&mut a, &run, "m", "text").unwrap();
    table.save(&mut a);
    a.clear();
    assert!(table.read(&mut a, &run, nothing).is_empty() && a.is_empty());
}
