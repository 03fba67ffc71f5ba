-- What was said in these runs, and which tools were called: run after run, as they stand in the list. Looked for from
-- the place in the list and the seq after which to go on; so each page reads little more than it gives.
with wanted as materialized (
    select r.place, r.run_id, e.seq
    from unnest($2::uuid[]) with ordinality as r (run_id, place)
    cross join lateral (
        select e.seq from store.run_event e
        where e.run_id = r.run_id and e.owner_id = $1 and e.type in ('message.completed', 'tool.started')
          and e.seq > case when r.place = $3::bigint then $4::bigint else 0 end
        order by e.seq
        limit $5
    ) e
    where r.place >= $3::bigint
    order by r.place, e.seq
    limit $5
)
select w.place as "place!", e.run_id, e.seq, e.type = 'tool.started' as "is_tool!", e.span_id,
       e.payload::text as "payload!"
from wanted w
join store.run_event e on e.run_id = w.run_id and e.seq = w.seq and e.owner_id = $1
order by w.place, e.seq
