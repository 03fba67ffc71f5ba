-- Threads: what an agent remembers from one run to the next.

-- A thread belongs to its owner: the pair is its key, and the number stands for the pair in the tables below, where a
-- key of a hundred bytes in every row and index would cost more than most of the values.
create table store.thread (
    thread_no  bigint      generated always as identity primary key,
    owner_id   text        not null,
    thread_id  text        not null,
    metadata   json        not null default '{}',
    -- Seconds of rest after which it expires; null: as the server says; 0: never.
    ttl_s      bigint      check (ttl_s >= 0),
    created_at timestamptz not null,
    -- The last checkpoint, begin or end of a run.
    updated_at timestamptz not null,
    unique (owner_id, thread_id),
    unique (thread_no, owner_id)
) with (fillfactor = 70);

create index thread_by_owner on store.thread (owner_id, created_at desc, thread_id desc);

-- Threads that runs have named so far.
insert into store.thread (owner_id, thread_id, created_at, updated_at)
select owner_id, thread_id, min(created_at), max(last_event_at) from store.run where thread_id is not null
group by owner_id, thread_id;

-- One state of a thread. `b` is what a framework's serialiser made, under the name `t` of its type; nobody here looks
-- into it. `versions` says which version of which channel's value belongs to the state. Every row names its owner, and
-- the foreign keys make sure that it is the thread's.
create table store.checkpoint (
    thread_no     bigint      not null,
    owner_id      text        not null,
    ns            text        not null collate "C",
    checkpoint_id text        not null collate "C",
    parent_id     text        collate "C",
    run_id        text        collate "C",
    t             text        not null,
    b             bytea       not null,
    -- To the letter; the check is that a filter will be able to look into it.
    metadata      json        not null check (metadata::jsonb is not null),
    versions      json        not null,
    created_at    timestamptz not null,
    primary key (thread_no, ns, checkpoint_id),
    foreign key (thread_no, owner_id) references store.thread (thread_no, owner_id) on delete cascade
);

create index checkpoint_by_run on store.checkpoint (run_id) where run_id is not null;

-- The value of a channel, once per version however many checkpoints use it.
create table store.blob (
    thread_no bigint not null,
    owner_id  text   not null,
    ns        text   not null collate "C",
    channel   text   not null collate "C",
    -- As JSON, so that 3 and "3" are two versions.
    version   text   not null collate "C",
    t         text   not null,
    b         bytea  not null,
    primary key (thread_no, ns, channel, version),
    foreign key (thread_no, owner_id) references store.thread (thread_no, owner_id) on delete cascade
);

-- What the tasks of a checkpoint have written since. A task's write may arrive before the checkpoint it belongs to, so
-- it refers to the thread alone.
create table store.pending_write (
    thread_no     bigint not null,
    owner_id      text   not null,
    ns            text   not null collate "C",
    checkpoint_id text   not null collate "C",
    task_id       text   not null collate "C",
    idx           int    not null,
    task_path     text   not null collate "C",
    channel       text   not null,
    t             text   not null,
    b             bytea  not null,
    primary key (thread_no, ns, checkpoint_id, task_id, idx),
    foreign key (thread_no, owner_id) references store.thread (thread_no, owner_id) on delete cascade
);

-- The same two walls as for the log: every query names its owner, and the policy asks again.
alter table store.thread enable row level security;
alter table store.thread force row level security;
alter table store.checkpoint enable row level security;
alter table store.checkpoint force row level security;
alter table store.blob enable row level security;
alter table store.blob force row level security;
alter table store.pending_write enable row level security;
alter table store.pending_write force row level security;

create policy app_keeps_its_owner on store.thread to runreel_app
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());
create policy app_keeps_its_owner on store.checkpoint to runreel_app
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());
create policy app_keeps_its_owner on store.blob to runreel_app
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());
create policy app_keeps_its_owner on store.pending_write to runreel_app
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());

-- Whose threads have expired is asked for all owners at once; they are then removed as their owner.
create policy writer_finds_the_expired on store.thread for select to runreel_writer using (true);

create policy owner_reads on store.thread for select to current_user using (true);
create policy owner_reads on store.checkpoint for select to current_user using (true);

grant select, insert, update, delete on store.thread, store.checkpoint, store.blob, store.pending_write to runreel_app;
grant select on store.thread to runreel_writer;

-- Interrupts that expire are looked for in the runs that have not ended.
create index run_live on store.run (run_id) where status not in ('completed', 'failed', 'cancelled');

-- A thread is now more than a word that runs share.
create or replace view runreel.threads as
select k.owner_id, k.thread_id, coalesce(r.runs, 0) as runs, r.first_run_at, r.last_event_at, t.metadata, t.created_at,
       t.updated_at, t.ttl_s
from (select owner_id, thread_id from store.thread
      union
      select owner_id, thread_id from store.run where thread_id is not null) k
left join store.thread t using (owner_id, thread_id)
left join (select owner_id, thread_id, count(*) as runs, min(created_at) as first_run_at,
                  max(last_event_at) as last_event_at
           from store.run where thread_id is not null group by owner_id, thread_id) r using (owner_id, thread_id);

create view runreel.checkpoints as
select c.owner_id, t.thread_id, c.ns, c.checkpoint_id, c.parent_id, c.run_id, c.metadata, c.versions,
       octet_length(c.b) as bytes, c.created_at
from store.checkpoint c
join store.thread t using (thread_no, owner_id);

grant select on runreel.checkpoints to runreel_reader;
