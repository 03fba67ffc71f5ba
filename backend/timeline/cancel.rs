//! Cancelling a run and everything below it.

use serde_json::json;

use super::{Timeline, emit::EmitError};
use crate::domain::{
    event::{EventKind, NewEvent},
    id::{RunId, Title},
    json::Json,
    principal::OwnerId,
    run::Refusal,
};

impl Timeline {
    /// Cancels a run and every run below it that has not ended, with their open interrupts.
    ///
    /// Children first, so that a parent's terminal event is the last of its tree. Runs that end in the meantime keep
    /// their status.
    pub async fn cancel_run(&self, owner: &OwnerId, run: RunId, reason: Option<&Title>) -> Result<(), EmitError> {
        self.context(owner, run).await?.ok_or(EmitError::NotFound)?;
        for member in self.store().runs().live_tree(owner, run).await?.into_iter().rev() {
            self.cancel_one(owner, member, reason).await?;
        }
        Ok(())
    }

    /// Cancels every run below this one that has not ended, but not the run itself.
    pub async fn cancel_below(&self, owner: &OwnerId, run: RunId, reason: Option<&Title>) -> Result<(), EmitError> {
        for member in self.store().runs().live_tree(owner, run).await?.into_iter().rev().filter(|member| *member != run)
        {
            self.cancel_one(owner, member, reason).await?;
        }
        Ok(())
    }

    async fn cancel_one(&self, owner: &OwnerId, run: RunId, reason: Option<&Title>) -> Result<(), EmitError> {
        let Some(context) = self.context(owner, run).await? else { return Ok(()) };
        let mut events = self.cancelled_interrupts(&context).await?;
        events.push(NewEvent::new(EventKind::RunCancelled, Json::of(&json!({ "reason": reason }))));
        match self.emit_run_event(&context, events).await {
            Ok(_) | Err(EmitError::Refused(Refusal::Ended { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
