//! Tests the judge: damage planted into what a run left behind, and into the program that runs.

use serde_json::json;

use super::{
    Aim, Ground,
    child::Plant,
    judge::{History, Kept, Line, judge},
};
use crate::stage::Verdict;

impl Plant {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::CountsIds => "counts-ids",
            Self::ForgetsMemos => "forgets-memos",
            Self::ForgetsSteps => "forgets-steps",
            Self::KeepsLate => "keeps-late",
        }
    }
}

type Damage = (&'static str, fn(&mut History), &'static str);

/// A kind of damage, and a word that the complaint about it must contain.
const DAMAGE: [Damage; 14] = [
    ("another state", |history| history.state = history.state.replace("\"total\":", "\"total\":1"), "the state is"),
    ("an event lost", |history| _ = history.told.remove(20), "-1 ×"),
    (
        "an event twice",
        |history| {
            let mut again = history.told[20].clone();
            again.event_id = Some("another".to_owned());
            history.told.insert(21, again);
            number(history);
        },
        "+1 ×",
    ),
    ("an event id twice", |history| history.told[21].event_id = history.told[20].event_id.clone(), "an event_id"),
    ("another payload", |history| history.told[20].payload["more"] = json!(1), "+1 ×"),
    ("another parent", |history| history.told[20].parent = Some("s1.a".to_owned()), "+1 ×"),
    (
        "an end before its beginning",
        |history| {
            let start = history.told.iter().position(|told| told.kind == "step.started").unwrap_or_default();
            history.told.swap(start, start + 1);
            number(history);
        },
        "inside a span",
    ),
    (
        "an event after its step",
        |history| {
            let early = history.told.remove(10);
            history.told.insert(20, early);
            number(history);
        },
        "comes after",
    ),
    ("a hole in the seqs", |history| history.told[30].seq += 1, "where 31 belongs"),
    ("a node that ended is visited again", |history| add(history, 2, "s1.a", "visit"), "done again"),
    ("a value that is remembered is computed again", |history| add(history, 2, "s10.h", "first"), "computed again"),
    ("a node is visited twice by one process", |history| add(history, 1, "s1.a", "visit"), "twice in process"),
    ("a node was never visited", |history| history.ledger.retain(|line| line.span != "s4.b"), "only in one"),
    (
        "an end is told before it is kept",
        |history| _ = history.kills[0].told.insert("s11.i".to_owned()),
        "is told and what it gave is not kept",
    ),
];

fn number(history: &mut History) {
    for (seq, told) in (1..).zip(&mut history.told) {
        told.seq = seq;
    }
}

fn add(history: &mut History, attempt: usize, span: &str, what: &str) {
    history.ledger.push(Line { attempt, span: span.to_owned(), what: what.to_owned() });
}

/// A run as if its process had been killed in step 10, with one of two values memoized.
fn killed(healthy: &History) -> History {
    let mut history = healthy.clone();
    let early = |span: &str| span.split('.').next().and_then(|step| step[1..].parse::<u32>().ok()).unwrap_or(0) < 10;
    let ended: std::collections::BTreeSet<String> =
        healthy.end.ended.iter().filter(|span| early(span)).cloned().collect();
    history.kills.push(Kept {
        step: Some(9),
        told: ended.clone(),
        ended,
        memos: [("s10.h".to_owned(), "first".to_owned())].into(),
        told_step: Some(9),
    });
    for line in &mut history.ledger {
        line.attempt = if early(&line.span) || line.what == "first" { 1 } else { 2 };
    }
    add(&mut history, 1, "s10.h", "visit");
    history
}

/// A fault of the program, the place of the uninterrupted run at which it is killed, and a word of the complaint.
const FAULTS: [(Plant, &str, &str); 4] = [
    (Plant::CountsIds, "kept h/first", "+1 × step.started"),
    (Plant::ForgetsMemos, "kept h/first", "computed again"),
    (Plant::ForgetsSteps, "kept h/first", "done again"),
    // In the log and not stored, or stored differently at the end: which one depends on the fork's first node.
    (Plant::KeepsLate, "told step.completed", "kept"),
];

/// Plants everything and reports what was not detected.
pub(super) async fn run(
    ground: &mut Ground,
    whole: &History,
    healthy: &History,
    map: &[String],
    verdict: &mut Verdict,
) -> anyhow::Result<()> {
    let killed = killed(healthy);
    let mut right = 0;
    let mut require = |verdict: &mut Verdict, name: &str, said: &[String], word: &str| {
        let seen = said.iter().any(|said| said.contains(word));
        right += usize::from(seen);
        verdict.require(seen, || format!("planted and not judged rightly: {name}; said: {said:?}"));
    };
    let said = judge(whole, &killed);
    verdict.require(said.is_empty(), || format!("nothing is planted, and the judge says {said:?}"));
    for (name, damage, word) in DAMAGE {
        let mut damaged = killed.clone();
        damage(&mut damaged);
        require(verdict, name, &judge(whole, &damaged), word);
    }
    for (plant, at, word) in FAULTS {
        let place = (1..).zip(map).find_map(|(place, what)| (what == at).then_some(place)).unwrap_or(0);
        let (history, _) = ground.trial(&[Aim { place, later: None }], plant).await?;
        require(verdict, plant.word(), &judge(whole, &history), word);
    }
    verdict.fact(format!("{right} of {} plants judged rightly", DAMAGE.len() + FAULTS.len()));
    Ok(())
}
