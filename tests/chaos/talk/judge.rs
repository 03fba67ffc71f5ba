//! What must hold of a chat, however often the server was killed during it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// A message that was sent, and its runs.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) run_id: String,
    pub(super) router_run_id: String,
}

#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) run_id: String,
    pub(super) parent: Option<String>,
    pub(super) agent: String,
    pub(super) status: String,
    pub(super) output: Value,
}

/// An event of one of the runs.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) run_id: String,
    pub(crate) seq: i64,
    pub(crate) kind: String,
    pub(crate) span: Option<String>,
    pub(crate) event_id: Option<String>,
}

/// Everything that is left of a chat.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    pub(super) said: Vec<Said>,
    pub(super) runs: Vec<Run>,
    /// Run by run, each in the order of `seq`.
    pub(super) told: Vec<Told>,
    /// Role and content of each line of the session's log.
    pub(super) log: Vec<(String, String)>,
}

/// Everything that is wrong, in words.
pub(super) fn judge(history: &History) -> Vec<String> {
    let mut wrong = Vec::new();
    let History { said, runs, .. } = history;
    // One of the router, one of the chief, two of its workers.
    if runs.len() != said.len() * 4 {
        wrong.push(format!("{} runs for {} messages", runs.len(), said.len()));
    }
    for run in runs.iter().filter(|run| run.status != "completed") {
        wrong.push(format!("the run {} of {} is {}", run.run_id, run.agent, run.status));
    }
    for Said { text, run_id, .. } in said {
        let response = runs.iter().find(|run| run.run_id == *run_id).map(|run| &run.output["response"]);
        let response = response.and_then(Value::as_str).unwrap_or_default();
        if !(response.starts_with("done: [") && response.ends_with(&format!(": {text}"))) {
            wrong.push(format!("{text} was answered with {response:?}"));
        }
        let mut hands: Vec<&str> = runs
            .iter()
            .filter(|run| run.parent.as_ref() == Some(run_id))
            .filter_map(|run| run.output["response"].as_str())
            .collect();
        hands.sort_unstable();
        if hands != ["did left", "did right"] {
            wrong.push(format!("the workers for {text} said {hands:?}"));
        }
    }
    wrong.extend(judge_lines(said, &history.log));
    for run in runs {
        let told: Vec<&Told> = history.told.iter().filter(|told| told.run_id == run.run_id).collect();
        wrong.extend(
            judge_log(&told).into_iter().map(|what| format!("the run {} of {}: {what}", run.run_id, run.agent)),
        );
        let failed = told.iter().filter(|told| told.kind.ends_with(".failed"));
        wrong.extend(failed.map(|told| format!("the run {} of {}: {}", run.run_id, run.agent, told.kind)));
    }
    wrong
}

/// The log of the session: the messages in order, and for each of them one answer, which comes later.
///
/// An answer is written when its run has ended, concurrently with the next messages.
fn judge_lines(said: &[Said], log: &[(String, String)]) -> Vec<String> {
    let of = |role| log.iter().enumerate().filter(move |(_, line)| line.0 == role);
    let mut wrong = Vec::new();
    if !of("user").map(|(_, line)| &line.1).eq(said.iter().map(|said| &said.text)) {
        wrong.push(format!("the log has {} of {} messages, or in another order", of("user").count(), said.len()));
    }
    for (Said { text, .. }, (asked, _)) in said.iter().zip(of("user")) {
        let end = format!(": {text}");
        let answers: Vec<usize> =
            of("assistant").filter(|(_, line)| line.1.ends_with(&end)).map(|(at, _)| at).collect();
        if !matches!(answers[..], [answered] if answered > asked) {
            wrong.push(format!("the log has {text} in line {asked} and answers to it in {answers:?}"));
        }
    }
    wrong
}

/// The log of one run: no gap, nothing twice, everything that begins ends, and the run's end is last.
pub(crate) fn judge_log(told: &[&Told]) -> Vec<String> {
    let mut wrong = Vec::new();
    if let Some(at) = told.iter().zip(1..).position(|(told, seq)| told.seq != seq) {
        wrong.push(format!("a gap at seq {}", at + 1));
    }
    let (mut ids, mut count) = (BTreeSet::new(), BTreeMap::new());
    for event in told {
        if let Some(id) = event.event_id.as_ref().filter(|id| !ids.insert((*id).clone())) {
            wrong.push(format!("two events are called {id}"));
        }
        *count.entry((event.kind.as_str(), event.span.as_deref().unwrap_or_default())).or_insert(0) += 1;
    }
    let once = ["run.started", "run.completed"];
    for kind in once.into_iter().filter(|kind| count.get(&(*kind, "")) != Some(&1)) {
        wrong.push(format!("{} times {kind}", count.get(&(kind, "")).unwrap_or(&0)));
    }
    if told.last().is_none_or(|last| last.kind != "run.completed") {
        wrong.push("the end is not the last word".to_owned());
    }
    for ((kind, span), count_of) in &count {
        let Some((family, "started" | "completed" | "spawned" | "failed")) = kind.split_once('.') else { continue };
        if family == "run" {
            continue;
        }
        if *count_of != 1 {
            wrong.push(format!("{count_of} times {kind} of {span}"));
        }
        let ended = [format!("{family}.completed"), format!("{family}.failed")];
        let ends: i32 = ended.iter().filter_map(|end| count.get(&(end.as_str(), *span))).sum();
        if kind.ends_with("started") && ends != 1 {
            wrong.push(format!("{kind} of {span} without its end"));
        }
    }
    wrong
}
