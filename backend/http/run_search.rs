//! Search in the events of one run. It reads the log itself, so it finds what was committed a moment ago.

use axum::{Json as Reply, extract::State};
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::{
    Server,
    extract::{Caller, Query, RunPath},
    handler::routes,
    problem::{Code, Problem},
};
use crate::domain::{
    event::{Recorded, timestamp},
    id::Seq,
    limits::{
        HIT_CHARS_MAX, PAGE_ROWS_DEFAULT, PAGE_ROWS_MAX, REPLAY_ROWS, RUN_SEARCH_BYTES_MAX, RUN_SEARCH_EVENTS_MAX,
    },
    principal::Scope,
    search::Search,
    words::{self, Part},
};

/// The routes of this file.
pub(super) fn routes() -> OpenApiRouter<Server> {
    OpenApiRouter::new().routes(routes!(search))
}

/// Events of a run with the words.
#[derive(Debug, Serialize, ToSchema)]
struct Hits {
    /// In the order of their seq.
    hits: Vec<Hit>,
    /// The last seq that was looked at: send it back as `after`.
    next_after: i64,
    /// Whether there are later events.
    has_more: bool,
}

#[derive(Debug, Serialize, ToSchema)]
struct Hit {
    seq: i64,
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    event_type: String,
    span_id: Option<String>,
    at: String,
    /// The text around the first of the words, at most 200 characters; empty if it is in the type or the span id.
    text: String,
}

/// Search in the events of a run.
///
/// One request looks at 20 000 events and 16 MiB of payloads at most; while `has_more`, there may be hits in what follows.
#[utoipa::path(get, operation_id = "search_run", path = "/api/runs/{run_id}/search", tag = "events", params(("run_id" = uuid::Uuid, Path),
    ("q" = String, Query, description = "Words that are all in the type, the span id or the payload of an event; `*` at the end of one stands for its rest"),
    ("after" = Option<i64>, Query, description = "The seq after which to look, default 0"),
    ("limit" = Option<i64>, Query, description = "How many hits at most, 1 to 1000, default 100")),
    responses((status = 200, body = Hits, description = "The hits"), (status = 400, body = Problem, description = "Invalid"),
    (status = 404, body = Problem, description = "Not found, or of another owner"), (status = 429, body = Problem, description = "`busy`")))]
async fn search(
    State(server): State<Server>,
    caller: Caller,
    RunPath(run): RunPath,
    query: Query,
) -> Result<Reply<Hits>, Problem> {
    let owner = caller.needs_run(&server, Scope::Read, run).await?.owner();
    let missing = || Problem::new(Code::InvalidRequest, "q is missing: the words to search for").field("q");
    let search: Search = query.parsed("q")?.ok_or_else(missing)?;
    let limit = query.number("limit", PAGE_ROWS_DEFAULT, 1, PAGE_ROWS_MAX)?;
    let mut after = Seq::new(query.number("after", 0, 0, i64::MAX)?).unwrap_or_default();
    let _turn = server.timeline_turn(owner).await?;
    let (mut hits, mut events, mut bytes) = (Vec::new(), 0, 0);
    let events_of = server.timeline.store().events();
    loop {
        let page = events_of.page(owner, run, after, REPLAY_ROWS).await?.ok_or_else(Problem::not_found)?;
        for (place, event) in &page.events {
            (after, events, bytes) = (place.seq, events + 1, bytes + event.payload.as_str().len());
            hits.extend(hit(&search, event));
            if i64::try_from(hits.len()).is_ok_and(|hits| hits >= limit) {
                return Ok(Reply(Hits { hits, next_after: after.get(), has_more: after < page.last_seq }));
            }
        }
        if page.complete || events >= RUN_SEARCH_EVENTS_MAX || bytes >= RUN_SEARCH_BYTES_MAX {
            return Ok(Reply(Hits { hits, next_after: after.get(), has_more: !page.complete }));
        }
    }
}

/// The event as a hit, if it has all words.
fn hit(search: &Search, event: &Recorded) -> Option<Hit> {
    let span = event.span_id.as_ref().map_or("", |span| span.as_str());
    let mut texts = Vec::new();
    words::texts(event.payload.as_str(), |part| match part {
        Part::Text(text) => texts.push(text),
        Part::Number(number) => texts.push(number.into()),
        Part::Model(_) => {}
    });
    let all = [event.event_type.as_str(), span].into_iter().chain(texts.iter().map(AsRef::as_ref));
    if !search.is_in(all) {
        return None;
    }
    let text = texts.iter().find(|text| search.touches(text)).map(|text| around(search, text));
    Some(Hit {
        seq: event.seq.unwrap_or_default().get(),
        event_type: event.event_type.as_str().to_owned(),
        span_id: event.span_id.as_ref().map(|span| span.as_str().to_owned()),
        at: timestamp(event.at),
        text: text.unwrap_or_default(),
    })
}

/// The part of a text around the first match.
fn around(search: &Search, text: &str) -> String {
    let blank = |c: char| c.is_whitespace() || c.is_control();
    let mut part = String::new();
    let mut chars = 0;
    // Keeps the last few chunks until one matches, and then what follows.
    let mut is_found = false;
    for chunk in text.split(blank).filter(|chunk| !chunk.is_empty()) {
        is_found = is_found || search.touches(chunk);
        if !part.is_empty() {
            part.push(' ');
        }
        part.push_str(chunk);
        chars += chunk.chars().count() + 1;
        if is_found && chars >= HIT_CHARS_MAX {
            break;
        }
        if !is_found && chars > HIT_CHARS_MAX / 4 {
            part.clear();
            part.push('…');
            chars = 1;
        }
    }
    part.chars().take(HIT_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hit_shows_the_text_around_its_word() {
        let search: Search = "needle".parse().unwrap();
        assert_eq!(around(&search, "a needle\nin hay"), "a needle in hay");
        let far = "hay ".repeat(1_000) + "Needle" + &" hay".repeat(1_000);
        let found = around(&search, &far);
        assert!(found.starts_with('…') && found.contains("Needle hay"), "{found}");
        assert!(found.chars().count() <= HIT_CHARS_MAX, "{found}");
    }
}
