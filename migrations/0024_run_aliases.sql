-- Further ids of a run in its clients' own systems. A protocol in which an answer to a question begins another run (AG-UI)
-- continues the same run here: its client's new id is an alias, together with the event after which it counts. It is the
-- owner's, and goes with the run.
create table store.run_alias (
    owner_id  text        not null,
    alias     text        not null collate "C",
    run_id    uuid        not null references store.run (run_id) on delete cascade,
    after_seq bigint      not null check (after_seq >= 0),
    primary key (owner_id, alias)
);
create index run_alias_by_run on store.run_alias (run_id);

alter table store.run_alias enable row level security;
alter table store.run_alias force row level security;
create policy app_keeps_its_aliases on store.run_alias to runreel_app
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());

grant select, insert on store.run_alias to runreel_app;
