use chrono::DateTime;
use proptest::prelude::*;

use super::{
    index::{AttachedArtifact, mention},
    verify::{Seen, Verifier},
    *,
};

fn id(n: u8) -> RunId {
    format!("0198c0de-0000-7000-8000-0000000000{n:02}").parse().unwrap()
}

fn subject(n: u8) -> Subject {
    Subject { run_id: id(n), role: Role::Agent, agent: Some("a\"b".parse().unwrap()), origin: None, trace_id: None }
}

fn recorded(subject: &Subject, seq: i64, event_type: &str, payload: &str) -> Recorded {
    Recorded {
        run_id: subject.run_id,
        seq: Seq::new(seq),
        event_type: event_type.parse().unwrap(),
        role: subject.role,
        agent: subject.agent.as_ref().map(|name| Arc::from(name.as_str())),
        owner_id: Arc::from("somebody"),
        span_id: (seq % 2 == 0).then(|| "s \u{2028}\"1".parse().unwrap()),
        parent_span_id: None,
        event_id: (seq == 3).then(|| "e-3".parse().unwrap()),
        at: DateTime::from_timestamp_micros(1_763_000_000_000_001 + seq).unwrap(),
        payload: Json::parse(payload).unwrap(),
    }
}

fn created(run: RunId, parent: Option<RunId>) -> String {
    let parent_text = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
    let root = parent.unwrap_or(run);
    format!(
        "{{\"title\":null,\"input\":[1e400,1.50],\"metadata\":{{\"a\":1,\"a\":2}},\"tags\":[],\"root_run_id\":\"{root}\",\
         \"parent_run_id\":{parent_text},\"thread_id\":null,\"session_id\":null,\"lease_ms\":null}}"
    )
}

/// A run with unusual content, and a child run.
fn file() -> Vec<String> {
    let mut lines = vec![header()];
    let mut chain = Chain::of(&lines[0]);
    let mut events = 0;
    for (n, parent) in [(1, None), (2, Some(id(1)))] {
        let subject = subject(n);
        let (mut writer, line) = RunWriter::begin(&subject);
        lines.push(line);
        let payload = created(subject.run_id, parent);
        let rest = [
            ("run.started", "{}"),
            ("custom.x", "{\"b\":1.0,\"a\":1e400,\"a\":\"\\ud83d\\ude00 \u{2028}\"}"),
            ("tool.completed", "[true,null]"),
            ("run.completed", "{\"output\":\"x y\"}"),
        ];
        let all = std::iter::once(("run.created", payload.as_str())).chain(rest);
        for ((event_type, payload), seq) in all.zip(1..) {
            lines.push(writer.event(&recorded(&subject, seq, event_type, payload)).unwrap());
            events += 1;
        }
        let end = writer.end();
        chain.add(&end);
        lines.push(end);
    }
    lines.push(total_line(&Total { runs: 2, events, sha256: chain.hash() }));
    lines
}

/// The total, or the number of the first line that is refused or missing.
fn verdict<S: AsRef<str>>(lines: &[S]) -> Result<Total, (usize, String)> {
    let mut verifier = Verifier::default();
    for (line, number) in lines.iter().zip(1..) {
        verifier.line(line.as_ref()).map_err(|fault| (number, fault.to_string()))?;
    }
    verifier.finish().map_err(|fault| (lines.len() + 1, fault.to_string()))
}

#[test]
fn what_is_told_is_found_whole() {
    let total = verdict(&file()).unwrap();
    assert_eq!((total.runs, total.events), (2, 10));
    assert_eq!(file(), file());
    let empty = [header(), total_line(&Total { runs: 0, events: 0, sha256: Chain::of(&header()).hash() })];
    assert_eq!(verdict(&empty).unwrap().runs, 0);
}

#[test]
fn every_line_that_is_dropped_doubled_swapped_or_cut_is_noticed() {
    let whole = file();
    for at in 0..whole.len() {
        let mut dropped = whole.clone();
        dropped.remove(at);
        assert!(verdict(&dropped).is_err(), "without line {}", at + 1);
        let mut doubled = whole.clone();
        doubled.insert(at, whole[at].clone());
        assert!(verdict(&doubled).is_err(), "twice line {}", at + 1);
        for other in at + 1..whole.len() {
            let mut swapped = whole.clone();
            swapped.swap(at, other);
            if swapped == whole {
                continue;
            }
            assert!(verdict(&swapped).is_err(), "lines {} and {} swapped", at + 1, other + 1);
        }
        let (number, why) = verdict(&whole[..at]).unwrap_err();
        assert_eq!(number, at + 1, "cut after {at} lines: {why}");
    }
}

#[test]
fn runs_that_are_left_out_or_moved_are_noticed_even_when_each_is_whole() {
    let whole = file();
    let (first, second) = (whole[1..8].to_vec(), whole[8..15].to_vec());
    let with = |parts: &[&[String]]| [&whole[..1], &parts.concat(), &whole[15..]].concat();
    assert!(verdict(&with(&[&first, &second])).is_ok());
    for (parts, why) in [
        (vec![first.as_slice()], "the total does not match"),
        (vec![&second, &first], "comes after one of its descendants"),
        (vec![&first, &second, &second], "is in the file twice"),
    ] {
        let (_, message) = verdict(&with(&parts)).unwrap_err();
        assert!(message.contains(why), "{message}");
    }
}

#[test]
fn a_file_that_hangs_together_is_still_refused_for_what_no_log_holds() {
    let subject = subject(1);
    let verdict_of = |events: &[(&str, String)]| {
        let (mut writer, line) = RunWriter::begin(&subject);
        let mut lines = vec![header(), line];
        for ((event_type, payload), seq) in events.iter().zip(1..) {
            lines.push(writer.event(&recorded(&subject, seq, event_type, payload)).unwrap());
        }
        lines.push(writer.end());
        let mut chain = Chain::of(&header());
        chain.add(lines.last().unwrap());
        lines.push(total_line(&Total { runs: 1, events: events.len() as u64, sha256: chain.hash() }));
        verdict(&lines)
    };
    let birth = || ("run.created", created(id(1), None));
    let small = |event_type: &'static str| (event_type, "{}".to_owned());
    assert!(verdict_of(&[birth(), small("run.started")]).is_ok());
    let large = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX));
    for (events, line, why) in [
        (vec![small("run.started")], 3, "run.created must be the first event"),
        (vec![birth(), birth()], 4, "run.created must be the first event"),
        (vec![birth(), small("run.completed")], 4, "cannot become completed"),
        (vec![birth(), small("run.failed"), small("log.info")], 5, "the run has ended"),
        (vec![birth(), small("message.delta")], 4, "not part of a log"),
        (vec![birth(), small("stream.end")], 4, "reserved"),
        (vec![birth(), ("custom.x", large)], 4, "it has at most"),
        (vec![birth(), ("interrupt.requested", "{\"expires_at\":\"soon\"}".to_owned())], 4, "expires_at"),
        (vec![("run.created", created(id(1), Some(id(1))))], 3, "its own root"),
        (vec![("run.created", "{}".to_owned())], 3, "missing field"),
    ] {
        let (number, message) = verdict_of(&events).unwrap_err();
        assert!(number == line && message.contains(why), "{number}: {message}");
    }
}

#[test]
fn a_leap_second_stands_in_no_log() {
    let subject = subject(1);
    let (mut writer, line) = RunWriter::begin(&subject);
    let payload = created(subject.run_id, None);
    let leap = DateTime::from_timestamp(1_483_228_799, 1_000_000_000).unwrap();
    let event = Recorded { at: leap, ..recorded(&subject, 1, "run.created", &payload) };
    let event = writer.event(&event).unwrap();
    assert!(event.contains("2016-12-31T23:59:60.000000Z"), "{event}");
    let owner = OwnerId::trusted("me");
    let (number, fault) = Piece::read(&format!("{line}\n{event}\n"), &owner).unwrap_err();
    assert!(number == 2 && fault.to_string().contains("leap second"), "{fault}");
    let normal = event.replace("23:59:60", "23:59:59");
    assert!(Piece::read(&format!("{line}\n{normal}\n"), &owner).is_ok());
}

#[test]
fn a_second_reading_finds_the_same_lines_or_says_that_they_were_changed() {
    use skim::{LineKind, Skim};
    let whole = file();
    let mut verifier = Verifier::default();
    for line in &whole {
        verifier.line(line).unwrap();
    }
    let total = verifier.finish().unwrap();
    let skims = |lines: &[String]| {
        let mut skim = Skim::of(total);
        let seen = lines.iter().map(|line| skim.line(line)).collect::<Result<Vec<_>, _>>()?;
        skim.finish().map(|()| seen)
    };
    let seen = skims(&whole).unwrap();
    assert_eq!((seen[0], seen[1], seen[2]), (LineKind::Header, LineKind::Run(id(1)), LineKind::Event));
    assert_eq!(seen[seen.len() - 2..], [LineKind::End, LineKind::Total]);
    for at in 0..whole.len() {
        let mut changed = whole.clone();
        changed[at].push(' ');
        let is_small = matches!(seen[at], LineKind::Total | LineKind::Header);
        assert!(is_small || skims(&changed).is_err(), "line {}", at + 1);
        changed.remove(at);
        assert!(skims(&changed).is_err(), "without line {}", at + 1);
        assert!(skims(&whole[..at]).is_err(), "cut after {at} lines");
    }
}

#[test]
fn there_is_one_way_to_write_a_line() {
    let whole = file();
    for (from, to) in [
        (",", ", "),
        ("2025-11-13T02:13:20.000002Z", "2025-11-13T02:13:20.000002+00:00"),
        ("2025-11-13T02:13:20.000002Z", "2025-11-13T02:13:20.0000020Z"),
        ("\"seq\":1,\"type\":\"run.created\"", "\"type\":\"run.created\",\"seq\":1"),
        ("run.created", "run\\u002ecreated"),
        ("{\"event\":", " {\"event\":"),
        ("1.50", "1.5 "),
    ] {
        let mut lines = whole.clone();
        let changed = lines[2].replacen(from, to, 1);
        assert_ne!(changed, lines[2], "{from}");
        lines[2] = changed;
        assert_eq!(verdict(&lines).unwrap_err().0, 3, "{from}");
    }
    for header in ["{\"runreel_export\":2}", "{\"runreel_export\": 1}", "{}", "", "[]", "nonsense"] {
        let mut lines = whole.clone();
        lines[0] = header.to_owned();
        assert_eq!(verdict(&lines).unwrap_err().0, 1, "{header}");
    }
}

#[test]
fn a_part_of_a_run_is_read_with_its_numbers() {
    let whole = file();
    let owner = OwnerId::trusted("me");
    let piece = |lines: &[&str]| Piece::read(&(lines.join("\n") + "\n"), &owner);
    let (run, events) = (whole[1].as_str(), &whole[2..7]);
    let read = piece(&[run, &events[0], &events[1]]).unwrap();
    assert_eq!(read.spec.unwrap().context.owner_id, owner);
    let read = piece(&[run, &events[3], &events[4]]).unwrap();
    assert!(read.spec.is_none());
    assert_eq!(read.events.iter().map(|event| event.seq.unwrap().get()).collect::<Vec<_>>(), [4, 5]);
    assert!(read.events.iter().all(|event| &*event.owner_id == "me"));
    for (lines, number) in [
        (vec![run], 1),
        (vec![], 1),
        (vec![&events[0]], 1),
        (vec![run, run], 2),
        (vec![run, &events[1], &events[3]], 3),
        (vec![run, &events[2], &events[2]], 3),
        (vec![run, &events[1], &whole[7]], 3),
        (vec![whole[8].as_str(), &events[0]], 2),
    ] {
        assert_eq!(piece(&lines).unwrap_err().0, number, "{lines:?}");
    }
}

#[test]
fn an_artifact_that_came_along_is_one_the_log_tells_of() {
    let hash = "01".repeat(32);
    let of = |event_type: &str, payload: String, key: Option<&str>| {
        let event_id = key.map(|key| key.parse().unwrap());
        mention(&Recorded { event_id, ..recorded(&subject(1), 9, event_type, &payload) })
    };
    let artifact = "0198c0de-0000-7000-8000-0000000000aa";
    let rest = format!("\"media_type\":\"text/plain\",\"size\":5,\"sha256\":\"{hash}\"");
    let kept = format!("{{\"artifact_id\":\"{artifact}\",\"name\":\"a b.txt\",{rest},\"url\":\"x\"}}");
    let mentioned = of("artifact.created", kept.clone(), Some("e")).unwrap();
    assert_eq!(AttachedArtifact::read(&mentioned.enclosed.line()).unwrap(), mentioned.enclosed);
    assert!(AttachedArtifact::read(&mentioned.enclosed.line().replace(',', ", ")).is_err());
    let pointer = format!("{{\"$artifact\":{{\"artifact_id\":\"{artifact}\",{rest}}},\"preview\":\"\"}}");
    let spilled = of("tool.completed", pointer, Some("e")).unwrap();
    assert_eq!(spilled.enclosed.name.as_str(), "payload.json");
    assert!(of("artifact.created", kept.clone(), None).is_none());
    assert!(of("custom.x", kept, Some("e")).is_none());
}

proptest! {
    #[test]
    fn whatever_is_changed_is_refused(at in 0usize..10_000, byte in any::<u8>(), cut in 0usize..10_000, kind in 0u8..4) {
        let whole = file().join("\n") + "\n";
        let mut bytes = whole.clone().into_bytes();
        let at = at % bytes.len();
        match kind {
            0 => bytes[at] = byte,
            1 => bytes.truncate(at),
            2 => bytes.insert(at, byte),
            _ => _ = bytes.drain(at..(at + 1 + cut % 200).min(whole.len())),
        }
        prop_assume!(bytes != whole.as_bytes());
        if let Ok(text) = String::from_utf8(bytes) {
            // A file whose last line has no line break was cut off; the reader of lines reports that.
            let lines: Vec<&str> = text.split('\n').collect();
            let lines = lines.strip_suffix(&[""]);
            prop_assert!(lines.is_none_or(|lines| verdict(lines).is_err()));
        }
    }

    #[test]
    fn nothing_makes_the_reader_stumble(lines in proptest::collection::vec("[ -~é]{0,60}|\\{\"(run|event|end|total)\":[ -~]{0,40}\\}", 0..6)) {
        let mut verifier = Verifier::default();
        let _ = verifier.line(&header());
        for line in &lines {
            if !matches!(verifier.line(line), Ok(Seen::Header | Seen::Run(_) | Seen::End(_) | Seen::Total(_) | Seen::Event(_))) {
                break;
            }
        }
        let _ = Piece::read(&lines.join("\n"), &OwnerId::trusted("o"));
    }
}
