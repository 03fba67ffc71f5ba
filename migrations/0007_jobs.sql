-- Jobs: runs that this system itself must carry out, by an executor in a server process or by a runner elsewhere.
--
-- A row says only who is at work on a run. Whether the run may be taken follows from the run's own status, so there is no
-- second truth that could disagree with the log. The row is made in the transaction that creates the run, and goes when
-- the run has ended: the table stays as small as the work that is left, however many runs there have been.
create table store.job (
    run_id      uuid        primary key references store.run (run_id) on delete cascade,
    owner_id    text        not null,
    agent       text        not null,
    thread_id   text,
    -- Runs of one thread go one after the other, save those that work for each other: all of them stand in the line of
    -- the topmost ancestor that has the same thread. Lines are served in the order in which they began.
    line_run_id uuid        not null,
    line_at     timestamptz not null,
    -- Assignments so far. Each has another number, which is part of the keys of the events it makes.
    attempt     int         not null default 0 check (attempt >= 0),
    -- How many of them ended because their holder fell silent.
    lapses      int         not null default 0 check (lapses >= 0 and lapses <= attempt),
    -- Who is at work: null when nobody is. A lease whose time is over is nobody's either, until somebody takes the job.
    lease_id    uuid,
    runner      text,
    -- What the leases of one connection have in common, so that its holder can come back to them.
    session_id  uuid,
    lease_ms    bigint,
    -- Stays after a release, so that a run that nobody takes up again reads as stalled in the end.
    lease_until timestamptz,
    created_at  timestamptz not null,
    check (lease_id is null or (runner is not null and lease_ms is not null and lease_until is not null))
) with (fillfactor = 70);

create index job_by_agent on store.job (agent, created_at, run_id);
create index job_by_line on store.job (owner_id, thread_id, line_at, line_run_id) where thread_id is not null;
create unique index job_by_lease on store.job (lease_id) where lease_id is not null;
create index job_by_session on store.job (session_id) where session_id is not null;
create index job_by_end_of_lease on store.job (lease_until) where lease_id is not null;

alter table store.job enable row level security;
alter table store.job force row level security;

-- An owner's requests see whether somebody is at work on a run; nothing but the dispatch changes that. The dispatch
-- serves all owners at once, as the writer lanes do, and shares their role.
create policy app_sees_its_owner on store.job for select to runreel_app using (owner_id = store.current_owner());
create policy writer_dispatches on store.job to runreel_writer using (true) with check (true);

grant select on store.job to runreel_app;
grant select, insert, update, delete on store.job to runreel_writer;
