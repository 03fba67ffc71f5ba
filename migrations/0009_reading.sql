-- Reading by principal, and views that are quick on a large log.

-- The views used to read with the rights of whoever migrates. On the embedded database that is a superuser, before whom
-- row-level security steps aside; so they get an owner of their own:
--
--   runreel_viewer   owns the views; may select from the tables behind them, under the policies below
--   runreel_scoped   as `runreel_reader`, but sees the rows of one owner only, or none
--
-- Again the roles may be there already. Since Postgres 16 whoever makes a role is a member of it who may not act as it
-- until he has granted it to himself, so membership is asked for in the stronger sense; that goes for the roles of the
-- first migration too.
do $$
declare
    wanted text;
    strength text := case when current_setting('server_version_num')::int >= 160000 then 'set' else 'member' end;
begin
    foreach wanted in array array['runreel_viewer', 'runreel_scoped', 'runreel_app', 'runreel_writer',
                                  'runreel_retention', 'runreel_reader'] loop
        begin
            if not exists (select from pg_roles where rolname = wanted) then
                execute format('create role %I nologin', wanted);
            end if;
        exception when duplicate_object or unique_violation then
            null;
        end;
        if not pg_has_role(current_user, wanted, strength) then
            execute format('grant %I to %I', wanted, current_user);
        end if;
    end loop;
end
$$;

-- Whose rows a scoped reader sees. A member of `runreel_scoped` that is not named here sees none.
create table store.reader_scope (
    role_name name primary key,
    owner_id  text not null
);

-- By name, because a function that reads this table with its owner's rights cannot know who called it.
create function store.reader_owner(reader name) returns text
    language sql stable parallel safe security definer set search_path = pg_catalog as $$
    select owner_id from store.reader_scope where role_name = reader
$$;

-- Both questions of the policy depend on nothing but the role that asks: each is answered once per statement, and for
-- every row there remains a comparison. In a view `current_user` is who reads it, not who owns it.
do $$
declare
    name text;
begin
    foreach name in array array['run', 'run_event', 'thread', 'checkpoint', 'session', 'artifact'] loop
        execute format('create policy readers_see_what_they_may on store.%I for select to runreel_viewer using '
                       '((select pg_has_role(current_user, ''runreel_reader'', ''member'')) '
                       'or owner_id = (select store.reader_owner(current_user)))', name);
        execute format('grant select on store.%I to runreel_viewer', name);
    end loop;
end
$$;

-- Makes sure that there is a role which reads one owner's rows, and says its name. It runs with the rights of who calls
-- it, and a role that is missing takes CREATEROLE to make. Roles belong to the whole cluster and stay, so none is made
-- for an owner who has nothing (a name that was mistyped, say): he sees what `runreel_scoped` sees by itself, nothing.
create function store.scoped_reader(owner text, may_log_in boolean) returns name
    language plpgsql set search_path = pg_catalog as $$
declare
    reader name := 'runreel_reader_' || left(owner, 40);
    strength text := case when current_setting('server_version_num')::int >= 160000 then 'set' else 'member' end;
begin
    if owner !~ '^[0-9a-f]{64}$' then
        raise exception 'an owner is 64 hexadecimal digits' using errcode = 'invalid_parameter_value';
    end if;
    if not exists (select from store.run where owner_id = owner)
       and not exists (select from store.thread where owner_id = owner) then
        if may_log_in and exists (select from pg_roles where rolname = 'runreel_scoped' and not rolcanlogin) then
            alter role runreel_scoped login;
        end if;
        return 'runreel_scoped';
    end if;
    begin
        if not exists (select from pg_roles where rolname = reader) then
            execute format('create role %I nologin', reader);
        end if;
    exception when duplicate_object or unique_violation then
        null;
    end;
    if not pg_has_role(reader, 'runreel_scoped', 'member') then
        execute format('grant runreel_scoped to %I', reader);
    end if;
    if may_log_in and exists (select from pg_roles where rolname = reader and not rolcanlogin) then
        execute format('alter role %I login', reader);
    end if;
    if not pg_has_role(current_user, reader, strength) then
        execute format('grant %I to %I', reader, current_user);
    end if;
    insert into store.reader_scope (role_name, owner_id) values (reader, owner)
    on conflict (role_name) do update set owner_id = excluded.owner_id where reader_scope.owner_id <> excluded.owner_id;
    return reader;
end
$$;
revoke execute on function store.scoped_reader(text, boolean) from public;

-- The smallest run id of a moment. As `store.first_run_id`, but of functions that the planner may put in its place, so
-- that a comparison with it is a range of the primary key and passes over the months outside.
create function runreel.first_run_id(moment timestamptz) returns uuid language sql immutable parallel safe as $$
    select (lpad(to_hex(floor(extract(epoch from
                least(greatest(moment, timestamptz '1970-01-01 00:00:00+00'), timestamptz '9999-12-31 00:00:00+00')
                - timestamptz '1970-01-01 00:00:00+00') * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
comment on function runreel.first_run_id(timestamptz) is
    'The smallest id of a run that was made at this moment or later: run_id >= first_run_id(now() - interval ''7 days'') reads the newest months only.';

create function runreel.seen_owner() returns text language sql stable parallel safe
    return store.reader_owner(current_user);
comment on function runreel.seen_owner() is
    'The one owner whose rows this session sees; null when it sees those of all.';

-- A start and its end used to be brought together by a look-up per start, which for a start without an end reads the rest
-- of its run: a run of many of them cost their product. Now each run is read once. Backwards, every end begins a group of
-- the starts before it, so the first row of a start's group is the first end after it; group 0 has none. What a condition
-- says of `run_id` reaches `store.run` and through it the key of the log, also from a join.
create or replace view runreel.spans as
select r.run_id, s.span_id, s.parent_span_id, s.kind,
       coalesce(s.payload ->> 'name', s.payload ->> 'title', s.span_id) as name, s.role, s.agent, s.owner_id,
       case when s.ends = 0 then 'running' else split_part(s.end_type, '.', 2) end as status,
       s.seq as start_seq, case when s.ends > 0 then s.end_seq end as end_seq, s.at as started_at,
       case when s.ends > 0 then s.ended_at end as ended_at,
       case when s.ends > 0 then (extract(epoch from s.ended_at - s.at) * 1000)::float8 end as duration_ms
from store.run r
cross join lateral (
    select m.*, first_value(m.seq) over ending as end_seq, first_value(m.type) over ending as end_type,
           first_value(m.at) over ending as ended_at
    from (
        select e.*, count(*) filter (where e.is_end) over (partition by e.kind, e.span_id order by e.seq desc) as ends
        from (
            select e.seq, e.type, e.at, e.span_id, e.parent_span_id, e.role, e.agent, e.owner_id, e.payload,
                   split_part(e.type, '.', 1) as kind,
                   (e.type like '%.completed' or e.type like '%.failed') and e.type not like '%.%.%' as is_end
            from store.run_event e
            where e.run_id = r.run_id and e.span_id is not null and e.type <> 'run.started'
              and (e.type like '%.started' or e.type like '%.completed' or e.type like '%.failed'
                   or e.type = 'worker.spawned')
        ) e
    ) m
    window ending as (partition by m.kind, m.span_id, m.ends order by m.seq desc)
) s
where s.type like '%.started' or s.type = 'worker.spawned';

create or replace view runreel.tool_calls as
select r.run_id, s.span_id as tool_call_id, s.parent_span_id,
       coalesce(s.payload ->> 'name', s.payload ->> 'title', s.span_id) as name, s.role, s.agent, s.owner_id,
       case when s.ends = 0 then 'running' else split_part(s.end_type, '.', 2) end as status,
       s.seq as start_seq, case when s.ends > 0 then s.end_seq end as end_seq, s.at as started_at,
       case when s.ends > 0 then s.ended_at end as ended_at,
       case when s.ends > 0 then (extract(epoch from s.ended_at - s.at) * 1000)::float8 end as duration_ms,
       s.payload -> 'args' as args, case when s.ends > 0 then s.end_payload -> 'result' end as result,
       case when s.ends > 0 then s.end_payload -> 'error' end as error
from store.run r
cross join lateral (
    select m.*, first_value(m.seq) over ending as end_seq, first_value(m.type) over ending as end_type,
           first_value(m.at) over ending as ended_at, first_value(m.payload) over ending as end_payload
    from (
        select e.*, count(*) filter (where e.type <> 'tool.started') over (partition by e.span_id order by e.seq desc) as ends
        from store.run_event e
        where e.run_id = r.run_id and e.span_id is not null
          and e.type in ('tool.started', 'tool.completed', 'tool.failed')
    ) m
    window ending as (partition by m.span_id, m.ends order by m.seq desc)
) s
where s.type = 'tool.started';

create or replace view runreel.node_durations as
select r.run_id, s.node, s.owner_id, s.steps, s.duration_ms, s.longest_ms
from store.run r
cross join lateral (
    select t.node, t.owner_id, count(*) as steps, sum(t.duration_ms) as duration_ms, max(t.duration_ms) as longest_ms
    from (
        select m.type, m.ends, m.owner_id, coalesce(m.payload ->> 'name', m.payload ->> 'title', m.span_id) as node,
               (extract(epoch from first_value(m.at) over ending - m.at) * 1000)::float8 as duration_ms
        from (
            select e.*, count(*) filter (where e.type <> 'step.started')
                            over (partition by e.span_id order by e.seq desc) as ends
            from store.run_event e
            where e.run_id = r.run_id and e.span_id is not null
              and e.type in ('step.started', 'step.completed', 'step.failed')
        ) m
        window ending as (partition by m.span_id, m.ends order by m.seq desc)
    ) t
    where t.type = 'step.started' and t.ends > 0
    group by t.node, t.owner_id
) s;

-- What runs asked people, and what they said. There is an index of these events alone, so they are read all at once.
create view runreel.interrupts as
select q.run_id, q.span_id as interrupt_id, q.owner_id, r.thread_id, q.role, q.agent, q.payload ->> 'kind' as kind,
       q.payload ->> 'prompt' as prompt,
       case when q.answers > 0 then 'answered' when r.ended_at is not null then 'closed' else 'open' end as status,
       case when q.answers > 0 then q.answer ->> 'decision' end as decision,
       case when q.answers > 0 then q.answer -> 'value' end as value, q.seq as request_seq,
       case when q.answers > 0 then q.answer_seq end as answer_seq, q.at as requested_at,
       case when q.answers > 0 then q.answered_at end as answered_at,
       case when q.answers > 0 then (extract(epoch from q.answered_at - q.at) * 1000)::float8 end as waited_ms
from (
    select m.*, first_value(m.seq) over answer as answer_seq, first_value(m.at) over answer as answered_at,
           first_value(m.payload) over answer as answer
    from (
        select e.*, count(*) filter (where e.type = 'interrupt.resolved')
                        over (partition by e.run_id, e.span_id order by e.seq desc) as answers
        from store.run_event e
        where e.type in ('interrupt.requested', 'interrupt.resolved') and e.type like 'interrupt.%'
          and e.span_id is not null
    ) m
    window answer as (partition by m.run_id, m.span_id, m.answers order by m.seq desc)
) q
left join store.run r using (run_id)
where q.type = 'interrupt.requested';

-- What is text in the input of a run, in the shapes that the protocol names. It casts nothing to `jsonb`, so a number
-- that Postgres cannot hold stands in nobody's way.
create function runreel.text_of(value json) returns text language sql immutable parallel safe as $$
    select case json_typeof(value)
        when 'string' then value #>> '{}'
        when 'array' then (select string_agg(runreel.text_of(part), ' ' order by n)
                           from json_array_elements(value) with ordinality as parts(part, n)
                           where json_typeof(part) = 'object')
        when 'object' then coalesce(runreel.text_of(value -> 'text'), runreel.text_of(value -> 'task'),
                                    runreel.text_of(value -> 'content'), runreel.text_of(value -> 'messages'))
    end
$$;
comment on function runreel.text_of(json) is
    'The text of a run''s input: the input itself, or its `text`, `task`, `content` (a text or a list of parts) or `messages`; null when it has none.';

-- Content may also be a text itself.
create or replace view runreel.messages as
select e.run_id, e.seq, e.owner_id, r.thread_id, e.role, e.agent, e.span_id as message_id,
       coalesce(e.payload ->> 'role', 'assistant') as message_role,
       coalesce(
           (select string_agg(part ->> 'text', '' order by n)
            from json_array_elements(case json_typeof(e.payload -> 'content') when 'array' then e.payload -> 'content'
                                     else '[]'::json end) with ordinality as parts(part, n)
            where json_typeof(part) = 'object'),
           case json_typeof(e.payload -> 'content') when 'string' then e.payload ->> 'content' end,
           e.payload ->> 'text') as text,
       e.payload -> 'content' as content, e.at
from store.run_event e
left join store.run r using (run_id)
where e.type = 'message.completed';

-- All views to their owner, which may make them in the schema for as long as that takes. A view of a later migration
-- has to do the same; a test looks.
grant usage on schema runreel to runreel_scoped, runreel_viewer;
grant create on schema runreel to runreel_viewer;
do $$
declare
    view text;
begin
    for view in select viewname from pg_views where schemaname = 'runreel' loop
        execute format('alter view runreel.%I owner to runreel_viewer', view);
        execute format('grant select on runreel.%I to runreel_reader, runreel_scoped', view);
    end loop;
end
$$;
revoke create on schema runreel from runreel_viewer;
