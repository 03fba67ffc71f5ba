-- $1 owner, $2 thread id or null for all, $3 namespace or null for all, $4 before this id, $5 made by this run, $6 metadata
-- that must be contained, $7–$9 where the page before ended, $10 how many. The sizes come first, without the values, so
-- that a page can end before it is too large.
select c.thread_no, c.ns, c.checkpoint_id, octet_length(c.b) + v.bytes + w.bytes as "bytes!"
from (
    select c.thread_no, c.ns, c.checkpoint_id, c.b, c.versions, t.thread_id
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
    select coalesce(sum(octet_length(b.b)), 0)::bigint as bytes
    from json_each(c.versions) as p (channel, version)
    join store.blob b on b.thread_no = c.thread_no and b.ns = c.ns and b.channel = p.channel
                     and b.version = p.version::text and b.owner_id = $1
) v
cross join lateral (
    select coalesce(sum(octet_length(p.b)), 0)::bigint as bytes
    from store.pending_write p
    where p.thread_no = c.thread_no and p.ns = c.ns and p.checkpoint_id = c.checkpoint_id and p.owner_id = $1
) w
order by c.checkpoint_id desc, c.thread_id desc, c.ns desc
