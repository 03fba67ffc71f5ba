-- Every query of the program names its owner. These policies are the second wall, for the query that one day forgets:
-- a role that is not the owner of the tables sees only rows of the owner its transaction has named.
create function store.current_owner() returns text language sql stable as $$
    select current_setting('runreel.owner', true)
$$;

alter table store.run enable row level security;
alter table store.run force row level security;
alter table store.run_event enable row level security;
alter table store.run_event force row level security;
alter table store.api_token enable row level security;
alter table store.api_token force row level security;
alter table store.removed enable row level security;
alter table store.removed force row level security;

create policy app_sees_its_owner on store.run for select to runreel_app using (owner_id = store.current_owner());
create policy app_sees_its_owner on store.run_event for select to runreel_app using (owner_id = store.current_owner());
create policy app_sees_its_owner on store.removed for select to runreel_app using (owner_id = store.current_owner());
create policy app_keeps_its_tokens on store.api_token to runreel_app
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());

-- The writer serves all owners at once; it can insert events and move heads, and can change no event.
create policy writer_appends on store.run to runreel_writer using (true) with check (true);
create policy writer_appends on store.run_event to runreel_writer using (true) with check (true);

-- Retention works inside one owner too.
create policy retention_removes on store.run to runreel_retention
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());
create policy retention_removes on store.run_event to runreel_retention using (owner_id = store.current_owner());
create policy retention_notes on store.removed to runreel_retention
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());

-- The owner of the tables is who migrates and who the people's views read as; FORCE holds for it too.
create policy owner_reads on store.run for select to current_user using (true);
create policy owner_reads on store.run_event for select to current_user using (true);

grant select on store.run, store.run_event, store.lane, store.removed to runreel_app;
grant select, insert, update on store.api_token to runreel_app;
grant select on store.pepper to runreel_app;

grant select, insert on store.run, store.run_event to runreel_writer;
grant update (status, last_seq, last_position, output, error, started_at, ended_at, last_event_at, heartbeat_at)
    on store.run to runreel_writer;
grant select, update on store.lane to runreel_writer;

grant select, delete on store.run, store.run_event to runreel_retention;
grant select, insert, update on store.removed to runreel_retention;
grant select on store.lane to runreel_retention;

-- A presented token is looked up before anybody knows whose it is; this is the only way around the owner predicate,
-- and it needs the secret.
create function store.token_by_secret(presented bytea)
    returns setof store.api_token language sql stable security definer set search_path = pg_catalog as $$
    select * from store.api_token where secret = presented
$$;
create policy owner_reads on store.api_token for select to current_user using (true);
revoke execute on function store.token_by_secret(bytea) from public;
grant execute on function store.token_by_secret(bytea) to runreel_app;

-- Which of these tokens have been revoked: asked for the open streams of one process, by id.
create function store.revoked_tokens(ids uuid[]) returns setof uuid
    language sql stable security definer set search_path = pg_catalog as $$
    select token_id from store.api_token where token_id = any (ids) and revoked_at is not null
$$;
revoke execute on function store.revoked_tokens(uuid[]) from public;
grant execute on function store.revoked_tokens(uuid[]) to runreel_app;
