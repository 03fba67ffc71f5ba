-- $1 lane, $2 its position and $3 its epoch as the writer knows them, $4 how many events.
-- When the lane stands elsewhere, `claimed` is empty and so is everything that hangs on it.
with claimed as (
    update store.lane
    set position = position + $4
    where lane = $1 and position = $2 and epoch = $3
    returning position
), moved as (
    update store.run r
    set status = h.status, last_seq = h.last_seq, last_position = $2 + 1 + h.last_index, output = h.output::json,
        error = h.error::json, started_at = h.started_at, ended_at = h.ended_at, last_event_at = h.last_event_at
    from unnest($16::uuid[], $17::text[], $18::bigint[], $19::bigint[], $20::text[], $21::text[],
                $22::timestamptz[], $23::timestamptz[], $24::timestamptz[])
             as h (run_id, status, last_seq, last_index, output, error, started_at, ended_at, last_event_at)
    where r.run_id = h.run_id and exists (select from claimed)
), inserted as (
    insert into store.run_event
        (run_id, seq, lane, position, owner_id, type, role, agent, span_id, parent_span_id, event_id, at, payload)
    select e.run_id, e.seq, $1, $2 + e.n, e.owner_id, e.type, e.role, e.agent, e.span_id, e.parent_span_id,
           e.event_id, e.at, e.payload::json
    from unnest($5::uuid[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::text[], $11::text[],
                $12::text[], $13::text[], $14::timestamptz[], $15::text[])
             with ordinality
             as e (run_id, seq, owner_id, type, role, agent, span_id, parent_span_id, event_id, at, payload, n)
    where exists (select from claimed)
), noted as (
    -- $25 the owners of the batch, $26 the last piece that is known to be noted for each. A piece between two events of
    -- an owner may be noted without any of the owner's in it; that costs a look.
    insert into store.owner_piece (owner_id, lane, piece)
    select o.owner_id, $1, p.piece
    from claimed c
    cross join unnest($25::text[], $26::bigint[]) as o (owner_id, noted)
    cross join generate_series(greatest((c.position - $4 + 1) / 512, o.noted + 1), c.position / 512) as p (piece)
    on conflict do nothing
)
select position from claimed
