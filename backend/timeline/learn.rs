//! What a lane asks the database before it plans a batch, apart from heads and keys; nothing for most batches.

use std::collections::HashMap;

use super::emit::AppendRequest;
use crate::{
    domain::{
        event::EventKind,
        id::{EventId, RunId, Seq, SpanId},
    },
    store::{self, append::Appender, external_ids::Named},
};

/// The runs that have the ids which this batch gives to some. One that another writer uses meanwhile makes the statement
/// fail, and the batch is planned again.
pub(super) async fn names(appender: &mut Appender, emissions: &[AppendRequest]) -> Result<Named, store::Error> {
    let ids: Vec<_> = emissions.iter().filter_map(AppendRequest::name).collect();
    let aliased = emissions.iter().filter(|emission| emission.alias.is_some());
    let runs: Vec<RunId> = aliased.map(|emission| emission.context.run_id).collect();
    if ids.is_empty() { Ok(Named::default()) } else { appender.named(&ids, &runs).await }
}

/// The keys taken by questions that were asked before, of those whose ids this batch has: a repetition is known by its own.
pub(super) async fn questions(
    appender: &mut Appender,
    emissions: &[AppendRequest],
) -> Result<HashMap<(RunId, EventId), Seq>, store::Error> {
    let asked = emissions.iter().flat_map(|emission| {
        let asked = emission.events.iter().filter(|event| event.event_type.is(EventKind::InterruptRequested));
        asked.filter_map(|event| Some((emission.context.run_id, event.span_id.clone()?)))
    });
    let asked: Vec<(RunId, SpanId)> = asked.collect();
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    appender.known_questions(&asked).await
}
