-- $1 owner; $2, $3 and $4 the keys of the checkpoints, in the order in which they are wanted. Or $5 a thread id, $6 a
-- namespace, $7 exactly this id or null for the newest, $8 the run that made it or null for any: then it is that one.
-- $9 how many bytes each may have, in the same order: a larger one comes without its values, because whoever reads it takes
-- the room for them first.
--
-- A transaction of its own: `me` names the owner to row-level security. All the rest is one lateral subquery that takes
-- the owner from `me` and, by its `offset 0`, stays one: no plan can begin with it before `me` has spoken. (Joined to
-- `me` in any other way the tables may be read first, and the policies then show nothing.)
select x.bytes as "bytes!", x.bytes_max as "bytes_max!", x.thread_id, x.ns, x.checkpoint_id, x.parent_id, x.run_id, x.t, x.b as "b!", x.metadata as "metadata!",
       x.versions as "versions!", x.created_at, x.blob_channels as "blob_channels!", x.blob_types as "blob_types!",
       x.blob_bytes as "blob_bytes!", x.write_task_ids as "write_task_ids!", x.write_task_paths as "write_task_paths!",
       x.write_idxs as "write_idxs!", x.write_channels as "write_channels!", x.write_types as "write_types!",
       x.write_bytes as "write_bytes!"
from (select set_config('runreel.owner', $1, true) as owner_id offset 0) me
cross join lateral (
    with k as (
        select thread_no, ns, checkpoint_id, bytes_max, n
        from unnest($2::bigint[], $3::text[], $4::text[], $9::bigint[])
            with ordinality as k (thread_no, ns, checkpoint_id, bytes_max, n)
        where $5::text is null
        union all
        select t.thread_no, $6, $7, ($9::bigint[])[1], 1 from store.thread t
        where t.owner_id = me.owner_id and t.thread_id = $5::text and $7::text is not null
        union all
        (select c.thread_no, c.ns, c.checkpoint_id, ($9::bigint[])[1], 1 from store.checkpoint c
         where c.thread_no = (select t.thread_no from store.thread t where t.owner_id = me.owner_id and t.thread_id = $5)
           and c.ns = $6::text and c.owner_id = me.owner_id and $7 is null and $8::text is null
         order by c.checkpoint_id desc limit 1)
        union all
        (select c.thread_no, c.ns, c.checkpoint_id, ($9::bigint[])[1], 1 from store.checkpoint c
         where c.thread_no = (select t.thread_no from store.thread t where t.owner_id = me.owner_id and t.thread_id = $5)
           and c.ns = $6 and c.owner_id = me.owner_id and $7 is null and $8 is not null
           and c.run_id = $8
         order by c.checkpoint_id desc limit 1)
    )
    select s.bytes, k.bytes_max, t.thread_id, c.ns, c.checkpoint_id, c.parent_id, c.run_id, c.t,
           case when s.bytes <= k.bytes_max then c.b else '' end as b, c.metadata::text as metadata,
           c.versions::text as versions, c.created_at,
           v.channels as blob_channels, v.types as blob_types, v.bytes as blob_bytes,
           w.task_ids as write_task_ids, w.task_paths as write_task_paths, w.idxs as write_idxs,
           w.channels as write_channels, w.types as write_types, w.bytes as write_bytes, k.n
    from k
    join store.checkpoint c
      on c.thread_no = k.thread_no and c.ns = k.ns and c.checkpoint_id = k.checkpoint_id and c.owner_id = me.owner_id
    join store.thread t on t.thread_no = c.thread_no and t.owner_id = me.owner_id
    cross join lateral (
        select (octet_length(c.b) + octet_length(c.versions::text) + octet_length(c.metadata::text) + v.bytes + w.bytes)::bigint
                   as bytes
        from (
            select coalesce(sum(octet_length(b.b) + 100), 0) as bytes
            from (select p.key as channel, p.value::text as version from json_each(c.versions) p offset 0) p
            cross join lateral (
                select b.b from store.blob b
                where b.thread_no = c.thread_no and b.ns = c.ns and b.channel = p.channel and b.version = p.version
                  and b.owner_id = me.owner_id
                limit 1
            ) b
        ) v
        cross join (
            select coalesce(sum(octet_length(p.b) + octet_length(p.task_path) + octet_length(p.channel) + 200), 0) as bytes
            from store.pending_write p
            where p.thread_no = c.thread_no and p.ns = c.ns and p.checkpoint_id = c.checkpoint_id
              and p.owner_id = me.owner_id
        ) w
        offset 0
    ) s
    cross join lateral (
        select coalesce(array_agg(b.channel), '{}') as channels, coalesce(array_agg(b.t), '{}') as types,
               coalesce(array_agg(b.b), '{}') as bytes
        -- `offset 0` keeps the cast out of the look-up: a cast is not leakproof, and row-level security lets only leakproof
        -- comparisons use an index. `limit 1` keeps it a look-up by key, however many channels the planner expects.
        from (
            select p.key as channel, p.value::text as version from json_each(c.versions) p where s.bytes <= k.bytes_max offset 0
        ) p
        cross join lateral (
            select b.channel, b.t, b.b from store.blob b
            where b.thread_no = c.thread_no and b.ns = c.ns and b.channel = p.channel and b.version = p.version
              and b.owner_id = me.owner_id
            limit 1
        ) b
    ) v
    cross join lateral (
        select coalesce(array_agg(p.task_id), '{}') as task_ids, coalesce(array_agg(p.task_path), '{}') as task_paths,
               coalesce(array_agg(p.idx), '{}') as idxs, coalesce(array_agg(p.channel), '{}') as channels,
               coalesce(array_agg(p.t), '{}') as types, coalesce(array_agg(p.b), '{}') as bytes
        from (
            select p.task_id, p.task_path, p.idx, p.channel, p.t, p.b from store.pending_write p
            where p.thread_no = c.thread_no and p.ns = c.ns and p.checkpoint_id = c.checkpoint_id
              and p.owner_id = me.owner_id and s.bytes <= k.bytes_max
            order by p.task_path, p.task_id, p.idx
        ) p
    ) w
    offset 0
) x
order by x.n
