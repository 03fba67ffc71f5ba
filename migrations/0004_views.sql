-- Views for people. Their names and columns are a promise; docs/sql.md describes them and a test compares the two.
-- They read with the rights of their owner, so a reader of them needs no right on the tables.

create view runreel.runs as
select run_id, root_run_id, parent_run_id, owner_id, thread_id, session_id, agent, role, title, status, input, output,
       error, metadata, tags, last_seq, created_at, started_at, ended_at, last_event_at,
       (extract(epoch from coalesce(ended_at, last_event_at) - started_at) * 1000)::float8 as duration_ms
from store.run;

create view runreel.run_events as
select e.run_id, e.seq, e.position, e.type, e.role, e.agent, e.owner_id, r.thread_id, e.span_id, e.parent_span_id,
       e.event_id, e.at, e.payload
from store.run_event e
left join store.run r using (run_id);

-- A span is a start and the end with the same family and span id, in one run.
create view runreel.spans as
select s.run_id, s.span_id, s.parent_span_id, split_part(s.type, '.', 1) as kind,
       coalesce(s.payload ->> 'name', s.payload ->> 'title', s.span_id) as name, s.role, s.agent, s.owner_id,
       case when e.seq is null then 'running' else split_part(e.type, '.', 2) end as status,
       s.seq as start_seq, e.seq as end_seq, s.at as started_at, e.at as ended_at,
       (extract(epoch from e.at - s.at) * 1000)::float8 as duration_ms
from store.run_event s
left join lateral (
    select e.seq, e.type, e.at
    from store.run_event e
    where e.run_id = s.run_id and e.span_id = s.span_id and e.seq > s.seq
      and e.type in (split_part(s.type, '.', 1) || '.completed', split_part(s.type, '.', 1) || '.failed')
    order by e.seq
    limit 1
) e on true
where s.type like '%.started' and s.type <> 'run.started' and s.span_id is not null
   or s.type = 'worker.spawned' and s.span_id is not null;

create view runreel.tool_calls as
select s.run_id, s.span_id as tool_call_id, s.parent_span_id, s.name, s.role, s.agent, s.owner_id, s.status, s.start_seq,
       s.end_seq, s.started_at, s.ended_at, s.duration_ms, a.payload -> 'args' as args,
       z.payload -> 'result' as result, z.payload -> 'error' as error
from runreel.spans s
join store.run_event a on a.run_id = s.run_id and a.seq = s.start_seq
left join store.run_event z on z.run_id = s.run_id and z.seq = s.end_seq
where s.kind = 'tool';

create view runreel.node_durations as
select run_id, name as node, owner_id, count(*) as steps, sum(duration_ms) as duration_ms,
       max(duration_ms) as longest_ms
from runreel.spans
where kind = 'step' and end_seq is not null
group by run_id, name, owner_id;

create view runreel.messages as
select e.run_id, e.seq, e.owner_id, r.thread_id, e.role, e.agent, e.span_id as message_id,
       coalesce(e.payload ->> 'role', 'assistant') as message_role,
       coalesce(
           (select string_agg(part ->> 'text', '' order by n)
            from json_array_elements(case json_typeof(e.payload -> 'content') when 'array' then e.payload -> 'content'
                                     else '[]'::json end) with ordinality as parts(part, n)
            where json_typeof(part) = 'object'),
           e.payload ->> 'text') as text,
       e.payload -> 'content' as content, e.at
from store.run_event e
left join store.run r using (run_id)
where e.type = 'message.completed';

create view runreel.token_usage as
select e.run_id, e.seq, e.owner_id, e.agent, e.payload ->> 'model' as model, u.key as kind,
       (u.value #>> '{}')::float8 as tokens, e.at
from store.run_event e
cross join lateral json_each(case json_typeof(e.payload -> 'usage') when 'object' then e.payload -> 'usage'
                             else '{}'::json end) u
where e.type like '%.completed' and json_typeof(u.value) = 'number'
      and (u.value #>> '{}') ~ '^-?[0-9]{1,18}(\.[0-9]{1,18})?$';

-- Sessions, threads and artifacts as far as runs tell of them.
create view runreel.sessions as
select owner_id, session_id, min(thread_id) as thread_id, count(*) as runs, min(created_at) as first_run_at,
       max(last_event_at) as last_event_at
from store.run
where session_id is not null
group by owner_id, session_id;

create view runreel.threads as
select owner_id, thread_id, count(*) as runs, min(created_at) as first_run_at, max(last_event_at) as last_event_at
from store.run
where thread_id is not null
group by owner_id, thread_id;

create view runreel.artifacts as
select e.run_id, e.seq, e.owner_id, e.payload ->> 'artifact_id' as artifact_id, e.payload ->> 'name' as name,
       e.payload ->> 'media_type' as media_type, (substring(e.payload ->> 'size' from '^[0-9]{1,18}$'))::bigint as size,
       e.payload ->> 'sha256' as sha256, e.at as created_at
from store.run_event e
where e.type = 'artifact.created';

grant select on all tables in schema runreel to runreel_reader;
