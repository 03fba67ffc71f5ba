-- $1 owner; $2, $3 and $4 the keys of the checkpoints, in the order in which they are wanted.
select t.thread_id, c.ns, c.checkpoint_id, c.parent_id, c.run_id, c.t, c.b, c.metadata::text as "metadata!",
       c.versions::text as "versions!", c.created_at,
       v.channels as "blob_channels!", v.types as "blob_types!", v.bytes as "blob_bytes!",
       w.task_ids as "write_task_ids!", w.task_paths as "write_task_paths!", w.idxs as "write_idxs!",
       w.channels as "write_channels!", w.types as "write_types!", w.bytes as "write_bytes!"
from unnest($2::bigint[], $3::text[], $4::text[]) with ordinality as k (thread_no, ns, checkpoint_id, n)
join store.checkpoint c
  on c.thread_no = k.thread_no and c.ns = k.ns and c.checkpoint_id = k.checkpoint_id and c.owner_id = $1
join store.thread t on t.thread_no = c.thread_no and t.owner_id = $1
cross join lateral (
    select coalesce(array_agg(b.channel), '{}') as channels, coalesce(array_agg(b.t), '{}') as types,
           coalesce(array_agg(b.b), '{}') as bytes
    from json_each(c.versions) as p (channel, version)
    join store.blob b on b.thread_no = c.thread_no and b.ns = c.ns and b.channel = p.channel
                     and b.version = p.version::text and b.owner_id = $1
) v
cross join lateral (
    select coalesce(array_agg(p.task_id), '{}') as task_ids, coalesce(array_agg(p.task_path), '{}') as task_paths,
           coalesce(array_agg(p.idx), '{}') as idxs, coalesce(array_agg(p.channel), '{}') as channels,
           coalesce(array_agg(p.t), '{}') as types, coalesce(array_agg(p.b), '{}') as bytes
    from (
        select p.task_id, p.task_path, p.idx, p.channel, p.t, p.b from store.pending_write p
        where p.thread_no = c.thread_no and p.ns = c.ns and p.checkpoint_id = c.checkpoint_id and p.owner_id = $1
        order by p.task_path, p.task_id, p.idx
    ) p
) w
order by k.n
