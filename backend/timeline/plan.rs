//! The contents of one commit: numbering, deduplication and refusals, decided in memory before the database is asked.
//!
//! A pure function of the emissions, the heads and the keys that are known to be used. Known duplicates are found
//! before anything is numbered, because a number that is assigned and not used would be a gap; a duplicate that was not
//! known makes the statement undo everything.

mod text;

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};

use self::text::{OpenNow, PlannedText};
use super::emit::{Ack, AckEvent, AppendRequest, EmitError};
use crate::{
    domain::{
        event::{NewEvent, Recorded},
        id::{EventId, ExternalId, RunId, Seq, SpanId},
        principal::OwnerId,
        run::{self, Head},
    },
    store::{
        append::{Batch, HeadWrite},
        heads::StoredHead,
    },
};

/// What planning knows of the database and the open texts.
pub(crate) struct Known<'a> {
    pub heads: &'a HashMap<RunId, StoredHead>,
    pub keys: &'a HashMap<(RunId, EventId), Seq>,
    /// The runs that have the external ids with which this batch creates some.
    pub external_ids: &'a HashMap<(OwnerId, ExternalId), RunId>,
    pub open: &'a OpenNow<'a>,
    pub now: DateTime<Utc>,
}

/// One commit.
pub(crate) struct Plan {
    pub batch: Batch,
    /// One per emission, in order.
    pub outcomes: Vec<Result<Accepted, EmitError>>,
    /// The heads after the batch is committed.
    pub heads: HashMap<RunId, StoredHead>,
}

/// An emission that will be stored.
pub(crate) struct Accepted {
    pub ack: Ack,
    pub items: Vec<Item>,
    /// Which of the acknowledged seqs this batch assigns; the others are those of events that are already stored.
    numbered: Vec<usize>,
}

/// What readers will see of an emission, in order.
pub(crate) enum Item {
    /// An index into the batch.
    Durable(usize),
    Delta(Recorded, SpanId, String),
}

impl Plan {
    /// The runs whose heads led to a refusal.
    pub(crate) fn refused_by<'a>(&'a self, emissions: &'a [AppendRequest]) -> impl Iterator<Item = RunId> + 'a {
        let refused = |outcome: &_| matches!(outcome, Err(EmitError::Refused(_) | EmitError::Elsewhere));
        let outcomes = emissions.iter().zip(&self.outcomes);
        outcomes.filter(move |(_, outcome)| refused(outcome)).map(|(emission, _)| emission.context.run_id)
    }

    /// The owners that sent an event again.
    pub(crate) fn repeaters<'a>(&'a self, emissions: &'a [AppendRequest]) -> impl Iterator<Item = &'a OwnerId> {
        let repeats = |outcome: &Result<Accepted, _>| {
            outcome.as_ref().is_ok_and(|accepted| accepted.ack.events.iter().any(|event| event.duplicate))
        };
        let outcomes = emissions.iter().zip(&self.outcomes);
        outcomes.filter(move |(_, outcome)| repeats(outcome)).map(|(emission, _)| &emission.context.owner_id)
    }

    /// Moves the seqs of this batch in some runs to those the database assigned, after another writer's events.
    pub(crate) fn shift(&mut self, emissions: &[AppendRequest], shifts: &[(RunId, i64)]) {
        let of = |run: RunId| shifts.iter().find(|(shifted, _)| *shifted == run).map(|(_, by)| *by);
        for event in &mut self.batch.events {
            if let (Some(by), Some(seq)) = (of(event.run_id), event.seq) {
                event.seq = Some(seq.moved(by));
            }
        }
        for (run, stored) in &mut self.heads {
            if let Some(by) = of(*run) {
                stored.head.last_seq = stored.head.last_seq.moved(by);
            }
        }
        for (emission, outcome) in emissions.iter().zip(&mut self.outcomes) {
            let (Some(by), Ok(accepted)) = (of(emission.context.run_id), outcome) else { continue };
            for nth in &accepted.numbered {
                let seq = &mut accepted.ack.events[*nth].seq;
                *seq = seq.map(|seq| seq.moved(by));
            }
        }
    }
}

/// Plans one commit.
pub(crate) fn plan(emissions: &[AppendRequest], known: &Known<'_>) -> Plan {
    let mut planner = Planner {
        known,
        batch: Batch { now: known.now, ..Batch::default() },
        heads: HashMap::new(),
        keys: HashMap::new(),
        external_ids: HashMap::new(),
        head_at: HashMap::new(),
        texts: HashMap::new(),
    };
    let outcomes = emissions.iter().map(|emission| planner.emission(emission)).collect();
    planner.finish(outcomes)
}

struct Planner<'a> {
    known: &'a Known<'a>,
    batch: Batch,
    heads: HashMap<RunId, StoredHead>,
    /// Keys used by this batch.
    keys: HashMap<(RunId, EventId), Seq>,
    /// External ids of runs that this batch creates.
    external_ids: HashMap<(OwnerId, ExternalId), RunId>,
    /// The index of a run's head in the batch.
    head_at: HashMap<RunId, usize>,
    /// Open texts as this batch will leave them.
    texts: HashMap<RunId, PlannedText>,
}

impl Planner<'_> {
    fn head(&self, run: RunId) -> Option<&StoredHead> {
        self.heads.get(&run).or_else(|| self.known.heads.get(&run))
    }

    fn key(&self, run: RunId, id: &EventId) -> Option<Seq> {
        let key = (run, id.clone());
        self.keys.get(&key).or_else(|| self.known.keys.get(&key)).copied()
    }

    fn with_external_id(&self, id: &(OwnerId, ExternalId)) -> Option<RunId> {
        self.external_ids.get(id).or_else(|| self.known.external_ids.get(id)).copied()
    }

    fn emission(&mut self, emission: &AppendRequest) -> Result<Accepted, EmitError> {
        let run = emission.context.run_id;
        let stored = match (&emission.birth, self.head(run)) {
            (None, None) => return Err(EmitError::NotFound),
            (None, Some(stored)) if stored.owner_id != emission.context.owner_id => return Err(EmitError::NotFound),
            (None, Some(stored)) => stored.clone(),
            (Some(birth), None) => StoredHead {
                head: Head::unborn(self.known.now),
                owner_id: emission.context.owner_id.clone(),
                request_hash: birth.request_hash.to_vec(),
            },
            (Some(birth), Some(stored)) => {
                let same = stored.owner_id == emission.context.owner_id && stored.request_hash == birth.request_hash;
                let ack = Ack { events: Vec::new(), already_open: true };
                return if same {
                    Ok(Accepted { ack, items: Vec::new(), numbered: Vec::new() })
                } else {
                    Err(EmitError::RunExists)
                };
            }
        };
        let external_id = emission.external_id();
        if let Some(by) = external_id.as_ref().and_then(|id| self.with_external_id(id)) {
            return Err(EmitError::ExternalIdTaken(by));
        }
        let fresh: Vec<bool> = self.fresh(run, &emission.events);
        if let Some(first_seq) = emission.first_seq {
            check_numbered(first_seq, &stored, &fresh)?;
        }
        let new_types =
            emission.events.iter().zip(&fresh).filter(|(_, fresh)| **fresh).map(|(event, _)| &event.event_type);
        run::decide(stored.head.status, new_types)?;
        // Before any part of the emission is accepted.
        self.texts.entry(run).or_default().take(run, &emission.events, &fresh, self.known.open)?;
        let accepted = self.accept(emission, stored, &fresh);
        self.external_ids.extend(external_id.map(|id| (id, run)));
        let first_seq = accepted.ack.events.first().and_then(|event| event.seq);
        assert!(emission.first_seq.is_none() || emission.first_seq == first_seq, "an imported event keeps its seq");
        Ok(accepted)
    }

    /// Which events are not duplicates, of stored ones or of each other.
    fn fresh(&self, run: RunId, events: &[NewEvent]) -> Vec<bool> {
        let mut seen = HashSet::new();
        events
            .iter()
            .map(|event| match &event.event_id {
                Some(id) if !event.event_type.is_ephemeral() => self.key(run, id).is_none() && seen.insert(id),
                _ => true,
            })
            .collect()
    }

    fn accept(&mut self, emission: &AppendRequest, mut stored: StoredHead, fresh: &[bool]) -> Accepted {
        let run = emission.context.run_id;
        let (mut acks, mut items) = (Vec::with_capacity(fresh.len()), Vec::with_capacity(fresh.len()));
        let (before, mut numbered) = (stored.head.clone(), Vec::new());
        for (nth, (event, fresh)) in emission.events.iter().zip(fresh).enumerate() {
            let ephemeral = event.event_type.is_ephemeral();
            let seq = match (ephemeral, fresh, &event.event_id) {
                (true, ..) => None,
                (false, false, Some(id)) => {
                    if self.keys.contains_key(&(run, id.clone())) {
                        numbered.push(nth);
                    }
                    self.key(run, id)
                }
                (false, ..) => Some(stored.head.last_seq.next()),
            };
            acks.push(AckEvent { seq, event_id: event.event_id.clone(), duplicate: !fresh });
            if ephemeral {
                if let (Some(span_id), Ok(text)) = (event.span_id.clone(), event.delta_text()) {
                    let delta = Recorded::stamp(&emission.context, event.clone(), None, self.known.now);
                    items.push(Item::Delta(delta, span_id, text));
                }
            } else if *fresh {
                let recorded = Recorded::stamp(&emission.context, event.clone(), seq, self.known.now);
                stored.head = run::evolve(stored.head, &recorded.event_type, recorded.at, &recorded.payload);
                assert_eq!(Some(stored.head.last_seq), recorded.seq, "an event's seq is its run's next");
                if let (Some(id), Some(seq)) = (&event.event_id, seq) {
                    self.keys.insert((run, id.clone()), seq);
                }
                numbered.push(nth);
                items.push(Item::Durable(self.batch.events.len()));
                self.batch.events.push(recorded);
            }
        }
        self.write_head(emission, &before, &stored);
        self.heads.insert(run, stored);
        Accepted { ack: Ack { events: acks, already_open: false }, items, numbered }
    }

    fn write_head(&mut self, emission: &AppendRequest, before: &Head, stored: &StoredHead) {
        let Some(last_index) = self.batch.events.len().checked_sub(1) else { return };
        let run_id = emission.context.run_id;
        if self.batch.events[last_index].run_id != run_id {
            return;
        }
        let head = stored.head.clone();
        let (heads, births) = (&mut self.batch.heads, &emission.birth);
        let at = *self.head_at.entry(run_id).or_insert_with(|| {
            heads.push(HeadWrite {
                run_id,
                owner_id: stored.owner_id.clone(),
                status_before: before.status,
                seq_before: before.last_seq,
                is_exact: false,
                head: head.clone(),
                birth: births.clone(),
                last_index,
            });
            heads.len() - 1
        });
        (heads[at].head, heads[at].last_index) = (head, last_index);
        heads[at].is_exact |= emission.first_seq.is_some();
    }

    fn finish(mut self, outcomes: Vec<Result<Accepted, EmitError>>) -> Plan {
        // Every writer locks rows in the same order.
        self.batch.heads.sort_by_key(|write| write.run_id);
        Plan { batch: self.batch, outcomes, heads: self.heads }
    }
}

/// Events with given seqs keep them or are refused: they continue the stored log, and none is stored already.
fn check_numbered(first_seq: Seq, stored: &StoredHead, fresh: &[bool]) -> Result<(), EmitError> {
    if stored.head.last_seq.next() != first_seq {
        return Err(EmitError::Elsewhere);
    }
    if fresh.iter().all(|fresh| *fresh) { Ok(()) } else { Err(EmitError::KeyTaken) }
}

#[cfg(test)]
mod tests;
