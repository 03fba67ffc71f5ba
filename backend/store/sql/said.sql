-- What was said in a thread, and which tools were called, oldest first. Runs that work for a run of the same thread are
-- left out: what workers say is not the conversation.
select e.run_id, e.seq, e.type = 'tool.started' as "is_tool!", e.span_id, e.payload::text as "payload!"
from store.run r
join store.run_event e on e.run_id = r.run_id and e.owner_id = r.owner_id
where r.owner_id = $1 and r.thread_id = $2 and r.run_id >= $3 and (e.run_id, e.seq) > ($3, $4)
  and e.type in ('message.completed', 'tool.started')
  and not exists (
      select from store.run p
      where p.run_id = r.parent_run_id and p.owner_id = r.owner_id and p.thread_id = r.thread_id
  )
order by e.run_id, e.seq
limit $5
