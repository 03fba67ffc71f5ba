-- The log proves that nobody edited it: each event has a link, a SHA-256 over the link before it and all that the event says
-- (docs/security.md has the bytes). An event that is changed, removed, added or moved does not fit its neighbours, and the
-- head of its run states the whole. Links come from the writer, in the statement that inserts the events.

-- Null for events that were there before. A run that began before has links from its next event on.
alter table store.run_event add column link bytea;

-- The link of the run's last event, and the one that was its last before the newest batch: from that the statement makes the
-- links again when another writer came first.
alter table store.run add column link bytea, add column link_before bytea;
grant update (link, link_before) on store.run to runreel_writer;

-- Up to here a lane's events have no links. One after it without a link was not written by this program.
alter table store.lane add column unlinked_to bigint not null default 0;
update store.lane set unlinked_to = position;

-- The links of the events with these contents, 32 bytes each, that come after a seq with this link. As `link` in
-- `domain/chain.rs`.
create function store.links(link bytea, run uuid, seq bigint, contents bytea) returns bytea
    language plpgsql immutable parallel safe as $$
declare
    links bytea := '';
begin
    link := coalesce(link, decode(repeat('00', 32), 'hex'));
    for n in 0 .. octet_length(contents) / 32 - 1 loop
        seq := seq + 1;
        link := sha256('\x02'::bytea || link || uuid_send(run) || int8send(seq) || substr(contents, 32 * n + 1, 32));
        links := links || link;
    end loop;
    return links;
end
$$;
