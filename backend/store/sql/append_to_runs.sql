-- As `append_events.sql`, for runs that are there, events that tell no call of a model and pieces that are noted: most batches need no more, and Postgres
-- prepares each part of a statement every time, used or not. An event names its head by the head's place in the arrays:
-- joining events to heads would compare each with each.
--
-- $1 to $32 as there, but $5 the place of each event's head. $33 the last position up to which all owners of the batch are
-- noted: a lane that would come to stand behind it is left alone as well.
with claimed as (
    update store.lane
    set position = position + $4
    where lane = $1 and epoch = $2 and position >= $3 and position + $4 <= $33
    returning position - $4 as before
), moved as (
    update store.run r
    set status = h.status, last_seq = r.last_seq + h.events, last_position = c.before + 1 + h.last_index,
        output = h.output::json, error = h.error::json, started_at = least(r.started_at, h.started_at), ended_at = h.ended_at,
        last_event_at = h.last_event_at, link_before = r.link,
        link = case when r.last_seq = h.seq_before and r.link is not distinct from h.link_before
                    then substr($31::bytea, 32 * h.last_index::int + 1, 32)
                    else substr(store.links(r.link, r.run_id, r.last_seq, substr($32::bytea, h.first, 32 * h.events::int)),
                                32 * h.events::int - 31) end
    from claimed c
    cross join unnest($16::uuid[], $17::text[], $18::text[], $19::bigint[], $20::bigint[], $21::bigint[], $22::text[],
                      $23::text[], $24::timestamptz[], $25::timestamptz[], $26::timestamptz[], $27::text[],
                      $28::boolean[], $29::bytea[], $30::int[])
             with ordinality
             as h (run_id, status_before, status, seq_before, events, last_index, output, error, started_at, ended_at,
                   last_event_at, owner_id, is_exact, link_before, first, n)
    where r.run_id = h.run_id and r.owner_id = h.owner_id and r.status = h.status_before
      and (r.last_seq = h.seq_before or not h.is_exact)
    returning h.n, r.last_seq - h.events as seq_before,
              case when r.link <> substr($31::bytea, 32 * h.last_index::int + 1, 32)
                   then store.links(r.link_before, r.run_id, r.last_seq - h.events, substr($32::bytea, h.first, 32 * h.events::int))
                   end as links
), place as (
    select array_agg(seq_before order by n) as seqs, case when count(links) > 0 then array_agg(links order by n) end as links
    from moved
), inserted as (
    insert into store.run_event
        (run_id, seq, lane, position, owner_id, type, role, agent, span_id, parent_span_id, event_id, at, payload,
         link)
    select ($16::uuid[])[e.head], p.seqs[e.head] + e.nth, $1, c.before + e.n, e.owner_id, e.type, e.role, e.agent,
           e.span_id, e.parent_span_id, e.event_id, e.at, e.payload::json,
           case when p.links is null or p.links[e.head] is null then substr($31::bytea, 32 * e.n::int - 31, 32)
                else substr(p.links[e.head], 32 * e.nth::int - 31, 32) end
    from claimed c
    cross join place p
    cross join unnest($5::int[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
                      $12::text[], $13::text[], $14::timestamptz[], $15::text[])
             with ordinality
             as e (head, nth, owner_id, type, role, agent, span_id, parent_span_id, event_id, at, payload, n)
    where cardinality(p.seqs) = cardinality($16::uuid[])
)
select c.before as "before!", p.seqs, p.links as "links: Vec<Option<Vec<u8>>>",
       case when coalesce(cardinality(p.seqs), 0) < cardinality($16::uuid[]) then store.refuse_stale_head() end as refused
from claimed c cross join place p
