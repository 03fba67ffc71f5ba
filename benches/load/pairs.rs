//! Two builds in one run: emits, measured on each in turn.

use std::{io::Write as _, path::Path};

use crate::{
    Scale,
    emit::{self, Load},
    machine::Meter,
    server::Server,
    stats::{Figure, Unit},
};

const LOADS: [Load; 6] = [
    Load { connections: 1, batch: 1, keyed: false },
    Load { connections: 8, batch: 1, keyed: false },
    Load { connections: 64, batch: 1, keyed: false },
    Load { connections: 1, batch: 100, keyed: false },
    Load { connections: 8, batch: 100, keyed: false },
    Load { connections: 8, batch: 100, keyed: true },
];

/// What an event takes in the other build and in this one.
type Pair = [f64; 2];

/// Measures this build and another, and prints what an event takes in this one in relation to the other: time, which
/// means little on a machine that is not quiet, and processor time of the server and Postgres, which bears more.
pub(crate) async fn compare(this: &Path, other: &Path, scale: Scale) -> anyhow::Result<()> {
    let servers = [Server::start(other, None).await?.0, Server::start(this, None).await?.0];
    let mut out = std::io::stdout();
    writeln!(
        out,
        "\n| emit | the other | this | time of an event | processor time of an event |\n|---|---|---|---|---|"
    )?;
    for load in LOADS {
        let mut rates = [Figure::new(Unit::PerSecond), Figure::new(Unit::PerSecond)];
        let (mut times, mut processors) = (Vec::new(), Vec::new());
        for pair in 0..scale.repeats {
            let (mut time, mut processor): (Pair, Pair) = ([0.0; 2], [0.0; 2]);
            // Whoever is first meets another state of the disk, so they take turns in that as well.
            for n in [pair % 2, 1 - pair % 2] {
                let meter = Meter::start(servers[n].pid(), servers[n].postmaster());
                let rate = emit::rate(&servers[n], load, scale.window).await?;
                let used = meter.stop();
                rates[n].push(rate);
                (time[n], processor[n]) = (1.0 / rate, (used.server + used.postgres) / rate);
            }
            times.push(time);
            processors.push(processor);
        }
        let key = if load.keyed { ", event_id" } else { "" };
        let (connections, batch, [other, this]) = (load.connections, load.batch, rates);
        let (time, processor) = (ratio(&times), ratio(&processors));
        writeln!(
            out,
            "| {batch} a request, {connections} connections{key} | {other} | {this} | {time} | {processor} |"
        )?;
    }
    Ok(())
}

/// The median of the pairs' ratios, with the least and the greatest.
fn ratio(pairs: &[Pair]) -> String {
    let mut ratios: Vec<f64> = pairs.iter().map(|[other, this]| this / other).collect();
    ratios.sort_by(f64::total_cmp);
    let at = |index: usize| ratios.get(index).copied().unwrap_or(f64::NAN);
    format!("{:.2} ({:.2}–{:.2})", at(ratios.len() / 2), at(0), at(ratios.len().saturating_sub(1)))
}
