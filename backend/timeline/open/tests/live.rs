//! Two processes, the table between them, and messages that are lost, late or duplicated.

use proptest::collection::vec;

use super::{
    processes::{Table, follow, nothing, process},
    *,
};

/// A step of a schedule.
#[derive(Clone, Debug)]
enum Act {
    Add(usize),
    Save,
    Read,
    /// A message arrives while the table is read.
    ReadMeanwhile(usize),
    /// A message is created; it arrives when `Deliver` selects it, counted from the newest.
    Send,
    Deliver(usize),
    /// The span ends in the process that writes it, and another text of the same span may begin.
    CloseThere,
    CloseHere,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1..2 * OPEN_PIECE_BYTES).prop_map(Act::Add),
        2 => Just(Act::Save),
        2 => Just(Act::Read),
        1 => (0..8usize).prop_map(Act::ReadMeanwhile),
        4 => Just(Act::Send),
        5 => (0..8usize).prop_map(Act::Deliver),
        1 => Just(Act::CloseThere),
        1 => Just(Act::CloseHere),
    ]
}

#[test]
fn a_copy_has_what_was_sent_before_it_is_saved_and_keeps_it_when_the_table_is_read() {
    let (mut a, mut b, mut table, run) = (process(1), process(2), Table::default(), context(1, "o"));
    a.send_too();
    let mut heard = String::new();
    add(&mut a, &run, "m", "one").unwrap();
    assert!(a.take_unsent().is_empty(), "nobody knows it yet");
    table.save(&mut a);
    follow(&mut heard, &table.read(&mut b, &run, nothing));
    for text in [", two", ", three"] {
        add(&mut a, &run, "m", text).unwrap();
        assert!(a.has_unsent());
        follow(&mut heard, &b.go_on(a.take_unsent()));
        assert!(!a.has_unsent());
        assert_eq!(read(&b, "o"), read(&a, "o"));
    }
    assert!(table.read(&mut b, &run, nothing).is_empty(), "the table has less");
    add(&mut a, &run, "m", ", four").unwrap();
    follow(&mut heard, &b.go_on(a.take_unsent()));
    assert_eq!(heard, "one, two, three, four");
}

#[test]
fn a_message_neither_begins_a_text_nor_brings_back_what_is_over() {
    let (mut a, mut b, mut table, run) = (process(1), process(2), Table::default(), context(1, "o"));
    a.send_too();
    add(&mut a, &run, "m", "text").unwrap();
    table.save(&mut a);
    add(&mut a, &run, "m", " and more").unwrap();
    let late = a.take_unsent();
    assert!(b.go_on(late.clone()).is_empty() && b.is_empty());
    table.read(&mut b, &run, nothing);
    close(&mut b, &run, "message.completed", "m");
    assert!(b.go_on(late.clone()).is_empty() && b.is_empty());
    // Neither another text of the span nor a process's own text is continued.
    close(&mut a, &run, "message.completed", "m");
    add(&mut a, &run, "m", "next").unwrap();
    table.save(&mut a);
    table.read(&mut b, &run, nothing);
    assert!(b.go_on(late.clone()).is_empty() && a.go_on(late).is_empty());
    assert_eq!(read(&b, "o"), read(&a, "o"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_is_lost_late_or_doubled_deltas_follow_each_other_and_the_table_completes_them(
        acts in vec(act(), 1..80)
    ) {
        let (mut a, mut b, mut table, run) = (process(1), process(2), Table::default(), context(1, "o"));
        a.send_too();
        let (mut messages, mut heard, mut is_over) = (Vec::new(), String::new(), false);
        for (act, letter) in acts.into_iter().zip("aé𝄞bcß".chars().cycle()) {
            match act {
                Act::Add(length) => {
                    add(&mut a, &run, "m", &letter.to_string().repeat(length)).unwrap();
                }
                Act::Save => _ = table.save(&mut a),
                Act::Read => {
                    let added = table.read(&mut b, &run, nothing);
                    is_over &= added.is_empty();
                    follow(&mut heard, &added);
                }
                Act::ReadMeanwhile(back) => {
                    let message: Vec<_> = messages.iter().rev().nth(back).cloned().unwrap_or_default();
                    let added = table.read(&mut b, &run, |b| follow(&mut heard, &b.go_on(message)));
                    is_over &= added.is_empty();
                    follow(&mut heard, &added);
                }
                Act::Send => messages.push(a.take_unsent()),
                Act::Deliver(back) => {
                    let Some(message) = messages.iter().rev().nth(back) else { continue };
                    let added = b.go_on(message.clone());
                    prop_assert!(!is_over || added.is_empty(), "what is over stays so until the table has another");
                    follow(&mut heard, &added);
                }
                Act::CloseThere => close(&mut a, &run, "message.completed", "m"),
                Act::CloseHere => {
                    close(&mut b, &run, "message.completed", "m");
                    is_over = true;
                }
            }
        }
        add(&mut a, &run, "m", "the end").unwrap();
        while table.save(&mut a) {}
        // Twice: a copy with a missing part is dropped, then read again.
        for _ in 0..2 {
            follow(&mut heard, &table.read(&mut b, &run, nothing));
        }
        prop_assert_eq!(read(&b, "o"), read(&a, "o"));
        prop_assert_eq!(&heard, &read(&a, "o")[0].2);
    }
}
