-- A thread's own runs, oldest first. Runs that work for a run of the same thread are left out: what workers say is not
-- the conversation.
select r.run_id, r.created_at
from store.run r
where r.owner_id = $1 and r.thread_id = $2
  and ($3::timestamptz is null or (r.created_at, r.run_id) > ($3, $4::uuid))
  and not exists (
      select from store.run p
      where p.run_id = r.parent_run_id and p.owner_id = r.owner_id and p.thread_id = r.thread_id
  )
order by r.created_at, r.run_id
limit $5
