-- Saves what was added to open texts, removes those that were closed, and tells other processes, all at once.
--
-- $1 channel, $2 notes for other processes; $3 to $12 the texts; $13 to $15 their pieces, each with the number of its text;
-- $16 to $19 the texts that are over. Tells for each text whose is the one that is saved: a text that begins takes its span
-- over; one that goes on is saved if the span is still its own.
with mine as (
    select * from unnest($3::text[], $4::uuid[], $5::text[], $6::uuid[], $7::boolean[], $8::text[], $9::text[], $10::bigint[],
                         $11::timestamptz[], $12::int[])
        with ordinality
        as m (owner_id, run_id, span_id, text_id, is_first, type, parent_span_id, position, at, end_piece, n)
), standing as (
    select m.*, t.text_id as stored_id
    from mine m
    left join lateral (
        select text_id from store.open_text t
        where t.owner_id = m.owner_id and t.run_id = m.run_id and t.span_id = m.span_id and t.piece = 0 offset 0
    ) t on true
), cut as (
    -- The text before it may have been longer.
    delete from store.open_text t using mine m
    where t.owner_id = m.owner_id and t.run_id = m.run_id and t.span_id = m.span_id and t.piece >= m.end_piece
      and m.is_first and t.text_id <> m.text_id
), over as (
    delete from store.open_text t
    using unnest($16::text[], $17::uuid[], $18::text[], $19::uuid[]) as o (owner_id, run_id, span_id, text_id)
    where t.owner_id = o.owner_id and t.run_id = o.run_id and t.span_id = o.span_id and t.text_id = o.text_id
), saved as (
    insert into store.open_text (owner_id, run_id, span_id, piece, text_id, type, parent_span_id, position, at, text)
    select s.owner_id, s.run_id, s.span_id, p.piece, s.text_id, s.type, s.parent_span_id, s.position, s.at, p.text
    from standing s join unnest($13::bigint[], $14::int[], $15::bytea[]) as p (n, piece, text) using (n)
    where s.is_first or s.stored_id = s.text_id
    order by s.owner_id, s.run_id, s.span_id, p.piece
    on conflict (owner_id, run_id, span_id, piece) do update
    set text_id = excluded.text_id, type = excluded.type, parent_span_id = excluded.parent_span_id,
        position = excluded.position, at = excluded.at, saved_at = excluded.saved_at, text = excluded.text
)
select coalesce((select array_agg(stored_id order by n) from standing), '{}') as "stored_ids!: Vec<Option<Uuid>>",
       (select count(*) from (select pg_notify($1, note) from unnest($2::text[]) as note offset 0) told) as "told!"
