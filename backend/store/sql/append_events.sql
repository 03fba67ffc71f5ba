-- The whole write of a batch: positions, runs that begin and their threads, jobs, heads, events, calls of models. It commits
-- by itself or does nothing.
--
-- $1 lane, $2 its epoch as the writer knows it, $3 the least position it may stand at, $4 how many events.
-- When the lane's epoch is another, or it stands before what was already shown to readers, `claimed` is empty and so is
-- everything that hangs on it. The lane's row is locked from the first step to the commit, inside this one statement: no
-- writer that stops in the middle of its own work holds up another.
--
-- A run's seqs continue from where its head stands now, not from where its writer last saw it. What the writer decided
-- by is the status, and for numbered events the last seq; a head that differs in these undoes the statement.
--
-- The chain: $31 the link of each event after the link that its writer knew, $32 the contents of the events run by run, 32
-- bytes each; of each head $28 whether its events get these seqs or none, $29 the link its writer knew, $30 where its
-- contents begin, from 1. Where another writer came first, the links are made again from where the head stands now.
--
-- What is rare comes as JSON, each an array of objects: $33 runs that begin, with the names of their columns, $35 further
-- ids, $36 owners, $37 calls of models. $34 is now.
with recursive claimed as (
    update store.lane
    set position = position + $4
    where lane = $1 and epoch = $2 and position >= $3
    returning position - $4 as before
), head as (
    select * from unnest($16::uuid[], $17::text[], $18::text[], $19::bigint[], $20::bigint[], $21::bigint[], $22::text[],
                         $23::text[], $24::timestamptz[], $25::timestamptz[], $26::timestamptz[], $27::text[], $28::boolean[],
                         $29::bytea[], $30::int[])
        as h (run_id, status_before, status, seq_before, events, last_index, output, error, started_at, ended_at,
              last_event_at, owner_id, is_exact, link_before, first)
), birth as (
    -- From a record, a string would come with other escapes than it was sent with.
    select b.*, case when e.value ->> 'input' is not null then e.value -> 'input' end as input
    from json_array_elements($33::text::json) e
    cross join lateral json_to_record(e.value)
        as b (run_id uuid, owner_id text, root_run_id uuid, parent_run_id uuid, depth smallint, thread_id text,
              session_id text, agent text, role text, origin_channel text, origin_chat text, origin_user text,
              trace_id text, title text, metadata json, tags text[], lease_ms bigint, request_hash bytea,
              created_at timestamptz, external_id text, ttl_s bigint, imported_at timestamptz, is_job boolean)
), call as (
    -- `n` is which event of the batch tells it.
    select * from json_to_recordset($37::text::json)
        as k (n bigint, run_id uuid, model text, input_tokens bigint, cached_tokens bigint, cache_write_tokens bigint,
              output_tokens bigint, reasoning_tokens bigint, cost_usd numeric)
), spent as (
    select run_id, count(*) as calls, sum(input_tokens)::bigint as input_tokens, sum(cached_tokens)::bigint as cached_tokens,
           sum(cache_write_tokens)::bigint as cache_write_tokens, sum(output_tokens)::bigint as output_tokens,
           sum(reasoning_tokens)::bigint as reasoning_tokens, coalesce(sum(cost_usd), 0) as cost_usd,
           count(*) - count(cost_usd) as unpriced_calls
    from call group by run_id
), born as (
    insert into store.run
        (run_id, lane, owner_id, root_run_id, parent_run_id, depth, thread_id, session_id, agent, role, origin_channel,
         origin_chat, origin_user, trace_id, title, input, metadata, tags, lease_ms, request_hash, created_at, status, last_seq,
         last_position, output, error, started_at, ended_at, last_event_at, external_id, ttl_s, imported_at, calls, input_tokens,
         cached_tokens, cache_write_tokens, output_tokens, reasoning_tokens, cost_usd, unpriced_calls, link)
    select b.run_id, $1, b.owner_id, b.root_run_id, b.parent_run_id, b.depth, b.thread_id, b.session_id, b.agent, b.role,
           b.origin_channel, b.origin_chat, b.origin_user, b.trace_id, b.title, b.input, b.metadata, b.tags, b.lease_ms,
           b.request_hash, b.created_at, h.status, h.events, c.before + 1 + h.last_index, h.output::json, h.error::json,
           h.started_at, h.ended_at, h.last_event_at, b.external_id, b.ttl_s, b.imported_at, coalesce(s.calls, 0),
           coalesce(s.input_tokens, 0), coalesce(s.cached_tokens, 0), coalesce(s.cache_write_tokens, 0),
           coalesce(s.output_tokens, 0), coalesce(s.reasoning_tokens, 0), coalesce(s.cost_usd, 0),
           coalesce(s.unpriced_calls, 0), substr($31::bytea, 32 * h.last_index::int + 1, 32)
    from claimed c cross join birth b join head h using (run_id) left join spent s using (run_id)
    -- In the order of the index that other lanes insert into as well.
    order by b.owner_id collate "C", b.external_id collate "C"
    returning run_id
), begun as (
    -- A thread that is there is not written, so that a batch does not wait for those who hold its row; for one
    -- that others are just writing it waits a moment and then fails. The lane's row it has by then.
    insert into store.thread (owner_id, thread_id, created_at, updated_at)
    select b.owner_id, b.thread_id, $34, $34
    from claimed c cross join birth b
    cross join lateral (
        select set_config('lock_timeout', '250', true) as is_set where c.before is not null offset 0
    ) patience
    where b.thread_id is not null and patience.is_set is not null
      and not exists (select from store.thread t where t.owner_id = b.owner_id and t.thread_id = b.thread_id offset 0)
    order by b.owner_id collate "C", b.thread_id collate "C"
    on conflict (owner_id, thread_id) do nothing
), above as (
    -- A job stands in the line of its topmost ancestor with the same thread.
    select b.run_id as job, b.run_id, b.parent_run_id, b.owner_id, b.thread_id, b.created_at, 0 as n
    from birth b where b.is_job
    union all
    select a.job, p.run_id, p.parent_run_id, p.owner_id, p.thread_id, p.created_at, a.n + 1
    from above a cross join lateral (select * from store.run p where p.run_id = a.parent_run_id limit 1) p
    where p.owner_id = a.owner_id and p.thread_id = a.thread_id and a.n < 64
), queued as (
    insert into store.job (run_id, owner_id, agent, thread_id, line_run_id, line_at, created_at)
    select b.run_id, b.owner_id, b.agent, b.thread_id, line.run_id, line.created_at, b.created_at
    from claimed c cross join birth b
    join (select distinct on (job) job, run_id, created_at from above order by job, n desc) line on line.job = b.run_id
    where b.is_job
), moved as (
    update store.run r
    set status = h.status, last_seq = r.last_seq + h.events, last_position = c.before + 1 + h.last_index,
        output = h.output::json, error = h.error::json, started_at = least(r.started_at, h.started_at), ended_at = h.ended_at,
        last_event_at = h.last_event_at, calls = r.calls + coalesce(s.calls, 0),
        input_tokens = r.input_tokens + coalesce(s.input_tokens, 0),
        cached_tokens = r.cached_tokens + coalesce(s.cached_tokens, 0),
        cache_write_tokens = r.cache_write_tokens + coalesce(s.cache_write_tokens, 0),
        output_tokens = r.output_tokens + coalesce(s.output_tokens, 0),
        reasoning_tokens = r.reasoning_tokens + coalesce(s.reasoning_tokens, 0), cost_usd = r.cost_usd + coalesce(s.cost_usd, 0),
        unpriced_calls = r.unpriced_calls + coalesce(s.unpriced_calls, 0), link_before = r.link,
        link = case when r.last_seq = h.seq_before and r.link is not distinct from h.link_before
                    then substr($31::bytea, 32 * h.last_index::int + 1, 32)
                    else substr(store.links(r.link, r.run_id, r.last_seq, substr($32::bytea, h.first, 32 * h.events::int)),
                                32 * h.events::int - 31) end
    from claimed c cross join head h left join spent s using (run_id)
    where r.run_id = h.run_id and r.owner_id = h.owner_id and r.status = h.status_before and (r.last_seq = h.seq_before or not h.is_exact)
    returning r.run_id, r.last_seq - h.events as seq_before,
              case when r.link <> substr($31::bytea, 32 * h.last_index::int + 1, 32)
                   then store.links(r.link_before, r.run_id, r.last_seq - h.events, substr($32::bytea, h.first, 32 * h.events::int))
                   end as links
), inserted as (
    insert into store.run_event
        (run_id, seq, lane, position, owner_id, type, role, agent, span_id, parent_span_id, event_id, at, payload,
         link)
    select e.run_id, coalesce(m.seq_before, 0) + e.nth, $1, c.before + e.n, e.owner_id, e.type, e.role, e.agent, e.span_id,
           e.parent_span_id, e.event_id, e.at, e.payload::json,
           coalesce(substr(m.links, 32 * e.nth::int - 31, 32), substr($31::bytea, 32 * e.n::int - 31, 32))
    from claimed c
    cross join unnest($5::uuid[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
                      $12::text[], $13::text[], $14::timestamptz[], $15::text[])
             with ordinality
             as e (run_id, nth, owner_id, type, role, agent, span_id, parent_span_id, event_id, at, payload, n)
    left join moved m using (run_id)
    returning run_id, seq, position, owner_id, at
), called as (
    insert into store.model_call (run_id, seq, owner_id, model, at, input_tokens, cached_tokens, cache_write_tokens,
                                  output_tokens, reasoning_tokens, cost_usd)
    select i.run_id, i.seq, i.owner_id, k.model, i.at, k.input_tokens, k.cached_tokens, k.cache_write_tokens, k.output_tokens,
           k.reasoning_tokens, k.cost_usd
    from claimed c cross join call k join inserted i on i.position = c.before + k.n
), named as (
    -- Each with the event after which it counts: the run's `nth` of this batch, or `after`.
    insert into store.run_alias (owner_id, alias, run_id, after_seq)
    select a.owner_id, a.alias, a.run_id, coalesce(m.seq_before + a.nth, a.after)
    from claimed c
    cross join json_to_recordset($35::text::json)
        as a (owner_id text, alias text, run_id uuid, nth bigint, after bigint)
    left join moved m using (run_id)
    order by a.owner_id collate "C", a.alias collate "C"
), noted as (
    -- The owners of the batch, each with the last piece that is known to be noted. A piece between two events of an owner
    -- may be noted without any of the owner's in it; that costs a look.
    insert into store.owner_piece (owner_id, lane, piece)
    select o.owner_id, $1, p.piece
    from claimed c
    cross join json_to_recordset($36::text::json) as o (owner_id text, noted bigint)
    cross join generate_series(greatest((c.before + 1) / 512, o.noted + 1), (c.before + $4) / 512) as p (piece)
    on conflict do nothing
)
select c.before as "before!", m.run_id, m.seq_before, m.links,
       case when (select count(*) from moved) + (select count(*) from born) < cardinality($16::uuid[])
            then store.refuse_stale_head() end as refused
from claimed c left join moved m on true
