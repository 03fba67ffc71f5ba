//! The interrupts of a runner's runs, and their answers.

use std::collections::HashSet;

use super::Runners;
use crate::{
    domain::{
        id::{RunId, SpanId},
        principal::OwnerId,
        runner::Answered,
    },
    store::{self, interrupts::AskedInterrupt},
};

/// The interrupts of some runs: those with an answer, oldest first, and those without.
#[derive(Default)]
pub(super) struct Interrupts {
    pub answered: Vec<Answered>,
    pub open: HashSet<(RunId, SpanId)>,
}

impl Interrupts {
    /// How many interrupts of a run are answered.
    pub(super) fn answers(&self, run: RunId) -> usize {
        let of_run = self.answered.iter().filter(|answer| answer.run_id == run);
        of_run.map(|answer| &answer.interrupt_id).collect::<HashSet<_>>().len()
    }
}

impl Runners {
    pub(super) async fn interrupts(&self, owner: &OwnerId, runs: &[RunId]) -> Result<Interrupts, store::Error> {
        let mut interrupts = Interrupts::default();
        if runs.is_empty() {
            return Ok(interrupts);
        }
        for asked in self.dispatch.timeline().store().interrupts().asked(owner, runs).await? {
            match answered(&asked) {
                Some(answer) => interrupts.answered.push(answer),
                None => _ = interrupts.open.insert((asked.run_id, asked.interrupt_id)),
            }
        }
        Ok(interrupts)
    }
}

fn answered(asked: &AskedInterrupt) -> Option<Answered> {
    let answer = asked.answer.as_ref()?;
    Some(Answered {
        run_id: asked.run_id,
        interrupt_id: asked.interrupt_id.clone(),
        decision: answer.member("decision")?,
        value: answer.raw_member("value"),
        checkpoint_id: asked.resumed.as_ref().and_then(|resumed| resumed.member("checkpoint_id")),
        ns: asked.resumed.as_ref().and_then(|resumed| resumed.member("ns")),
    })
}
