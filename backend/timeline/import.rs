//! Imports: events that were numbered elsewhere, through the same one way in.
//!
//! The lane keeps their numbers or refuses them all, so an imported log equals the log it was exported from: seqs,
//! bytes, times. Events the log already holds are compared and left unchanged, so an import can be repeated, and one
//! that was interrupted can be continued. An imported event triggers nothing: it creates no job, and no timer resolves
//! its interrupts (`store::append::IMPORTED`).
//!
//! The runs of a tree may be imported in any order, and each is placed in it then: no run is its own ancestor, a child
//! has the root of its parent, and no tree is deeper than one that grew here.

use std::{collections::HashSet, sync::Arc};

use super::{
    Timeline,
    emit::{AppendRequest, EmitError, depth_at},
};
use crate::{
    domain::{
        event::{EventKind, NewEvent, Recorded},
        export::{
            Piece, Subject,
            index::{Mention, mention},
        },
        id::{EventId, RunId, Seq, SpanId},
        interrupt::Answer,
        limits::{IMPORT_TRIES_MAX, REPLAY_ROWS},
        principal::OwnerId,
        run::{self, Refusal, Spec, Status},
    },
    store::{
        self,
        append::{IMPORTED, NewRunRow},
        runs::RunRecord,
    },
};

/// The result of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The last seq of the run's log.
    pub last_seq: Seq,
    /// The number of new events.
    pub stored: usize,
    /// Whether the run is new.
    pub is_new: bool,
}

/// Why events were not imported. Nothing of them was stored.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The log of the run does not reach up to these events, or there is no such run.
    #[error("the run's log does not reach up to these events")]
    NotThere,
    /// The existing run differs at this seq; 0 is the run's own line.
    #[error("the existing run differs at seq {seq}")]
    Differs { seq: Seq },
    /// The run cannot have had this event.
    #[error("seq {seq}: {refusal}")]
    Refused { seq: Seq, refusal: Refusal },
    /// The bytes stored for an event are not those it describes.
    #[error("seq {seq} describes its artifact differently from the stored one")]
    OtherArtifact { seq: Seq },
    /// No server records such an event.
    #[error("seq {seq} is not an event that a server records: {rule}")]
    Forged { seq: Seq, rule: &'static str },
    /// The log has no partition for the run's month, and too many for an import to add one.
    #[error("the log already has as many months as an import may open, and the run's month is not among them")]
    TooManyMonths,
    #[error(transparent)]
    Emit(#[from] EmitError),
    #[error(transparent)]
    Store(#[from] store::Error),
}

impl Timeline {
    /// Adds the new events of a piece to a run's log; with its first event the run becomes `owner`'s.
    pub async fn import_run(&self, owner: &OwnerId, piece: &Piece) -> Result<Imported, ImportError> {
        let run = piece.subject.run_id;
        for _ in 0..IMPORT_TRIES_MAX {
            let record = self.run(owner, run).await?;
            let at = record.as_ref().map_or(Seq::ZERO, |record| record.head.last_seq);
            let there = match &record {
                None => 0,
                Some(record) => self.compare(owner, record, piece).await?,
            };
            let fresh = &piece.events[there..];
            let Some(first_seq) = fresh.first().and_then(|event| event.seq) else {
                return Ok(Imported { last_seq: at, stored: 0, is_new: false });
            };
            if first_seq != at.next() {
                return Err(ImportError::NotThere);
            }
            check_life(record.as_ref().map_or(Status::Queued, |record| record.head.status), fresh)?;
            self.check_own(owner, run, fresh).await?;
            self.check_artifacts(owner, fresh).await?;
            // Two runs that would be each other's ancestors must not both be checked before either is stored.
            let _turn = if record.is_none() { Some(self.shared.births.lock().await) } else { None };
            let (context, birth) = match (&record, &piece.spec) {
                (Some(record), _) => (Arc::new(record.context.clone()), None),
                (None, None) => return Err(ImportError::NotThere),
                (None, Some(spec)) => (Arc::new(spec.context.clone()), Some(Box::new(self.birth(spec).await?))),
            };
            let is_new = birth.is_some();
            let moves = |event: &Recorded| Status::after(&event.event_type).is_some();
            if is_new {
                self.begin_thread(&context).await?;
            } else if fresh.iter().any(moves) {
                self.renew_thread(&context).await?;
            }
            let request = AppendRequest::new(Arc::clone(&context), fresh.iter().map(numbered).collect());
            match self.submit(request.numbered(birth, first_seq)).await {
                Ok(ack) if !ack.already_open => {
                    if is_new {
                        self.shared.contexts.remember((*context).clone());
                    }
                    return Ok(Imported { last_seq: at.forward(fresh.len()), stored: fresh.len(), is_new });
                }
                // Another writer has appended to the run since: compare again.
                Ok(_) | Err(EmitError::Elsewhere) => {}
                // Retention has just dropped the empty partition of its month.
                Err(EmitError::Busy) if is_new => {}
                Err(EmitError::RunExists) if self.run(owner, run).await?.is_some() => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(EmitError::Busy.into())
    }

    /// Compares the events that both the piece and the log have; returns how many those are.
    async fn compare(&self, owner: &OwnerId, record: &RunRecord, piece: &Piece) -> Result<usize, ImportError> {
        if Subject::of(&record.context) != piece.subject {
            return Err(ImportError::Differs { seq: Seq::ZERO });
        }
        let mut compared = 0;
        while let Some(event) = piece.events.get(compared).filter(|event| event.seq <= Some(record.head.last_seq)) {
            let after = event.seq.unwrap_or_default().back(1);
            let wanted = (piece.events.len() - compared) as i64;
            let wanted = wanted.min(record.head.last_seq.get() - after.get());
            let page = self.store().events().page(owner, piece.subject.run_id, after, wanted.min(REPLAY_ROWS)).await?;
            let page = page.filter(|page| !page.events.is_empty()).ok_or(ImportError::NotThere)?;
            for ((place, stored), event) in page.events.iter().zip(&piece.events[compared..]) {
                if stored != event {
                    return Err(ImportError::Differs { seq: place.seq });
                }
                compared += 1;
            }
        }
        Ok(compared)
    }

    /// Checks what only a server records, and what people and programs therefore trust: an answer follows its request
    /// and has the one id that answers have, and an artifact is described in full.
    async fn check_own(&self, owner: &OwnerId, run: RunId, events: &[Recorded]) -> Result<(), ImportError> {
        let mut asked: Option<HashSet<SpanId>> = None;
        for (n, event) in events.iter().enumerate() {
            let seq = event.seq.unwrap_or_default();
            match event.event_type.kind() {
                Some(EventKind::ArtifactCreated) if mention(event).is_none() => {
                    return Err(ImportError::Forged { seq, rule: "it does not name the artifact that was created" });
                }
                Some(EventKind::InterruptResolved) => {
                    let answer = Answer::recorded(event)
                        .ok_or(ImportError::Forged { seq, rule: "it does not have the form of an answer" })?;
                    let before = events[..n].iter().any(|event| {
                        event.event_type.is(EventKind::InterruptRequested)
                            && event.span_id.as_ref() == Some(&answer.interrupt_id)
                    });
                    if asked.is_none() && !before {
                        let known = self.store().interrupts().asked(owner, &[run]).await?;
                        asked = Some(known.into_iter().map(|known| known.interrupt_id).collect());
                    }
                    if !before && !asked.as_ref().is_some_and(|asked| asked.contains(&answer.interrupt_id)) {
                        return Err(ImportError::Forged {
                            seq,
                            rule: "it answers an interrupt that was not requested before it",
                        });
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares the events' descriptions of their artifacts with the artifacts already stored for them.
    async fn check_artifacts(&self, owner: &OwnerId, events: &[Recorded]) -> Result<(), ImportError> {
        let mentions: Vec<Mention> = events.iter().filter_map(mention).collect();
        let Some(first) = mentions.first() else { return Ok(()) };
        let keys: Vec<EventId> = mentions.iter().map(|mention| mention.event_id.clone()).collect();
        for here in self.store().artifacts().of_events(owner, first.enclosed.run_id, &keys).await? {
            let described = mentions.iter().find(|mention| mention.event_id == here.event_id);
            // An artifact with another id was meant for another event, and is swept.
            let described = described.filter(|mention| mention.enclosed.artifact_id == here.artifact_id);
            if let Some(mention) = described.filter(|mention| !here.is_told_by(mention)) {
                return Err(ImportError::OtherArtifact { seq: mention.enclosed.seq });
            }
        }
        Ok(())
    }

    /// The row of an imported run. Its parent need not exist here; a parent of another owner counts as absent.
    async fn birth(&self, spec: &Spec) -> Result<NewRunRow, ImportError> {
        let context = &spec.context;
        let depth = depth_at(self.store().runs().place_in_tree(context).await?)?;
        if !self.store().ensure_partition_of(context.run_id).await? {
            return Err(ImportError::TooManyMonths);
        }
        Ok(NewRunRow { spec: spec.clone(), depth, request_hash: IMPORTED, imported_at: Some(self.clock().now()) })
    }
}

/// Fails at the first event that the run's status does not allow.
fn check_life(status: Status, events: &[Recorded]) -> Result<(), ImportError> {
    events.iter().try_fold(status, |status, event| {
        let seq = event.seq.unwrap_or_default();
        run::decide(status, [&event.event_type]).map_err(|refusal| ImportError::Refused { seq, refusal })
    })?;
    Ok(())
}

fn numbered(event: &Recorded) -> NewEvent {
    NewEvent {
        event_type: event.event_type.clone(),
        payload: event.payload.clone(),
        span_id: event.span_id.clone(),
        parent_span_id: event.parent_span_id.clone(),
        event_id: event.event_id.clone(),
        at: Some(event.at),
    }
}
