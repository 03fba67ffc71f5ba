//! What the protocols of chat clients have in common: a run's stream from its beginning, a person's answers, and a place.

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

impl From<InvalidMember> for Problem {
    fn from(invalid: InvalidMember) -> Self {
        Self::new(Code::InvalidRequest, invalid.rule).field(invalid.field)
    }
}

/// Records a person's answers to a run's interrupts, all or none; returns the seq of the last question. An interrupt of
/// an earlier run is passed over, if another is found.
pub(super) async fn decide(server: &Server, caller: &Caller, run: RunId, decided: &[Decided]) -> Result<Seq, Problem> {
    let asker = caller.needs_run(server, Scope::Approve, run).await?.owner();
    let context = answerable(server, asker, run).await?;
    let asked = server.timeline.store().interrupts().asked(&context.owner_id, &[run]).await?;
    let answer = |Decided { interrupt_id, approved, reason }: &Decided| {
        let decision = if *approved { Decision::Approve } else { Decision::Reject };
        let value = reason.as_ref().filter(|_| !approved).map(Json::of);
        Answer { interrupt_id: interrupt_id.clone(), decision, value }
    };
    let is_of_run = |decided: &&Decided| asked.iter().any(|asked| asked.interrupt_id == decided.interrupt_id);
    let answers: Vec<Answer> = decided.iter().filter(is_of_run).map(answer).collect();
    Ok(server.timeline.answer_interrupts(&context, &answers, None).await?.asked)
}

/// A run's stream from its beginning.
pub(super) async fn follow(server: &Server, owner: &OwnerId, run: RunId) -> Result<Follower, Problem> {
    let options = StreamOptions { tokens: true, ..StreamOptions::default() };
    match server.timeline.resume_run(owner, run, &Begin::Start, options).await? {
        Resumed::Stream(follower) => Ok(*follower),
        Resumed::Ended => Err(Problem::not_found()),
    }
}

/// A share for one more stream. The client would not read why there is none in a stream.
pub(super) fn place(server: &Server, owner: &OwnerId) -> Result<Share, Problem> {
    server.streams.try_take(owner, 1).map_err(|full| Problem::busy(full, "streams"))
}
