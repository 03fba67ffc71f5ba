//! Shared by the protocols of chat clients: a run's stream from its beginning, a person's answers, and stream quota.

use serde_json::Value;

use super::{
    Server,
    extract::Caller,
    interrupts::answerable,
    problem::{Code, Problem},
};
use crate::{
    domain::{
        id::{RunId, Seq},
        interrupt::{Answer, Decision},
        json::Json,
        principal::{OwnerId, Scope},
    },
    faces::asked::{Decided, InvalidMember},
    quota::Share,
    timeline::{
        follow::{Follower, StreamOptions},
        resume::{Begin, Resumed},
    },
};

/// The input of a run that a chat client starts; one that is nested too deeply could not be imported anywhere.
pub(super) fn input(value: &Value) -> Result<Json, Problem> {
    let input = Json::of(value);
    Json::parse(input.as_str()).map_err(|flaw| Problem::new(Code::InvalidRequest, flaw.to_string()))
}

impl From<InvalidMember> for Problem {
    fn from(invalid: InvalidMember) -> Self {
        Self::new(Code::InvalidRequest, invalid.rule).field(invalid.field)
    }
}

/// Records a person's answers to a run's interrupts, all or none; returns the seq of the last question. Those of the
/// `earlier` runs of the same message were answered before, and are skipped.
pub(super) async fn decide(
    server: &Server,
    caller: &Caller,
    run: RunId,
    earlier: &[RunId],
    decided: &[Decided],
) -> Result<Seq, Problem> {
    let asker = caller.needs_run(server, Scope::Approve, run).await?.owner();
    let context = answerable(server, asker, run).await?;
    let runs: Vec<RunId> = earlier.iter().copied().chain([run]).collect();
    let questions = server.timeline.store().interrupts().asked(&context.owner_id, &runs).await?;
    let mut answers = Vec::new();
    for Decided { run_id, interrupt_id, approved, reason } in decided {
        let is_meant = |of: RunId| run_id.is_none_or(|run| run == of);
        let meant = questions.iter().filter(|asked| asked.interrupt_id == *interrupt_id && is_meant(asked.run_id));
        let mut runs_asking = meant.map(|asked| asked.run_id);
        if runs_asking.clone().any(|asking| asking == run) {
            let decision = if *approved { Decision::Approve } else { Decision::Reject };
            let value = reason.as_ref().filter(|_| !approved).map(Json::of);
            answers.push(Answer::new(interrupt_id.clone(), decision, value).by(asker));
        } else if runs_asking.next().is_none() {
            return Err(Problem::not_found());
        }
    }
    Ok(server.timeline.answer_interrupts(&context, &answers, None).await?.asked)
}

/// A run's stream from its beginning.
pub(super) async fn follow(server: &Server, owner: &OwnerId, run: RunId) -> Result<Follower, Problem> {
    let options = StreamOptions { tokens: true, ..StreamOptions::default() };
    match server.timeline.resume_run(owner, run, &Begin::Start, options).await? {
        Resumed::Stream(follower) => Ok(*follower),
        Resumed::Ended { .. } => Err(Problem::not_found()),
    }
}

/// A share for one more stream; without one, a plain error, because the client would not read it in a stream.
pub(super) fn place(server: &Server, owner: &OwnerId) -> Result<Share, Problem> {
    server.streams.try_take(owner, 1).map_err(|full| Problem::busy(full, "streams"))
}
