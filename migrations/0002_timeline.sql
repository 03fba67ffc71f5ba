-- The timeline: one append-only log per run.

-- A lane is a single file of commits. Whoever appends locks the lane's row, takes the next positions and holds the lock
-- until the commit, so positions become visible in their own order: no reader can see 12 before 11. That is why a feed
-- of many runs may keep one number per lane as its cursor. `epoch` is raised by a writer that lost its connection in the
-- middle of a commit: a statement of the old epoch that still travels somewhere can then no longer apply.
create table store.lane (
    lane     smallint primary key check (lane between 0 and 15),
    position bigint   not null default 0 check (position >= 0),
    epoch    bigint   not null default 0
) with (fillfactor = 10);

insert into store.lane (lane) values (0);

-- The head of a run. What a client said when it created the run never changes; the rest is the fold of the run's
-- events, kept here by the same statement that appends them so that nobody has to fold a log to list runs.
-- A run keeps its lane for life: its positions grow with its seqs.
create table store.run (
    run_id         uuid        primary key,
    lane           smallint    not null,
    owner_id       text        not null,
    root_run_id    uuid        not null,
    parent_run_id  uuid,
    depth          smallint    not null default 0,
    thread_id      text,
    session_id     text,
    agent          text,
    role           text        not null check (role in ('supervisor', 'worker', 'agent')),
    origin_channel text,
    origin_chat    text,
    trace_id       text,
    title          text,
    input          json,
    metadata       json        not null,
    tags           text[]      not null,
    lease_ms       bigint,
    -- Of everything the client said, to tell a repeated request from a different one.
    request_hash   bytea       not null,

    status         text        not null check (status in
                       ('queued', 'running', 'waiting', 'interrupted', 'completed', 'failed', 'cancelled')),
    last_seq       bigint      not null check (last_seq > 0),
    last_position  bigint      not null,
    output         json,
    error          json,
    created_at     timestamptz not null,
    started_at     timestamptz,
    ended_at       timestamptz,
    last_event_at  timestamptz not null,
    heartbeat_at   timestamptz
) with (fillfactor = 70);

create index run_by_owner on store.run (owner_id, created_at desc, run_id desc);
create index run_by_thread on store.run (owner_id, thread_id, created_at desc) where thread_id is not null;
create index run_by_root on store.run (root_run_id);
create index run_by_parent on store.run (parent_run_id) where parent_run_id is not null;

-- The log. `primary key (run_id, seq)` is the last fence: whatever goes wrong above, no seq exists twice.
--
-- The payload is `json`, not `jsonb`: it comes back to the letter as it was sent, and it is written twice as fast.
-- The table is partitioned by the month inside the UUIDv7 run id: a run never spans partitions, a replay touches one,
-- and retention can drop a month at once.
create table store.run_event (
    run_id         uuid        not null,
    seq            bigint      not null check (seq > 0),
    lane           smallint    not null,
    position       bigint      not null,
    owner_id       text        not null,
    type           text        not null,
    role           text        not null,
    agent          text,
    span_id        text,
    parent_span_id text,
    event_id       text,
    at             timestamptz not null,
    payload        json        not null,
    primary key (run_id, seq)
) partition by range (run_id);

-- Feeds read by position; a key is unique in its run; open interrupts are looked up by their span.
create index run_event_by_position on store.run_event (lane, position);
create unique index run_event_by_event_id on store.run_event (run_id, event_id) where event_id is not null;
create index run_event_interrupts on store.run_event (run_id, span_id) where type like 'interrupt.%';

-- Append-only is not a habit but a trigger, and one that fires even under `session_replication_role = replica`.
create function store.refuse_change() returns trigger language plpgsql as $$
begin
    if current_user = 'runreel_retention' and tg_op = 'DELETE' then
        return old;
    end if;
    raise exception 'run events are append-only: % is refused', tg_op using errcode = 'insufficient_privilege';
end
$$;

create trigger run_event_is_append_only before update or delete on store.run_event
    for each row execute function store.refuse_change();
alter table store.run_event enable always trigger run_event_is_append_only;
create trigger run_event_is_not_truncated before truncate on store.run_event
    for each statement execute function store.refuse_change();
alter table store.run_event enable always trigger run_event_is_not_truncated;

-- The smallest UUIDv7 of a moment: 48 bits of milliseconds, the rest zero.
create function store.first_run_id(moment timestamptz) returns uuid language sql immutable as $$
    select (lpad(to_hex((extract(epoch from moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;

-- Makes the partitions of `months` months from the month before `moment` on (ids may be a day old). The server calls
-- it at start and every few hours. TRUNCATE triggers are not inherited by partitions, so each gets its own.
create function store.ensure_partitions(moment timestamptz, months int) returns int
    language plpgsql security definer set search_path = pg_catalog as $$
declare
    month timestamptz;
    name  text;
    made  int := 0;
begin
    for i in -1 .. months loop
        month := date_trunc('month', moment, 'UTC') + make_interval(months => i);
        name := 'run_event_' || to_char(month at time zone 'UTC', 'YYYY_MM');
        if to_regclass('store.' || name) is null then
            execute format('create table store.%I partition of store.run_event for values from (%L) to (%L)', name,
                store.first_run_id(month), store.first_run_id(month + interval '1 month'));
            execute format('create trigger run_event_is_not_truncated before truncate on store.%I
                for each statement execute function store.refuse_change()', name);
            execute format('alter table store.%I enable always trigger run_event_is_not_truncated', name);
            execute format('alter table store.%I enable always trigger run_event_is_append_only', name);
            made := made + 1;
        end if;
    end loop;
    return made;
end
$$;
select store.ensure_partitions(now(), 3);

-- What retention removed, so that a feed can say «there was something here» instead of passing over it in silence.
create table store.removed (
    owner_id text     not null,
    lane     smallint not null,
    position bigint   not null,
    events   bigint   not null,
    primary key (owner_id, lane)
);

-- API tokens, kept only as SHA-256 of what the holder has.
create table store.api_token (
    token_id   uuid        primary key,
    secret     bytea       not null unique,
    owner_id   text        not null,
    name       text        not null,
    scopes     text[]      not null,
    run_id     uuid,
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz
);

-- One pepper for all servers of this database, made by the first. A server given another one refuses to start, because
-- it would see nobody's runs. `fingerprint` is what is kept when the operator holds the pepper himself.
create table store.pepper (
    single      boolean primary key default true check (single),
    pepper      bytea,
    fingerprint bytea not null
);

-- The last seq of a run at or before a position, by bisection over the primary key: in a run both grow together.
create function store.seq_at(wanted_run uuid, wanted_position bigint) returns bigint language plpgsql stable as $$
declare
    low   bigint := 0;
    high  bigint := coalesce((select last_seq from store.run where run_id = wanted_run), 0);
    mid   bigint;
    there bigint;
begin
    if wanted_position <= 0 then
        return 0;
    end if;
    while low < high loop
        mid := (low + high + 1) / 2;
        -- By its key, which is quick on any table; only where retention has been does the next one stand in.
        select position into there from store.run_event where run_id = wanted_run and seq = mid;
        if there is null then
            select position into there from store.run_event where run_id = wanted_run and seq >= mid order by seq limit 1;
        end if;
        if there is not null and there <= wanted_position then
            low := mid;
        else
            high := mid - 1;
        end if;
    end loop;
    return low;
end
$$;
