-- The index of words takes owners in turns.
--
-- Events are indexed in the order of their positions. An owner who writes faster than that is taken out of this order while
-- others wait behind: up to this position all of the owner's events in the lane are indexed, and of those after it a part at a
-- time, beside what the others wrote. `up_to` is a time before which everything is indexed, as in the progress of the lane.
create table store.search_deferred (
    lane     smallint not null,
    owner_id text     not null,
    position bigint   not null,
    turns    bigint   not null default 0,
    up_to    timestamptz,
    primary key (lane, owner_id)
);
alter table store.search_deferred enable row level security;
alter table store.search_deferred force row level security;
create policy app_sees_its_owner on store.search_deferred for select to runreel_app
    using (owner_id = store.current_owner());
create policy writer_indexes on store.search_deferred to runreel_writer using (true) with check (true);
grant select on store.search_deferred to runreel_app;
grant select, insert, update, delete on store.search_deferred to runreel_writer;
