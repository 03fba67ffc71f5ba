-- The texts of runs ($1 owners, $2 runs; null: all runs of the owner) that are open, beginning at the pieces that the reader
-- still needs ($3 runs, $4 spans, $5 pieces), at most $6 rows. The first piece of each text comes without its bytes if it
-- is not needed, because it says which text it is.
--
-- A row may be late: its process may not know yet that the span was closed, or was killed before it could remove the row. The
-- log knows: a text is open if its run has not ended and no event after `position` closes the span. Of a run that went on
-- for more than $7 events since, no text is open.
with asked as (
    select owner_id, coalesce(run_id, '00000000-0000-0000-0000-000000000000') as first_run,
           coalesce(run_id, 'ffffffff-ffff-ffff-ffff-ffffffffffff') as last_run
    from unnest($1::text[], $2::uuid[]) as a (owner_id, run_id)
), known as (
    select * from unnest($3::uuid[], $4::text[], $5::int[]) as k (run_id, span_id, piece)
), open as materialized (
    -- Each step looks up what the one before found, whatever Postgres expects of the tables.
    select a.owner_id, n.run_id, n.span_id
    from asked a
    cross join lateral (
        select run_id, span_id, max(piece) as piece from store.open_text
        where owner_id = a.owner_id and run_id between a.first_run and a.last_run
        group by run_id, span_id offset 0
    ) n
    cross join lateral (
        select position from store.open_text
        where owner_id = a.owner_id and run_id = n.run_id and span_id = n.span_id and piece = n.piece offset 0
    ) newest
    cross join lateral (
        select last_position from store.run
        where run_id = n.run_id and owner_id = a.owner_id and not store.has_ended(status) offset 0
    ) r
    where r.last_position <= newest.position or (
        select not coalesce(bool_or(e.position > newest.position and e.span_id = n.span_id
                                    and e.type ~ '^[^.]+\.(completed|failed)$'), false)
               and (count(*) < $7 or min(e.position) <= newest.position)
        from (
            select position, span_id, type from store.run_event
            where run_id = n.run_id and owner_id = a.owner_id order by seq desc limit $7
        ) e
    )
)
select t.owner_id, t.run_id, t.span_id, t.piece, t.text_id, t.type as event_type, t.parent_span_id, t.at,
       case when t.piece >= coalesce(k.piece, 0) then t.text end as text
from open o
left join known k on k.run_id = o.run_id and k.span_id = o.span_id
cross join lateral (
    select * from store.open_text
    where owner_id = o.owner_id and run_id = o.run_id and span_id = o.span_id
      and (piece = 0 or piece >= coalesce(k.piece, 0))
    offset 0
) t
order by t.owner_id, t.run_id, t.span_id, t.piece
limit $6
