//! Starts and their ends: what belongs together, and that a run of any shape is read once.

use std::{fmt::Write as _, time::Duration};

use runreel::store::query;
use serde_json::json;

use crate::support::{
    cluster::{Db, execute},
    server::Server,
};

/// Writes events into the log as its owner: what no producer may emit, and more of it than one would wait for. Each has
/// its seq for `n`, and `dice(salt, sides)` is a number that depends on the run, the seq and the salt.
async fn fill(db: &Db, run: &str, events: u32, columns: &str) {
    let mut text = "create or replace function pg_temp.dice(n bigint, run text, salt bigint, sides int) returns int
        language sql immutable as $$ select 1 + (abs(hashint8extended(n, hashtextextended(run, salt))) % sides)::int $$;"
        .to_owned();
    write!(
        text,
        "insert into store.run_event (run_id, seq, lane, position, owner_id, role, at, type, span_id, payload)
         select r.run_id, 100 + n, 0, 100 + n, r.owner_id, 'agent', {columns}
         from store.run r, generate_series(1, {events}) n where r.run_id = '{run}'"
    )
    .unwrap();
    execute(&mut db.connect().await, text).await;
}

/// A span as `docs/sql.md` describes it, found the slow way.
const SPANS: &str = "select s.run_id, s.span_id, s.parent_span_id, split_part(s.type, '.', 1) as kind,
        coalesce(s.payload ->> 'name', s.payload ->> 'title', s.span_id) as name, s.role, s.agent, s.owner_id,
        case when e.seq is null then 'running' else split_part(e.type, '.', 2) end as status,
        s.seq as start_seq, e.seq as end_seq, s.at as started_at, e.at as ended_at, d.duration_ms,
        greatest(greatest(pg_temp.ms(e.at - s.at), 0) - d.duration_ms, 0) as waiting_ms
    from store.run_event s
    left join lateral (
        select e.* from store.run_event e
        where e.run_id = s.run_id and e.span_id = s.span_id and e.seq > s.seq
          and e.type in (split_part(s.type, '.', 1) || '.completed', split_part(s.type, '.', 1) || '.failed')
        order by e.seq limit 1
    ) e on true
    cross join lateral (
        select sum(greatest(pg_temp.ms(q.at - p.at), 0)) as ms
        from store.run_event q
        cross join lateral (
            select p.type, p.at from store.run_event p
            where p.run_id = q.run_id and p.seq < q.seq and p.type in ('run.interrupted', 'run.waiting', 'run.resumed')
            order by p.seq desc limit 1
        ) p
        where q.run_id = s.run_id and q.seq between s.seq and e.seq and q.type = 'run.resumed'
          and p.type = 'run.interrupted'
    ) asked
    cross join lateral (
        select case when e.seq is not null
                    then coalesce((e.payload ->> 'duration_ms')::float8,
                                  greatest(greatest(pg_temp.ms(e.at - s.at), 0) - coalesce(asked.ms, 0), 0)) end as duration_ms
    ) d
    where s.span_id is not null and (s.type like '%.started' and s.type <> 'run.started' or s.type = 'worker.spawned')";

#[tokio::test]
async fn every_start_has_the_first_end_after_it_however_the_events_lie() {
    let server = Server::start().await;
    for _ in 0..4 {
        let run = server.start_run().await;
        let columns = "'2026-05-05 10:00:00+00'::timestamptz + pg_temp.dice(n, r.run_id::text, 1, 5000) * interval '1 ms',
            (array['step.started', 'step.completed', 'step.failed', 'tool.started', 'tool.completed', 'tool.failed',
                   'worker.spawned', 'worker.started', 'worker.completed', 'interrupt.requested', 'interrupt.resolved',
                   'x.started', 'x.completed', 'x.y.started', 'x.y.completed', 'x.failed', 'message.completed', 'log.info',
                   'run.interrupted', 'run.interrupted', 'run.waiting', 'run.resumed', 'run.resumed',
                   'run.started', 'run.completed', 'run.z.started', 'tool.x.started', 'tool.x.failed'])
                [pg_temp.dice(n, r.run_id::text, 2, 28)],
            (array['a', 'b', 'c', 'd', 'é', null])[pg_temp.dice(n, r.run_id::text, 3, 6)],
            (array['{\"name\":\"n\",\"args\":1}', '{\"duration_ms\":1.5e1,\"result\":2}', '{\"title\":\"t\",\"result\":[1],\"error\":{}}', '1',
                   '{\"decision\":\"approve\",\"value\":1,\"kind\":\"k\",\"resolved_by\":\"w\"}'])[pg_temp.dice(n, r.run_id::text, 4, 5)]::json";
        fill(&server.db, &run, 400, columns).await;
    }
    let tools = format!(
        "select s.run_id, s.span_id, s.parent_span_id, s.name, s.role, s.agent, s.owner_id, s.status, s.start_seq,
             s.end_seq, s.started_at, s.ended_at, s.duration_ms, a.payload -> 'args', z.payload -> 'result',
             z.payload -> 'error', s.waiting_ms
         from ({SPANS}) s join store.run_event a on a.run_id = s.run_id and a.seq = s.start_seq
         left join store.run_event z on z.run_id = s.run_id and z.seq = s.end_seq
         where s.kind = 'tool' and a.type = 'tool.started'"
    );
    let nodes = format!(
        "select run_id, name, owner_id, count(*), round(sum(duration_ms)::numeric, 3),
             max(duration_ms), round(sum(waiting_ms)::numeric, 3)
         from (
             select run_id, name, owner_id, duration_ms, waiting_ms from ({SPANS}) s
             where kind = 'step' and end_seq is not null
             union all
             select run_id, coalesce(payload ->> 'name', payload ->> 'title', span_id), owner_id,
                    coalesce(store.own_ms(payload), 0), 0
             from store.run_event e
             where type in ('step.completed', 'step.failed') and span_id is not null
               and not exists (select from store.run_event a where a.run_id = e.run_id and a.span_id = e.span_id
                               and a.type = 'step.started')
         ) as told group by 1, 2, 3"
    );
    let asked = "select q.run_id, q.span_id, q.owner_id, r.thread_id, q.role, q.agent, q.payload ->> 'kind',
            q.payload ->> 'prompt', case when a.seq is not null then 'answered' else 'open' end,
            a.payload ->> 'decision', a.payload -> 'value', q.seq, a.seq, q.at, a.at,
            (extract(epoch from a.at - q.at) * 1000)::float8, a.payload ->> 'resolved_by'
        from store.run_event q join store.run r using (run_id)
        left join lateral (
            select a.* from store.run_event a where a.run_id = q.run_id and a.span_id = q.span_id and a.seq > q.seq
              and a.type = 'interrupt.resolved' order by a.seq limit 1
        ) a on true where q.type = 'interrupt.requested' and q.span_id is not null";
    let mut connection = server.db.connect().await;
    let ms = "create function pg_temp.ms(apart interval) returns float8 language sql as
        $$ select (extract(epoch from apart) * 1000)::float8 $$";
    execute(&mut connection, ms.to_owned()).await;
    for (view, expected) in
        [("spans", SPANS), ("tool_calls", &tools), ("node_durations", &nodes), ("interrupts", asked)]
    {
        // Sums of fractions depend on their order.
        let columns = if view == "node_durations" {
            "select run_id, node, owner_id, steps, round(duration_ms::numeric, 3), longest_ms, round(waiting_ms::numeric, 3)"
        } else {
            "select *"
        };
        let text = format!(
            "with found as materialized (select v::text as line from ({columns} from runreel.{view}) v),
                  expected as materialized (select v::text as line from ({expected}) v)
             select (select count(*) from expected),
                    (select count(*) from (select * from found except all select * from expected) as more),
                    (select count(*) from (select * from expected except all select * from found) as less)"
        );
        let (all, more, less): (i64, i64, i64) =
            sqlx::query_as(sqlx::AssertSqlSafe(text)).fetch_one(&mut connection).await.unwrap();
        assert!(all > 10 && (more, less) == (0, 0), "{view}: of {all} {more} too many and {less} too few");
    }
}

/// What a look-up of each end would cost here is the product of the two numbers.
#[tokio::test]
async fn starts_without_an_end_cost_no_more_than_others() {
    let server = Server::start().await;
    let run = server.start_run().await;
    let columns = "now(), (array['tool.started', 'step.started', 'interrupt.requested', 'log.info'])[1 + n % 4],
        'span ' || n, '{}'";
    fill(&server.db, &run, 60_000, columns).await;
    for view in ["spans", "tool_calls", "node_durations", "interrupts"] {
        for filter in [String::new(), format!("where run_id = '{run}'")] {
            let text = format!("select count(*) from {view} {filter}");
            query::run(&server.db.reader(), text.clone(), Duration::from_secs(10))
                .await
                .unwrap_or_else(|error| panic!("{text}: {error}"));
        }
    }
}

#[tokio::test]
async fn content_that_is_text_is_the_messages_text_and_an_input_may_have_any_shape() {
    let server = Server::start().await;
    for (input, expected) in [
        (json!("plain"), Some("plain")),
        (json!({ "text": "a" }), Some("a")),
        (json!({ "messages": [{ "content": [{ "text": "a" }, { "text": "b" }] }, { "content": "c" }] }), Some("a b c")),
        (json!({ "q": 1 }), None),
    ] {
        let run = server.create(json!({ "input": input })).await;
        let text = format!("select text_of(input) from runs where run_id = '{run}'");
        let table = query::run(&server.db.reader(), text, super::LONG).await.unwrap();
        assert_eq!(table.rows[0][0].as_deref(), expected, "{input}");
    }
    let huge = "{\"input\":{\"text\":1e200000}}".to_owned();
    assert_eq!(server.post_text("/api/runs", "application/json", huge).await.status, 201);
    let run = server.start_run().await;
    server.emit(&run, json!([{ "type": "message.completed", "payload": { "content": "whole" } }])).await;
    let said = "select (select count(text_of(input)) from runs), (select text from messages),
        first_run_id('1960-01-01')::text, first_run_id('-infinity')::text, first_run_id('infinity') > first_run_id(now())";
    let table = query::run(&server.db.reader(), said.to_owned(), super::LONG).await.unwrap();
    let zero = "00000000-0000-0000-0000-000000000000";
    assert_eq!(table.rows[0].iter().flatten().collect::<Vec<_>>(), ["3", "whole", zero, zero, "t"]);
}
