-- Which statuses end a run, said once for all statements. A plain expression, so that the planner puts it in place of the
-- call: an index on the runs that have not ended serves a condition that is written with it.
create function store.has_ended(status text) returns boolean
    language sql immutable parallel safe
    return status in ('completed', 'failed', 'cancelled');
