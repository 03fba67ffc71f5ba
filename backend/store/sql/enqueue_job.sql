-- $1 a run, $2 its owner. Nothing happens when it is a job already, has no agent, or somebody has started it.
with recursive up as (
    select run_id, parent_run_id, owner_id, agent, thread_id, status, created_at, 0 as n
    from store.run where run_id = $1 and owner_id = $2
    union all
    select p.run_id, p.parent_run_id, p.owner_id, p.agent, p.thread_id, p.status, p.created_at, up.n + 1
    from up cross join lateral (select * from store.run p where p.run_id = up.parent_run_id limit 1) p
    where p.owner_id = up.owner_id and p.thread_id = up.thread_id and up.n < 64
)
insert into store.job (run_id, owner_id, agent, thread_id, line_run_id, line_at, created_at)
select r.run_id, r.owner_id, r.agent, r.thread_id, line.run_id, line.created_at, r.created_at
from up r cross join (select run_id, created_at from up order by n desc limit 1) line
where r.n = 0 and r.agent is not null and r.status = 'queued'
on conflict (run_id) do nothing
