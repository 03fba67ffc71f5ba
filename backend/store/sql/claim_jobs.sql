-- $1 agents, $2 an owner or null for all, $3 now, $4 how many lapses end a job, $5 ids for the new leases, $6 who,
-- $7 the session, $8 length of the lease in milliseconds, $9 its end.
--
-- The row of a job is locked before it is given away, and a locked one is passed over: whoever is first has it.
with ready as (
    select j.run_id
    from store.job j
    join store.run r on r.run_id = j.run_id
    where j.agent = any ($1)
      and ($2::text is null or j.owner_id = $2)
      and (j.lease_id is null or j.lease_until <= $3)
      and j.lapses + (j.lease_id is not null)::int < $4
      -- A run that was never assigned and is not queued has been started by somebody else: it is no job any more.
      and (r.status = 'queued'
           or j.attempt > 0 and r.status = 'running'
           or j.attempt > 0 and r.status = 'waiting' and not exists (
               select from store.run c
               where c.parent_run_id = j.run_id and c.status not in ('completed', 'failed', 'cancelled')))
      -- Nobody works in this thread before its turn, nor while somebody does.
      and not exists (
          select from store.job o
          join store.run w on w.run_id = o.run_id
          where o.owner_id = j.owner_id and o.thread_id = j.thread_id and o.line_run_id <> j.line_run_id
            and w.status not in ('completed', 'failed', 'cancelled')
            and (o.attempt > 0 or w.status = 'queued')
            and ((o.line_at, o.line_run_id) < (j.line_at, j.line_run_id)
                 or o.lease_id is not null and o.lease_until > $3))
    order by j.created_at, j.run_id
    limit cardinality($5::uuid[])
    for update of j skip locked
), numbered as (
    select run_id, row_number() over () as n from ready
)
update store.job j
set attempt = j.attempt + 1, lapses = j.lapses + (j.lease_id is not null)::int, lease_id = l.lease_id, runner = $6,
    session_id = $7, lease_ms = $8, lease_until = $9
from numbered k
join unnest($5::uuid[]) with ordinality l (lease_id, n) on l.n = k.n
where j.run_id = k.run_id
returning j.run_id, j.lease_id as "lease_id!", j.attempt, j.lapses, j.lease_until as "lease_until!"
