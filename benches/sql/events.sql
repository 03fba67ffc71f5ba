-- Makes a log of `bench.events` events, of about 200 each, over the 90 days before `bench.until`: the same rows each
-- time. What varies comes from hashes of the run's number and the event's seq, never from `random()`.
--
-- Of twenty runs one is a supervisor and three are its workers, six belong to the sessions of a channel, nine to agents
-- on threads of their own, one is a job of the night. It writes the tables as their owner: nothing but a bench does.

select store.ensure_partitions(current_setting('bench.until')::timestamptz - interval '90 days', 5);

-- A number from 0 to 1 that depends on its arguments alone.
create function pg_temp.dice(n bigint, salt bigint) returns float8 language sql immutable parallel safe as $$
    select (hashint8extended(n, salt) & 1048575) / 1048576.0::float8
$$;

create temp table bench_run as
with sizes as (
    select (current_setting('bench.events')::bigint / 200)::int as runs, current_setting('bench.until')::timestamptz as until
), numbered as (
    select n, (n - 1) % 20 as place, (n - 1) / 20 as family, s.runs,
           -- Workers begin where their supervisor did. Most begins in the day: the sine moves the night's runs there.
           (case when (n - 1) % 20 between 1 and 3 then n - (n - 1) % 20 else n end) * 90.0::float8 / (s.runs + 1) as days,
           s.until - interval '90 days' as since
    from sizes s, generate_series(1, s.runs) n
), timed as (
    select *, since + (floor(days) + (days - floor(days)) - 0.13 * sin(2 * pi() * (days - floor(days)))) * interval '1 day'
              + case when place between 1 and 3 then place * interval '700 ms' else interval '0' end as created_at
    from numbered
), chosen as (
    select *, pg_temp.dice(n, 1) as fate, 12 + floor(pg_temp.dice(n, 2) * 18)::int as steps,
           case when place = 0 then 'lead' when place < 4 then 'reader' when place < 10 then 'support'
                when place < 16 then 'coder' when place < 19 then 'researcher' else 'nightly' end as agent
    from timed
)
select n, place, family, agent, created_at,
       (lpad(to_hex(floor(extract(epoch from created_at) * 1000)::bigint), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8'
        || substr(md5(n::text), 4, 15))::uuid as run_id,
       case when place = 0 then 'supervisor' when place < 4 then 'worker' else 'agent' end as role,
       case when fate < 0.82 or place < 4 and fate < 0.95 then 'completed' when fate < 0.94 or place < 4 then 'failed'
            when fate < 0.96 then 'cancelled' when fate < 0.98 then 'running' else 'interrupted' end as status,
       -- One in nine asks a person in its fifth step; an interrupted one still waits for the answer.
       place >= 4 and (fate >= 0.98 or pg_temp.dice(n, 3) < 0.11) as asks,
       case when place between 4 and 9 then 'telegram_' || 100 + n % 60 || '_s' || 1 + family / 10
            when place between 10 and 18 then agent || '-' || n % 150 end as thread_id,
       case when place between 4 and 9 then md5('session' || n % 60 || '/' || family / 10) end as session_id,
       (100 + n % 60)::text as chat_id, steps,
       2 + case when place >= 4 and fate >= 0.98 then 43 else 10 * steps end as body
from chosen;
create unique index on bench_run (n);
analyze bench_run;

-- Each event with what happened in it, and how long after the one before.
create temp table bench_event as
with placed as (
    select r.*, seq, (seq - 3) / 10 as k, (seq - 3) % 10 as j, n * 4096 + seq as roll,
           (array['search', 'fetch_page', 'run_shell', 'read_file', 'write_file'])
               [1 + floor(pg_temp.dice(n * 4096 + (seq - 3) / 10 * 3 + ((seq - 3) % 10 - 1) / 2, 4) ^ 1.6 * 5)::int] as tool
    from bench_run r
    cross join lateral generate_series(1, r.body + (r.status in ('completed', 'failed', 'cancelled'))::int) seq
), named as (
    select *,
           case when seq = 1 then 'run.created' when seq = 2 then 'run.started' when seq > body then 'run.' || status
                when place = 0 and k = 2 and j between 1 and 8 then
                    (array['worker.spawned', 'worker.spawned', 'worker.spawned', 'run.waiting', 'run.resumed',
                           'worker.completed', 'worker.completed', 'worker.completed'])[j]
                when asks and k = 4 and j between 1 and 4 then
                    (array['interrupt.requested', 'run.interrupted', 'interrupt.resolved', 'run.resumed'])[j]
                when j = 0 then 'step.started' when j = 9 then 'step.completed' when j = 7 then 'message.completed'
                when j = 8 and k = 3 and agent = 'coder' then 'artifact.created' when j = 8 then 'log.info'
                when j in (1, 3, 5) then 'tool.started'
                when pg_temp.dice(roll, 5) < case tool when 'fetch_page' then 0.09 when 'run_shell' then 0.05 else 0.01 end
                    then 'tool.failed'
                else 'tool.completed' end as type
    from placed
)
select n, seq, run_id, type, role, agent, roll, k, j,
       case split_part(type, '.', 1) when 'step' then 's' || k when 'tool' then 't' || k || '-' || (j - 1) / 2
            when 'message' then 'm' || k when 'interrupt' then 'ask'
            when 'worker' then 'w' || case when j < 4 then j else j - 5 end end as span_id,
       case when type like 'tool.%' then 's' || k end as parent_span_id,
       case when type = 'artifact.created' then 'a-' || n end as event_id,
       (case when type in ('tool.completed', 'tool.failed') then
                 (case tool when 'search' then 300 when 'fetch_page' then 900 when 'run_shell' then 2500 else 15 end)
                 * exp(3 * pg_temp.dice(roll, 6) - 1)
             when type = 'message.completed' then 2500 * exp(2 * pg_temp.dice(roll, 6) - 1)
             when type = 'interrupt.resolved' then 60000 * exp(5 * pg_temp.dice(roll, 6))
             when type = 'run.resumed' and place = 0 then 90000 * exp(2 * pg_temp.dice(roll, 6))
             when seq = 1 then 0 when seq = 2 then 40 + 400 * pg_temp.dice(roll, 6)
             else 1 + 3 * pg_temp.dice(roll, 6) end) * interval '1 ms' as took,
       (case when seq = 1 then json_build_object('agent', agent, 'title', 'Run ' || n)
             when type = 'run.completed' then json_build_object('output', 'Done in ' || steps || ' steps.')
             when type = 'run.failed' then json_build_object('error', json_build_object('code',
                 (array['model_error', 'tool_error', 'step_limit'])[1 + floor(pg_temp.dice(n, 7) * 3)::int],
                 'message', 'It could not go on after step ' || k || '.'))
             when type like 'step.%' then json_build_object('name', (array['plan', 'act', 'look', 'write'])[1 + k % 4])
             when type = 'tool.started' then json_build_object('name', tool, 'args', json_build_object('q',
                 'subject ' || floor(pg_temp.dice(roll, 8) ^ 3 * 400)::int, 'limit', 10, 'note', repeat('a', 60)))
             when type = 'tool.completed' then json_build_object('name', tool, 'result', repeat('found ', 30))
             when type = 'tool.failed' then json_build_object('name', tool, 'error', json_build_object('code',
                 (array['timeout', 'not_found', 'refused'])[1 + floor(pg_temp.dice(roll, 9) * 3)::int],
                 'message', tool || ' answered nothing'))
             when type = 'message.completed' then json_build_object('role', 'assistant', 'content', json_build_array(
                 json_build_object('type', 'text', 'text', 'Step ' || k || ': ' || repeat('so it is ', 25))),
                 'model', (array['small', 'large'])[1 + n % 2], 'usage', json_build_object('input_tokens',
                 800 + 400 * k + floor(pg_temp.dice(roll, 10) * 500)::int, 'output_tokens',
                 50 + floor(pg_temp.dice(roll, 11) * 700)::int))
             when type like 'worker.%' then json_build_object('run_id', (select w.run_id from bench_run w
                 where w.n = named.n + case when j < 4 then j else j - 5 end), 'name', 'reader')
             when type = 'artifact.created' then json_build_object('artifact_id', md5('artifact' || n)::uuid,
                 'name', 'report-' || n || '.md', 'media_type', 'text/markdown', 'size', 1000 + n, 'sha256',
                 encode(sha256(n::text::bytea), 'hex'))
             when type like 'interrupt.%' then json_build_object('question', 'Shall I go on?')
             else json_build_object('message', 'note ' || seq, 'data', repeat('x', 80)) end) as payload
from named;

-- Times are sums; a position is the place in the order of all times.
create temp table bench_log as
select e.*, row_number() over (order by e.at, e.n, e.seq) as position
from (select b.*, r.created_at + sum(b.took) over (partition by b.n order by b.seq) as at
      from bench_event b join bench_run r using (n)) e;

insert into store.run_event (run_id, seq, lane, position, owner_id, type, role, agent, span_id, parent_span_id, event_id,
                             at, payload)
select run_id, seq, 0, position, current_setting('bench.owner_' || n / 20 % 4), type, role, agent, span_id, parent_span_id,
       event_id, at, payload
from bench_log order by position;

insert into store.run (run_id, lane, owner_id, root_run_id, parent_run_id, depth, thread_id, session_id, agent, role,
                       origin_channel, origin_chat, title, input, metadata, tags, request_hash, status, last_seq,
                       last_position, output, error, created_at, started_at, ended_at, last_event_at)
select r.run_id, 0, current_setting('bench.owner_' || r.n / 20 % 4), coalesce(p.run_id, r.run_id), p.run_id,
       (p.run_id is not null)::int, r.thread_id, r.session_id, r.agent, r.role,
       case when r.session_id is not null then 'telegram' end, case when r.session_id is not null then r.chat_id end,
       'Run ' || r.n, json_build_object('text', 'Do it for the ' || r.n || 'th time.'), '{}',
       array[(array['prod', 'staging', 'dev'])[1 + r.n % 3]] || case when r.n % 7 = 0 then array['nightly'] else '{}' end,
       sha256(r.n::text::bytea), r.status, l.last_seq, l.last_position,
       case when r.status = 'completed' then to_json('Done.'::text) end,
       case when r.status = 'failed' then l.error end, r.created_at, l.started_at,
       case when r.status in ('completed', 'failed', 'cancelled') then l.last_at end, l.last_at
from bench_run r
join (select n, max(seq) as last_seq, max(position) as last_position, max(at) as last_at,
             min(at) filter (where seq = 2) as started_at,
             (array_agg(payload -> 'error') filter (where type = 'run.failed'))[1] as error
      from bench_log group by n) l using (n)
left join bench_run p on r.place between 1 and 3 and p.n = r.n - r.place;

update store.lane set position = (select max(position) from bench_log) where lane = 0;

insert into store.thread (owner_id, thread_id, created_at, updated_at)
select owner_id, thread_id, min(created_at), max(last_event_at) from store.run where thread_id is not null
group by owner_id, thread_id;

insert into store.chat (owner_id, channel, chat_id, thread_base, counter)
select owner_id, 'telegram', origin_chat, 'telegram_' || origin_chat, max(split_part(thread_id, '_s', 2)::int)
from store.run where session_id is not null group by owner_id, origin_chat;

insert into store.session (owner_id, session_id, channel, chat_id, thread_id, number, started_at, last_activity_at, ended_at,
                           end_reason, messages, answers)
select owner_id, session_id, 'telegram', origin_chat, min(thread_id), min(split_part(thread_id, '_s', 2)::int),
       min(created_at), max(last_event_at), max(last_event_at) + interval '30 minutes', 'idle', count(*),
       count(*) filter (where status = 'completed')
from store.run where session_id is not null group by owner_id, session_id, origin_chat;

insert into store.content (sha256, size) select sha256(n::text::bytea), 1000 + n from bench_log where type = 'artifact.created';
insert into store.artifact (artifact_id, owner_id, run_id, event_id, name, media_type, size, sha256, created_at, touched_at,
                            settled)
select md5('artifact' || n)::uuid, current_setting('bench.owner_' || n / 20 % 4), run_id, event_id,
       'report-' || n || '.md', 'text/markdown', 1000 + n, sha256(n::text::bytea), at, at, true
from bench_log where type = 'artifact.created';

drop table bench_run, bench_event, bench_log;
analyze store.run, store.run_event, store.thread, store.session, store.artifact;

-- Calls of models as the writer stores them: one of the two models has a price.
insert into store.model_call (run_id, seq, owner_id, model, at, input_tokens, cached_tokens, cache_write_tokens, output_tokens,
                              reasoning_tokens, cost_usd)
select run_id, seq, owner_id, payload ->> 'model', at, (payload -> 'usage' ->> 'input_tokens')::bigint, 0, 0,
       (payload -> 'usage' ->> 'output_tokens')::bigint, 0,
       case payload ->> 'model' when 'small' then ((payload -> 'usage' ->> 'input_tokens')::numeric * 0.15
                                                   + (payload -> 'usage' ->> 'output_tokens')::numeric * 0.6) / 1000000 end
from store.run_event where type = 'message.completed';

update store.run r
set calls = s.calls, input_tokens = s.input_tokens, output_tokens = s.output_tokens, cost_usd = coalesce(s.cost_usd, 0),
    unpriced_calls = s.calls - s.priced
from (select run_id, count(*) as calls, sum(input_tokens) as input_tokens, sum(output_tokens) as output_tokens,
             sum(cost_usd) as cost_usd, count(cost_usd) as priced
      from store.model_call group by run_id) s
where s.run_id = r.run_id;
