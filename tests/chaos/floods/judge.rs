//! What a flood may do to other principals. Pure.
//!
//! No request of another principal is rejected, none of its emits takes longer than 5 s, `/readyz` stays 200, and the
//! server's memory has a bound and is released. How much slower others get is only reported: on a machine where the
//! flood takes the processors away it says more about the machine.

use std::{collections::BTreeMap, time::Duration};

use crate::{self_check::Plant, stage::percentile};

/// No emit of the stranger may take longer, and no job of the stranger may wait longer.
pub(super) const STRANGER_MAX: Duration = Duration::from_secs(5);
/// How much the server may have grown after the rest: rings, pools, and an allocator's slack.
const AFTER_MIB_MAX: u64 = 128;
/// How much it may grow in between: bodies in progress and open texts have 256 MiB each, see `docs/protocol.md`.
const PEAK_MIB_MAX: u64 = 640;
/// A ratio of p99 above this is reported.
const RATIO_TOLD: f64 = 2.0;

/// What the stranger measured, by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) took: BTreeMap<&'static str, Vec<Duration>>,
    /// Rejections and requests without an answer, by text.
    pub(super) refused: BTreeMap<(&'static str, String), usize>,
}

impl Figures {
    fn of(&self, name: &str, of_thousand: usize) -> Duration {
        let mut took = self.took.get(name).cloned().unwrap_or_default();
        took.sort_unstable();
        percentile(&took, of_thousand)
    }

    /// Both in one line.
    pub(super) fn beside(quiet: &Self, flood: &Self) -> String {
        let part = |figures: &Self, name| {
            let ms = |of_thousand| figures.of(name, of_thousand).as_secs_f64() * 1_000.0;
            format!("{:.1}/{:.1}/{:.0}", ms(500), ms(990), ms(1_000))
        };
        let line = |name: &&'static str| {
            let ratio = flood.of(name, 990).as_secs_f64() / quiet.of(name, 990).as_secs_f64().max(1e-6);
            let told = if ratio > RATIO_TOLD { format!(" (p99 × {ratio:.1})") } else { String::new() };
            let count = flood.took.get(name).map_or(0, Vec::len);
            format!("{name} {} → {} of {count}{told}", part(quiet, name), part(flood, name))
        };
        quiet.took.keys().map(line).collect::<Vec<_>>().join(", ")
    }
}

/// A flood and its effect.
#[derive(Clone, Debug)]
pub(super) struct Flood {
    pub(super) quiet: Figures,
    pub(super) attacked: Figures,
    /// The percentage of `/readyz` probes that found it ready.
    pub(super) ready: usize,
    /// Resident memory before, at its highest, and after the rest, MiB.
    pub(super) start: u64,
    pub(super) peak: u64,
    pub(super) after: u64,
    /// Memory is only judged at full scale: a short rest says nothing.
    pub(super) small: bool,
}

pub(super) fn judge(flood: &Flood) -> Vec<String> {
    let mut wrong = Vec::new();
    for ((name, said), count) in &flood.quiet.refused {
        wrong.push(format!("in quiet already: {name} × {count}: {said}"));
    }
    for ((name, said), count) in &flood.attacked.refused {
        wrong.push(format!("the stranger's {name} × {count}: {said}"));
    }
    for name in ["emit", "job"] {
        let slowest = flood.attacked.of(name, 1_000);
        if slowest > STRANGER_MAX {
            wrong.push(format!("the stranger's {name} took {} ms", slowest.as_millis()));
        }
    }
    if flood.attacked.took.get("emit").is_none_or(Vec::is_empty) {
        wrong.push("no emit of the stranger was answered".to_owned());
    }
    if flood.ready < 100 {
        wrong.push(format!("ready in {} of 100 looks at /readyz", flood.ready));
    }
    let grown = flood.peak.saturating_sub(flood.start);
    if grown > PEAK_MIB_MAX {
        wrong.push(format!("the server grew by {grown} MiB"));
    }
    let left = flood.after.saturating_sub(flood.start);
    if left > AFTER_MIB_MAX && !flood.small {
        wrong.push(format!("the server kept {left} MiB of it"));
    }
    wrong
}

pub(crate) fn plants() -> Vec<Plant> {
    let ms = Duration::from_millis;
    let figures =
        |slowest| Figures { took: BTreeMap::from([("emit", vec![ms(2), ms(slowest)])]), ..Figures::default() };
    let refused = |mut figures: Figures| {
        figures.refused.insert(("read", "503 the database cannot be reached".to_owned()), 1);
        figures
    };
    let fair =
        Flood { quiet: figures(3), attacked: figures(9), ready: 100, start: 30, peak: 300, after: 60, small: false };
    let wrong = |name, flood: &Flood| Plant { name, seen: judge(flood).len() == 1 };
    vec![
        Plant { name: "a flood that nobody minds", seen: judge(&fair).is_empty() },
        wrong("a stranger's emit that waits", &Flood { attacked: figures(5_100), ..fair.clone() }),
        wrong("a stranger that is refused", &Flood { attacked: refused(figures(9)), ..fair.clone() }),
        wrong("a stranger that is never answered", &Flood { attacked: Figures::default(), ..fair.clone() }),
        wrong("a health that turns red", &Flood { ready: 97, ..fair.clone() }),
        wrong("memory without a bound", &Flood { peak: 1_459, ..fair.clone() }),
        wrong("memory that does not come back", &Flood { after: 500, ..fair }),
    ]
}
