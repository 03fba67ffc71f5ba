-- $1 owner, $2 thread id or null for all, $3 namespace or null for all, $4 before this id, $5 made by this run, $6 metadata
-- that must be contained, $7–$9 where the page before ended, $10 how many. The sizes come first, without the values, so
-- that a page can end before it is too large; what is around each value is counted as a rough number of bytes.
select c.thread_no, c.ns, c.checkpoint_id, octet_length(c.b) + c.more + v.bytes + w.bytes as "bytes!"
from (
    select c.thread_no, c.ns, c.checkpoint_id, c.b, c.versions, t.thread_id,
           octet_length(c.versions::text) + octet_length(c.metadata::text) as more
    from store.thread t
    join store.checkpoint c on c.thread_no = t.thread_no and c.owner_id = $1
    where t.owner_id = $1
      and ($2::text is null or t.thread_id = $2)
      and ($3::text is null or c.ns = $3)
      and ($4::text is null or c.checkpoint_id < $4)
      and ($5::text is null or c.run_id = $5)
      and ($6::text is null or c.metadata::jsonb @> $6::text::jsonb)
      and ($7::text is null or (c.checkpoint_id, t.thread_id, c.ns) < ($7, $8::text, $9::text))
    order by c.checkpoint_id desc, t.thread_id desc, c.ns desc
    limit $10
) c
cross join lateral (
    select coalesce(sum(octet_length(b.b) + 100), 0)::bigint as bytes
    -- `offset 0` keeps the cast out of the look-up: a cast is not leakproof, and row-level security lets only leakproof
    -- comparisons use an index. `limit 1` keeps it a look-up by key, however many channels the planner expects.
    from (select p.key as channel, p.value::text as version from json_each(c.versions) p offset 0) p
    cross join lateral (
        select b.b from store.blob b
        where b.thread_no = c.thread_no and b.ns = c.ns and b.channel = p.channel and b.version = p.version
          and b.owner_id = $1
        limit 1
    ) b
) v
cross join lateral (
    select coalesce(sum(octet_length(p.b) + octet_length(p.task_path) + octet_length(p.channel) + 200), 0)::bigint as bytes
    from store.pending_write p
    where p.thread_no = c.thread_no and p.ns = c.ns and p.checkpoint_id = c.checkpoint_id and p.owner_id = $1
) w
order by c.checkpoint_id desc, c.thread_id desc, c.ns desc
