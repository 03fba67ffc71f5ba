//! Answers to interrupts: one each, from whichever is first, a person or the expiry.

use std::{sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;

use super::{Timeline, emit::EmitError};
use crate::{
    domain::{
        checkpoint::{CheckpointId, Namespace},
        context::RunContext,
        event::{NewEvent, Recorded},
        interrupt::{Answer, Decision, Resumed, has_expired},
        json::Json,
        limits::{INTERRUPT_SWEEP_MS, PAYLOAD_BYTES_MAX},
        run::{Refusal, Status},
    },
    store::{self, interrupts::OpenInterrupt},
};

/// Why an answer was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    #[error("there is no such interrupt")]
    NotFound,
    #[error("this interrupt was already answered differently")]
    AnsweredOtherwise,
    #[error("this interrupt has expired")]
    Expired,
    #[error("the value of an answer may have at most 64 KiB")]
    TooLarge,
    #[error(transparent)]
    Emit(#[from] EmitError),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Timeline {
    /// Records the answer to an interrupt and resumes an interrupted run. Repeating the same answer changes nothing.
    pub async fn answer_interrupt(&self, context: &Arc<RunContext>, answer: &Answer) -> Result<(), AnswerError> {
        if answer.value.as_ref().is_some_and(|value| value.as_str().len() > PAYLOAD_BYTES_MAX) {
            return Err(AnswerError::TooLarge);
        }
        let known = self.known(context, answer).await?;
        let requested = known.iter().find(|event| event.event_type.as_str() == "interrupt.requested");
        let requested = requested.ok_or(AnswerError::NotFound)?;
        if resolution(&known).is_none() {
            let expires_at: Option<String> = requested.payload.member("expires_at");
            if has_expired(expires_at.as_deref(), self.clock().now()) {
                let nobody = Answer::of_nobody(answer.interrupt_id.clone(), Decision::Expired);
                self.resolve(context, &nobody, requested).await?;
            } else {
                self.resolve(context, answer, requested).await?;
            }
        } else {
            self.resume_answered(context, answer, requested).await?;
        }
        let known = self.known(context, answer).await?;
        match resolution(&known) {
            Some(given) if given.payload == Json::of(answer) => Ok(()),
            Some(given) if given.payload.member("decision") == Some(Decision::Expired) => Err(AnswerError::Expired),
            _ => Err(AnswerError::AnsweredOtherwise),
        }
    }

    /// Resolves every open interrupt that has expired; returns how many.
    pub async fn expire_interrupts(&self) -> Result<usize, store::Error> {
        let (mut expired, mut after) = (0, (uuid::Uuid::nil(), 0));
        loop {
            let page = self.store().interrupts().expiring(after).await?;
            let Some((seq, last)) = page.last() else { return Ok(expired) };
            after = (last.run_id.uuid(), *seq);
            for (_, open) in page {
                if has_expired(open.expires_at.as_deref(), self.clock().now()) {
                    expired += usize::from(self.expire(open).await?);
                }
            }
        }
    }

    /// Expires one interrupt; `false` if it was closed first or cannot be resolved yet.
    async fn expire(&self, open: OpenInterrupt) -> Result<bool, store::Error> {
        let Some(context) = self.context(&open.owner_id, open.run_id).await? else { return Ok(false) };
        let nobody = Answer::of_nobody(open.interrupt_id, Decision::Expired);
        let known = self.known(&context, &nobody).await?;
        let Some(requested) = known.first() else { return Ok(false) };
        match self.resolve(&context, &nobody, requested).await {
            Ok(()) => Ok(true),
            Err(AnswerError::Emit(EmitError::Refused(Refusal::Ended { .. })) | AnswerError::NotFound) => Ok(false),
            Err(AnswerError::Store(error)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, "interrupt not expired yet; will retry");
                Ok(false)
            }
        }
    }

    /// The events that close a run's open interrupts when it is cancelled.
    pub async fn cancelled_interrupts(&self, context: &RunContext) -> Result<Vec<NewEvent>, store::Error> {
        let open = self.store().interrupts().open(&context.owner_id, context.run_id).await?;
        let nobody = open.into_iter().map(|id| Answer::of_nobody(id, Decision::Cancelled));
        Ok(nobody.map(|answer| resolved_event(&answer)).collect())
    }

    /// Polls for expired interrupts until `stop`.
    pub async fn watch_interrupts(self, stop: CancellationToken) {
        let work = async {
            let mut every = tokio::time::interval(Duration::from_millis(INTERRUPT_SWEEP_MS));
            loop {
                every.tick().await;
                if let Err(error) = Box::pin(self.expire_interrupts()).await {
                    tracing::warn!(error = &error as &dyn std::error::Error, "interrupt expiry failed");
                }
            }
        };
        stop.run_until_cancelled(work).await;
    }

    /// The request and, if there is one, the resolution of the interrupt an answer is for.
    async fn known(&self, context: &RunContext, answer: &Answer) -> Result<Vec<Recorded>, store::Error> {
        self.store().events().interrupt(&context.owner_id, context.run_id, answer.interrupt_id.as_str()).await
    }

    /// Emits the answer and, for an interrupted run, `run.resumed`. Their event ids make both unique.
    async fn resolve(
        &self,
        context: &Arc<RunContext>,
        answer: &Answer,
        requested: &Recorded,
    ) -> Result<(), AnswerError> {
        for last in [false, true] {
            let record = self.run(&context.owner_id, context.run_id).await?.ok_or(AnswerError::NotFound)?;
            let mut events = vec![resolved_event(answer)];
            let waits = record.head.status == Status::Interrupted;
            if waits {
                let resumed = self.resumed(context, answer, requested).await?;
                events.push(NewEvent::new("run.resumed", Json::of(&resumed)).event_id(answer.resumed_event_id()));
            }
            match self.emit_run_event(context, events).await {
                // The answer to another interrupt has resumed the run in the meantime.
                Err(EmitError::Refused(Refusal::Transition { .. })) if !last => {}
                // The run may have become interrupted between the read of its status and the answer.
                Ok(_) if !waits => return self.resume_answered(context, answer, requested).await,
                other => return Ok(other.map(|_| ())?),
            }
        }
        Ok(())
    }

    /// Resumes a run that became interrupted although all its interrupts are resolved: the answer came between its
    /// request and its change of status.
    async fn resume_answered(
        &self,
        context: &Arc<RunContext>,
        answer: &Answer,
        requested: &Recorded,
    ) -> Result<(), AnswerError> {
        let record = self.run(&context.owner_id, context.run_id).await?.ok_or(AnswerError::NotFound)?;
        if record.head.status != Status::Interrupted
            || !self.store().interrupts().open(&context.owner_id, context.run_id).await?.is_empty()
        {
            return Ok(());
        }
        let resumed = Json::of(&self.resumed(context, answer, requested).await?);
        let event = NewEvent::new("run.resumed", resumed).event_id(answer.resumed_event_id());
        match self.emit_run_event(context, vec![event]).await {
            // It was resumed already, or has ended.
            Ok(_) | Err(EmitError::Refused(_)) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The checkpoint the run resumes from: the one its request names, else the newest that the run has stored.
    async fn resumed(
        &self,
        context: &RunContext,
        answer: &Answer,
        requested: &Recorded,
    ) -> Result<Resumed, store::Error> {
        let interrupt_id = answer.interrupt_id.clone();
        let named: Option<CheckpointId> = requested.payload.member("checkpoint_id");
        if named.is_some() {
            let ns: Option<Namespace> = requested.payload.member("ns");
            return Ok(Resumed { interrupt_id, checkpoint_id: named, ns: Some(ns.unwrap_or_default()) });
        }
        let newest = match &context.thread_id {
            Some(thread) => {
                self.store().interrupts().checkpoint_of_run(&context.owner_id, thread, context.run_id).await?
            }
            None => None,
        };
        let (ns, checkpoint_id) = newest.unzip();
        Ok(Resumed { interrupt_id, checkpoint_id, ns })
    }
}

fn resolved_event(answer: &Answer) -> NewEvent {
    NewEvent::new("interrupt.resolved", Json::of(answer)).span(answer.interrupt_id.clone()).event_id(answer.event_id())
}

fn resolution(known: &[Recorded]) -> Option<&Recorded> {
    known.iter().find(|event| event.event_type.as_str() == "interrupt.resolved")
}
