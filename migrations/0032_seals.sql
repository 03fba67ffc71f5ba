-- A chain proves its run; these prove that all runs are there. From time to time the heads of the runs that changed are
-- sealed: hashed together with the seal before, and signed when the server has a key. A run that vanishes as a whole is still
-- named here, and who removes its name from a seal changes that seal and all after it.

create table store.seal (
    number    bigint      primary key check (number > 0),
    at        timestamptz not null,
    -- Up to where each lane is sealed.
    positions bigint[]    not null,
    sha256    bytea       not null,
    -- The public key and the signature, in hexadecimal digits; null when the server had no key.
    key       text,
    signature text
);

create table store.sealed_run (
    number     bigint  not null references store.seal (number),
    n          int     not null,
    run_id     uuid    not null,
    owner_id   text    not null,
    last_seq   bigint  not null,
    is_removed boolean not null,
    -- Null when the run had no links.
    link       bytea,
    primary key (number, n)
);
create index sealed_run_by_run on store.sealed_run (run_id, number desc);

-- What was removed by its owner or by its age, so that this does not look as if somebody had edited the log. The next seal
-- names it as well; `number` is that seal.
create table store.removed_run (
    run_id     uuid        not null,
    owner_id   text        not null,
    last_seq   bigint      not null,
    link       bytea,
    removed_at timestamptz not null default clock_timestamp(),
    number     bigint,
    primary key (run_id, removed_at)
);
create index removed_run_not_sealed on store.removed_run (removed_at, run_id) where number is null;
create index removed_run_by_seal on store.removed_run (number) where number is not null;

alter table store.sealed_run enable row level security;
alter table store.sealed_run force row level security;
alter table store.removed_run enable row level security;
alter table store.removed_run force row level security;
create policy app_sees_its_owner on store.sealed_run for select to runreel_app using (owner_id = store.current_owner());
create policy writer_seals on store.sealed_run to runreel_writer using (true) with check (true);
create policy retention_notes on store.removed_run to runreel_retention
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());
create policy writer_seals on store.removed_run to runreel_writer using (true) with check (true);
grant select on store.seal, store.sealed_run to runreel_app;
grant select, insert on store.seal, store.sealed_run to runreel_writer;
grant insert on store.removed_run to runreel_retention;
grant select on store.removed_run to runreel_writer;
grant update (number) on store.removed_run to runreel_writer;

-- How many events are gone tells whether all others are there.
create policy writer_counts on store.removed for select to runreel_writer using (true);
grant select on store.removed to runreel_writer;
