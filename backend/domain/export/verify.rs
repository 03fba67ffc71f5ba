//! Reads and verifies a whole export, line by line, without trusting any of it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use sha2::{Digest as _, Sha256};

use super::{
    Chain, End, Line, LineError, Subject, Total, VERSION, check_letter, creation, header, named, read_event, read_line,
    total_line,
};
use crate::domain::{
    artifact::Hash,
    chain,
    context::RunContext,
    event::Recorded,
    id::{RunId, Seq},
    limits::RUN_DEPTH_MAX,
    principal::OwnerId,
    run::{self, Status},
};

/// A line that has been checked.
#[derive(Clone, Debug)]
pub enum Seen {
    Header,
    Run(Subject),
    Event(Box<Recorded>),
    End(End),
    Total(Total),
}

/// Reads a file line by line. A file is complete only if [`Verifier::finish`] succeeds.
#[derive(Debug)]
pub struct Verifier {
    stage: Stage,
    /// Over the header and the end lines, which bind the runs together.
    chain: Chain,
    runs: u64,
    events: u64,
    /// The runs of the file with their roots and depths.
    known: HashMap<RunId, (RunId, u16)>,
    /// Parents that were named but not read yet.
    awaited: HashSet<RunId>,
    owner: OwnerId,
    owner_text: Arc<str>,
}

#[derive(Debug)]
enum Stage {
    Start,
    Between,
    In(Box<Open>),
    Over(Total),
}

/// The run whose lines are being read.
#[derive(Debug)]
struct Open {
    subject: Subject,
    chain: Chain,
    last_seq: Seq,
    status: Status,
    head: Option<Hash>,
    /// Hash prefixes of the event ids so far.
    keys: HashSet<u128>,
}

impl Default for Verifier {
    fn default() -> Self {
        let owner = OwnerId::trusted("");
        Self {
            stage: Stage::Start,
            chain: Chain::of(&header()),
            runs: 0,
            events: 0,
            known: HashMap::new(),
            awaited: HashSet::new(),
            owner_text: Arc::from(owner.as_str()),
            owner,
        }
    }
}

impl Verifier {
    /// Checks the next line, without its line break. Must not be called again after an error.
    pub fn line(&mut self, line: &str) -> Result<Seen, LineError> {
        let read = read_line(line)?;
        match (std::mem::replace(&mut self.stage, Stage::Start), read) {
            (Stage::Start, Line::Header(VERSION)) => {
                check_letter(line, &header())?;
                self.stage = Stage::Between;
                Ok(Seen::Header)
            }
            (Stage::Start, Line::Header(other)) => {
                Err(LineError::tell(format!("this export has format {other}; this version reads format {VERSION}")))
            }
            (Stage::Start, _) => Err(LineError::tell(format!("an export must begin with {}", header()))),
            (Stage::Between, Line::Run(subject)) => self.begin(line, subject),
            (Stage::Between, Line::Total(total)) => self.total(line, total),
            (Stage::Between, _) => Err(LineError::say("expected a run or the total here")),
            (Stage::In(open), Line::Event(members)) => {
                let event = read_event(members, line, &open.subject, &self.owner_text)?;
                self.event(line, open, event)
            }
            (Stage::In(open), Line::End(end)) => self.end(line, &open, end),
            (Stage::In(_), _) => Err(LineError::say("expected an event or the end of the run here")),
            (Stage::Over(_), _) => Err(LineError::say("nothing may follow the total")),
        }
    }

    /// The totals, once the whole file has been read.
    pub fn finish(self) -> Result<Total, LineError> {
        match self.stage {
            Stage::Over(total) => Ok(total),
            _ => Err(LineError::say("the file ends before its total: it is truncated")),
        }
    }

    /// Checks whether a run with this first event may follow here; changes nothing.
    pub fn check_next(&self, subject: &Subject, created: &Recorded) -> Result<(), LineError> {
        self.check_order(subject)?;
        self.depth_of(&creation(subject, created, &self.owner)?.context).map(drop)
    }

    fn check_order(&self, subject: &Subject) -> Result<(), LineError> {
        if self.known.contains_key(&subject.run_id) {
            return Err(LineError::tell(format!("the run {} is in the file twice", subject.run_id)));
        }
        if self.awaited.contains(&subject.run_id) {
            return Err(LineError::tell(format!("the run {} comes after one of its descendants", subject.run_id)));
        }
        Ok(())
    }

    fn begin(&mut self, line: &str, subject: Subject) -> Result<Seen, LineError> {
        subject.check()?;
        check_letter(line, &named("run", &subject))?;
        self.check_order(&subject)?;
        self.stage = Stage::In(Box::new(Open {
            subject: subject.clone(),
            chain: Chain::of(line),
            last_seq: Seq::ZERO,
            status: Status::Queued,
            head: None,
            keys: HashSet::new(),
        }));
        Ok(Seen::Run(subject))
    }

    fn event(&mut self, line: &str, mut open: Box<Open>, event: Recorded) -> Result<Seen, LineError> {
        let wanted = open.last_seq.next();
        if event.seq != Some(wanted) {
            let found = event.seq.unwrap_or_default();
            return Err(LineError::tell(format!("expected seq {wanted} here, found {found}")));
        }
        if open.last_seq == Seq::ZERO {
            self.place(&open.subject, &event)?;
        }
        if let Some(id) = &event.event_id {
            let hash = Sha256::digest(id.as_str().as_bytes());
            let key = hash[..16].iter().fold(0u128, |key, byte| key << 8 | u128::from(*byte));
            if !open.keys.insert(key) {
                return Err(LineError::say("this event_id occurs earlier in the run"));
            }
        }
        let next = run::decide(open.status, [&event.event_type]);
        open.status = next.map_err(|refusal| LineError::tell(format!("seq {wanted}: {refusal}")))?;
        open.last_seq = wanted;
        open.head = Some(chain::chained(open.head, event.run_id, wanted, &event).link);
        open.chain.add(line);
        self.stage = Stage::In(open);
        Ok(Seen::Event(Box::new(event)))
    }

    /// Determines a run's place in its tree from its first event.
    fn place(&mut self, subject: &Subject, created: &Recorded) -> Result<(), LineError> {
        let context = creation(subject, created, &self.owner)?.context;
        let depth = self.depth_of(&context)?;
        self.awaited.extend(context.parent_run_id.filter(|parent| !self.known.contains_key(parent)));
        self.known.insert(subject.run_id, (context.root_run_id, depth));
        Ok(())
    }

    fn depth_of(&self, context: &RunContext) -> Result<u16, LineError> {
        match context.parent_run_id.and_then(|parent| self.known.get(&parent)) {
            None => Ok(0),
            Some((root, _)) if *root != context.root_run_id => {
                Err(LineError::say("the root of the run differs from its parent's"))
            }
            Some((_, depth)) if *depth >= RUN_DEPTH_MAX => Err(LineError::say("the tree of runs is too deep")),
            Some((_, depth)) => Ok(depth + 1),
        }
    }

    fn end(&mut self, line: &str, open: &Open, end: End) -> Result<Seen, LineError> {
        let found = End {
            run_id: open.subject.run_id,
            last_seq: open.last_seq,
            status: open.status,
            head: open.head,
            sha256: open.chain.hash(),
        };
        if open.last_seq == Seq::ZERO {
            return Err(LineError::say("the run has no events"));
        }
        if (end.run_id, end.last_seq, end.status) != (found.run_id, found.last_seq, found.status) {
            let (seq, status) = (found.last_seq, found.status.as_str());
            return Err(LineError::tell(format!("the end does not match: its run is at seq {seq} and {status}")));
        }
        if end.sha256 != found.sha256 {
            return Err(LineError::say("the hash of the run's lines differs: a line was changed"));
        }
        if end.head.is_some() && end.head != found.head {
            return Err(LineError::say("the head is not the link of the run's last event"));
        }
        check_letter(line, &named("end", &end))?;
        self.chain.add(line);
        self.runs += 1;
        self.events += open.last_seq.get().unsigned_abs();
        self.stage = Stage::Between;
        Ok(Seen::End(end))
    }

    fn total(&mut self, line: &str, total: Total) -> Result<Seen, LineError> {
        let found = self.so_far();
        if (total.runs, total.events) != (found.runs, found.events) {
            let Total { runs, events, .. } = found;
            return Err(LineError::tell(format!(
                "the total does not match: there are {runs} runs and {events} events"
            )));
        }
        if total.sha256 != found.sha256 {
            return Err(LineError::say("the hash of the ends differs: a run was changed, left out or moved"));
        }
        check_letter(line, &total_line(&total))?;
        self.stage = Stage::Over(total);
        Ok(Seen::Total(total))
    }

    /// The total of the runs read so far.
    pub fn so_far(&self) -> Total {
        Total { runs: self.runs, events: self.events, sha256: self.chain.hash() }
    }
}
