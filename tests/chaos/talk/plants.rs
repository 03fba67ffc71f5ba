//! Tests the judge: damage is planted into a healthy chat, and each kind must be detected.

use serde_json::json;

use super::judge::{History, judge};
use crate::stage::Verdict;

type Damage = (&'static str, fn(&mut History), &'static str);

const DAMAGE: [Damage; 10] = [
    ("a line of the log lost", |history| _ = history.log.pop(), "the log has"),
    ("a line of the log twice", |history| history.log.push(history.log[1].clone()), "the log has"),
    ("two lines of the log exchanged", |history| history.log.swap(0, 1), "the log has"),
    ("a worker lost", |history| _ = history.runs.pop_if(|_| true), "runs for"),
    ("another answer", |history| of_chief(history).output = json!({ "response": "I have it done." }), "was answered"),
    ("a run that waits for ever", |history| "waiting".clone_into(&mut of_chief(history).status), "is waiting"),
    ("an event lost", |history| _ = history.told.remove(1), "a gap"),
    (
        "an end twice",
        |history| {
            let at = position(history, "step.completed");
            let again = history.told[at].clone();
            history.told.insert(at, again);
        },
        "times step.completed",
    ),
    (
        "a beginning without an end",
        |history| {
            let at = position(history, "tool.completed");
            "log.info".clone_into(&mut history.told[at].kind);
        },
        "without its end",
    ),
    (
        "a word after the end",
        |history| {
            let at = position(history, "run.completed");
            history.told.swap(at - 1, at);
        },
        "last word",
    ),
];

fn of_chief(history: &mut History) -> &mut super::judge::Run {
    let run_id = history.said[0].run_id.clone();
    let at = history.runs.iter().position(|run| run.run_id == run_id).unwrap_or_default();
    &mut history.runs[at]
}

fn position(history: &History, kind: &str) -> usize {
    history.told.iter().position(|told| told.kind == kind).unwrap_or_default()
}

pub(super) fn run(healthy: &History, verdict: &mut Verdict) {
    if !judge(healthy).is_empty() {
        // Already reported; there is nothing to plant damage into.
        return;
    }
    for (name, plant, word) in DAMAGE {
        let mut history = healthy.clone();
        plant(&mut history);
        let wrong = judge(&history);
        verdict.require(wrong.iter().any(|wrong| wrong.contains(word)), || format!("{name} was not seen: {wrong:?}"));
    }
    verdict.fact(format!("{} kinds of planted damage seen", DAMAGE.len()));
}
