-- $1 owner, $2 thread id, $3 now. The thread's row is locked by whoever puts a checkpoint, so that a prune never takes
-- away a value that a checkpoint on its way in refers to. A transaction of its own: `me` names the owner to row-level
-- security, and everything else begins with `me`. Nothing is written when the checkpoint would be over $16 bytes with all
-- its values, those that are there already included; $17 are the lengths of the new ones.
with me as materialized (
    select set_config('runreel.owner', $1, true) as owner_id
), fits as (
    select me.owner_id from me
    cross join lateral (
        select coalesce(sum(coalesce(b.bytes, v.bytes) + 100), 0) as bytes
        -- The two `offset 0` and the `limit 1`: as in `checkpoints.sql`.
        from (select p.key as channel, p.value::text as version from json_each($11::text::json) p offset 0) p
        left join unnest($12::text[], $13::text[], $17::int[]) as v (channel, version, bytes)
          on v.channel = p.channel and v.version = p.version
        left join lateral (
            select octet_length(b.b) as bytes from store.thread t
            join store.blob b on b.thread_no = t.thread_no and b.ns = $4 and b.channel = p.channel
             and b.version = p.version and b.owner_id = me.owner_id
            where t.owner_id = me.owner_id and t.thread_id = $2
            limit 1
        ) b on true
        where coalesce(b.bytes, v.bytes) is not null
        offset 0
    ) size
    where size.bytes + octet_length($9::bytea) + octet_length($11::text) <= $16::bigint
), thread as (
    insert into store.thread as t (owner_id, thread_id, created_at, updated_at) select owner_id, $2, $3, $3 from fits
    on conflict (owner_id, thread_id) do update set updated_at = greatest(t.updated_at, $3)
    returning thread_no, owner_id
), stored as (
    insert into store.blob (thread_no, owner_id, ns, channel, version, t, b)
    select thread_no, owner_id, $4, v.channel, v.version, v.t, v.b
    from thread, unnest($12::text[], $13::text[], $14::text[], $15::bytea[]) as v (channel, version, t, b)
    on conflict do nothing
)
insert into store.checkpoint as c
    (thread_no, owner_id, ns, checkpoint_id, parent_id, run_id, t, b, metadata, versions, created_at)
select thread_no, owner_id, $4, $5, $6, $7, $8, $9, $10::text::json, $11::text::json, $3 from thread
on conflict (thread_no, ns, checkpoint_id) do update
set parent_id = excluded.parent_id, run_id = excluded.run_id, t = excluded.t, b = excluded.b,
    metadata = excluded.metadata, versions = excluded.versions
returning xmax = 0 as "created!", created_at
