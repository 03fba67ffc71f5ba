-- One run of 200 000 events, a day before `bench.until`: tool calls inside steps, and 5 000 calls that never end.
create temp table heavy on commit drop as
select runreel.first_run_id(current_setting('bench.until')::timestamptz - interval '1 day') as run_id,
       current_setting('bench.until')::timestamptz - interval '1 day' as since, current_setting('bench.owner_0') as owner_id,
       (select max(position) from store.run_event) as position;

insert into store.run_event (run_id, seq, lane, position, owner_id, type, role, agent, span_id, at, payload)
select run_id, seq, 0, position + seq, owner_id,
       case when seq = 1 then 'run.created' when seq = 2 then 'run.started' when seq % 40 = 3 then 'tool.started'
            else (array['step.started', 'tool.started', 'tool.completed', 'step.completed'])[1 + seq % 4] end,
       'agent', 'heavy',
       case when seq % 40 = 3 and seq > 2 then 'open' || seq when seq > 2 then (array['s', 't', 't', 's'])[1 + seq % 4] || seq / 4 end,
       since + seq * interval '10 ms',
       json_build_object('name', 'tool-' || seq / 4 % 7, 'args', json_build_object('q', repeat('a', 60)), 'result',
                         repeat('found ', 20))
from heavy, generate_series(1, 200000) seq;

insert into store.run (run_id, lane, owner_id, root_run_id, agent, role, metadata, tags, request_hash, status, last_seq,
                       last_position, created_at, started_at, last_event_at)
select run_id, 0, owner_id, run_id, 'heavy', 'agent', '{}', '{}', '', 'running', 200000, position + 200000, since, since,
       since + interval '2000 seconds'
from heavy;
