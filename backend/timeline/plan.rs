//! The contents of one commit: numbering, deduplication and refusals, decided in memory before the database is asked.
//!
//! A pure function of the requests, the heads and the keys known to be used. Known duplicates are found before anything
//! is numbered, because a number that is assigned and not used would be a gap; an unknown duplicate makes the statement
//! roll back.

mod text;

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};

use self::text::{OpenNow, PlannedText};
use super::emit::{Ack, AckEvent, AppendRequest, EmitError};
use crate::{
    domain::{
        artifact::Hash,
        chain,
        event::{EventKind, NewEvent, Recorded},
        id::{EventId, ExternalId, RunId, Seq, SpanId},
        interrupt::asked_key,
        limits::RUN_ALIASES_MAX,
        principal::OwnerId,
        run::{self, Head},
    },
    store::{
        append::{AliasWrite, Batch, HeadWrite, Shift},
        external_ids::Named,
        heads::StoredHead,
    },
};

/// What planning knows of the database and the open texts.
pub(crate) struct Known<'a> {
    pub heads: &'a HashMap<RunId, StoredHead>,
    pub keys: &'a HashMap<(RunId, EventId), Seq>,
    /// The runs that already have the external ids this batch assigns.
    pub named: &'a Named,
    pub open: &'a OpenNow<'a>,
    pub now: DateTime<Utc>,
}

/// One commit.
pub(crate) struct Plan {
    pub batch: Batch,
    /// One per request, in order.
    pub outcomes: Vec<Result<Accepted, EmitError>>,
    /// The heads after the batch is committed.
    pub heads: HashMap<RunId, StoredHead>,
}

/// A request that will be stored.
pub(crate) struct Accepted {
    pub ack: Ack,
    pub items: Vec<Item>,
    /// Which of the acknowledged seqs this batch assigns; the others are those of events that are already stored.
    numbered: Vec<usize>,
}

/// An event of a request, as readers will see it.
pub(crate) enum Item {
    /// An index into the batch.
    Durable(usize),
    Delta(Recorded, SpanId, String),
}

impl Plan {
    /// The runs whose heads led to a refusal.
    pub(crate) fn refused_by<'a>(&'a self, requests: &'a [AppendRequest]) -> impl Iterator<Item = RunId> + 'a {
        let refused = |outcome: &_| matches!(outcome, Err(EmitError::Refused(_) | EmitError::Elsewhere));
        let outcomes = requests.iter().zip(&self.outcomes);
        outcomes.filter(move |(_, outcome)| refused(outcome)).map(|(request, _)| request.context.run_id)
    }

    /// The owners that repeated an event.
    pub(crate) fn repeaters<'a>(&'a self, requests: &'a [AppendRequest]) -> impl Iterator<Item = &'a OwnerId> {
        let repeats = |outcome: &Result<Accepted, _>| {
            outcome.as_ref().is_ok_and(|accepted| accepted.ack.events.iter().any(|event| event.duplicate))
        };
        let outcomes = requests.iter().zip(&self.outcomes);
        outcomes.filter(move |(_, outcome)| repeats(outcome)).map(|(request, _)| &request.context.owner_id)
    }

    /// Moves the seqs of this batch in some runs to those the database assigned, after another writer's events.
    pub(crate) fn shift(&mut self, requests: &[AppendRequest], shifts: &[Shift]) {
        let of = |run: RunId| shifts.iter().find(|shift| shift.run_id == run);
        for event in &mut self.batch.events {
            if let (Some(shift), Some(seq)) = (of(event.run_id), event.seq) {
                event.seq = Some(seq.moved(shift.by));
            }
        }
        for (run, stored) in &mut self.heads {
            if let Some(shift) = of(*run) {
                stored.head.last_seq = stored.head.last_seq.moved(shift.by);
                stored.link = Some(shift.link);
            }
        }
        for (request, outcome) in requests.iter().zip(&mut self.outcomes) {
            let (Some(shift), Ok(accepted)) = (of(request.context.run_id), outcome) else { continue };
            for nth in &accepted.numbered {
                let seq = &mut accepted.ack.events[*nth].seq;
                *seq = seq.map(|seq| seq.moved(shift.by));
            }
        }
    }
}

/// Plans one commit.
pub(crate) fn plan(requests: &[AppendRequest], known: &Known<'_>) -> Plan {
    let mut planner = Planner {
        known,
        batch: Batch { now: known.now, ..Batch::default() },
        heads: HashMap::new(),
        keys: HashMap::new(),
        names: HashMap::new(),
        head_at: HashMap::new(),
        texts: HashMap::new(),
    };
    let outcomes = requests.iter().map(|request| planner.request(request)).collect();
    planner.finish(outcomes)
}

struct Planner<'a> {
    known: &'a Known<'a>,
    batch: Batch,
    heads: HashMap<RunId, StoredHead>,
    /// Keys used by this batch.
    keys: HashMap<(RunId, EventId), Seq>,
    /// The external ids that this batch assigns to runs.
    names: HashMap<(OwnerId, ExternalId), RunId>,
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

    fn with_name(&self, name: &(OwnerId, ExternalId)) -> Option<RunId> {
        self.names.get(name).or_else(|| self.known.named.runs.get(name)).copied()
    }

    /// Whether a run may get the external id of this request; `false` if it has it already, or the request has none.
    fn may_be_named(&self, run: RunId, request: &AppendRequest) -> Result<bool, EmitError> {
        let Some(name) = request.name() else { return Ok(false) };
        match self.with_name(&name) {
            Some(by) if by == run => return Ok(false),
            Some(by) => return Err(EmitError::ExternalIdTaken(by)),
            None => {}
        }
        let stored = self.known.named.aliases.get(&run).copied().unwrap_or_default();
        let added = self.batch.aliases.iter().filter(|alias| alias.run_id == run).count() as i64;
        if request.alias.is_some() && stored + added >= RUN_ALIASES_MAX {
            return Err(EmitError::TooManyAliases);
        }
        Ok(true)
    }

    fn request(&mut self, request: &AppendRequest) -> Result<Accepted, EmitError> {
        let run = request.context.run_id;
        let stored = match (&request.birth, self.head(run)) {
            (None, None) => return Err(EmitError::NotFound),
            (None, Some(stored)) if stored.owner_id != request.context.owner_id => return Err(EmitError::NotFound),
            (None, Some(stored)) => stored.clone(),
            (Some(birth), None) => StoredHead {
                head: Head::unborn(self.known.now),
                owner_id: request.context.owner_id.clone(),
                request_hash: birth.request_hash.to_vec(),
                link: None,
            },
            (Some(birth), Some(stored)) => {
                let same = stored.owner_id == request.context.owner_id && stored.request_hash == birth.request_hash;
                let ack = Ack { events: Vec::new(), already_open: true };
                return if same {
                    Ok(Accepted { ack, items: Vec::new(), numbered: Vec::new() })
                } else {
                    Err(EmitError::RunExists)
                };
            }
        };
        let is_named = self.may_be_named(run, request)?;
        let fresh: Vec<bool> = self.fresh(run, &request.events);
        if request.first_seq.is_none() {
            self.check_questions(run, &request.events, &fresh)?;
        }
        if let Some(first_seq) = request.first_seq {
            check_numbered(first_seq, &stored)?;
        }
        if (request.first_seq.is_some() || request.is_whole) && !fresh.iter().all(|fresh| *fresh) {
            return Err(EmitError::KeyTaken);
        }
        let new_types =
            request.events.iter().zip(&fresh).filter(|(_, fresh)| **fresh).map(|(event, _)| &event.event_type);
        run::decide(stored.head.status, new_types)?;
        // Before any part of the request is accepted.
        self.texts.entry(run).or_default().take(run, &request.events, &fresh, self.known.open)?;
        let accepted = self.accept(request, stored, &fresh);
        if is_named {
            self.names.extend(request.name().map(|name| (name, run)));
            self.alias(request, &accepted);
        }
        let first_seq = accepted.ack.events.first().and_then(|event| event.seq);
        assert!(request.first_seq.is_none() || request.first_seq == first_seq, "an imported event keeps its seq");
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

    /// Each question has its own id, so that an answer to one is never mistaken for an answer to another.
    fn check_questions(&self, run: RunId, events: &[NewEvent], fresh: &[bool]) -> Result<(), EmitError> {
        let mut asked = HashSet::new();
        let new = events
            .iter()
            .zip(fresh)
            .filter(|(event, fresh)| **fresh && event.event_type.is(EventKind::InterruptRequested));
        for span in new.filter_map(|(event, _)| event.span_id.as_ref()) {
            if self.key(run, &asked_key(span)).is_some() || !asked.insert(span) {
                return Err(EmitError::InterruptExists(span.clone()));
            }
        }
        Ok(())
    }

    fn accept(&mut self, request: &AppendRequest, mut stored: StoredHead, fresh: &[bool]) -> Accepted {
        let run = request.context.run_id;
        let (mut acks, mut items) = (Vec::with_capacity(fresh.len()), Vec::with_capacity(fresh.len()));
        let (before, mut numbered) = ((stored.head.clone(), stored.link), Vec::new());
        for (nth, (event, fresh)) in request.events.iter().zip(fresh).enumerate() {
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
                    let delta = Recorded::stamp(&request.context, event.clone(), None, self.known.now);
                    items.push(Item::Delta(delta, span_id, text));
                }
            } else if *fresh {
                let recorded = Recorded::stamp(&request.context, event.clone(), seq, self.known.now);
                stored.head = run::evolve(stored.head, &recorded.event_type, recorded.at, &recorded.payload);
                assert_eq!(Some(stored.head.last_seq), recorded.seq, "an event's seq is its run's next");
                let chained = chain::chained(stored.link, run, stored.head.last_seq, &recorded);
                stored.link = Some(chained.link);
                self.batch.chain.push(chained);
                if let (Some(id), Some(seq)) = (&event.event_id, seq) {
                    self.keys.insert((run, id.clone()), seq);
                }
                if recorded.event_type.is(EventKind::InterruptRequested)
                    && let (Some(span), Some(seq)) = (&event.span_id, seq)
                {
                    self.keys.insert((run, asked_key(span)), seq);
                }
                numbered.push(nth);
                items.push(Item::Durable(self.batch.events.len()));
                self.batch.events.push(recorded);
            }
        }
        self.write_head(request, &before, &stored);
        self.heads.insert(run, stored);
        Accepted { ack: Ack { events: acks, already_open: false }, items, numbered }
    }

    /// Adds the request's alias to the batch.
    fn alias(&mut self, request: &AppendRequest, accepted: &Accepted) {
        let Some(alias) = &request.alias else { return };
        let run_id = request.context.run_id;
        let is_answer = |event: &NewEvent| event.event_type.is(EventKind::InterruptResolved);
        let after = request.events.iter().rposition(is_answer).and_then(|at| accepted.ack.events[at].seq);
        // The request is stored whole, so its answers are among the run's events of this batch.
        let head = self.head_at.get(&run_id).map(|at| &self.batch.heads[*at]);
        let nth = after.zip(head).map(|(after, head)| after.get() - head.seq_before.get());
        self.batch.aliases.push(AliasWrite {
            owner_id: request.context.owner_id.clone(),
            alias: alias.id.clone(),
            run_id,
            after: after.unwrap_or(alias.after),
            nth,
        });
    }

    fn write_head(
        &mut self,
        request: &AppendRequest,
        (before, link_before): &(Head, Option<Hash>),
        stored: &StoredHead,
    ) {
        let Some(last_index) = self.batch.events.len().checked_sub(1) else { return };
        let run_id = request.context.run_id;
        if self.batch.events[last_index].run_id != run_id {
            return;
        }
        let head = stored.head.clone();
        let (heads, births) = (&mut self.batch.heads, &request.birth);
        let at = *self.head_at.entry(run_id).or_insert_with(|| {
            heads.push(HeadWrite {
                run_id,
                owner_id: stored.owner_id.clone(),
                status_before: before.status,
                seq_before: before.last_seq,
                is_exact: false,
                link_before: *link_before,
                head: head.clone(),
                birth: births.clone(),
                last_index,
            });
            heads.len() - 1
        });
        (heads[at].head, heads[at].last_index) = (head, last_index);
        heads[at].is_exact |= request.first_seq.is_some();
    }

    fn finish(mut self, outcomes: Vec<Result<Accepted, EmitError>>) -> Plan {
        // Every writer locks rows in the same order.
        self.batch.heads.sort_by_key(|write| write.run_id);
        Plan { batch: self.batch, outcomes, heads: self.heads }
    }
}

/// Events with given seqs keep them or are refused: they continue the stored log.
fn check_numbered(first_seq: Seq, stored: &StoredHead) -> Result<(), EmitError> {
    if stored.head.last_seq.next() == first_seq { Ok(()) } else { Err(EmitError::Elsewhere) }
}

#[cfg(test)]
mod tests;
