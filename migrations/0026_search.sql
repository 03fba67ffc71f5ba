-- Search in everything that runs say, and the filters of lists.
--
-- The index is filled from the log by a task of the server, so whoever emits does not wait for it. A document is a part
-- of a run: its words, without their places. Every word begins with a part of its owner's key, so the index of Postgres,
-- which knows no owners, has each owner's words together: what one owner searches does not depend on what others wrote.
create table store.search_document (
    run_id   uuid     not null,
    piece    int      not null,
    owner_id text     not null,
    words    tsvector not null,
    primary key (run_id, piece)
) with (toast_tuple_target = 128);
create index search_document_by_words on store.search_document using gin (words);

-- How far each lane is indexed. `up_to` is a time before which everything is. It follows from `seen_position`, where the
-- lane stood at `seen_at`.
create table store.search_progress (
    lane          smallint    primary key,
    position      bigint      not null default 0,
    seen_position bigint,
    seen_at       timestamptz,
    up_to         timestamptz
);
insert into store.search_progress (lane) select lane from store.lane;

alter table store.search_document enable row level security;
alter table store.search_document force row level security;
create policy app_sees_its_owner on store.search_document for select to runreel_app
    using (owner_id = store.current_owner());
create policy writer_indexes on store.search_document to runreel_writer using (true) with check (true);
create policy owner_removes on store.search_document to current_user using (true) with check (true);

grant select on store.search_document, store.search_progress to runreel_app;
grant select, insert, delete on store.search_document to runreel_writer;
grant select, insert, update on store.search_progress to runreel_writer;

-- What is deleted leaves the index with it. The indexer holds the progress of a lane from before it reads events until
-- it has committed their words, so a deletion waits for one that may have read its run, and sees what it wrote.
create function store.forget_words() returns trigger
    language plpgsql security definer set search_path = pg_catalog as $$
begin
    if exists (select from gone) then
        perform 1 from store.search_progress for share;
        delete from store.search_document d using gone g where d.run_id = g.run_id;
    end if;
    return null;
end
$$;
create trigger run_leaves_the_index after delete on store.run
    referencing old table as gone for each statement execute function store.forget_words();

-- The runs of the current owner in which each of these queries finds something. The operator of text search cannot be
-- used under row-level security, because it might tell of rows that it must not see; here the owner is asked for by name.
create function store.runs_with_words(queries text[]) returns setof uuid
    language sql stable security definer set search_path = pg_catalog
    set enable_bitmapscan = on set enable_seqscan = off set work_mem = '64MB' as $$
    select m.run_id
    from (
        select distinct q.n, d.run_id
        from unnest(queries) with ordinality q (query, n)
        cross join lateral (
            select run_id from store.search_document d
            where d.words @@ q.query::tsquery and d.owner_id = store.current_owner()
            offset 0
        ) d
    ) m
    group by m.run_id
    having count(*) = cardinality(queries)
$$;
revoke execute on function store.runs_with_words(text[]) from public;
grant execute on function store.runs_with_words(text[]) to runreel_app;

-- What lists are filtered by most. Running and completed runs are found without an index of theirs.
create index run_by_agent on store.run (owner_id, agent, created_at desc, run_id desc) where agent is not null;
create index run_by_status on store.run (owner_id, status, created_at desc, run_id desc)
    where status in ('queued', 'waiting', 'interrupted', 'failed', 'cancelled');

-- What a run took, milliseconds; null before its start.
create function store.duration_ms(run store.run) returns bigint language sql immutable as $$
    select case when run.started_at is not null then
        greatest(floor(extract(epoch from coalesce(run.ended_at, run.last_event_at) - run.started_at) * 1000), 0)
    end::bigint
$$;
