-- What lets a lane be written by one statement, without a lock between two of a server's messages, and what tells a log
-- that went on from one that was set back.

-- A statement that finds a run in another state than its writer believed undoes itself as a whole.
create function store.refuse_stale_head() returns bigint language plpgsql as $$
begin
    raise exception 'a run was moved by another writer' using errcode = 'serialization_failure';
end
$$;

-- A database that was set back (a restore, a failover to a replica that was behind) holds less than readers have seen.
-- What is written from then on is another history, and gets a tag that no cursor of the old one carries. `cut` is how
-- far, per lane, a history shares its events with those before it. The first has no row and the tag 0.
create table store.history (
    ordinal  int         primary key check (ordinal > 0),
    tag      bigint      not null unique check (tag > 0),
    cut      bigint[]    not null,
    began_at timestamptz not null default now()
);

-- The history a lane is written in, so that whoever reads where the lane stands reads this with it.
alter table store.lane add column history bigint not null default 0;

-- Which cluster, on which of its timelines, the log was last written in; a start that finds another begins a new history.
create table store.origin (
    single boolean primary key default true check (single),
    origin text not null
);

-- Where a server tries whether the database still takes rows, after one that it refused.
create table store.probe (
    filler text not null
);
alter table store.probe alter column filler set storage plain;

grant select on store.history to runreel_app, runreel_retention;
grant select, insert on store.history to runreel_writer;
grant select, insert, update on store.origin to runreel_writer;
grant select, insert, delete on store.probe to runreel_writer;
