//! Lookups of a lane before it plans a batch, apart from heads and keys; none for most batches.

use std::collections::HashMap;

use super::emit::AppendRequest;
use crate::{
    domain::{
        event::EventKind,
        id::{EventId, RunId, Seq, SpanId},
    },
    store::{self, append::Appender, external_ids::Named},
};

/// The runs that already have the external ids this batch assigns. An id that another writer assigns meanwhile makes
/// the statement fail, and the batch is planned again.
pub(super) async fn names(appender: &mut Appender, requests: &[AppendRequest]) -> Result<Named, store::Error> {
    let ids: Vec<_> = requests.iter().filter_map(AppendRequest::name).collect();
    let aliased = requests.iter().filter(|request| request.alias.is_some());
    let runs: Vec<RunId> = aliased.map(|request| request.context.run_id).collect();
    if ids.is_empty() { Ok(Named::default()) } else { appender.named(&ids, &runs).await }
}

/// The keys used by earlier questions with the ids of this batch's questions. A repeated event is found by its own key.
pub(super) async fn questions(
    appender: &mut Appender,
    requests: &[AppendRequest],
) -> Result<HashMap<(RunId, EventId), Seq>, store::Error> {
    let asked = requests.iter().flat_map(|request| {
        let asked = request.events.iter().filter(|event| event.event_type.is(EventKind::InterruptRequested));
        asked.filter_map(|event| Some((request.context.run_id, event.span_id.clone()?)))
    });
    let asked: Vec<(RunId, SpanId)> = asked.collect();
    if asked.is_empty() {
        return Ok(HashMap::new());
    }
    appender.known_questions(&asked).await
}
