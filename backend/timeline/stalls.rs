//! Stalls: connected readers are notified when a run with a lease falls silent, and when it is active again.
//!
//! Neither is an event, nor is a heartbeat, so each process polls the leases of the runs whose owners have readers
//! here.

use std::collections::{HashMap, HashSet};

use super::Timeline;
use crate::{
    bus::Stall,
    domain::{
        id::{RunId, Seq},
        limits::STALLED_OWN_ROWS,
        principal::OwnerId,
    },
    store,
};

/// The runs that were silent at the last check.
type Silent = HashMap<RunId, (OwnerId, Seq)>;

impl Timeline {
    /// Notifies readers of runs that have stalled, or no longer are stalled, since the last check.
    pub(super) async fn tell_stalls(&self, silent: &mut Silent) -> Result<(), store::Error> {
        let owners = self.bus().listeners();
        let mut found = Silent::new();
        if !owners.is_empty() {
            let stalled = self.store().runs().stalled(&owners, self.clock().now()).await?;
            found.extend(stalled.into_iter().map(|(run, owner, seq)| (run, (owner, seq))));
        }
        let full: HashSet<&OwnerId> = owners.iter().filter(|owner| is_full(&found, owner)).collect();
        for (run, (owner, last_seq)) in found.iter().filter(|(run, _)| !silent.contains_key(run)) {
            self.tell_stall(*run, owner, *last_seq, true).await?;
        }
        let heard = silent.iter().filter(|(run, _)| !found.contains_key(run));
        // Of an owner with more stalled runs than are read, a missing one may still be silent.
        for (run, (owner, last_seq)) in heard.filter(|(_, (owner, _))| !full.contains(owner)) {
            self.tell_stall(*run, owner, *last_seq, false).await?;
        }
        *silent = found;
        Ok(())
    }

    async fn tell_stall(
        &self,
        run: RunId,
        owner: &OwnerId,
        last_seq: Seq,
        is_stalled: bool,
    ) -> Result<(), store::Error> {
        // A deleted run is not reported.
        if let Some(context) = self.context(owner, run).await? {
            self.shared.gate.tell(Stall { context, last_seq, is_stalled });
        }
        Ok(())
    }
}

/// Whether an owner may have more silent runs than were read.
fn is_full(found: &Silent, owner: &OwnerId) -> bool {
    let count = found.values().filter(|(of, _)| of == owner).count();
    i64::try_from(count).is_ok_and(|count| count >= STALLED_OWN_ROWS)
}
