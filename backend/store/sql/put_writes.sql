-- $1 owner, $2 thread id, $3 now. Tasks of one step write side by side, so a thread that is there is only shared, not
-- locked; one that is not is made, and whoever loses that race waits and then finds it. A transaction of its own: `me`
-- names the owner to row-level security, and everything else begins with `me`: by its `offset 0` the subquery stays one,
-- and no plan can read the thread first. Nothing is written when the checkpoint's writes would be over $13 bytes together
-- with these.
with me as materialized (
    select set_config('runreel.owner', $1, true) as owner_id
), known as (
    select t.thread_no, t.owner_id
    from me
    cross join lateral (
        select t.thread_no, t.owner_id from store.thread t where t.owner_id = me.owner_id and t.thread_id = $2
        offset 0 for key share
    ) t
), given as (
    select w.idx, w.channel, w.t, w.b from unnest($9::int[], $10::text[], $11::text[], $12::bytea[]) as w (idx, channel, t, b)
), fits as (
    select me.owner_id from me
    cross join lateral (
        select coalesce(sum(octet_length(p.b) + octet_length(p.task_path) + octet_length(p.channel) + 200), 0) as bytes
        from known k
        cross join lateral (
            select p.b, p.task_path, p.channel from store.pending_write p
            where p.thread_no = k.thread_no and p.ns = $4 and p.checkpoint_id = $5 and p.owner_id = me.owner_id
              -- Those that are replaced do not count; without replacing, all that are there stay.
              and (not $8::bool or p.task_id <> $6 or p.idx <> all ($9::int[]))
            offset 0
        ) p
        offset 0
    ) there
    cross join (
        select coalesce(sum(octet_length(g.b) + octet_length($7::text) + octet_length(g.channel) + 200), 0) as bytes
        from given g
        where $8 or not exists (
            select from known k cross join lateral (
                select from store.pending_write p
                where p.thread_no = k.thread_no and p.ns = $4 and p.checkpoint_id = $5 and p.task_id = $6 and p.idx = g.idx
                  and p.owner_id = k.owner_id
                limit 1
            ) p
        )
    ) new
    where there.bytes + new.bytes <= $13::bigint
), made as (
    insert into store.thread as t (owner_id, thread_id, created_at, updated_at)
    select owner_id, $2, $3, $3 from fits where not exists (select from known)
    on conflict (owner_id, thread_id) do update set updated_at = greatest(t.updated_at, $3)
    returning thread_no, owner_id
), thread as (
    select thread_no, owner_id from known where exists (select from fits)
    union all select thread_no, owner_id from made
), written as (
    insert into store.pending_write (thread_no, owner_id, ns, checkpoint_id, task_id, task_path, idx, channel, t, b)
    select thread_no, owner_id, $4, $5, $6, $7, g.idx, g.channel, g.t, g.b
    from thread, given g
    -- In one order, so that two requests for the same places do not wait for each other.
    order by g.idx
    on conflict (thread_no, ns, checkpoint_id, task_id, idx) do update
    set task_path = excluded.task_path, channel = excluded.channel, t = excluded.t, b = excluded.b
    where $8
    returning 1
)
select count(*) as "stored!", exists (select from fits) as "fits!" from written
