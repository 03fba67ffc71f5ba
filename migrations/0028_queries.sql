-- Queries of principals over HTTP. A server runs them as `runreel_scoped`, on a connection that says for whom it asks. The
-- setting that says so is one that any statement may change, so it carries a proof that only a server can make: the scope
-- of a session is `owner:proof`, and one without a good proof sees nothing.
create table store.scope_key (
    single boolean primary key default true check (single),
    key    bytea   not null default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())
);
insert into store.scope_key default values;

create function store.scope_proof(owner text) returns text
    language sql stable parallel safe security definer set search_path = pg_catalog as $$
    select encode(sha256(key || sha256(key || convert_to(owner, 'UTF8'))), 'hex') from store.scope_key
$$;
revoke execute on function store.scope_proof(text) from public;
grant execute on function store.scope_proof(text) to runreel_app;

-- Whose rows a reader sees: by its name, or by the proof of its session.
create or replace function store.reader_owner(reader name) returns text
    language sql stable parallel safe security definer set search_path = pg_catalog as $$
    select coalesce(
        (select owner_id from store.reader_scope where role_name = reader),
        (select split_part(scope, ':', 1) from (select current_setting('runreel.scope', true) as scope) s
         where reader = 'runreel_scoped' and length(scope) = 129
           and split_part(scope, ':', 2) = store.scope_proof(split_part(scope, ':', 1))))
$$;

-- Runs a query and gives its rows as texts, at most so many and so large together; a null as the last row says that there
-- are more. Inside a function that runs as its owner, Postgres lets nothing change the role again, whoever the session
-- belongs to: a query cannot get back to the login it came from.
create function runreel.answer(query text, width int, rows_max bigint, bytes_max bigint) returns setof text[]
    language plpgsql security definer set search_path = runreel, pg_temp as $$
declare
    names text   := (select string_agg('c' || n, ', ' order by n) from generate_series(1, width) as n);
    texts text   := (select string_agg('c' || n || '::text', ', ' order by n) from generate_series(1, width) as n);
    cells text[];
    found bigint := 0;
    bytes bigint := 0;
begin
    for cells in execute format(E'select array[%s] from (%s\n) as asked (%s)', texts, query, names) loop
        found := found + 1;
        bytes := bytes + pg_column_size(cells);
        if found > rows_max or bytes > bytes_max then
            return next null;
            return;
        end if;
        return next cells;
    end loop;
end
$$;
comment on function runreel.answer(text, int, bigint, bigint) is
    'Runs a query for the server, as `runreel_scoped`: its rows as texts, and null as the last when there are more.';
revoke execute on function runreel.answer(text, int, bigint, bigint) from public;
grant execute on function runreel.answer(text, int, bigint, bigint) to runreel_scoped;
-- To be given a function a role has to be able to make one.
grant create on schema runreel to runreel_scoped;
alter function runreel.answer(text, int, bigint, bigint) owner to runreel_scoped;
revoke create on schema runreel from runreel_scoped;
