-- $1 owner, $2 the thread to copy, $3 the thread to copy to, $4 now. Both are locked.
with thread as (
    update store.thread t set metadata = s.metadata, ttl_s = s.ttl_s, updated_at = $4
    from store.thread s where t.thread_no = $3 and t.owner_id = $1 and s.thread_no = $2
      and s.owner_id = $1
), blobs as (
    insert into store.blob (thread_no, owner_id, ns, channel, version, t, b)
    select $3, owner_id, ns, channel, version, t, b from store.blob
    where thread_no = $2 and owner_id = $1 on conflict do nothing
), writes as (
    insert into store.pending_write
        (thread_no, owner_id, ns, checkpoint_id, task_id, idx, task_path, channel, t, b)
    select $3, owner_id, ns, checkpoint_id, task_id, idx, task_path, channel, t, b
    from store.pending_write where thread_no = $2 and owner_id = $1 on conflict do nothing
)
insert into store.checkpoint
    (thread_no, owner_id, ns, checkpoint_id, parent_id, run_id, t, b, metadata, versions, created_at)
select $3, owner_id, ns, checkpoint_id, parent_id, run_id, t, b, metadata, versions, created_at
from store.checkpoint where thread_no = $2 and owner_id = $1 on conflict do nothing
