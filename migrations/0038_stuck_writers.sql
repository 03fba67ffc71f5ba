-- A writer that is cut off between its statement and the end of the transaction keeps the row of its lane: the network takes
-- what it sent last, answers for it, and no timeout of Postgres applies while a message is awaited. Whoever waits for the row
-- ends such a session. A statement is one round trip, so none that goes on awaits the next message for so long.
create function store.end_stuck_writers() returns bigint
    language sql security definer set search_path = pg_catalog as $$
    select count(*) filter (where pg_terminate_backend(a.pid))
    from pg_stat_activity a
    where a.datname = current_database() and a.pid <> pg_backend_pid() and a.wait_event = 'ClientRead'
      and a.state <> 'idle' and a.state_change < clock_timestamp() - interval '5 seconds'
      and exists (select from pg_locks l where l.pid = a.pid and l.locktype = 'relation' and l.database = a.datid
                                           and l.relation = 'store.lane'::regclass and l.mode = 'RowExclusiveLock')
$$;
revoke execute on function store.end_stuck_writers() from public;
grant execute on function store.end_stuck_writers() to runreel_writer;
