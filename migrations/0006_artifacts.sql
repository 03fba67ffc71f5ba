-- Artifacts: what runs made that is too large for an event. The bytes lie in the artifact store, under the SHA-256 of
-- what they are; here stands which run has them under which name.

-- Two databases may be given the same folder or bucket. Each keeps its bytes in a part of its own, called by this name,
-- so that neither takes away what the other still refers to.
create table store.artifact_home (
    single boolean primary key default true check (single),
    home   uuid    not null default gen_random_uuid()
);
insert into store.artifact_home default values;

-- The bytes that are in the store, once per content however many artifacts have it. They belong to nobody: whoever may
-- see them may do so through an artifact of his. Whoever brings bytes claims them here before they get their name, and
-- whoever removes bytes holds the row while doing so; so the two cannot pass each other.
create table store.content (
    sha256      bytea       primary key check (octet_length(sha256) = 32),
    size        bigint      not null check (size >= 0),
    -- Since when it may be that no artifact has it; null: one has.
    loose_since timestamptz
);

create index content_loose on store.content (loose_since) where loose_since is not null;

-- An artifact: content under a name, in a run. It is written before the event that points to it, so an event never
-- points to nothing. `event_id` is that event's. An artifact is settled once somebody has found its event in the log;
-- one whose event never came (its request died half-way) is removed when `touched_at` is old.
create table store.artifact (
    artifact_id uuid        primary key,
    owner_id    text        not null,
    run_id      uuid        not null,
    event_id    text        not null,
    name        text        not null,
    media_type  text        not null,
    size        bigint      not null check (size >= 0),
    sha256      bytea       not null references store.content (sha256),
    created_at  timestamptz not null,
    touched_at  timestamptz not null,
    settled     boolean     not null default false
);

create index artifact_by_run on store.artifact (run_id, artifact_id desc);
create index artifact_by_event on store.artifact (run_id, event_id);
create index artifact_by_content on store.artifact (sha256);
create index artifact_unsettled on store.artifact (touched_at) where not settled;

-- When artifacts go, by whomever, their content may have become loose. Rows are locked in one order.
create function store.loosen_content() returns trigger
    language plpgsql security definer set search_path = pg_catalog as $$
begin
    perform from store.content c where c.sha256 in (select g.sha256 from gone g) order by c.sha256 for no key update;
    update store.content c set loose_since = now() where c.sha256 in (select g.sha256 from gone g);
    return null;
end
$$;
create trigger artifact_loosens_its_content after delete on store.artifact referencing old table as gone
    for each statement execute function store.loosen_content();

-- Whether the log tells of an artifact: its event is there and names this very one, either as `artifact.created` does or
-- as a payload does that became an artifact itself. (A repeated request may bring an artifact for an event that is there
-- already and points to an earlier one.)
create function store.artifact_named_by(payload json) returns text language sql immutable as $$
    select case when json_typeof(payload) = 'object'
                then coalesce(payload -> '$artifact' ->> 'artifact_id', payload ->> 'artifact_id') end
$$;

-- The same two walls as everywhere.
alter table store.artifact enable row level security;
alter table store.artifact force row level security;

create policy app_keeps_its_owner on store.artifact to runreel_app
    using (owner_id = store.current_owner()) with check (owner_id = store.current_owner());
create policy retention_removes on store.artifact to runreel_retention using (owner_id = store.current_owner());
-- Who looks for artifacts without an event, and for content without an artifact, does so for all owners at once.
create policy writer_sweeps on store.artifact to runreel_writer using (true);
create policy owner_reads on store.artifact for select to current_user using (true);

grant select, insert, delete on store.artifact to runreel_app;
grant update (touched_at) on store.artifact to runreel_app;
grant select, delete on store.artifact to runreel_retention;
grant select, delete on store.artifact to runreel_writer;
grant update (settled) on store.artifact to runreel_writer;
grant select, insert, update, delete on store.content to runreel_writer;
grant select on store.artifact_home to runreel_writer;

-- One row per artifact that the log tells of, spilled payloads included.
create or replace view runreel.artifacts as
select a.run_id, e.seq, a.owner_id, a.artifact_id::text as artifact_id, a.name, a.media_type, a.size,
       encode(a.sha256, 'hex') as sha256, e.at as created_at
from store.artifact a
join store.run_event e on e.run_id = a.run_id and e.event_id = a.event_id
where store.artifact_named_by(e.payload) = a.artifact_id::text;
