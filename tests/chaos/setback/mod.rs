//! A database that is set back under a running server: a failover to a lagging standby, or a backup that is restored.
//!
//! In each round events are acknowledged and read, a copy is cut off or taken, more events follow which the copy does
//! not have, and then the copy replaces the database. What was acknowledged and is lost is the operator's loss. But no
//! reader may be misled: [`judge`] defines how. Every third round the server is killed in between and restarted; in the
//! others it has to find out by itself.

mod ground;
mod judge;
mod reader;
mod way;

use std::path::Path;

use anyhow::Context as _;

pub(crate) use self::judge::{judge_log, plants};
use self::{ground::Ground, way::Way};
use crate::{progress, stage::Verdict};

/// So often in each way.
pub(crate) async fn run(program: &Path, seed: u64, times: usize) -> anyhow::Result<Verdict> {
    let mut verdict = Verdict::default();
    for way in Way::ALL {
        let mut ground = Ground::open(program, seed, way).await?;
        if !ground.can_copy() {
            ground.close(&mut verdict).await?;
            return Ok(Verdict::cannot(
                "this Postgres comes without pg_basebackup, pg_dump, pg_dumpall, pg_restore or psql",
            ));
        }
        for number in 0..times {
            ground.round(number, &mut verdict).await.with_context(|| format!("{way:?} {number}"))?;
            progress(format_args!("{way:?} {} of {times}", number + 1))?;
        }
        ground.close(&mut verdict).await?;
    }
    Ok(verdict)
}
