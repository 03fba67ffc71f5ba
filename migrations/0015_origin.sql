-- A log that was set back is not always behind what readers have seen: another server may have written on before anybody
-- looked. What tells it for certain is where it is written: a restored copy is another database, mostly of another
-- cluster, and a promoted replica goes on on another timeline. So every look compares that with what is noted.

-- Where this database is written. A replica is not, and says so as it would to a writer: a connection to one that is
-- promoted later has then not looked yet.
create function store.log_origin() returns text language plpgsql set search_path = pg_catalog as $$
begin
    if pg_is_in_recovery() then
        raise exception 'the database is a replica' using errcode = 'read_only_sql_transaction';
    end if;
    return (select system_identifier from pg_control_system()) || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
        || '/' || (select oid from pg_database where datname = current_database());
end
$$;

-- Whether that is another place than the log's current history was begun in.
create function store.is_elsewhere() returns boolean language plpgsql set search_path = pg_catalog as $$
begin
    return exists (select from store.origin where origin <> store.log_origin());
end
$$;

-- The database's own number is noted with the cluster and the timeline from now on.
update store.origin set origin = origin || '/' || (select oid from pg_database where datname = current_database());

-- A history that the database has forgotten, and was told of again by a server, goes before all that are there: its
-- number is 0 or less.
alter table store.history drop constraint history_ordinal_check;

-- Whoever removes the last events of an owner from a piece of the log removes the note that there are some.
create policy retention_removes on store.owner_piece to runreel_retention using (owner_id = store.current_owner());
grant select, delete on store.owner_piece to runreel_retention;
