//! Answers to interrupts: one each, by a person or the expiry, whichever is first.

use std::sync::Arc;

use super::{
    Timeline,
    emit::{AppendRequest, EmitError, NewAlias},
};
use crate::{
    domain::{
        checkpoint::{CheckpointId, Namespace},
        context::RunContext,
        event::{EventKind, NewEvent, Recorded},
        id::{ExternalId, Seq},
        interrupt::{Answer, Decision, Resumed, has_expired},
        json::Json,
        limits::PAYLOAD_BYTES_MAX,
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

/// Answers that were accepted, now or before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The seq of the last of their questions.
    pub asked: Seq,
    /// The seq of the last of them.
    pub answered: Seq,
}

/// Answers compared with the log: those of open interrupts, each with its request, and what was accepted before.
struct Checked {
    open: Vec<(Answer, Recorded)>,
    accepted: Accepted,
    /// The first answer, with its request, open or not.
    first: (Answer, Recorded),
}

impl Timeline {
    /// Records the answer to an interrupt; see [`Timeline::answer_interrupts`].
    pub async fn answer_interrupt(&self, context: &Arc<RunContext>, answer: &Answer) -> Result<(), AnswerError> {
        self.answer_interrupts(context, std::slice::from_ref(answer), None).await.map(|_| ())
    }

    /// Records the answers to interrupts of a run and resumes an interrupted run: all of them together, or none if one
    /// cannot be accepted. Repeating the same answers changes nothing.
    ///
    /// With `alias` the run gets a further external id in the same transaction, which applies after the last answer.
    pub async fn answer_interrupts(
        &self,
        context: &Arc<RunContext>,
        answers: &[Answer],
        alias: Option<&ExternalId>,
    ) -> Result<Accepted, AnswerError> {
        let is_large = |value: &Json| value.as_str().len() > PAYLOAD_BYTES_MAX;
        if answers.iter().filter_map(|answer| answer.value.as_ref()).any(is_large) {
            return Err(AnswerError::TooLarge);
        }
        // A faster request has closed at least one of them; the next round compares with its answer.
        for _ in 0..=answers.len() {
            let checked = self.check_answers(context, answers).await?;
            let (open, expired): (Vec<_>, Vec<_>) =
                checked.open.iter().partition(|(_, requested)| !self.has_expired(requested));
            let resolved = if expired.is_empty() {
                let alias = alias.map(|id| NewAlias { id: id.clone(), after: checked.accepted.answered });
                self.resolve(context, &open, &checked.first, alias).await
            } else {
                let nobody = |(answer, requested): &(Answer, Recorded)| {
                    (Answer::of_nobody(answer.interrupt_id.clone(), Decision::Expired), requested.clone())
                };
                let expired: Vec<_> = expired.into_iter().map(nobody).collect();
                let resolved = self.resolve(context, &expired.iter().collect::<Vec<_>>(), &checked.first, None).await;
                resolved.and(Err(AnswerError::Expired))
            };
            match resolved {
                Err(AnswerError::Emit(EmitError::KeyTaken)) => {}
                Err(error) => return Err(error),
                Ok(last) => return Ok(Accepted { answered: checked.accepted.answered.max(last), ..checked.accepted }),
            }
        }
        Err(EmitError::Busy.into())
    }

    /// Compares answers with the log: each must be the first of its interrupt, or the same as the first.
    async fn check_answers(&self, context: &RunContext, answers: &[Answer]) -> Result<Checked, AnswerError> {
        let (mut open, mut accepted, mut first) = (Vec::<(Answer, Recorded)>::new(), Accepted::default(), None);
        for answer in answers {
            if let Some((twice, _)) = open.iter().find(|(earlier, _)| earlier.interrupt_id == answer.interrupt_id) {
                if twice != answer {
                    return Err(AnswerError::AnsweredOtherwise);
                }
                continue;
            }
            let known =
                self.store().events().interrupt(&context.owner_id, context.run_id, answer.interrupt_id.as_str());
            let known = known.await?;
            let requested = known.iter().find(|event| event.event_type.is(EventKind::InterruptRequested));
            let requested = requested.ok_or(AnswerError::NotFound)?;
            accepted.asked = accepted.asked.max(requested.seq.unwrap_or_default());
            first.get_or_insert_with(|| (answer.clone(), requested.clone()));
            match known.iter().find(|event| event.event_type.is(EventKind::InterruptResolved)) {
                None => open.push((answer.clone(), requested.clone())),
                Some(given) if answer.is_told_by(&given.payload) => {
                    accepted.answered = accepted.answered.max(given.seq.unwrap_or_default());
                }
                Some(given) if given.payload.member("decision") == Some(Decision::Expired) => {
                    return Err(AnswerError::Expired);
                }
                Some(_) => return Err(AnswerError::AnsweredOtherwise),
            }
        }
        Ok(Checked { open, accepted, first: first.ok_or(AnswerError::NotFound)? })
    }

    fn has_expired(&self, requested: &Recorded) -> bool {
        let expires_at: Option<String> = requested.payload.member("expires_at");
        has_expired(expires_at.as_deref(), self.clock().now())
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
        let known = self.store().events().interrupt(&open.owner_id, open.run_id, open.interrupt_id.as_str()).await?;
        let Some(requested) = known.into_iter().next() else { return Ok(false) };
        let nobody = (Answer::of_nobody(open.interrupt_id, Decision::Expired), requested);
        match self.resolve(&context, &[&nobody], &nobody, None).await {
            Ok(_) => Ok(true),
            Err(
                AnswerError::Emit(EmitError::KeyTaken | EmitError::Refused(Refusal::Ended { .. }))
                | AnswerError::NotFound,
            ) => Ok(false),
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

    /// Emits the answers and, for an interrupted run, one `run.resumed`; returns the seq of the last answer. Their
    /// event ids make all of them unique: if one is stored already, none is. `run.resumed` names the first open one, or
    /// `first` if none is open.
    async fn resolve(
        &self,
        context: &Arc<RunContext>,
        open: &[&(Answer, Recorded)],
        first: &(Answer, Recorded),
        alias: Option<NewAlias>,
    ) -> Result<Seq, AnswerError> {
        let (answer, requested) = open.first().copied().unwrap_or(first);
        if open.is_empty() && alias.is_none() {
            self.resume_answered(context, answer, requested).await?;
            return Ok(Seq::ZERO);
        }
        for is_last in [false, true] {
            let record = self.run(&context.owner_id, context.run_id).await?.ok_or(AnswerError::NotFound)?;
            let mut events: Vec<NewEvent> = open.iter().map(|(answer, _)| resolved_event(answer)).collect();
            let waits = record.head.status == Status::Interrupted && !open.is_empty();
            if waits {
                let resumed = self.resumed(context, answer, requested).await?;
                events
                    .push(NewEvent::new(EventKind::RunResumed, Json::of(&resumed)).event_id(answer.resumed_event_id()));
            }
            let request = AppendRequest::new(Arc::clone(context), events);
            match self.submit(request.whole(alias.clone())).await {
                // The answer to another interrupt has resumed the run in the meantime.
                Err(EmitError::Refused(Refusal::Transition { .. })) if !is_last => {}
                Err(error) => return Err(error.into()),
                Ok(ack) => {
                    // The run may have become interrupted between the read of its status and the answer.
                    if !waits {
                        self.resume_answered(context, answer, requested).await?;
                    }
                    return Ok(ack
                        .events
                        .iter()
                        .take(open.len())
                        .filter_map(|event| event.seq)
                        .max()
                        .unwrap_or_default());
                }
            }
        }
        Err(EmitError::Busy.into())
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
        let event = NewEvent::new(EventKind::RunResumed, resumed).event_id(answer.resumed_event_id());
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
    NewEvent::new(EventKind::InterruptResolved, Json::of(answer))
        .span(answer.interrupt_id.clone())
        .event_id(answer.event_id())
}
