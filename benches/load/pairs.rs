//! Two builds in one run: emits, measured on each in turn.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::{
    Scale,
    emit::{self, Load},
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

/// Measures this build and another, and prints the ratio of the times that an event takes.
pub(crate) async fn compare(this: &Path, other: &PathBuf, scale: Scale) -> anyhow::Result<()> {
    let servers = [Server::start(other, None).await?.0, Server::start(this, None).await?.0];
    let mut out = std::io::stdout();
    writeln!(
        out,
        "\n| emit | the other | this | time of an event: this ÷ the other, medians (min–max of the pairs) |"
    )?;
    writeln!(out, "|---|---|---|---|")?;
    for load in LOADS {
        let mut rates = [Figure::new(Unit::PerSecond), Figure::new(Unit::PerSecond)];
        let mut ratios = Vec::new();
        for pair in 0..scale.repeats {
            let mut rate = [0.0; 2];
            // Whoever is first meets another state of the disk, so they take turns in that as well.
            for n in [pair % 2, 1 - pair % 2] {
                rate[n] = emit::rate(&servers[n], load, scale.window).await?;
                rates[n].push(rate[n]);
            }
            ratios.push(rate[0] / rate[1]);
        }
        ratios.sort_by(f64::total_cmp);
        let key = if load.keyed { ", event_id" } else { "" };
        let (least, most) = (ratios.first().copied().unwrap_or(0.0), ratios.last().copied().unwrap_or(0.0));
        writeln!(
            out,
            "| batches of {}, {} connections{key} | {} | {} | {:.2} ({least:.2}–{most:.2}) |",
            load.batch,
            load.connections,
            rates[0],
            rates[1],
            rates[0].median() / rates[1].median()
        )?;
    }
    Ok(())
}
