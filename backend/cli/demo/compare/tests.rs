use super::*;

fn run(n: u8) -> RunId {
    format!("0198c0de-0000-7000-8000-0000000000{n:02}").parse().unwrap()
}

fn line(n: u8, seq: i64) -> Line {
    let bytes = format!(r#"{{"run_id":"{}","seq":{seq},"event_id":"e-{seq}","payload":{{}}}}"#, run(n));
    Line::read(&bytes).unwrap()
}

fn table() -> Table {
    [1, 2].map(|n| (run(n), (1..=5).map(|seq| line(n, seq)).collect())).into()
}

/// What a reader of both runs sees when nothing is wrong: each run in order, the runs interleaved.
fn whole() -> Vec<Line> {
    (1..=5).flat_map(|seq| [line(1, seq), line(2, seq)]).collect()
}

fn check(damage: impl FnOnce(&mut Vec<Line>), expected: [u64; 4]) {
    let mut seen = whole();
    damage(&mut seen);
    let Tally { lost, duplicated, out_of_order, differing } = judge_reader(&table(), &[run(1), run(2)], &seen);
    assert_eq!([lost, duplicated, out_of_order, differing], expected);
}

#[test]
fn a_reader_that_saw_everything_once_and_in_order_is_clean() {
    check(|_| {}, [0, 0, 0, 0]);
    assert!(judge_reader(&table(), &[run(2)], &table()[&run(2)]).is_clean());
}

#[test]
fn planted_loss_is_found_at_the_beginning_in_the_middle_and_at_the_end() {
    for at in [0, 4, 9] {
        check(|seen| drop(seen.remove(at)), [1, 0, 0, 0]);
    }
    check(Vec::clear, [10, 0, 0, 0]);
}

#[test]
fn a_planted_duplicate_is_found_at_once_and_much_later() {
    check(|seen| seen.insert(1, line(1, 1)), [0, 1, 0, 0]);
    check(|seen| seen.push(line(2, 1)), [0, 1, 0, 0]);
}

#[test]
fn a_planted_reordering_is_found_within_a_run_and_is_nothing_between_runs() {
    check(|seen| seen.swap(2, 4), [0, 0, 1, 0]);
    check(|seen| seen.swap(2, 3), [0, 0, 0, 0]);
}

#[test]
fn a_planted_change_of_one_byte_and_an_event_nobody_stored_are_found() {
    check(|seen| seen[3].bytes = seen[3].bytes.replace("{}", "[]"), [0, 0, 0, 1]);
    check(|seen| seen.push(line(1, 6)), [0, 0, 0, 1]);
}

#[test]
fn the_table_itself_is_judged_for_holes_and_for_what_was_acknowledged() {
    let id = |text: &str| (run(1), text.parse::<EventId>().unwrap());
    assert!(judge_table(&table(), &[id("e-1"), id("e-5")]).is_clean());
    assert_eq!(judge_table(&table(), &[id("e-9")]), Tally { lost: 1, ..Tally::default() });
    let mut holed = table();
    holed.get_mut(&run(1)).unwrap().remove(2);
    assert_eq!(judge_table(&holed, &[]), Tally { lost: 1, ..Tally::default() });
    assert_eq!(judge_table(&holed, &[id("e-3")]), Tally { lost: 2, ..Tally::default() });
    let mut doubled = table();
    doubled.get_mut(&run(1)).unwrap().push(Line { event_id: Some(id("e-1").1), ..line(1, 6) });
    assert_eq!(judge_table(&doubled, &[id("e-1")]), Tally { duplicated: 1, ..Tally::default() });
}

#[test]
fn deltas_and_control_frames_are_no_lines() {
    let run = run(1);
    for bytes in [format!(r#"{{"run_id":"{run}","seq":null}}"#), r#"{"last_seq":4}"#.to_owned(), "x".to_owned()] {
        assert_eq!(Line::read(&bytes), None, "{bytes}");
    }
}

#[test]
fn the_tally_reads_as_one_sentence() {
    assert_eq!(Tally::default().to_string(), "lost 0, duplicated 0, out of order 0, bytes differing 0");
}
