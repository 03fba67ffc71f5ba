-- $1 owner, $2 thread id, $3 now. Tasks of one step write side by side, so a thread that is there is only shared, not
-- locked; one that is not is made, and whoever loses that race waits and then finds it.
with known as (
    select thread_no from store.thread where owner_id = $1 and thread_id = $2 for key share
), made as (
    insert into store.thread as t (owner_id, thread_id, created_at, updated_at)
    select $1, $2, $3, $3 where not exists (select from known)
    on conflict (owner_id, thread_id) do update set updated_at = greatest(t.updated_at, $3)
    returning thread_no
), thread as (
    select thread_no from known union all select thread_no from made
)
insert into store.pending_write (thread_no, owner_id, ns, checkpoint_id, task_id, task_path, idx, channel, t, b)
select thread_no, $1, $4, $5, $6, $7, w.idx, w.channel, w.t, w.b
from thread, unnest($9::int[], $10::text[], $11::text[], $12::bytea[]) as w (idx, channel, t, b)
-- In one order, so that two requests for the same places do not wait for each other.
order by w.idx
on conflict (thread_no, ns, checkpoint_id, task_id, idx) do update
set task_path = excluded.task_path, channel = excluded.channel, t = excluded.t, b = excluded.b
where $8
