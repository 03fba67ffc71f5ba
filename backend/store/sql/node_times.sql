-- $1 a run, $2 its owner. As the view `node_durations`, for whoever may not read that.
select s.node as "node!", sum(d.duration_ms) as "duration_ms!",
       sum(greatest(s.between_ms - d.duration_ms, 0)) as "waiting_ms!"
from (
    select m.type, m.starts, m.ends, left(coalesce(m.payload ->> 'name', m.payload ->> 'title', m.span_id), 256) as node,
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
            where e.run_id = $1 and e.owner_id = $2
              and (e.type in ('run.interrupted', 'run.waiting', 'run.resumed')
                   or e.span_id is not null and e.type in ('step.started', 'step.completed', 'step.failed'))
            window life as (partition by e.type in ('run.interrupted', 'run.waiting', 'run.resumed') order by e.seq)
        ) e
    ) m
    window ending as (partition by m.span_id, m.ends order by m.seq desc)
) s
cross join lateral (select coalesce(s.own_ms, greatest(s.between_ms - s.asked_ms, 0)) as duration_ms) d
where s.type = 'step.started' and s.ends > 0 or s.type in ('step.completed', 'step.failed') and s.starts = 0
group by s.node
