-- How long a run stays after it has ended, when its client says so: seconds, 0 for ever, null by the server's rules.
-- `imported_at` is when an imported run came: its age counts from then, or an archive would be removed as soon as it is
-- imported.
alter table store.run
    add column ttl_s bigint check (ttl_s >= 0),
    add column imported_at timestamptz;

-- Retention walks the ended runs from the oldest end on.
create index run_by_end on store.run (ended_at, run_id) where ended_at is not null;
-- The least of these tells from which age on a run may have to go.
create index run_by_ttl on store.run (ttl_s) where ttl_s > 0;

-- And it looks at a tree when its last run has ended.
drop index store.run_by_root;
create index run_by_root on store.run (root_run_id, ended_at desc nulls first, run_id desc);

-- Drops the events of a month whose runs are gone, and notes it for feeds, all owners' at once: whoever deletes a run has
-- the note of its owner and waits for the log. False if there is no such month, or if a run of it or of a tree that
-- begins in it is there still: whoever calls rolls back then. Null if others used the log all the time.
create function store.drop_month(month text, owners text[], lanes smallint[], positions bigint[], events bigint[])
    returns boolean
    language plpgsql security definer set search_path = pg_catalog set lock_timeout = '200ms' as $$
declare
    first timestamp := to_date(month, 'YYYY_MM');
    low   uuid      := store.first_run_id(first at time zone 'UTC');
    high  uuid      := store.first_run_id((first + interval '1 month') at time zone 'UTC');
begin
    if to_regclass('store.run_event_' || month) is null then
        return false;
    end if;
    execute format('drop table store.%I', 'run_event_' || month);
    -- Nobody else can write to the log now, so these see what was imported meanwhile.
    if exists (select from store.run where run_id >= low and run_id < high)
        or exists (select from store.run where root_run_id >= low and root_run_id < high) then
        return false;
    end if;
    insert into store.removed as r (owner_id, lane, position, events)
    select * from unnest(owners, lanes, positions, events)
    on conflict (owner_id, lane) do update
        set position = greatest(r.position, excluded.position), events = r.events + excluded.events;
    return true;
exception when lock_not_available then
    return null;
end
$$;
revoke execute on function store.drop_month(text, text[], smallint[], bigint[], bigint[]) from public;
grant execute on function store.drop_month(text, text[], smallint[], bigint[], bigint[]) to runreel_retention;
create policy owner_notes on store.removed to current_user using (true) with check (true);

create or replace view runreel.runs as
select run_id, root_run_id, parent_run_id, owner_id, thread_id, session_id, agent, role, title, status, input, output,
       error, metadata, tags, last_seq, created_at, started_at, ended_at, last_event_at,
       greatest((extract(epoch from coalesce(ended_at, last_event_at) - started_at) * 1000)::float8, 0) as duration_ms,
       external_id, ttl_s
from store.run;

comment on column runreel.runs.ttl_s is
    'how long it stays after its end, seconds; 0 for ever, null by the server''s rules';
