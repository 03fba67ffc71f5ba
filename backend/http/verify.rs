//! Verification that a run's log is as it was written.

use axum::{Json as Reply, extract::State};
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Caller, Query, RunPath},
    handler::routes,
    problem::{Code, Problem},
};
use crate::{
    domain::{
        chain::Walk,
        id::Seq,
        limits::{VERIFY_BYTES_MAX, VERIFY_EVENTS_MAX},
        principal::Scope,
    },
    store::chain::LastSeal,
    wire::verification::{NamedFault, NamedSeal, Verification, VerificationState},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(verify))
}

/// Verify that a run's log is as it was written.
///
/// One request checks 20 000 events and 16 MiB of payloads at most; while `state` is `partial`, ask again with `after`.
#[utoipa::path(get, operation_id = "verify_run", path = "/api/runs/{run_id}/verify", tag = "runs", params(("run_id" = uuid::Uuid, Path),
    ("after" = Option<i64>, Query, description = "The seq after which to check, default 0")),
    responses((status = 200, body = Verification, description = "What was found"), (status = 400, body = Problem, description = "Invalid"),
    (status = 404, body = Problem, description = "Not found, or of another owner"), (status = 429, body = Problem, description = "`busy`")))]
async fn verify(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    query: Query,
) -> Result<Reply<Verification>, Problem> {
    let owner = caller.needs_run(&server, Scope::Read, run).await?.owner();
    let after = Seq::new(query.number("after", 0, 0, i64::MAX)?).unwrap_or_default();
    let _turn = server.timeline_turn(owner).await?;
    let chains = server.timeline.store().chains();
    let mut walk = if after == Seq::ZERO {
        Walk::new(run)
    } else {
        let absent = || Problem::new(Code::InvalidRequest, "the run has no event with this seq").field("after");
        Walk::after(run, after, chains.link_at(owner, run, after).await?.ok_or_else(absent)?)
    };
    let (mut events, mut bytes) = (0, 0);
    let (head, complete) = loop {
        let page = chains.page(owner, run, walk.checked_to).await?.ok_or_else(Problem::not_found)?;
        for stored in &page.events {
            walk.take(stored, owner.as_str());
        }
        (events, bytes) = (events + page.events.len() as i64, bytes + page.bytes);
        if page.complete || events >= VERIFY_EVENTS_MAX || bytes >= VERIFY_BYTES_MAX {
            break (page.head, page.complete);
        }
    };
    if complete {
        walk.finish(&head);
    }
    for fault in chains.row_faults(owner, run, (after, walk.checked_to)).await? {
        walk.note(fault);
    }
    let (seal, fault) = chains.sealed(owner, run).await?;
    if let Some(fault) = fault {
        walk.note(fault);
    }
    let faults: Vec<NamedFault> = walk.faults().iter().map(NamedFault::from).collect();
    let state = match (faults.is_empty(), complete, walk.covered_from) {
        (false, ..) => VerificationState::Altered,
        (true, false, _) => VerificationState::Partial,
        (true, true, None) => VerificationState::Uncovered,
        (true, true, Some(_)) => VerificationState::Verified,
    };
    Ok(Reply(Verification {
        run_id: run.uuid(),
        state,
        checked_to: walk.checked_to.get(),
        last_seq: head.last_seq.get(),
        covered_from: walk.covered_from.map(Seq::get),
        head: head.link.map(|link| link.to_string()),
        faults,
        seal: seal.map(named),
    }))
}

fn named(seal: LastSeal) -> NamedSeal {
    let signature = seal.signature.filter(|signature| signature.is_of(seal.sha256));
    NamedSeal {
        number: seal.number,
        at: seal.at,
        sha256: seal.sha256.to_string(),
        last_seq: seal.last_seq.get(),
        key: signature.map(|signature| signature.key),
    }
}
