-- A run's id in its client's own system, so that a program can create and find a run by the id it has already. It is the
-- owner's: two owners may have the same. It goes with the run, so the id is free again when the run is deleted.
alter table store.run add column external_id text collate "C";

-- Two writers that create runs with one id at the same time: the second one's statement fails, and is planned again. The
-- order is that in which a batch inserts its runs, so two batches never wait for each other.
create unique index run_by_external_id on store.run (owner_id, external_id) where external_id is not null;

create or replace view runreel.runs as
select run_id, root_run_id, parent_run_id, owner_id, thread_id, session_id, agent, role, title, status, input, output,
       error, metadata, tags, last_seq, created_at, started_at, ended_at, last_event_at,
       greatest((extract(epoch from coalesce(ended_at, last_event_at) - started_at) * 1000)::float8, 0) as duration_ms,
       external_id
from store.run;

comment on column runreel.runs.external_id is
    'its id in the client''s own system, unique per owner; null when its client gave none';
