-- The texts of messages that are still being written, as the process that receives their tokens last saved them: for
-- readers of other processes, and for those who come after a process was killed in the middle of a message.
--
-- A text is saved in pieces of at most 2 KiB, of which only the last still grows, so what a message costs does not depend
-- on its length. `text_id` says which text of the span it is: a process that begins one takes the span over, and the one
-- that had it notices by the piece 0. `position` is how far the lane of the run was published when the span was still open.
--
-- Nothing here is needed: a crash of Postgres empties the table, and the event that ends a message has all of its text. The
-- text is bytes because it may contain NUL. No column of an index ever changes, and pages have room, so updates stay on
-- their pages; no row is so large that a part of it would be stored elsewhere.
create unlogged table store.open_text (
    owner_id       text        not null,
    run_id         uuid        not null,
    span_id        text        not null,
    piece          int         not null,
    text_id        uuid        not null,
    type           text        not null,
    parent_span_id text,
    position       bigint      not null,
    at             timestamptz not null,
    saved_at       timestamptz not null default now(),
    text           bytea       not null,
    primary key (owner_id, run_id, span_id, piece)
) with (fillfactor = 50, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

alter table store.open_text enable row level security;
alter table store.open_text force row level security;
-- Processes read for all their readers at once, each by its owner's name; nobody else reads it at all.
create policy writer_saves on store.open_text to runreel_writer using (true) with check (true);
create policy owner_removes on store.open_text to current_user using (true) with check (true);
grant select, insert, update, delete on store.open_text to runreel_writer;

-- A deleted run leaves nothing of what it was saying.
create function store.forget_open_texts() returns trigger
    language plpgsql security definer set search_path = pg_catalog as $$
begin
    delete from store.open_text t using gone g where t.owner_id = g.owner_id and t.run_id = g.run_id;
    return null;
end
$$;
create trigger run_leaves_no_open_text after delete on store.run
    referencing old table as gone for each statement execute function store.forget_open_texts();
