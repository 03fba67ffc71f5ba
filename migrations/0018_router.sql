-- A run that says where a message goes is no agent's: lists, feeds and counts leave it out unless it is asked for.
alter table store.run drop constraint run_role_check;
alter table store.run add constraint run_role_check check (role in ('supervisor', 'worker', 'agent', 'router'));
-- By the owner of the table, whoever is a member of which role.
alter table store.run no force row level security;
update store.run set role = 'router' where agent = 'router' and origin_channel is not null and thread_id is null;
alter table store.run force row level security;

-- An answer is promised before its run is there.
create index inbound_open_by_run on store.inbound (run_id) where state in ('open', 'held');

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
