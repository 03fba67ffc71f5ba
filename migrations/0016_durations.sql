-- Durations that are a step's own, where a run comes from, and conversations that are whole on every server.

-- Who wrote the message that a run came of, where the channel tells.
alter table store.run add column origin_user text;

-- Agents that somebody serves: a server, or a runner that is connected to one. A message for an agent that nobody has
-- served for a while is told that there is no such agent.
create table store.served_agent (
    agent     text        primary key,
    served_at timestamptz not null
);
grant select, insert, update, delete on store.served_agent to runreel_writer;

-- What was said in a conversation, line by line. Files hold the same for people, on the disk of the server that took the
-- message or gave the answer; whoever asks the API gets it from here. `line_key` makes a line that is written again one.
create table store.session_line (
    line_no   bigint generated always as identity primary key,
    owner_id  text   not null,
    thread_id text   not null collate "C",
    line_key  text   not null collate "C",
    line      text   not null,
    unique (owner_id, thread_id, line_key)
);
create index session_line_by_thread on store.session_line (owner_id, thread_id, line_no);

alter table store.session_line enable row level security;
alter table store.session_line force row level security;
create policy app_keeps_its_owner on store.session_line to runreel_app
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());
create policy writer_appends on store.session_line to runreel_writer using (true) with check (true);
grant select, insert on store.session_line to runreel_app;
grant select, insert on store.session_line to runreel_writer;

-- Every statement of the program finds its rows by an index, and this one had none.
create index api_token_by_owner on store.api_token (owner_id, created_at desc);

-- The time that an event says something took, milliseconds; null when it says none that is a time.
create function store.own_ms(payload json) returns float8 language sql immutable parallel safe as $$
    select case when json_typeof(payload -> 'duration_ms') = 'number'
                     and payload ->> 'duration_ms' ~ '^[0-9]{1,15}(\.[0-9]{1,40})?([eE]-?[0-9]{1,2})?$'
                then (payload ->> 'duration_ms')::float8 end
$$;

-- A producer that was cut off from the server tells of its run later, so an event may be older than the run's
-- `run.started`. What such runs say from now on moves their start; of older ones the difference is nothing.
create or replace view runreel.runs as
select run_id, root_run_id, parent_run_id, owner_id, thread_id, session_id, agent, role, title, status, input, output,
       error, metadata, tags, last_seq, created_at, started_at, ended_at, last_event_at,
       greatest((extract(epoch from coalesce(ended_at, last_event_at) - started_at) * 1000)::float8, 0) as duration_ms
from store.run;

-- What a step took is what its end says it took, and otherwise the time from its start to its end without that in which
-- the run was interrupted: a person's time is nobody's duration. The rest of the time between the two, for people and
-- for commits, is `waiting_ms`. `asked_ms` sums up, along the run, how long it has been interrupted.
create or replace view runreel.spans as
select r.run_id, s.span_id, s.parent_span_id, s.kind,
       coalesce(s.payload ->> 'name', s.payload ->> 'title', s.span_id) as name, s.role, s.agent, s.owner_id,
       case when s.ends = 0 then 'running' else split_part(s.end_type, '.', 2) end as status,
       s.seq as start_seq, case when s.ends > 0 then s.end_seq end as end_seq, s.at as started_at,
       case when s.ends > 0 then s.ended_at end as ended_at, t.duration_ms,
       greatest(t.between_ms - t.duration_ms, 0) as waiting_ms
from store.run r
cross join lateral (
    select m.*, first_value(m.seq) over ending as end_seq, first_value(m.type) over ending as end_type,
           first_value(m.at) over ending as ended_at, first_value(m.payload) over ending as end_payload,
           first_value(m.asked_ms) over ending as asked_at_end_ms
    from (
        select e.*, count(*) filter (where e.is_end) over (partition by e.kind, e.span_id order by e.seq desc) as ends
        from (
            select e.*, coalesce(sum(e.answered_ms) over (order by e.seq), 0) as asked_ms
            from (
                select e.seq, e.type, e.at, e.span_id, e.parent_span_id, e.role, e.agent, e.owner_id, e.payload,
                       split_part(e.type, '.', 1) as kind,
                       (e.type like '%.completed' or e.type like '%.failed') and e.type not like '%.%.%' as is_end,
                       case when e.type = 'run.resumed' and lag(e.type) over life = 'run.interrupted'
                                 then greatest((extract(epoch from e.at - lag(e.at) over life) * 1000)::float8, 0) end as answered_ms
                from store.run_event e
                where e.run_id = r.run_id
                  and (e.type in ('run.interrupted', 'run.waiting', 'run.resumed')
                       or e.span_id is not null and e.type <> 'run.started'
                          and (e.type like '%.started' or e.type like '%.completed' or e.type like '%.failed'
                               or e.type = 'worker.spawned'))
                window life as (partition by e.type in ('run.interrupted', 'run.waiting', 'run.resumed') order by e.seq)
            ) e
        ) e
    ) m
    window ending as (partition by m.kind, m.span_id, m.ends order by m.seq desc)
) s
cross join lateral (
    select case when s.ends > 0 then b.between_ms end as between_ms,
           case when s.ends > 0
                then coalesce(store.own_ms(s.end_payload), greatest(b.between_ms - (s.asked_at_end_ms - s.asked_ms), 0))
           end as duration_ms
    from (select greatest((extract(epoch from s.ended_at - s.at) * 1000)::float8, 0) as between_ms) b
) t
where s.type like '%.started' or s.type = 'worker.spawned';

create or replace view runreel.tool_calls as
select r.run_id, s.span_id as tool_call_id, s.parent_span_id,
       coalesce(s.payload ->> 'name', s.payload ->> 'title', s.span_id) as name, s.role, s.agent, s.owner_id,
       case when s.ends = 0 then 'running' else split_part(s.end_type, '.', 2) end as status,
       s.seq as start_seq, case when s.ends > 0 then s.end_seq end as end_seq, s.at as started_at,
       case when s.ends > 0 then s.ended_at end as ended_at, t.duration_ms,
       s.payload -> 'args' as args, case when s.ends > 0 then s.end_payload -> 'result' end as result,
       case when s.ends > 0 then s.end_payload -> 'error' end as error,
       greatest(t.between_ms - t.duration_ms, 0) as waiting_ms
from store.run r
cross join lateral (
    select m.*, first_value(m.seq) over ending as end_seq, first_value(m.type) over ending as end_type,
           first_value(m.at) over ending as ended_at, first_value(m.payload) over ending as end_payload,
           first_value(m.asked_ms) over ending as asked_at_end_ms
    from (
        select e.*, coalesce(sum(e.answered_ms) over (order by e.seq), 0) as asked_ms,
               count(*) filter (where e.type in ('tool.completed', 'tool.failed'))
                   over (partition by e.span_id order by e.seq desc) as ends
        from (
            select e.*, case when e.type = 'run.resumed' and lag(e.type) over life = 'run.interrupted'
                                 then greatest((extract(epoch from e.at - lag(e.at) over life) * 1000)::float8, 0) end as answered_ms
            from store.run_event e
            where e.run_id = r.run_id
              and (e.type in ('run.interrupted', 'run.waiting', 'run.resumed')
                   or e.span_id is not null and e.type in ('tool.started', 'tool.completed', 'tool.failed'))
            window life as (partition by e.type in ('run.interrupted', 'run.waiting', 'run.resumed') order by e.seq)
        ) e
    ) m
    window ending as (partition by m.span_id, m.ends order by m.seq desc)
) s
cross join lateral (
    select case when s.ends > 0 then b.between_ms end as between_ms,
           case when s.ends > 0
                then coalesce(store.own_ms(s.end_payload), greatest(b.between_ms - (s.asked_at_end_ms - s.asked_ms), 0))
           end as duration_ms
    from (select greatest((extract(epoch from s.ended_at - s.at) * 1000)::float8, 0) as between_ms) b
) t
where s.type = 'tool.started';

-- A router's steps are told by their ends alone, which say how long each took.
create or replace view runreel.node_durations as
select r.run_id, s.node, s.owner_id, s.steps, s.duration_ms, s.longest_ms, s.waiting_ms
from store.run r
cross join lateral (
    select t.node, t.owner_id, count(*) as steps, sum(d.duration_ms) as duration_ms, max(d.duration_ms) as longest_ms,
           sum(greatest(t.between_ms - d.duration_ms, 0)) as waiting_ms
    from (
        select m.type, m.starts, m.ends, m.owner_id, coalesce(m.payload ->> 'name', m.payload ->> 'title', m.span_id) as node,
               greatest((extract(epoch from first_value(m.at) over ending - m.at) * 1000)::float8, 0) as between_ms,
               first_value(m.asked_ms) over ending - m.asked_ms as asked_ms,
               store.own_ms(first_value(m.payload) over ending) as own_ms
        from (
            select e.*, coalesce(sum(e.answered_ms) over (order by e.seq), 0) as asked_ms,
                   count(*) filter (where e.type = 'step.started') over (partition by e.span_id) as starts,
                   count(*) filter (where e.type in ('step.completed', 'step.failed'))
                       over (partition by e.span_id order by e.seq desc) as ends
            from (
                select e.*, case when e.type = 'run.resumed' and lag(e.type) over life = 'run.interrupted'
                                 then greatest((extract(epoch from e.at - lag(e.at) over life) * 1000)::float8, 0) end as answered_ms
                from store.run_event e
                where e.run_id = r.run_id
                  and (e.type in ('run.interrupted', 'run.waiting', 'run.resumed')
                       or e.span_id is not null and e.type in ('step.started', 'step.completed', 'step.failed'))
                window life as (partition by e.type in ('run.interrupted', 'run.waiting', 'run.resumed') order by e.seq)
            ) e
        ) m
        window ending as (partition by m.span_id, m.ends order by m.seq desc)
    ) t
    cross join lateral (select coalesce(t.own_ms, greatest(t.between_ms - t.asked_ms, 0)) as duration_ms) d
    where t.type = 'step.started' and t.ends > 0 or t.type in ('step.completed', 'step.failed') and t.starts = 0
    group by t.node, t.owner_id
) s;

do $$
declare
    about record;
begin
    for about in select * from (values
('runs', 'started_at', 'its first `run.started`, or the time of an event that is older than that; null before'),
('runs', 'created_at', 'when it was made, as its producer or else the server says'),
('spans', 'duration_ms', 'milliseconds it took as its end says, and otherwise between the two without the time in which the run was interrupted; null while it runs'),
('spans', 'waiting_ms', 'the rest of the time between the two, for people and for commits; null while it runs'),
('tool_calls', 'duration_ms', 'milliseconds it took as its end says, and otherwise between the two without the time in which the run was interrupted; null while it runs'),
('tool_calls', 'waiting_ms', 'the rest of the time between the two, for people and for commits; null while it runs'),
('node_durations', 'duration_ms', 'milliseconds, all of them together: what their ends say, as in `spans`'),
('node_durations', 'waiting_ms', 'the rest of the time between their starts and ends, all of them together')
    ) as said (view, name, meaning) loop
        execute format('comment on column runreel.%I.%I is %L', about.view, about.name, about.meaning);
    end loop;
end
$$;
