-- $1 owner, $2 thread id, $3 now. Tasks of one step write side by side, so a thread that is there is only shared, not
-- locked; one that is not is made, and whoever loses that race waits and then finds it. A transaction of its own: `me`
-- names the owner to row-level security, and everything else begins with `me`: by its `offset 0` the subquery stays one,
-- and no plan can read the thread first.
with me as materialized (
    select set_config('runreel.owner', $1, true) as owner_id
), known as (
    select t.thread_no, t.owner_id
    from me
    cross join lateral (
        select t.thread_no, t.owner_id from store.thread t where t.owner_id = me.owner_id and t.thread_id = $2
        offset 0 for key share
    ) t
), made as (
    insert into store.thread as t (owner_id, thread_id, created_at, updated_at)
    select owner_id, $2, $3, $3 from me where not exists (select from known)
    on conflict (owner_id, thread_id) do update set updated_at = greatest(t.updated_at, $3)
    returning thread_no, owner_id
), thread as (
    select thread_no, owner_id from known union all select thread_no, owner_id from made
)
insert into store.pending_write (thread_no, owner_id, ns, checkpoint_id, task_id, task_path, idx, channel, t, b)
select thread_no, owner_id, $4, $5, $6, $7, w.idx, w.channel, w.t, w.b
from thread, unnest($9::int[], $10::text[], $11::text[], $12::bytea[]) as w (idx, channel, t, b)
-- In one order, so that two requests for the same places do not wait for each other.
order by w.idx
on conflict (thread_no, ns, checkpoint_id, task_id, idx) do update
set task_path = excluded.task_path, channel = excluded.channel, t = excluded.t, b = excluded.b
where $8
