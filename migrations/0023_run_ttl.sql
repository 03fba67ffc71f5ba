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

-- Drops the events of a month whose runs are gone. False if a run is of it still: whoever calls rolls back then. Null if
-- others used the log all the time.
create function store.drop_month(month text) returns boolean
    language plpgsql security definer set search_path = pg_catalog set lock_timeout = '200ms' as $$
declare
    first timestamp := to_date(month, 'YYYY_MM');
begin
    execute format('drop table if exists store.%I', 'run_event_' || month);
    -- Nobody else can write to the log now, so this sees a run that was imported meanwhile.
    return not exists (
        select from store.run
        where run_id >= store.first_run_id(first at time zone 'UTC')
          and run_id < store.first_run_id((first + interval '1 month') at time zone 'UTC'));
exception when lock_not_available then
    return null;
end
$$;
revoke execute on function store.drop_month(text) from public;
grant execute on function store.drop_month(text) to runreel_retention;

create or replace view runreel.runs as
select run_id, root_run_id, parent_run_id, owner_id, thread_id, session_id, agent, role, title, status, input, output,
       error, metadata, tags, last_seq, created_at, started_at, ended_at, last_event_at,
       greatest((extract(epoch from coalesce(ended_at, last_event_at) - started_at) * 1000)::float8, 0) as duration_ms,
       external_id, ttl_s
from store.run;

comment on column runreel.runs.ttl_s is
    'how long it stays after its end, seconds; 0 for ever, null by the server''s rules';
