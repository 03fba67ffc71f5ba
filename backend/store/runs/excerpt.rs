//! What a list shows of a run besides the run itself: a line about how it went, and its descendants.

use std::collections::HashMap;

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

use super::RunRecord;
use crate::{
    domain::{
        failure::Failure,
        json::Json,
        limits::{DESCENDANTS_MAX, EXCERPT_CHARS_MAX, EXCERPT_EVENTS_MAX},
        principal::OwnerId,
        run::Status,
    },
    store::{Error, error::known},
    wire::runs::{Descendants, Excerpt, ExcerptKind},
};

/// The excerpts of these runs; not every run has one.
pub(super) async fn of(
    tx: &mut PgConnection,
    owner: &OwnerId,
    records: &[RunRecord],
) -> Result<HashMap<Uuid, Excerpt>, Error> {
    let (mut excerpts, mut others) = (HashMap::new(), Vec::new());
    for record in records {
        let run = record.context.run_id.uuid();
        let error = record.head.error.as_ref().filter(|_| record.head.status == Status::Failed);
        match error.map(|error| line(&failure_text(error))).filter(|text| !text.is_empty()) {
            Some(text) => _ = excerpts.insert(run, Excerpt { kind: ExcerptKind::Error, text }),
            None => others.push(run),
        }
    }
    let messages = sqlx::query!(
        r#"select r.run_id, m.text as "text!"
           from store.run r
           cross join lateral (
               select left(coalesce(
                          (select string_agg(part ->> 'text', '' order by n)
                           from json_array_elements(case json_typeof(e.payload -> 'content')
                                                    when 'array' then e.payload -> 'content' else '[]'::json end)
                                with ordinality as parts (part, n)
                           where json_typeof(part) = 'object'),
                          case json_typeof(e.payload -> 'content') when 'string' then e.payload ->> 'content' end,
                          e.payload ->> 'text'), $4) as text
               from (select e.seq, e.type, e.payload from store.run_event e
                     where e.run_id = r.run_id and e.owner_id = $1 and e.seq > r.last_seq - $3
                     order by e.seq desc limit $3) e
               where e.type = 'message.completed'
               order by e.seq desc limit 1
           ) m
           where r.run_id = any ($2) and r.owner_id = $1 and m.text is not null"#,
        owner.as_str(),
        &others,
        EXCERPT_EVENTS_MAX,
        // More than a line has, since blanks are collapsed.
        i32::try_from(4 * EXCERPT_CHARS_MAX).unwrap_or(i32::MAX)
    );
    for row in messages.fetch_all(tx).await? {
        let text = line(&row.text);
        if !text.is_empty() {
            excerpts.insert(row.run_id, Excerpt { kind: ExcerptKind::Message, text });
        }
    }
    Ok(excerpts)
}

/// The descendants of these runs; a run without any has no entry.
pub(super) async fn below(
    tx: &mut PgConnection,
    owner: &OwnerId,
    roots: &[Uuid],
) -> Result<HashMap<Uuid, Descendants>, Error> {
    let rows = sqlx::query!(
        r#"select o.id as "run_id!", d.count as "count!", d.worst_status
           from unnest($2::uuid[]) as o (id)
           cross join lateral (
               select count(*) as count,
                      (array['failed', 'interrupted', 'running', 'waiting', 'queued', 'cancelled', 'completed'])
                          [min(array_position(array['failed', 'interrupted', 'running', 'waiting', 'queued',
                                                    'cancelled', 'completed'], r.status))] as worst_status
               from (select status from store.run r
                     where r.root_run_id = o.id and r.owner_id = $1 and r.run_id <> o.id and r.role <> 'router'
                     limit $3) r
           ) d
           where d.count > 0"#,
        owner.as_str(),
        roots,
        DESCENDANTS_MAX
    );
    let descendants = |row: (Uuid, i64, Option<String>)| {
        let worst = row.2.map(|status| known(Status::parse(&status), &status)).transpose()?;
        Ok((row.0, Descendants { count: row.1, worst_status: worst }))
    };
    rows.fetch_all(tx).await?.into_iter().map(|row| descendants((row.run_id, row.count, row.worst_status))).collect()
}

fn failure_text(error: &Json) -> String {
    let value: Value = serde_json::from_str(error.as_str()).unwrap_or_default();
    Failure::read(&value).map(|failure| failure.to_string()).unwrap_or_default()
}

/// A text as one line, cut where it is too long.
fn line(text: &str) -> String {
    let mut line = String::new();
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if let Some((end, _)) = line.char_indices().nth(EXCERPT_CHARS_MAX) {
            let last = line[..end].char_indices().next_back().map_or(0, |(at, _)| at);
            line.truncate(last);
            line.push('…');
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_no_breaks_and_a_bound() {
        assert_eq!(line("  a\n\tb \u{1b}[0m "), "a b [0m");
        assert_eq!(line(&"é".repeat(300)), "é".repeat(300));
        assert_eq!(line(&"é".repeat(301)), "é".repeat(299) + "…");
        assert_eq!(line(&"a ".repeat(400)).chars().count(), EXCERPT_CHARS_MAX);
    }
}
