-- What one owner's reading costs follows from what the owner has, not from how much others have written.

-- Where in the log an owner's events are, coarsely: the pieces of 512 positions of a lane that hold any. A feed reads
-- these pieces and passes over all others. An index of the events by owner would say it exactly, and would be a fifth
-- on top of every append; a piece is noted by the statement that appends, once, by whichever event is its first.
create table store.owner_piece (
    owner_id text     not null,
    lane     smallint not null,
    piece    bigint   not null,
    primary key (owner_id, lane, piece)
);

insert into store.owner_piece (owner_id, lane, piece)
select distinct owner_id, lane, position / 512 from store.run_event;

alter table store.owner_piece enable row level security;
alter table store.owner_piece force row level security;
create policy app_sees_its_owner on store.owner_piece for select to runreel_app
    using (owner_id = store.current_owner());
create policy writer_appends on store.owner_piece to runreel_writer using (true) with check (true);
grant select on store.owner_piece to runreel_app;
grant select, insert on store.owner_piece to runreel_writer;

-- Owners take turns when jobs are given away: a claim goes from owner to owner by this index, and inside an owner from
-- the oldest job on.
drop index store.job_by_agent;
create index job_by_agent_and_owner on store.job (agent, owner_id, created_at, run_id);
-- And an owner may have so many jobs and not more.
create index job_by_owner on store.job (owner_id);
